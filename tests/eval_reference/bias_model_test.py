#!/usr/bin/env python3
"""A model whose keys have a large bias: formats with a block mean cope, those without are ruined, and the start-up says so.

    bias_model_test.py TURBOQUANT MODEL.gguf TEXT
"""
import json
import pathlib
import subprocess
import sys
import tempfile

FORMATS = ["int8", "int4", "int4_sym"]


def main():
    program, model, text = sys.argv[1:]
    kl = {}
    with tempfile.TemporaryDirectory() as folder:
        for norm in ("0", "800"):
            copy = f"{folder}/{norm}.gguf"
            subprocess.run([sys.executable, str(pathlib.Path(__file__).with_name("bias_model.py")), model, copy, "--norm", norm], check=True)
            output = subprocess.run([program, "eval", "-m", copy, "--text", text, "--windows", "1", "--ctx", "1024", "--first-scored", "512",
                                     "--kv-cache-dtype", ",".join(FORMATS), "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
            kl[norm] = [result["kl_divergence"]["mean"] for result in json.loads(output)["results"]]
            for dtype in ("int4", "int4_sym"):
                log = subprocess.run([program, "run", "-m", copy, "-p", "x", "-n", "1", "--kv-cache-dtype", dtype], check=True,
                                     capture_output=True, text=True).stderr
                warned = "warning layers 0, 27: the bias of K" in log
                assert warned == (norm == "800" and dtype == "int4_sym"), f"norm {norm}, {dtype}: {log}"
    ratios = {dtype: biased / plain for dtype, plain, biased in zip(FORMATS, kl["0"], kl["800"])}
    print(json.dumps({"kl": kl, "ratios": ratios}, indent=1))
    assert ratios["int8"] < 3 and ratios["int4"] < 3 and ratios["int4_sym"] > 10, ratios


if __name__ == "__main__":
    main()
