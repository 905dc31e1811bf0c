#!/usr/bin/env python3
"""mistral.rs's part of peers.py: prints `row <cache type> <test> <depth> <tokens per second>`.

Speeds are those of its own usage counters; prompts are text, so that a depth is met within a few
tokens. prefill: of a prompt of about 512 tokens, depth 0 only. The cache is f16, its only type on
CPUs.
"""
import argparse
import os
import pathlib
import sys

PREFILL_TOKENS = 512


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--depths", required=True)
    parser.add_argument("--decode", type=int, required=True)
    args = parser.parse_args()
    if os.environ.get("RAYON_NUM_THREADS") != str(args.threads):  # read when the library loads
        os.environ["RAYON_NUM_THREADS"] = str(args.threads)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    import mistralrs

    runner = mistralrs.Runner(which=mistralrs.Which.GGUF(
        quantized_model_id=str(args.model.parent), quantized_filename=args.model.name))

    def usage(num_prompt_tokens, num_new_tokens):
        request = mistralrs.CompletionRequest(model="default", prompt=" the" * num_prompt_tokens,
                                              max_tokens=num_new_tokens, temperature=0.0)
        return runner.send_completion_request(request).usage

    usage(32, 4)  # warms up
    print(f"row f16 prefill 0 {usage(PREFILL_TOKENS, 1).avg_prompt_tok_per_sec:.2f}", flush=True)
    for depth in map(int, args.depths.split(",")):
        speed = usage(max(depth, 1), args.decode).avg_compl_tok_per_sec
        print(f"row f16 decode {depth} {speed:.2f}", flush=True)


if __name__ == "__main__":
    main()
