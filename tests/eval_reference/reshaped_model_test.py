#!/usr/bin/env python3
"""A model that computes the same from keys and values of other shapes: formats cost much the same, whatever basis and size they meet.

    reshaped_model_test.py TURBOQUANT MODEL.gguf TEXT [--ctx 512]
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

FORMATS = ["int8", "int6", "int4", "int2"]


def measure(program, model, args):
    output = subprocess.run([program, "eval", "-m", model, "--text", args.text, "--windows", "1", "--ctx", str(args.ctx), "--first-scored",
                             str(args.ctx // 4), "--kv-cache-dtype", ",".join(FORMATS), "--json"], check=True, stdout=subprocess.PIPE,
                            text=True).stdout
    results = json.loads(output)["results"]
    return results[0]["perplexity_reference"], [result["kl_divergence"]["mean"] for result in results]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--ctx", type=int, default=512)
    args = parser.parse_args()
    script = pathlib.Path(__file__).with_name("reshaped_model.py")
    with tempfile.TemporaryDirectory() as folder:
        copy = f"{folder}/copy.gguf"
        subprocess.run([sys.executable, str(script), args.model, copy], check=True)
        perplexity, kl = measure(args.program, args.model, args)
        perplexity_of_copy, kl_of_copy = measure(args.program, copy, args)
    ratios = {dtype: other / one for dtype, one, other in zip(FORMATS, kl, kl_of_copy)}
    print(json.dumps({"perplexity": [perplexity, perplexity_of_copy], "kl": kl, "kl_of_copy": kl_of_copy, "ratios": ratios}, indent=1))
    assert abs(perplexity_of_copy / perplexity - 1) < 1e-3, "the copy computes something else"
    assert all(0.5 < ratio < 2 for ratio in ratios.values()), ratios


if __name__ == "__main__":
    main()
