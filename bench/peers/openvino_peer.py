#!/usr/bin/env python3
"""OpenVINO GenAI's part of peers.py: prints `row <cache type> <test> <depth> <tokens per second>`.

decode: from the mean time per token after a prompt of `depth` tokens. prefill: of a prompt of 512
tokens, depth 0 only; the pipeline has no way to time a chunk further on by itself.
"""
import argparse

import numpy
import openvino
import openvino_genai

CACHE_TYPES = ["f16", "u8", "u4"]
PREFILL_TOKENS = 512


def generate(pipeline, num_prompt_tokens, num_new_tokens):
    ids = (1000 + numpy.arange(num_prompt_tokens, dtype=numpy.int64) % 1000).reshape(1, -1)
    inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids),
                                            openvino.Tensor(numpy.ones_like(ids)))
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = num_new_tokens
    config.min_new_tokens = num_new_tokens
    config.ignore_eos = True
    config.do_sample = False
    return pipeline.generate(inputs, config).perf_metrics


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--depths", required=True)
    parser.add_argument("--decode", type=int, required=True)
    args = parser.parse_args()
    for kind in CACHE_TYPES:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 2  # GB
        pipeline = openvino_genai.LLMPipeline(args.model, "CPU", scheduler_config=scheduler,
                                              INFERENCE_NUM_THREADS=args.threads,
                                              KV_CACHE_PRECISION=kind)
        generate(pipeline, 32, 4)  # warms up
        first = generate(pipeline, PREFILL_TOKENS, 1)
        print(f"row {kind} prefill 0 {PREFILL_TOKENS / first.get_ttft().mean * 1000:.2f}", flush=True)
        for depth in map(int, args.depths.split(",")):
            metrics = generate(pipeline, max(depth, 1), args.decode)
            print(f"row {kind} decode {depth} {1000 / metrics.get_tpot().mean:.2f}", flush=True)


if __name__ == "__main__":
    main()
