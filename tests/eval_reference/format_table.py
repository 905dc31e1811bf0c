#!/usr/bin/env python3
"""Measures what every cache format costs on the default model and writes docs/formats/quality.csv and the table of quality.md.

    format_table.py TURBOQUANT MODEL TEXTS_DIR [--threads N] [--windows 8] [--ctx 2048] [--groups 0,5]

Runs `turboquant eval` once per group of formats, or per group named; each result lands in the files when its group is
done, in place of an older one of the same format. Rows are sorted by bits, then by KL.
"""
import argparse
import csv
import json
import pathlib
import subprocess

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "formats"
GROUPS = [
    ["f16", "bf16", "int8", "int6", "int6/int4", "int5"],
    ["int4", "int3", "int2", "int4_sym", "int4_sym+none"],
    ["int8@per_token_head", "int8@per_token_head+none", "int8@per_group:32", "fp8_e4m3", "fp8_e4m3+none"],
    ["int8@per_head", "int8@per_tensor", "int8@per_channel/per_token_head", "int8@per_channel", "fp8_e4m3@per_head"],
    ["int4_sym@per_group:32", "int4_asym", "int4_asym@per_group:32", "fp8_e4m3@per_token_head", "fp8_e5m2"],
    ["int4~512", "int4~128", "int3~512"],
    ["recipe:q8_0", "recipe:q8_0_at_once", "recipe:q4_0", "recipe:q4_0_at_once", "recipe:q4_0_rotated"],
    ["recipe:turboquant_mse4", "recipe:turboquant_mse3", "recipe:turboquant_mse2", "recipe:kivi4", "recipe:kivi2"],
]
COLUMNS = ["kv_cache_dtype", "bits_per_value", "effective_bits", "kl_mean", "kl_standard_error", "kl_median", "kl_p99", "kl_p999",
           "kl_max", "top1_agreement", "perplexity", "perplexity_reference", "k_end_code_share", "v_end_code_share", "num_tokens"]
NOTE = "\n\nAll columns, with 99 %, largest KL and saturation: [quality.csv](quality.csv).\n"
BEGIN, END = "<!-- table: tests/eval_reference/format_table.py -->\n", "<!-- end of table -->\n"


def row_of(result):
    kl = result["kl_divergence"]
    values = [result["kv_cache_dtype"], result["bits_per_value"], result["effective_bits"], kl["mean"], kl["standard_error"],
              kl["median"], kl["p99"], kl["p999"], kl["max"], result["top1_agreement"], result["perplexity"],
              result["perplexity_reference"], result["saturation"]["k_end_code_share"], result["saturation"]["v_end_code_share"],
              result["num_tokens"]]
    return dict(zip(COLUMNS, (f"{v:.6g}" if isinstance(v, float) else v for v in values)))


def merged(new):
    with open(DOCS / "quality.csv", newline="", encoding="utf-8") as file:
        rows = {row["kv_cache_dtype"]: row for row in csv.DictReader(file)}
    rows.update((row["kv_cache_dtype"], row) for row in new)
    return sorted(rows.values(), key=lambda row: (-float(row["bits_per_value"]), float(row["kl_mean"])))


def write(rows):
    with open(DOCS / "quality.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    table = ["| K/V, granularity, transform | bits | effective | KL mean ± se, 1e-3 | median | 99.9 % | top-1 % | PPL |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        number = lambda column: float(row[column])
        table.append(f"| {row['kv_cache_dtype']} | {number('bits_per_value'):.3f} | {number('effective_bits'):.2f} | "
                     f"{1e3 * number('kl_mean'):.3g} ± {1e3 * number('kl_standard_error'):.1g} | {1e3 * number('kl_median'):.3g} | "
                     f"{1e3 * number('kl_p999'):.3g} | {100 * number('top1_agreement'):.2f} | {number('perplexity'):.3f} |")
    page = (DOCS / "quality.md").read_text(encoding="utf-8")
    head, tail = page.split(BEGIN)[0], page.split(END)[1]
    (DOCS / "quality.md").write_text(head + BEGIN + "\n".join(table) + NOTE + END + tail, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turboquant")
    parser.add_argument("model")
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--ctx", type=int, default=2048)
    parser.add_argument("--groups", type=lambda text: [int(i) for i in text.split(",")], default=range(len(GROUPS)))
    args = parser.parse_args()
    for index in args.groups:
        command = [args.turboquant, "eval", "-m", args.model, "--text", f"{args.texts}/novel.txt,{args.texts}/handbook.txt",
                   "--calibration-text", f"{args.texts}/calibration.txt", "--windows", str(args.windows), "--ctx", str(args.ctx),
                   "--kv-cache-dtype", ",".join(GROUPS[index]), "--json"]
        command += ["--threads", str(args.threads)] if args.threads else []
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        write(merged([row_of(result) for result in json.loads(output)["results"]]))


if __name__ == "__main__":
    main()
