"""Byte-level BPE of GPT-2 with the pre-tokenizer "smollm" (single digits apart), from the vocabulary in a GGUF."""
import re
import unicodedata


def byte_alphabet():
    """The printable stand-ins that GPT-2 vocabularies use for the 256 bytes."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def pre_tokenizer(text):
    """The regular expression with the classes \\p{L} and \\p{N} written out for the characters of `text`. Digits are cut out first,
    so white space before one counts as if the text ended there."""
    kinds = {"L": set(), "N": set()}
    for char in set(text):
        kinds.setdefault(unicodedata.category(char)[0], set()).add(char)
    letters, numbers = ("".join(re.escape(c) for c in sorted(kinds[k])) or "\0" for k in "LN")
    return re.compile(rf"[{numbers}]|'s|'t|'re|'ve|'m|'ll|'d| ?[{letters}]+| ?[^\s{letters}{numbers}]+"
                      rf"|\s+(?=[{numbers}]|\Z)|\s+(?!\S)|\s+")


class Bpe:
    def __init__(self, tokens, merges):
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
        self.alphabet = byte_alphabet()
        self.cache = {}

    def encode_word(self, word):
        if word not in self.cache:
            parts = [self.alphabet[b] for b in word.encode()]
            while len(parts) > 1:
                rank, at = min((self.ranks.get(pair, 1 << 30), i) for i, pair in enumerate(zip(parts, parts[1:])))
                if rank == 1 << 30:
                    break
                parts[at:at + 2] = [parts[at] + parts[at + 1]]
            self.cache[word] = [self.ids[part] for part in parts]
        return self.cache[word]

    def encode(self, text):
        return [token for word in pre_tokenizer(text).findall(text) for token in self.encode_word(word)]
