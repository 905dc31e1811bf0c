#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets, small enough to be committed: tests/fuzz/corpus/<target>/.

    make_corpus.py            after a change of what the targets read

gguf_fuzz: complete models of a few kilobytes, every architecture and both kinds of vocabulary, and corrupt ones made as
tests/hostile does. block_decode_fuzz: one input per format. flags_fuzz: what users write. scale_file_fuzz: a file of every layout.
task_file_fuzz: both kinds of task. openai_request_fuzz: a body of every call. kv_plan_fuzz has a plan of the planner's tests (a link), hf_config_fuzz its own files.
"""
import json
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "hostile"))
from gguf_bytes import ARRAY, BOOL, F32, I32, STRING, U16, U32, U64, Gguf, Tensor, number  # noqa: E402

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
HIDDEN, HEADS, HEAD_DIM, INTERMEDIATE = 32, 2, 16, 32
F32_TYPE, Q8_0 = 0, 8


def empty_gguf():
    return Gguf(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))


def bpe_tokens():
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "\u0120", "\u010a"] + list("Tehcafsn129")
    return tokens + ["Th", "The"], ["T h", "Th e"]


def spm_tokens():
    return ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + ["\u2581", "T", "h", "Th", "\u2581Th"]


def matrix(rows, columns, kind, rng):
    if kind == F32_TYPE:
        return struct.pack(f"<{rows * columns}f", *(rng.uniform(-0.5, 0.5) for _ in range(rows * columns)))
    block = lambda: struct.pack("<e32b", 0.004, *(rng.randrange(-127, 128) for _ in range(32)))
    return b"".join(block() for _ in range(rows * columns // 32))


def small_model(arch, spm=False, kind=Q8_0, tied=True):
    """A model that passes all checks and runs."""
    rng = random.Random(f"{arch}{spm}{kind}{tied}")
    g = empty_gguf()
    g.set("general.architecture", STRING, arch)
    g.set("general.name", STRING, "seed")
    for key, value in (("block_count", 1), ("context_length", 64), ("embedding_length", HIDDEN),
                       ("feed_forward_length", INTERMEDIATE), ("attention.head_count", HEADS),
                       ("attention.head_count_kv", 1), ("attention.key_length", HEAD_DIM),
                       ("attention.value_length", HEAD_DIM), ("rope.dimension_count", HEAD_DIM)):
        g.set(f"{arch}.{key}", U32, value)
    g.set(f"{arch}.attention.layer_norm_rms_epsilon", F32, 1e-5)
    g.set(f"{arch}.rope.freq_base", F32, 10000.0)
    if spm:
        tokens = spm_tokens()
        g.set("tokenizer.ggml.model", STRING, "llama")
        g.set("tokenizer.ggml.scores", ARRAY, (F32, [-float(i % 8) for i in range(len(tokens))]))
        g.set("tokenizer.ggml.token_type", ARRAY, (I32, [2, 3, 3] + [6] * 256 + [1] * 5))
        g.set("tokenizer.ggml.bos_token_id", U32, 1)
    else:
        tokens, merges = bpe_tokens()
        g.set("tokenizer.ggml.model", STRING, "gpt2")
        g.set("tokenizer.ggml.pre", STRING, "gpt-2" if arch == "llama" else "qwen2")
        g.set("tokenizer.ggml.merges", ARRAY, (STRING, merges))
        g.set("tokenizer.ggml.token_type", ARRAY, (I32, [3, 3, 3] + [1] * (len(tokens) - 3)))
        g.set("tokenizer.ggml.bos_token_id", U32, 0)
        g.set("tokenizer.ggml.add_bos_token", BOOL, 1)
        g.set("tokenizer.chat_template", STRING, "<|im_start|>")
    g.set("tokenizer.ggml.eos_token_id", U32, 2)
    g.set("tokenizer.ggml.tokens", ARRAY, (STRING, tokens))

    def vector(name, size):
        g.tensors.append(Tensor(name.encode(), [size], F32_TYPE, struct.pack(f"<{size}f", *[1.0] * size)))

    def weights(name, rows, columns):
        g.tensors.append(Tensor(name.encode(), [columns, rows], kind, matrix(rows, columns, kind, rng)))

    weights("token_embd.weight", len(tokens), HIDDEN)
    vector("output_norm.weight", HIDDEN)
    if not tied:
        weights("output.weight", len(tokens), HIDDEN)
    q, kv = HEADS * HEAD_DIM, HEAD_DIM
    vector("blk.0.attn_norm.weight", HIDDEN)
    for name, rows, columns in (("attn_q", q, HIDDEN), ("attn_k", kv, HIDDEN), ("attn_v", kv, HIDDEN), ("attn_output", HIDDEN, q),
                                ("ffn_gate", INTERMEDIATE, HIDDEN), ("ffn_up", INTERMEDIATE, HIDDEN), ("ffn_down", HIDDEN, INTERMEDIATE)):
        weights(f"blk.0.{name}.weight", rows, columns)
    if arch == "qwen2":
        vector("blk.0.attn_q.bias", q)
    if arch == "qwen3":
        vector("blk.0.attn_q_norm.weight", HEAD_DIM)
        vector("blk.0.attn_k_norm.weight", HEAD_DIM)
    if arch == "llama" and not spm:
        vector("rope_freqs.weight", HEAD_DIM // 2)
    vector("blk.0.ffn_norm.weight", HIDDEN)
    return g


def gguf_seeds():
    good = {
        "llama": small_model("llama"),
        "llama-spm": small_model("llama", spm=True),
        "qwen2-untied": small_model("qwen2", tied=False),
        "qwen3-f32": small_model("qwen3", kind=F32_TYPE),
    }
    seeds = {name: g.bytes() for name, g in good.items()}
    scaled = small_model("llama")
    scaled.set("llama.rope.scaling.type", STRING, "linear")
    scaled.set("llama.rope.scaling.factor", F32, 4.0)
    scaled.set("general.alignment", U32, 64)
    scaled.alignment = 64
    seeds["llama-linear-aligned-64"] = scaled.bytes()
    unaligned = small_model("qwen3")
    unaligned.set("general.alignment", U32, 8)
    unaligned.alignment = 8
    seeds["qwen3-aligned-8"] = unaligned.bytes()
    # Every value type, arrays of each, and no tensors.
    values = empty_gguf()
    for kind in (0, 1, 2, 3, U32, I32, F32, BOOL, U64, 11, 12):
        values.set(f"scalar{kind}", kind, 1)
        values.set(f"array{kind}", ARRAY, (kind, [1, 0, 1]))
    values.set("text", STRING, "caf\u00e9")
    values.set("texts", ARRAY, (STRING, ["", "a", "\u4e2d"]))
    seeds["values"] = values.bytes()
    header, keys, _, _ = good["llama"].sections()
    seeds["cut-keys"] = header + keys[:400]
    nested = empty_gguf()
    nested.keys.append(["x", ARRAY, (number("I", ARRAY) + number("Q", 1)) * 4])
    seeds["nested"] = nested.bytes()
    split = empty_gguf()
    split.set("split.count", U16, 2)
    split.set("general.architecture", STRING, "llama")
    seeds["split"] = split.bytes()
    return seeds


def block_seeds():
    rng = random.Random(1)
    seeds = {}
    for dtype in range(8):
        granularity = 0 if dtype < 3 else (5 if dtype == 7 else rng.choice([1, 2, 3, 4, 5]))
        side = [dtype, granularity] + ([0] if granularity == 5 else [])
        seeds[f"dtype{dtype}"] = bytes(side + side + [1, 3, 1, 1] + [rng.randrange(256) for _ in range(200)])
    floats = struct.pack("<8f", 0.0, -0.0, float("nan"), float("inf"), 1e-42, 65504.0, -3e38, 1.0)
    seeds["floats"] = bytes([3, 4, 6, 4, 1, 3, 1, 0]) + floats
    return seeds


def flag_seeds():
    lines = [
        "S16k", "S1.5GiB", "S9223372036854775807", "S0x10",
        "F\x03int8\n", "F\x03int8/int4\nper_token_head/per_group:32\n", "F\x07fp8\nper_tensor\n", "F\x04q8_0/q4_0\n",
        "F\x04int4_asym\nper_group:64\n",
        "run\n-m\nx.gguf\n-p\nhello\n--kv-cache-dtype\nint8/int4\n--max-model-len=4096\n-n\n5",
        "bench\n--threads\n2\n--block-size\n32", "eval\n--help", "inspect\nx", "completion\nbash", "--config=x\nrun", "chat\n--temperature\n1e9",
        'Ckv-cache-dtype = "int8"\n[run]\nthreads = 2\ntemperature = 0.5\n', "C[eval]\nx = {}\n", "Cthreads = [1,\n",
    ]
    seeds = {f"text{i:02d}": line.encode("latin1") for i, line in enumerate(lines)}
    plan = bytes([8, 1, 1, 3]) + b"\0\0\x10\0\0" + bytes([1, 2, 1, 1, 1, 1, 1, 180]) + b"\x7f\xff\xff\xff\0\4" + b"\0\0\0\0\0\0"
    seeds["plan-layers"] = b"P" + plan + b"0-3:f16,5:int8/int4\n\nint8\n"
    seeds["plan"] = b"P" + plan + b"\n\n\n"
    return seeds


def scale_seeds():
    def tensors(*names):
        return {f"model.layers.{i}.self_attn.{name}": 0.023 * (i + 1) for i in range(2) for name in names}

    ranks = {rank: {"0": 0.023, "1": 1.5e-3} for rank in "01"}
    side = {"ranges": [1.5, 2], "rotated_ranges": [1, 1.25], "channel_ranges": [2] * 32}
    table = {"format": "turboquant-calibration", "version": 2,
             "model": {"architecture": "llama", "num_layers": 1, "num_kv_heads": 2, "head_dim": 16, "tensor_hash": "t",
                       "tokenizer_hash": "k"},
             "recipe": {"clip_rule": "max", "num_tokens": 1, "texts": ["a"]}, "digest": "",
             "layers": [{"k": side, "v": side, "k_balance": [1] * 32}]}
    imported = {**table, "recipe": {"clip_rule": "imported", "num_tokens": 0, "texts": []},
                "layers": [{"k": {"ranges": [1, 2]}, "v": {"ranges": [3, 4]}}]}
    documents = {
        "kv-cache-scales": {"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": ranks}},
        "self-attn": tensors("k_scale", "v_scale"), "attn": tensors("attn.k_scale", "attn.v_scale"),
        "proj": tensors("k_proj.k_scale", "v_proj.v_scale"), "kv-scale": tensors("kv_scale"), "table": table,
        "imported": imported}
    return {name: json.dumps(document).encode() for name, document in documents.items()}


def task_seeds():
    choice = {"type": "choice", "prompt": "Q: 1 + 1\nA:", "choices": [" 2", " 3"], "answer": 0}
    exact = {"type": "exact", "text": "1 + 1 =", "answer": "2"}
    chat = {"type": "exact", "messages": [{"role": "user", "content": "Say a."}], "answer": "a"}
    lines = {"choice": [choice], "exact": [exact], "chat": [chat], "all": [choice, exact, chat]}
    return {name: "\n".join(map(json.dumps, items)).encode() for name, items in lines.items()}


def openai_seeds():
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 1, "max_tokens": 8, "stop": ["a", "b"],
                "stream": True, "stream_options": {"include_usage": True}, "n": 1, "logit_bias": {}}
    parts = [{"type": "text", "text": "b"}]
    calls = {
        "chat": {"model": "m", "messages": [{"role": "system", "content": "a"}, {"role": "user", "content": parts}], **sampling},
        "completion": {"prompt": "Once", **sampling}, "tokens": {"prompt": [[1, 2, 3]], "max_tokens": 2},
        "tokenize": {"content": "a", "add_special_tokens": False}, "detokenize": {"tokens": [1, 2]}}
    return {name: json.dumps(call).encode() for name, call in calls.items()}


def main():
    total = 0
    for target, seeds in (("gguf_fuzz", gguf_seeds()), ("block_decode_fuzz", block_seeds()), ("flags_fuzz", flag_seeds()),
                          ("scale_file_fuzz", scale_seeds()), ("task_file_fuzz", task_seeds()),
                          ("openai_request_fuzz", openai_seeds())):
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (folder / f"seed-{name}").write_bytes(content)
            total += len(content)
    print(f"{total} bytes of seeds in {CORPUS}")


if __name__ == "__main__":
    main()
