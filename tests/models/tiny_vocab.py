"""Vocabularies of a few hundred tokens for the tiny models: byte-level BPE ("gpt2") and SentencePiece ("llama"),
trained on a page of text below."""
import collections

TEXT = """
A cache keeps the keys and the values of every token that a model has read, so that the next token costs one step and
not the whole text again. Its size grows with the length of the text, the number of layers and the number of heads, and
soon it is larger than the model. When numbers are stored with fewer bits, more of them fit into the same memory, and
because reading memory is what takes the time, the answer also comes sooner. The price is that the stored numbers are
not quite the ones that were written. How large the price is depends on the model and on the text, and the only way to
know it is to measure it. The old man walked down to the river in the morning, when the water was still and the light
was low. He had carried the same net for thirty years, and each year the fish had been fewer. His daughter said that he
should stop, that the shop in the town would pay him for sitting in the warm room behind the counter; but he liked the
cold, and the weight of the net, and the sound that the boat made when it left the sand. There were three things he
wanted to see again before the winter: the geese going over, the first snow on the far hills, and the letter from his
son. The train leaves at 10:45 and arrives at 12:30; a ticket costs 23.50, or 17.25 for children under 12. If x is
greater than zero and y = 2x + 1, then y is greater than one. What did you say? "Nothing," she answered, "nothing at all."
"""

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def byte_characters():
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, extra = {}, 0
    for byte in range(256):
        if byte in printable:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + extra)
            extra += 1
    return table


def train_merges(words, count):
    """Classic BPE: the most frequent pair is merged, ties by text, so the result is the same everywhere."""
    words = collections.Counter(words)
    pieces = {word: list(word) for word in words}
    merges = []
    while len(merges) < count:
        pairs = collections.Counter()
        for word, n in words.items():
            for pair in zip(pieces[word], pieces[word][1:]):
                pairs[pair] += n
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append((left, right))
        for word, parts in pieces.items():
            i = 0
            while i + 1 < len(parts):
                if parts[i] == left and parts[i + 1] == right:
                    parts[i : i + 2] = [left + right]
                i += 1
    return merges


def byte_level_bpe(size):
    """tokens, token types, merges"""
    table = byte_characters()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words = []
    for line in TEXT.split("\n"):
        for index, word in enumerate(line.split(" ")):
            text = word if index == 0 else " " + word
            words.append("".join(table[byte] for byte in text.encode()))
    merges = train_merges(words, size - 256 - len(specials))
    tokens = specials + [table[byte] for byte in range(256)] + [left + right for left, right in merges]
    types = [CONTROL] * len(specials) + [NORMAL] * (size - len(specials))
    assert len(set(tokens)) == size
    return tokens, types, [f"{left} {right}" for left, right in merges]


def sentence_piece(size):
    """tokens, scores, token types"""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    words = ["\u2581" + word for word in TEXT.split()]
    letters = sorted(set("".join(words)))
    merged = [left + right for left, right in train_merges(words, size - len(tokens) - len(letters))]
    pieces = merged + letters  # a higher score is merged first
    scores = [0.0] * len(tokens) + [-float(i) for i in range(len(pieces))]
    assert len(set(tokens + pieces)) == size
    return tokens + pieces, scores, types + [NORMAL] * len(pieces)
