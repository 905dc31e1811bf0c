#!/usr/bin/env python3
"""Writes corrupt GGUF files, each with one thing wrong, and the list of what the error message must name.

    make_hostile.py GOOD.gguf OUT_DIR

OUT_DIR/expected.tsv: file name, tab, a part of the message.
OUT_DIR/deep-words.gguf: a good file whose pre-tokenizer recurses once per character of a word.
"""
import pathlib
import shutil
import sys

from gguf_bytes import ARRAY, BOOL, F32, I32, STRING, U16, U32, U64, Gguf, Tensor, number

NAN, INF = float("nan"), float("inf")
CASES = []


def edit(case, message, function):
    """function changes a good Gguf in place or returns the bytes of a bad file."""
    CASES.append((case, message, function))


def set_key(case, message, key, kind, value):
    edit(case, message, lambda g: g.set(key, kind, value))


def set_field(case, message, tensor, **fields):
    def change(g):
        found = g.tensor(tensor)
        for field, value in fields.items():
            setattr(found, field, value)

    edit(case, message, change)


def truncations():
    edit("empty", "the file is empty", lambda g: b"")
    edit("magic-only", "the file ends at byte 4", lambda g: g.bytes()[:4])
    edit("cut-in-header", "the file ends at byte 13", lambda g: g.bytes()[:13])

    def cut(section, part):
        def change(g):
            sections = g.sections()
            return b"".join(sections[:section]) + sections[section][: int(len(sections[section]) * part)]

        return change

    edit("cut-before-keys", "metadata keys cannot fit into 0 bytes", cut(1, 0))
    edit("cut-in-first-keys", "metadata keys cannot fit", cut(1, 0.02))
    edit("cut-in-vocabulary", "the file", cut(1, 0.4))
    edit("cut-before-tensor-list", "cannot fit into the 0 bytes", cut(2, 0))
    edit("cut-in-tensor-list", "the file", cut(2, 0.9))
    edit("cut-before-data", "larger than the file", cut(3, 0))
    edit("cut-in-data", "larger than the file", cut(3, 0.5))
    edit("cut-in-last-tensors", "ends at byte", cut(3, 0.8))
    edit("cut-last-value", "ends at byte", lambda g: g.bytes()[:-4])


def headers():
    edit("not-a-gguf", "not a GGUF file", lambda g: b"PK\x03\x04" + g.bytes()[4:])
    edit("text-file", "not a GGUF file", lambda g: b"Hello, this is not a model.\n")

    def field(name, message, attribute, value):
        edit(name, message, lambda g: setattr(g, attribute, value))

    field("version-1", "GGUF version 1; supported: 2, 3", "version", 1)
    field("version-99", "GGUF version 99", "version", 99)
    field("big-endian", "big-endian", "version", 0x03000000)
    field("keys-huge", "metadata keys cannot fit", "num_keys", 2**63)
    field("tensors-huge", "tensors cannot fit", "num_tensors", 2**64 - 1)
    edit("keys-one-more", "claims", lambda g: setattr(g, "num_keys", len(g.keys) + 1))
    edit("keys-one-less", "tensor", lambda g: setattr(g, "num_keys", len(g.keys) - 1))
    edit("tensors-one-more", "tensor", lambda g: setattr(g, "num_tensors", len(g.tensors) + 1))
    edit("tensors-one-less", "is missing", lambda g: setattr(g, "num_tensors", len(g.tensors) - 1))


def metadata():
    edit("key-twice", "'general.architecture' is there twice", lambda g: g.keys.append(list(g.find("general.architecture"))))
    edit("key-empty", "is empty", lambda g: g.keys.insert(0, ["", U32, 1]))
    edit("key-bad-utf8", "not printable UTF-8: '\\xff\\xc0'", lambda g: g.keys.insert(0, [b"\xff\xc0", U32, 1]))
    edit("key-with-newline", "a\\x0ab", lambda g: g.keys.insert(0, ["a\nb", U32, 1]))
    edit("key-length-huge", "claims", lambda g: b"".join(g.sections()[:1]) + number("Q", 2**63) + g.sections()[1][8:] + bytes(64))
    set_key("type-unknown", "unknown type 77", "x", 77, bytes(8))
    def first_array(case, message, element, count, rest=b""):
        raw = number("I", element) + number("Q", count) + rest
        edit(case, message, lambda g: g.keys.insert(0, ["x", ARRAY, raw]))

    first_array("string-length-huge", "claims", STRING, 1, number("Q", 2**64 - 1))
    first_array("array-length-huge", "claims", U32, 2**40)
    first_array("array-length-overflow", "claims", U64, 2**61 + 1)
    first_array("array-of-empty-strings", "claims", STRING, 2**32)
    first_array("array-type-unknown", "unknown type 99", 99, 1, bytes(8))
    nested = number("I", ARRAY) + number("Q", 1)
    first_array("array-nested", "array of arrays", ARRAY, 1, number("I", U32) + number("Q", 2) + bytes(8))
    first_array("array-nested-100000-deep", "array of arrays", ARRAY, 1, nested * 100000)
    for name, value in (("0", 0), ("3", 3), ("1", 1), ("huge", 2**31)):
        set_key(f"alignment-{name}", "'general.alignment' is", "general.alignment", U32, value)
    set_key("alignment-u64", "expected u32", "general.alignment", U64, 32)


def tensors():
    q = "blk.0.attn_q.weight"
    edit("tensor-twice", f"tensor '{q}' is there twice", lambda g: setattr(g.tensor("blk.0.attn_output.weight"), "name", q.encode()))
    set_field("tensor-name-empty", "is empty", q, name=b"")
    set_field("tensor-name-64-bytes", "more than 63", q, name=b"a" * 64)
    set_field("tensor-name-bad-utf8", "not printable UTF-8", q, name=b"blk.0.\xe2\x28\xa1")
    set_field("tensor-name-with-zero", "not printable UTF-8", q, name=b"blk.0.attn_q.weight\0x")
    set_field("tensor-rank-0", "0 dimensions", q, shape=[])
    set_field("tensor-rank-5", "5 dimensions", q, shape=[64, 64, 1, 1, 1])
    set_field("tensor-rank-huge", "dimensions", q, rank=2**32 - 1)
    set_field("tensor-dim-0", "has no elements", q, shape=[64, 0])
    set_field("tensor-dim-negative", "larger than the file", q, shape=[64, 2**64 - 64])
    set_field("tensor-shape-overflow", "larger than the file", q, shape=[2**32, 2**32])
    set_field("tensor-shape-overflow-4d", "larger than the file", q, shape=[2**16, 2**16, 2**16, 2**16])
    set_field("tensor-type-unknown", "unknown type 255", q, kind=255)
    set_field("tensor-type-removed", "unknown type 4", q, kind=4)
    set_field("tensor-type-integer", "no type of weights", q, kind=26)
    set_field("tensor-row-not-in-blocks", "do not divide into Q4_K blocks of 256", q, kind=12)
    set_field("tensor-type-larger", "expected", q, kind=28)
    set_field("tensor-overlaps", "is at offset 0", q, offset=0)
    set_field("tensor-offset-unaligned", "is at offset", q, offset=33)
    set_field("tensor-offset-past-end", "is at offset", q, offset=2**40)
    set_field("tensor-offset-wraps", "is at offset", q, offset=2**64 - 32)
    edit("tensor-past-end", "larger than the file", lambda g: setattr(g.tensors[-1], "shape", [64, 2**20]))
    set_field("tensor-transposed", "'blk.0.attn_k.weight' has shape [32, 64], expected [64, 32]", "blk.0.attn_k.weight", shape=[32, 64])
    set_field("tensor-norm-2d", "has shape [32, 2], expected [64]", "output_norm.weight", shape=[32, 2])
    edit("tensor-missing", "'blk.0.ffn_up.weight' is missing", lambda g: g.tensors.remove(g.tensor("blk.0.ffn_up.weight")))
    edit("embedding-missing", "'token_embd.weight' is missing", lambda g: g.tensors.remove(g.tensor("token_embd.weight")))
    edit("no-tensors", "is missing", lambda g: g.tensors.clear())
    edit("tensor-unused", "'blk.0.attn_sinks' has no place", lambda g: g.tensors.append(Tensor(b"blk.0.attn_sinks", [2], 0, bytes(8))))
    edit("layer-unused", "'blk.1.attn_norm.weight' has no place",
         lambda g: g.tensors.append(Tensor(b"blk.1.attn_norm.weight", [64], 0, bytes(256))))
    edit("rope-factors-zero", "'rope_freqs.weight' is 0", lambda g: g.tensors.append(Tensor(b"rope_freqs.weight", [16], 0, bytes(64))))
    edit("rope-factors-shape", "'rope_freqs.weight' has shape [15], expected [16]",
         lambda g: g.tensors.append(Tensor(b"rope_freqs.weight", [15], 0, b"\0\0\x80\x3f" * 15)))


def hyperparameters():
    def number_key(suffix, kind, values):
        short = suffix.rsplit(".", 1)[-1].replace("_", "-")
        for value in values:
            set_key(f"{short}-{value}", f"'llama.{suffix}' is", f"llama.{suffix}", kind, value)

    number_key("block_count", U32, [0, 513, 10**9])
    number_key("attention.head_count", U32, [0, 2**32 - 1])
    number_key("attention.head_count_kv", U32, [0, 2**32 - 1])
    number_key("embedding_length", U32, [0, 2**32 - 1])
    number_key("feed_forward_length", U32, [0, 2**32 - 1])
    number_key("context_length", U32, [0])
    number_key("attention.layer_norm_rms_epsilon", F32, [0.0, -1e-5, 1.0, NAN, INF])
    number_key("rope.freq_base", F32, [0.0, -1.0, NAN, INF])
    number_key("rope.dimension_count", U32, [0, 31, 64])
    set_key("layers-two-of-one", "'blk.1.attn_norm.weight' is missing", "llama.block_count", U32, 2)
    set_key("heads-do-not-divide", "does not divide", "llama.attention.head_count", U32, 3)
    set_key("kv-heads-do-not-divide", "do not divide", "llama.attention.head_count_kv", U32, 4)
    edit("head-size-odd", "head size of 17 is not supported",
         lambda g: (g.set("llama.attention.key_length", U32, 17), g.set("llama.attention.value_length", U32, 17)))
    set_key("value-size-differs", "keys of 32 and values of 16", "llama.attention.value_length", U32, 16)
    set_key("layers-negative", "is -1", "llama.block_count", I32, -1)
    set_key("layers-as-string", "has type string", "llama.block_count", STRING, "1")
    set_key("layers-as-float", "has type f32", "llama.block_count", F32, 1.0)
    set_key("heads-per-layer", "has a value per layer", "llama.attention.head_count", ARRAY, (U32, [2]))
    set_key("eps-as-integer", "expected a float", "llama.attention.layer_norm_rms_epsilon", U32, 1)
    edit("eps-missing", "is missing", lambda g: g.remove("llama.attention.layer_norm_rms_epsilon"))
    edit("architecture-missing", "'general.architecture' is missing", lambda g: g.remove("general.architecture"))
    set_key("architecture-unknown", "architecture 'mamba' is not supported; supported: llama", "general.architecture", STRING, "mamba")
    set_key("architecture-lines", "architecture 'a\\x0ab' is not", "general.architecture", STRING, "a\nb")
    set_key("architecture-number", "expected a string", "general.architecture", U32, 7)
    set_key("adapter", "type 'adapter'", "general.type", STRING, "adapter")
    set_key("split", "split into 4 files", "split.count", U16, 4)
    set_key("rope-yarn", "'yarn' is not supported", "llama.rope.scaling.type", STRING, "yarn")
    set_key("rope-factor-negative", "llama.rope.scaling.factor", "llama.rope.scaling.factor", F32, -4.0)
    set_key("experts", "mixture of experts", "llama.expert_count", U32, 8)
    set_key("not-causal", "not causal", "llama.attention.causal", BOOL, 0)


def vocabulary():
    tokens = "tokenizer.ggml.tokens"

    def token(index, value):
        return lambda g: g.find(tokens)[2][1].__setitem__(index, value)

    edit("tokens-one-less", "511 tokens, the embedding matrix 512 rows", lambda g: g.find(tokens)[2][1].__delitem__(511))
    edit("tokens-none", "0 tokens", lambda g: g.find(tokens)[2][1].clear())
    edit("tokens-missing", f"'{tokens}' is missing", lambda g: g.remove(tokens))
    set_key("tokens-numbers", "expected string", tokens, ARRAY, (U32, list(range(512))))
    edit("token-twice", "token 300 is there twice", lambda g: token(300, g.find(tokens)[2][1][299])(g))
    edit("token-named-as-empty", "is there twice", lambda g: (token(300, b"")(g), token(301, b"[EMPTY_300]")(g)))
    edit("token-huge", "token 300 has 1000000 bytes", token(300, b"\xe4\xb8\xad" * 333333 + b"a"))
    set_key("token-types-short", "has 3 elements", "tokenizer.ggml.token_type", ARRAY, (I32, [1, 1, 1]))
    set_key("token-types-bytes", "has the type of a byte", "tokenizer.ggml.token_type", ARRAY, (I32, [6] * 512))
    edit("merges-missing", "'tokenizer.ggml.merges' is missing", lambda g: g.remove("tokenizer.ggml.merges"))
    set_key("tokenizer-unknown", "tokenizer model 'bert'", "tokenizer.ggml.model", STRING, "bert")
    set_key("tokenizer-spm-without-bytes", "no token for the byte", "tokenizer.ggml.model", STRING, "llama")
    set_key("scores-short", "'tokenizer.ggml.scores' has 1 elements", "tokenizer.ggml.scores", ARRAY, (F32, [1.0]))
    set_key("scores-nan", "not a number", "tokenizer.ggml.scores", ARRAY, (F32, [NAN] * 512))
    set_key("bos-out-of-range", "'tokenizer.ggml.bos_token_id' is 512", "tokenizer.ggml.bos_token_id", U32, 512)
    set_key("eos-out-of-range", "'tokenizer.ggml.eos_token_id' is", "tokenizer.ggml.eos_token_id", U32, 2**32 - 1)
    set_key("pad-as-i32", "expected u32", "tokenizer.ggml.padding_token_id", I32, -1)
    set_key("add-bos-as-u32", "expected bool", "tokenizer.ggml.add_bos_token", U32, 1)
    set_key("template-as-number", "expected string", "tokenizer.chat_template", U32, 1)
    set_key("vocab-size-differs", "'llama.vocab_size' is 513", "llama.vocab_size", U32, 513)


def main():
    good = pathlib.Path(sys.argv[1]).read_bytes()
    out = pathlib.Path(sys.argv[2])
    assert Gguf(good).bytes() == good, "reading and writing a good file must not change it"
    for group in (truncations, headers, metadata, tensors, hyperparameters, vocabulary):
        group()
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    lines = []
    for name, message, function in CASES:
        file = Gguf(good)
        result = function(file)
        (out / f"{name}.gguf").write_bytes(result if isinstance(result, bytes) else file.bytes())
        lines.append(f"{name}.gguf\t{message}\n")
    (out / "directory.gguf").mkdir()
    lines.append("directory.gguf\tdirectory\n")
    lines.append("does-not-exist.gguf\tdoes-not-exist\n")
    assert len({line.split("\t")[0] for line in lines}) == len(lines), "two cases have the same name"
    (out / "expected.tsv").write_text("".join(lines))
    deep = Gguf(good)
    deep.set("tokenizer.ggml.pre", STRING, "default")
    (out / "deep-words.gguf").write_bytes(deep.bytes())
    print(f"{len(lines)} hostile files in {out}")


if __name__ == "__main__":
    main()
