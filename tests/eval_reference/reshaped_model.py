#!/usr/bin/env python3
"""Copies a llama GGUF as one that computes the same from keys and values of other shapes.

    reshaped_model.py MODEL.gguf OUT.gguf [--magnitude 8] [--outlier 1] [--seed 1]

Every KV head is changed by a linear map, and its inverse goes where the head is read:

    V   an orthogonal matrix of its own mixes the channels        inverse in the output projection
    K   every rotary pair is turned by an angle of its own        the queries are turned alike
    K   one rotary pair of every head is --outlier times as large     the queries' pair as much smaller
    K, V   a head is up to --magnitude times as large or as small     queries, output projection

The rotary embedding turns pairs, so that what a pair is turned and multiplied by passes through it. The four attention matrices become
F32, all others stay bit for bit what they are.
"""
import argparse

import gguf
import numpy as np
from gguf.quants import dequantize


def pair_maps(rng, head_dim, outlier):
    """[head_dim, head_dim] twice: what a head's keys are multiplied with, and its queries. Pairs are rows 2i and 2i + 1."""
    keys, queries = np.zeros((head_dim, head_dim)), np.zeros((head_dim, head_dim))
    large = rng.integers(head_dim // 2)
    for pair, angle in enumerate(rng.uniform(0, 2 * np.pi, head_dim // 2)):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        factor = outlier if pair == large else 1.0
        at = slice(2 * pair, 2 * pair + 2)
        keys[at, at], queries[at, at] = turn * factor, turn / factor
    return keys, queries


def reshape_layer(weights, rng, heads, kv_heads, args):
    """weights: the float64 matrices q, k, v [out, in] and output [in of the layer, heads x head_dim], changed in place."""
    head_dim = weights["attn_k"].shape[0] // kv_heads
    group = heads // kv_heads
    rows = lambda head: slice(head * head_dim, (head + 1) * head_dim)
    for kv_head in range(kv_heads):
        mixing, _ = np.linalg.qr(rng.standard_normal((head_dim, head_dim)))
        keys, queries = pair_maps(rng, head_dim, args.outlier)
        k_size, v_size = args.magnitude ** rng.uniform(-1, 1, 2)
        weights["attn_k"][rows(kv_head)] = k_size * keys @ weights["attn_k"][rows(kv_head)]
        weights["attn_v"][rows(kv_head)] = v_size * mixing @ weights["attn_v"][rows(kv_head)]
        for head in range(kv_head * group, (kv_head + 1) * group):
            weights["attn_q"][rows(head)] = queries @ weights["attn_q"][rows(head)] / k_size
            weights["attn_output"][:, rows(head)] = weights["attn_output"][:, rows(head)] @ mixing.T / v_size


def reshaped(reader, args):
    """The tensors that change, by name."""
    value = lambda name: reader.fields[name].contents()
    assert value("general.architecture") == "llama"
    heads, kv_heads = value("llama.attention.head_count"), value("llama.attention.head_count_kv")
    by_name = {tensor.name: tensor for tensor in reader.tensors}
    rng = np.random.default_rng(args.seed)
    changed = {}
    for layer in range(value("llama.block_count")):
        weights = {}
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor = by_name[f"blk.{layer}.{part}.weight"]
            weights[part] = dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        reshape_layer(weights, rng, heads, kv_heads, args)
        changed.update((f"blk.{layer}.{part}.weight", data.astype(np.float32)) for part, data in weights.items())
    return changed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--magnitude", type=float, default=8)
    parser.add_argument("--outlier", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.model)
    changed = reshaped(reader, args)
    writer = gguf.GGUFWriter(args.out, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind, *element = field.types
        writer.add_key_value(name, field.contents(), kind, sub_type=element[-1] if element else None)
    for tensor in reader.tensors:
        if tensor.name in changed:
            writer.add_tensor(tensor.name, changed[tensor.name])
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
