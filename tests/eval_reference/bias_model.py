#!/usr/bin/env python3
"""Copies a llama GGUF as a qwen2 one whose keys have a large bias in two layers, as those of Qwen2.5 have.

    bias_model.py MODEL.gguf OUT.gguf [--norm 800] [--layers 0,27]

Weights stay bit for bit what they are: the rows of Q and K are only brought into qwen2's order of rotary pairs (i and i + d/2 instead of
2i and 2i + 1). The bias lies in the four slowest pairs of every head, where it turns least with position; biases of Q and V are zero.
With --norm 0 the model computes what the original computes.
"""
import argparse

import gguf
import numpy as np


def rows_by_halves(data, heads):
    """Rows [heads][d/2 pairs][2] -> [heads][2][d/2]."""
    rows = data.reshape(heads, -1, 2, data.shape[-1])
    return np.ascontiguousarray(rows.transpose(0, 2, 1, 3).reshape(data.shape))


def bias_of(heads, head_dim, norm, seed):
    half = head_dim // 2
    bias = np.zeros((heads, head_dim), np.float32)
    slow = list(range(half - 4, half))
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (heads, 8))
    bias[:, slow + [half + i for i in slow]] = signs * norm / np.sqrt(8)
    return bias.reshape(-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--norm", type=float, default=800)
    parser.add_argument("--layers", default="0,27")
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.model)
    value = lambda name: reader.fields[name].contents()
    assert value("general.architecture") == "llama"
    heads, kv_heads = value("llama.attention.head_count"), value("llama.attention.head_count_kv")
    width = value("llama.embedding_length")
    head_dim = width // heads
    biased = {int(layer) for layer in args.layers.split(",")}
    writer = gguf.GGUFWriter(args.out, "qwen2")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "llama.rope.dimension_count", "llama.vocab_size"):
            continue
        kind, *element = field.types
        writer.add_key_value(name.replace("llama.", "qwen2."), field.contents(), kind, sub_type=element[-1] if element else None)
    for tensor in reader.tensors:
        data = tensor.data
        layer, part = (tensor.name.split(".") + ["", ""])[1:3]
        if part in ("attn_q", "attn_k"):
            data = rows_by_halves(data, heads if part == "attn_q" else kv_heads)
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
        if part == "attn_k":
            norm = args.norm if int(layer) in biased else 0
            writer.add_tensor(f"blk.{layer}.attn_q.bias", np.zeros(heads * head_dim, np.float32))
            writer.add_tensor(f"blk.{layer}.attn_k.bias", bias_of(kv_heads, head_dim, norm, int(layer)))
            writer.add_tensor(f"blk.{layer}.attn_v.bias", np.zeros(kv_heads * head_dim, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
