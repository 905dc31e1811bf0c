#!/usr/bin/env python3
"""Writes tiny GGUF models with random weights, so that every architecture, head size, head sharing, rotation and
weight type is tested without a download. Same script, same bytes.

    make_tiny.py OUT_DIR          all models, as OUT_DIR/<name>.gguf; does nothing if they are there already
    make_tiny.py --list           names

The weights are scaled so that every layer sees activations of variance near 1, attention is neither flat nor a single
token, and the softmax over the vocabulary keeps some nats of entropy. libllama loads every file.
"""
import argparse
import dataclasses
import hashlib
import pathlib
import sys
import zlib

import gguf
import numpy as np

from tiny_vocab import byte_level_bpe, sentence_piece

CONTEXT = 4096
VOCAB = 512
LOGIT_STD = 2.5


@dataclasses.dataclass(frozen=True)
class Tiny:
    name: str
    arch: str  # llama, qwen2, qwen3
    head_dim: int
    heads: int
    kv_heads: int
    layers: int = 2
    hidden: int = 0  # 0: heads * head_dim
    intermediate: int = 512
    tied: bool = False
    weights: str = "F32"  # of all matrices
    embedding: str = ""  # another type for token_embd
    rope_theta: float = 10000.0
    rope_factors: bool = False  # llama 3's rope_freqs.weight
    rope_linear: float = 0.0
    large_bias: bool = False  # outlier channels in K as Qwen 2.5 has them
    all_biases: bool = False  # llama with every optional bias
    vocab: str = "bpe"

    @property
    def width(self):
        return self.hidden or self.heads * self.head_dim


MODELS = [
    # Head size x heads per KV head x tied output, architecture by architecture.
    Tiny("llama-h64-g1-tied", "llama", 64, 4, 4, tied=True),
    Tiny("llama-h64-g3", "llama", 64, 6, 2, layers=3),
    Tiny("llama-h80-g4", "llama", 80, 4, 1),
    Tiny("llama-h128-g3-tied", "llama", 128, 3, 1, tied=True),
    Tiny("llama-h128-g4-wide-heads", "llama", 128, 4, 1, hidden=256),
    Tiny("qwen2-h64-g4", "qwen2", 64, 4, 1),
    Tiny("qwen2-h80-g3-tied", "qwen2", 80, 3, 1, hidden=240, tied=True),
    Tiny("qwen2-h128-g1-large-bias", "qwen2", 128, 2, 2, rope_theta=1e6, large_bias=True),
    Tiny("qwen3-h128-g4-tied", "qwen3", 128, 4, 1, hidden=256, rope_theta=1e6, tied=True),
    Tiny("qwen3-h64-g3", "qwen3", 64, 6, 2, layers=3),
    Tiny("qwen3-h80-g1", "qwen3", 80, 4, 4),
    # Rotation.
    Tiny("llama-h64-rope-factors", "llama", 64, 4, 2, rope_theta=5e5, rope_factors=True),
    Tiny("llama-h128-rope-factors", "llama", 128, 3, 1, rope_theta=5e5, rope_factors=True, tied=True),
    Tiny("llama-h64-rope-linear", "llama", 64, 4, 1, rope_linear=4.0),
    Tiny("qwen2-h64-rope-linear", "qwen2", 64, 4, 4, rope_linear=2.5),
    # Biases and vocabularies.
    Tiny("llama-h64-biases", "llama", 64, 4, 2, all_biases=True),
    Tiny("llama-h64-spm", "llama", 64, 4, 2, vocab="spm"),
    # The least that is a model; hostile files and the fuzzer's seeds are made from it.
    Tiny("llama-h32-smallest", "llama", 32, 2, 1, layers=1, intermediate=64, tied=True),
    # Weight types.
    Tiny("llama-h64-f16", "llama", 64, 4, 2, weights="F16"),
    Tiny("llama-h64-bf16", "llama", 64, 4, 2, weights="BF16"),
    Tiny("llama-h64-q8_0", "llama", 64, 4, 2, weights="Q8_0"),
    Tiny("llama-h128-q4_0-tied", "llama", 128, 4, 1, weights="Q4_0", embedding="Q8_0", tied=True),
    Tiny("qwen2-h64-q4_0", "qwen2", 64, 4, 1, weights="Q4_0"),
    Tiny("qwen3-h64-q8_0-tied", "qwen3", 64, 6, 2, weights="Q8_0", tied=True),
]


class Weights:
    """Draws the tensors of one model; the seed is the model's name."""

    def __init__(self, model, writer):
        self.model = model
        self.writer = writer
        self.rng = np.random.default_rng(zlib.crc32(model.name.encode()))

    def vector(self, name, values):
        self.writer.add_tensor(name, np.asarray(values, dtype=np.float32))

    def norm(self, name, size):
        self.vector(name, 1 + 0.1 * self.rng.standard_normal(size))

    def matrix(self, name, rows, columns, gain=1.0, row_gain=None, kind=None):
        """rows x columns with outputs of standard deviation `gain` for inputs of variance 1."""
        data = self.rng.standard_normal((rows, columns)) * (gain / np.sqrt(columns))
        if row_gain is not None:
            data *= row_gain[:, None]
        data = data.astype(np.float32)
        kind = gguf.GGMLQuantizationType[kind or self.model.weights]
        if kind == gguf.GGMLQuantizationType.F32:
            self.writer.add_tensor(name, data)
        else:
            self.writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)


def outlier_channels(model, weights):
    """Bias of K with a few large, slowly rotating channels per head, and gains of Q that keep the scores moderate."""
    half = model.head_dim // 2
    bias = 0.3 * weights.rng.standard_normal((model.kv_heads, model.head_dim))
    gain = np.ones((model.heads, model.head_dim))
    for channel in (half - 6, half - 4, half - 1, model.head_dim - 5, model.head_dim - 2):
        bias[:, channel] = weights.rng.choice([-60.0, 45.0, 90.0], model.kv_heads)
        gain[:, channel] = 0.05
    return bias.reshape(-1), gain.reshape(-1)


def write_layer(model, weights, layer):
    d, ff = model.width, model.intermediate
    q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    prefix = f"blk.{layer}."
    k_bias, q_gain = None, None
    if model.large_bias:
        k_bias, q_gain = outlier_channels(model, weights)
    weights.norm(prefix + "attn_norm.weight", d)
    weights.matrix(prefix + "attn_q.weight", q, d, gain=1.5, row_gain=q_gain)
    weights.matrix(prefix + "attn_k.weight", kv, d)
    weights.matrix(prefix + "attn_v.weight", kv, d, gain=1.5)
    if model.arch == "qwen2" or model.all_biases:
        for name, size in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
            bias = 0.3 * weights.rng.standard_normal(size)
            weights.vector(prefix + name + ".bias", k_bias if name == "attn_k" and k_bias is not None else bias)
    if model.arch == "qwen3":
        weights.norm(prefix + "attn_q_norm.weight", model.head_dim)
        weights.norm(prefix + "attn_k_norm.weight", model.head_dim)
    weights.matrix(prefix + "attn_output.weight", d, q)
    weights.norm(prefix + "ffn_norm.weight", d)
    weights.matrix(prefix + "ffn_gate.weight", ff, d)
    weights.matrix(prefix + "ffn_up.weight", ff, d)
    weights.matrix(prefix + "ffn_down.weight", d, ff, gain=2.0)
    if model.all_biases:
        for name, size in (("attn_output", d), ("ffn_gate", ff), ("ffn_up", ff), ("ffn_down", d)):
            weights.vector(prefix + name + ".bias", 0.2 * weights.rng.standard_normal(size))


def llama3_factors(model):
    """Of "rope_type": "llama3": factor 8, low_freq_factor 1, high_freq_factor 4, trained on 512 positions here, so that
    prompts of a few hundred tokens meet all three ranges."""
    factor, low, high, trained = 8.0, 1.0, 4.0, 512
    wavelengths = 2 * np.pi * model.rope_theta ** (np.arange(0, model.head_dim, 2) / model.head_dim)
    smooth = (trained / wavelengths - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    return np.where(wavelengths < trained / high, 1.0, np.where(wavelengths > trained / low, factor, between))


def write_tensors(model, writer):
    weights = Weights(model, writer)
    d = model.width
    # RMSNorm makes the scale of the input rows indifferent; as output rows they set the scale of the logits.
    weights.matrix("token_embd.weight", VOCAB, d, gain=LOGIT_STD, kind=model.embedding or None)
    weights.norm("output_norm.weight", d)
    if not model.tied:
        weights.matrix("output.weight", VOCAB, d, gain=LOGIT_STD)
    if model.rope_factors:
        weights.vector("rope_freqs.weight", llama3_factors(model))
    for layer in range(model.layers):
        write_layer(model, weights, layer)


def write_hyperparameters(model, writer):
    writer.add_name(model.name)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(model.width)
    writer.add_block_count(model.layers)
    writer.add_feed_forward_length(model.intermediate)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_layer_norm_rms_eps(1e-6 if model.arch != "llama" else 1e-5)
    writer.add_rope_freq_base(model.rope_theta)
    writer.add_vocab_size(VOCAB)
    if model.width != model.heads * model.head_dim or model.arch == "qwen3":
        writer.add_key_length(model.head_dim)
        writer.add_value_length(model.head_dim)
    if model.arch == "llama":
        writer.add_rope_dimension_count(model.head_dim)
    if model.rope_linear:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(model.rope_linear)


CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_vocabulary(model, writer):
    if model.vocab == "spm":
        tokens, scores, types = sentence_piece(VOCAB)
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types(types)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        return
    tokens, types, merges = byte_level_bpe(VOCAB)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2" if model.arch == "llama" else "qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)


def write_model(model, path):
    temporary = path.with_suffix(".tmp")
    writer = gguf.GGUFWriter(temporary, model.arch)
    write_hyperparameters(model, writer)
    write_vocabulary(model, writer)
    write_tensors(model, writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    temporary.rename(path)


def fingerprint():
    folder = pathlib.Path(__file__).parent
    content = b"".join((folder / name).read_bytes() for name in ("make_tiny.py", "tiny_vocab.py"))
    return hashlib.sha256(content + np.__version__.encode()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", nargs="?", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print("\n".join(model.name for model in MODELS))
        return 0
    if args.out is None:
        parser.error("OUT_DIR is missing")
    args.out.mkdir(parents=True, exist_ok=True)
    stamp = args.out / ".fingerprint"
    wanted = fingerprint()
    paths = [args.out / f"{model.name}.gguf" for model in MODELS]
    if stamp.exists() and stamp.read_text() == wanted and all(path.exists() for path in paths):
        return 0
    for model, path in zip(MODELS, paths):
        write_model(model, path)
    stamp.write_text(wanted)
    print(f"{len(paths)} models in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
