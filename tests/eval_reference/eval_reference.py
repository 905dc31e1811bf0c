#!/usr/bin/env python3
"""Independent evaluation of quantized caches in numpy: what `turboquant eval` must agree with.

The rule (docs/design/attention.md, docs/formats/): values rotated, then f16; blocks of 64 tokens, K less its block's
mean, as codes under scales per token and head; a query reads closed blocks before its own as codes, and its own block and the first 4
tokens of the sequence as f16; queries as integer codes, probabilities as 8-bit codes per block. The reference is the same model with f32
K and V. Weights are dequantized to f32.
Shares no code with the engine: its own GGUF reader (the PyPI package gguf), tokenizer (bpe.py), forward pass and quantizer.
Llama architecture with tied embeddings only.

    eval_reference.py MODEL.gguf TEXT [TEXT ...] [--ctx 2048] [--first-scored 512]
    eval_reference.py MODEL.gguf TEXT ... --compare turboquant --tolerance 0.15    also runs `turboquant eval`; exit 1 if
                                                                                  the two mean divergences differ by more

One window per text, its first `ctx` tokens. Prints one JSON document.
"""
import argparse
import json
import os
import subprocess
import sys

import gguf
import numpy as np

from bpe import Bpe

BLOCK, SINKS = 64, 4
F32 = np.float32


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        field = lambda name: reader.fields[name].contents()
        assert field("general.architecture") == "llama" and field("tokenizer.ggml.pre") == "smollm"
        assert not field("tokenizer.ggml.add_bos_token")
        self.layers = field("llama.block_count")
        self.heads = field("llama.attention.head_count")
        self.kv_heads = field("llama.attention.head_count_kv")
        self.rope_base = field("llama.rope.freq_base")
        self.eps = F32(field("llama.attention.layer_norm_rms_epsilon"))
        self.tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(F32) for t in reader.tensors}
        assert "output.weight" not in self.tensors
        self.head_dim = self.tensors["blk.0.attn_q.weight"].shape[0] // self.heads
        self.bpe = Bpe(field("tokenizer.ggml.tokens"), field("tokenizer.ggml.merges"))

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.tensors[name]

    def rope(self, x):
        """x [heads][tokens][head_dim]; neighbouring channels form the pairs."""
        frequencies = self.rope_base ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        angle = np.arange(x.shape[1])[:, None] * frequencies
        cos, sin = np.cos(angle).astype(F32), np.sin(angle).astype(F32)
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)

    def hidden(self, tokens, attend):
        """Normed last hidden states; attend(q, k, v) -> [kv_heads][group][tokens][head_dim]."""
        count = len(tokens)
        split = lambda x: x.reshape(count, -1, self.head_dim).transpose(1, 0, 2)
        x = self.tensors["token_embd.weight"][tokens]
        for layer in range(self.layers):
            w = lambda name: self.tensors[f"blk.{layer}.{name}.weight"].T
            h = self.norm(x, f"blk.{layer}.attn_norm.weight")
            q, k, v = (split(h @ w(name)) for name in ("attn_q", "attn_k", "attn_v"))
            q = self.rope(q).reshape(self.kv_heads, -1, count, self.head_dim)
            out = np.stack([attend(q[g], k_head, v[g]) for g, k_head in enumerate(self.rope(k))])
            x = x + out.reshape(self.heads, count, -1).transpose(1, 0, 2).reshape(count, -1) @ w("attn_output")
            h = self.norm(x, f"blk.{layer}.ffn_norm.weight")
            gate = h @ w("ffn_gate")
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w("ffn_up"))) @ w("ffn_down")
        return self.norm(x, "output_norm.weight")

    def logits(self, hidden):
        return hidden @ self.tensors["token_embd.weight"].T


def causal_scores(scores, start):
    """-inf where a key lies after its query; scores [group][queries][keys], both counted from `start`."""
    queries, keys = scores.shape[1:]
    return np.where(np.arange(keys) <= np.arange(queries)[:, None], scores, F32(-np.inf))


def attend_f32(q, k, v):
    """q [group][tokens][d], k and v [tokens][d]."""
    out = np.empty_like(q)
    scale = F32(1 / np.sqrt(q.shape[-1]))
    for start in range(0, len(k), BLOCK):
        end = min(start + BLOCK, len(k))
        scores = q[:, start:end] @ k[:end].T * scale
        scores[..., start:] = causal_scores(scores[..., start:], start)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, start:end] = p @ v[:end] / p.sum(-1, keepdims=True)
    return out


def inverse_of(scale):
    return np.where(scale > 0, 1 / np.maximum(scale, F32(1e-30)), 0).astype(F32)


def int8_codes(x, scale):
    return np.clip(np.rint(x * inverse_of(scale)[..., None]), -127, 127)


def expand(code, bias):
    return np.clip(64 * code + bias, 0, 0x7BFF).astype(np.uint16).view(np.float16).astype(F32)


def byte_codes(ideal, round_up):
    """Nearest codes and bias of the scales of blocks [blocks][tokens] (docs/formats/narrow.md)."""
    bits = ideal.astype(np.float16).view(np.uint16).astype(int)
    bias = 64 * ((bits.max(-1, keepdims=True) + 32) // 64 - 247)
    return np.clip((np.maximum(bits - bias, 0) + (63 if round_up else 32)) // 64, 0, 255), bias


def byte_int8(x):
    scale = expand(*byte_codes((np.abs(x).max(-1) / F32(127)).astype(F32), True))
    return int8_codes(x, scale), scale


INT4 = np.array([2, 5, 8, 11, 15, 19, 24, 31], F32)


def int4_levels(x, scale):
    p = x * inverse_of(scale)[..., None]
    return np.sign(np.where(p < 0, -1, 1)) * INT4[np.searchsorted((INT4[1:] + INT4[:-1]) / 2, np.abs(p))]


def byte_int4(x):
    code, bias = byte_codes((np.sqrt((x * x).mean(-1)) / F32(12)).astype(F32), False)
    best, least = code, np.full(code.shape, np.inf)
    for step in range(-7, 8):
        scale = expand(np.clip(code + step, 0, 255), bias)
        error = ((x - scale[..., None] * int4_levels(x, scale)) ** 2).sum(-1)
        best, least = np.where(error < least, code + step, best), np.minimum(error, least)
    scale = expand(np.clip(best, 0, 255), bias)
    return int4_levels(x, scale), scale


def block_means(x, largest):
    """Stored means of blocks [blocks][tokens][d], one row per block."""
    mean = x.mean(1, keepdims=True, dtype=F32)
    scale = (np.abs(mean).max(-1, keepdims=True) / F32(largest)).astype(np.float16).astype(F32)
    return scale * np.clip(np.rint(mean * inverse_of(scale)), -largest, largest)


class Cache:
    """What the closed blocks of one KV head hold."""

    def __init__(self, k, v, quantize, mean_codes):
        closed = len(k) // BLOCK * BLOCK
        blocks = lambda x: x[:closed].reshape(-1, BLOCK, x.shape[-1])
        flat = lambda x: x.reshape(closed, -1)
        means = block_means(blocks(k), mean_codes)
        k_codes, k_scale = quantize(blocks(k) - means)
        v_codes, v_scale = quantize(blocks(v))
        self.means = np.repeat(means[:, 0], BLOCK, axis=0)
        # f64, so that products of integers are exact
        self.k, self.v = flat(k_codes.astype(np.float64)), flat(v_codes.astype(np.float64))
        self.k_scale, self.v_scale = k_scale.reshape(closed), v_scale.reshape(closed)


def attend_coded(q, k, v, quantize, mean_codes, query_codes):
    k, v = (x.astype(np.float16).astype(F32) for x in (k, v))
    cache = Cache(k, v, quantize, mean_codes)
    q = q * F32(1 / np.sqrt(q.shape[-1]))
    step = np.maximum(np.abs(q).max(-1, keepdims=True) / F32(query_codes), F32(1e-30))
    q_codes = np.rint(q / step).astype(np.float64)
    out = np.empty_like(q)
    for start in range(0, len(k), BLOCK):
        end = min(start + BLOCK, len(k))
        own = causal_scores(q[:, start:end] @ k[start:end].T, start)
        sinks = min(SINKS, start)
        sink = q[:, start:end] @ k[:sinks].T
        coded = (q_codes[:, start:end] @ cache.k[:start].T).astype(F32) * cache.k_scale[:start] * step[:, start:end]
        coded = coded + q[:, start:end] @ cache.means[:start].T
        coded[..., :sinks] = -np.inf
        peak = np.concatenate([own, sink, coded], -1).max(-1, keepdims=True)
        own, sink, coded = (np.exp(part - peak) for part in (own, sink, coded))
        total = own.sum(-1) + sink.sum(-1) + coded.sum(-1)
        result = own @ v[start:end] + sink @ v[:sinks]
        if start > 0:
            blocks = (coded * cache.v_scale[:start]).reshape(*coded.shape[:2], -1, BLOCK)
            largest = np.maximum(blocks.max(-1, keepdims=True), F32(1e-30))
            p_codes = np.rint(blocks * (F32(255) / largest)) * (largest / F32(255))
            result = result + (p_codes.reshape(coded.shape) @ cache.v[:start]).astype(F32)
        out[:, start:end] = result / total[..., None]
    return out


def rotation(dim):
    """Signs in front of Sylvester's matrix over sqrt(n), for blocks of n channels: x @ rotation(d) is the rotated x."""
    n = dim & -dim
    signs, state, mask = [], 0, 2**64 - 1
    for _ in range(dim):
        state = (state + 0x9E3779B97F4A7C15) & mask
        x = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        signs.append(-1.0 if (x ^ (x >> 31)) >> 63 else 1.0)
    hadamard = np.array([[(-1) ** bin(i & j).count("1") for j in range(n)] for i in range(n)]) / np.sqrt(n)
    return (np.array(signs)[:, None] * np.kron(np.eye(dim // n), hadamard)).astype(F32)


def rotated(*args):
    def attend(q, k, v):
        turn = rotation(q.shape[-1])
        return attend_coded(q @ turn, k @ turn, v @ turn, *args) @ turn.T
    return attend


# As `turboquant eval --kv-cache-dtype` calls them: quantizer, largest code of K's mean, largest code of a query.
CANDIDATES = {"int8": rotated(byte_int8, 127, 32512), "int4": rotated(byte_int4, 7, 127)}


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def compare(model, tokens, first_scored, reference, candidate):
    """Per scored position: KL, same top token, negative log-likelihood of the next token under both. reference, candidate: hidden
    states."""
    rows = []
    for start in range(first_scored, len(tokens) - 1, 64):
        end = min(start + 64, len(tokens) - 1)
        log_p, log_q = log_softmax(model.logits(reference[start:end])), log_softmax(model.logits(candidate[start:end]))
        following = tokens[start + 1:end + 1, None]
        rows.append(np.stack([(np.exp(log_p) * (log_p - log_q)).sum(-1), log_p.argmax(-1) == log_q.argmax(-1),
                              -np.take_along_axis(log_p, following, -1)[:, 0],
                              -np.take_along_axis(log_q, following, -1)[:, 0]], -1))
    return np.concatenate(rows)


def evaluate(args):
    model = Model(args.model)
    rows = {name: [] for name in CANDIDATES}
    for path in args.texts:
        with open(path, encoding="utf-8") as file:
            text = file.read(16 * args.ctx)
        tokens = np.array(model.bpe.encode(text)[:args.ctx])
        if len(tokens) < args.ctx:
            sys.exit(f"{path}: only {len(tokens)} tokens in the first {16 * args.ctx} characters")
        reference = model.hidden(tokens, attend_f32)
        for name, attend in CANDIDATES.items():
            rows[name].append(compare(model, tokens, args.first_scored, reference, model.hidden(tokens, attend)))
    return {name: summary(np.concatenate(of_candidate)) for name, of_candidate in rows.items()}


def summary(rows):
    kl = rows[:, 0]
    blocks = kl[:len(kl) // 128 * 128].reshape(-1, 128).mean(-1)
    return {"num_tokens": len(kl),
            "kl_divergence": {"mean": kl.mean(), "standard_error": blocks.std(ddof=1) / np.sqrt(len(blocks)),
                              "median": float(np.median(kl)), "p999": float(np.quantile(kl, 0.999)), "max": kl.max()},
            "top1_agreement": rows[:, 1].mean(), "perplexity_reference": np.exp(rows[:, 2].mean()),
            "perplexity": np.exp(rows[:, 3].mean())}


def run_turboquant(args):
    command = [args.compare, "eval", "-m", args.model, "--kv-cache-dtype", ",".join(CANDIDATES), "--block-size", str(BLOCK), "--text",
               ",".join(args.texts), "--windows", str(len(args.texts)), "--ctx", str(args.ctx), "--first-scored",
               str(args.first_scored), "--weights", "f32", "--json"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(zip(CANDIDATES, json.loads(output)["results"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--ctx", type=int, default=2048)
    parser.add_argument("--first-scored", type=int, default=512)
    parser.add_argument("--compare", metavar="TURBOQUANT", help="program whose `eval` must agree")
    parser.add_argument("--tolerance", type=float, default=0.15)
    args = parser.parse_args()
    document = {"reference": evaluate(args)}
    status = 0
    if args.compare:
        document["turboquant"] = run_turboquant(args)
        ours, theirs = document["turboquant"], document["reference"]
        document["kl_ratio"] = {name: ours[name]["kl_divergence"]["mean"] / theirs[name]["kl_divergence"]["mean"] for name in CANDIDATES}
        # The same windows and weights: else the perplexities of the reference would differ by percents.
        same_text = all(np.isclose(ours[name]["perplexity_reference"], theirs[name]["perplexity_reference"], rtol=1e-3)
                        for name in CANDIDATES)
        close = all(abs(ratio - 1) <= args.tolerance for ratio in document["kl_ratio"].values())
        document["agree"] = bool(same_text and close)
        status = 0 if document["agree"] else 1
    print(json.dumps(document, indent=2, default=float))
    return status


if __name__ == "__main__":
    sys.exit(main())
