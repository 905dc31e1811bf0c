#!/usr/bin/env python3
"""Include order: a folder of src/ includes only itself and folders below it.

Also: only model/ includes ggml or llama; server/ knows engine/ and base/ alone; the installed headers in
include/turboquant/ include nothing of src/; includes are written from src/ ("cache/block_pool.h").
"""

import re
import sys

from source_files import ROOT, source_files

LAYERS = ["base", "codec", "kernels", "cache", "attention", "model", "calibration", "planner", "engine", "eval",
          "server", "cli"]
RANK = {name: rank for rank, name in enumerate(LAYERS)}
ONLY = {"server": {"server", "engine", "base"}}  # knows less than its place in the order allows
GGML = re.compile(r"(ggml|gguf|llama)([-_.][\w.-]*)?\.h(pp)?$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)


def problem(path, quote, target):
    """What is wrong with this include of this file, or None."""
    folder = path.parts[1]
    top = target.split("/")[0]
    if path.parts[0] == "include":
        if quote == '"' and top != "turboquant":
            return "an installed header includes only installed headers (turboquant/...)"
        return None
    if quote == "<":
        if GGML.match(target.split("/")[-1]) and folder != "model":
            return f"{folder}/ includes ggml or llama; only model/ may"
        return None
    if GGML.match(target.split("/")[-1]) and top not in RANK:
        return f"{folder}/ includes ggml or llama; only model/ may" if folder != "model" else None
    if top == "turboquant":
        return None
    if top not in RANK:
        return 'write the path from src/, as in "cache/block_pool.h"'
    if RANK[top] > RANK[folder]:
        return f"{folder}/ is below {top}/ and must not know it"
    if folder in ONLY and top not in ONLY[folder]:
        return f"{folder}/ may include {', '.join(sorted(ONLY[folder]))} only"
    return None


def main():
    errors, num_files = [], 0
    for path in source_files((".cc", ".h", ".inc")):
        if path.parts[0] not in ("src", "include") or len(path.parts) < 3:
            continue
        num_files += 1
        if path.parts[0] == "src" and path.parts[1] not in RANK:
            errors.append(f"{path}: folder src/{path.parts[1]} has no place in the order ({' < '.join(LAYERS)})")
            continue
        text = (ROOT / path).read_text("utf-8", errors="replace")
        for match in INCLUDE.finditer(text):
            message = problem(path, match.group(1), match.group(2))
            if message:
                line = text.count("\n", 0, match.start()) + 1
                errors.append(f"{path}:{line}: #include {match.group(2)}: {message}")
    print("\n".join(errors) if errors else f"check_includes: ok ({num_files} files)")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
