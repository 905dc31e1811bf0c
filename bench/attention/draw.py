#!/usr/bin/env python3
"""Draws the picture of the README from a table of bench/attention.

    draw.py table.csv picture.svg [--head-dim 64] [--group 3] [--kv-heads 3] [--threads 2]

Left: share of the machine's read bandwidth that one query reaches, by cache format, at the longest
context of the table. Right: milliseconds of one layer against the context. Rows of the shape that
the options name; where a row was measured twice, the later one counts.
"""
import argparse
import csv
import math
import sys

WIDTH, HEIGHT = 860, 380
TOP, BOTTOM = 70, 320
LEFT_PANEL, RIGHT_PANEL = (150, 400), (490, 750)
COLORS = {"turboquant": ["#0b5cad", "#3f8fd9", "#86bdf0", "#0a7f6f", "#58b9aa"],
          "ggml": ["#b3541e", "#dd8a4f", "#efb88f"],
          "ik": ["#6b3fa0", "#9a76c7", "#c9b3e3"]}
FONT = 'font-family="sans-serif" fill="#222"'


def load(path, args):
    """{(engine, k, v): {context: row}} of the shape asked for."""
    series = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            shape = (row["head_dim"], row["group"], row["kv_heads"], row["threads"],
                     row["queries"], row["sequences"])
            if shape == (str(args.head_dim), str(args.group), str(args.kv_heads),
                         str(args.threads), "1", "1"):
                key = row["engine"], row["k"], row["v"]
                series.setdefault(key, {})[int(row["context"])] = row
    return series


def label(key):
    engine, k, v = key
    return f"{engine} {k}" if k == v else f"{engine} {k}/{v}"


def color(key, keys):
    same = [other for other in keys if other[0] == key[0]]
    palette = COLORS.get(key[0], ["#666"])
    return palette[same.index(key) % len(palette)]


def text(x, y, words, size=12, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" {FONT}>{words}</text>'


def line(x1, y1, x2, y2, stroke="#bbb", width=1):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
            f'stroke-width="{width}"/>')


def draw_bars(series, keys, context):
    left, right = LEFT_PANEL
    out = [text(left, TOP - 14, f"share of read bandwidth, context {context}", 13)]
    for percent in (0, 25, 50, 75, 100):
        x = left + (right - left) * percent / 100
        out += [line(x, TOP, x, BOTTOM), text(x, BOTTOM + 16, f"{percent} %", 11, "middle")]
    step = (BOTTOM - TOP) / len(keys)
    for i, key in enumerate(keys):
        y = TOP + i * step
        out.append(text(left - 8, y + step / 2 + 4, label(key), 12, "end"))
        row = series[key].get(context)
        if row is None:
            continue
        share = float(row["share_percent"])
        length = (right - left) * min(share, 105) / 100
        out.append(f'<rect x="{left}" y="{y + step * 0.15:.1f}" width="{length:.1f}" '
                   f'height="{step * 0.7:.1f}" fill="{color(key, keys)}"/>')
        out.append(text(left + length + 5, y + step / 2 + 4, f"{share:.0f} %", 11))
    return out


def draw_lines(series, keys):
    left, right = RIGHT_PANEL
    contexts = sorted({context for rows in series.values() for context in rows})
    times = [float(row["ms_median"]) for rows in series.values() for row in rows.values()]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    first, last = math.log2(contexts[0]), math.log2(contexts[-1])

    def place(context, ms):
        across = (math.log2(context) - first) / ((last - first) or 1)
        up = (math.log10(ms) - low) / ((high - low) or 1)
        return left + (right - left) * across, BOTTOM - (BOTTOM - TOP) * up

    out = [text(left, TOP - 14, "ms of one layer against context", 13)]
    for power in range(low, high + 1):
        _, y = place(contexts[0], 10.0**power)
        out += [line(left, y, right, y), text(left - 6, y + 4, f"{10.0**power:g}", 11, "end")]
    for context in contexts:
        x, _ = place(context, 10.0**low)
        name = f"{context // 1024}k" if context >= 1024 else str(context)
        out += [line(x, TOP, x, BOTTOM), text(x, BOTTOM + 16, name, 11, "middle")]
    ends = []  # of the lines: x, y, key
    for key in keys:
        points = [place(c, float(row["ms_median"])) for c, row in sorted(series[key].items())]
        ends.append((*points[-1], key))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{color(key, keys)}" '
                   'stroke-width="2.5"/>')
    # From the lowest up, so that no name lies on another one.
    lowest_free = HEIGHT
    for x, y, key in sorted(ends, key=lambda end: -end[1]):
        y = min(y, lowest_free - 11)
        lowest_free = y
        out.append(text(x + 6, y + 4, label(key), 10))
    return out


def draw(series, args):
    keys = sorted(series, key=lambda key: (key[0] != "turboquant", key))
    context = max(context for rows in series.values() for context in rows)
    some = next(iter(series[keys[0]].values()))
    title = (f"Attention of one query, head {args.head_dim}, {some['kv_heads']} KV heads, "
             f"{args.group} query heads each, {args.threads} threads")
    foot = (f"{some['machine']}, {some['compiler']}, {some['date']}; medians of "
            f"{some['turns']} turns, interleaved")
    body = [text(20, 26, title, 15), text(20, HEIGHT - 14, foot, 11)]
    body += draw_bars(series, keys, context) + draw_lines(series, keys)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(body) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("picture")
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--group", type=int, default=3)
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    series = load(args.table, args)
    if not series:
        sys.exit(f"{args.table} has no rows of one query of one sequence of that shape")
    with open(args.picture, "w") as file:
        file.write(draw(series, args))


if __name__ == "__main__":
    main()
