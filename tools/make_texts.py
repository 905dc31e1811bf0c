#!/usr/bin/env python3
"""Makes plain UTF-8 texts out of unpacked Debian packages: make_texts.py ROOT OUT (see fetch_texts.sh).

Committed figures depend on these very bytes, so their SHA-256 sums are checked; another version of a package
gives a warning, not an error.
"""

import gzip
import hashlib
import html.parser
import pathlib
import re
import struct
import sys
import zlib

SHA256 = {
    "novel.txt": "0770f4bae5c1392b0ce05d4b053df85e0837e30c1ec35c03661bafe2b7be7fee",
    "handbook.txt": "9622f353aca90bf262671349e6b8033426f7cbc13f5c68a0337e13fe087beb33",
    "calibration.txt": "1ee8a583ebf6057925d1d9e7dcafc22b693520b64c9f575d5945772fa3f987c1",
}
NOVELS = ["emma", "mansfieldpark", "northangerabbey", "persuasion", "prideprejudice", "sensesensibility"]


def reflow(lines):
    """Joins the lines of each paragraph; paragraphs are separated by one empty line."""
    paragraphs = re.split(r"\n[ \t]*\n+", "\n".join(lines).strip("\n"))
    joined = (" ".join(p.split()) for p in paragraphs)
    return "\n\n".join(p for p in joined if p) + "\n"


def r_strings(serialized):
    """The elements of a character vector as R's serialize() (XDR, version 3) writes it."""
    assert serialized[:2] == b"X\n", "not an XDR serialization"
    version, _, _ = struct.unpack_from(">iii", serialized, 2)
    pos = 14
    if version == 3:
        pos += 4 + struct.unpack_from(">i", serialized, pos)[0]
    flags, count = struct.unpack_from(">ii", serialized, pos)
    assert flags & 0xFF == 16, "not a character vector"
    pos += 8
    for _ in range(count):
        _, length = struct.unpack_from(">ii", serialized, pos)
        pos += 8
        if length < 0:  # NA
            length = 0
        yield serialized[pos:pos + length].decode("utf-8")
        pos += length


def novels(root):
    """R's lazy-load database: per object a 4-byte length and a zlib stream, in the order of NOVELS."""
    data = (root / "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    texts = {}
    for name in NOVELS:
        stream = zlib.decompressobj()
        texts[name] = reflow(r_strings(stream.decompress(data[4:])))
        data = stream.unused_data
    return texts


class Prose(html.parser.HTMLParser):
    """Headings and paragraphs (`<div class="para">`) of a DocBook page, listings left out."""

    def __init__(self):
        super().__init__()
        self.paragraphs, self.text, self.stack = [], "", []

    def handle_starttag(self, tag, attrs):
        if tag in ("br", "img", "hr", "meta", "link", "input", "col"):
            return
        kind = "skip" if tag in ("pre", "script", "style", "table", "head") else "inline"
        if re.fullmatch(r"h[1-6]", tag) or (tag == "div" and "para" in dict(attrs).get("class", "").split()):
            kind = "keep"
        elif tag in ("div", "p", "ul", "ol", "li", "dl", "dt", "dd"):
            kind = "block"
        if kind != "inline":
            self.flush()
        self.stack.append((tag, kind))

    def handle_endtag(self, tag):
        while self.stack:
            open_tag, kind = self.stack.pop()
            if kind != "inline":
                self.flush()
            if open_tag == tag:
                break

    def handle_data(self, data):
        kinds = [kind for _, kind in self.stack]
        if "keep" in kinds and "skip" not in kinds:
            self.text += data

    def flush(self):
        text = " ".join(self.text.split())
        if text:
            self.paragraphs.append(text)
        self.text = ""


def handbook(root):
    folder = root / "usr/share/doc/debian-handbook/html/en-US"
    index = (folder / "index.html").read_text("utf-8")
    pages = dict.fromkeys(re.findall(r'href="([a-z][\w.-]*\.html)', index))
    seen, paragraphs = set(), []
    for page in pages:
        if page == "index.html":
            continue
        prose = Prose()
        prose.feed((folder / page).read_text("utf-8"))
        for paragraph in prose.paragraphs:
            if len(paragraph) >= 20 and paragraph not in seen:  # headings come again on the chapter's own page
                seen.add(paragraph)
                paragraphs.append(paragraph)
    return "\n\n".join(paragraphs) + "\n"


def policy(root):
    raw = gzip.decompress((root / "usr/share/doc/debian-policy/policy.txt.gz").read_bytes()).decode("utf-8")
    body = raw[raw.index("1.1. Scope", raw.index("1.1. Scope") + 1):]
    return reflow(line for line in body.split("\n") if not re.fullmatch(r"[=*^~\-]{3,}", line.strip()))


def take_turns(texts, size, rounds):
    """`rounds` pieces of about `size` characters of each text in turn, cut at paragraphs."""
    pieces = []
    starts = [0] * len(texts)
    for _ in range(rounds):
        for i, text in enumerate(texts):
            end = text.find("\n\n", starts[i] + size)
            end = len(text) if end < 0 else end + 2
            pieces.append(text[starts[i]:end])
            starts[i] = end
    return "".join(pieces).rstrip("\n") + "\n"


def main():
    root, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    austen = novels(root)
    texts = {
        "novel.txt": austen["prideprejudice"],
        "handbook.txt": handbook(root),
        "calibration.txt": take_turns([austen["emma"], policy(root)], 16000, 12),
    }
    for name, text in texts.items():
        data = text.encode("utf-8")
        (out / name).write_bytes(data)
        if hashlib.sha256(data).hexdigest() != SHA256[name]:
            print(f"setup: warning: {name} differs from the text that the committed figures were made with "
                  f"({hashlib.sha256(data).hexdigest()})", file=sys.stderr)


if __name__ == "__main__":
    main()
