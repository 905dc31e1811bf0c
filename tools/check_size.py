#!/usr/bin/env python3
"""Size ratchet: functions over 60 lines, files over 600 lines (1000 in src/kernels and tests/check_kernels).

The number of offenders may fall but never rise above tools/size_baseline.json.

  check_size.py            compare, exit 1 on a rise
  check_size.py --list     also name every offender
  check_size.py --update   lower the baseline to what is there (never raises it)
"""

import ast
import json
import re
import sys

from source_files import ROOT, source_files

MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 600
MAX_KERNEL_FILE_LINES = 1000
BASELINE = ROOT / "tools" / "size_baseline.json"

TOKEN = re.compile(
    r'R"(?P<delim>[^()\s\\]{0,16})\(.*?\)(?P=delim)"'  # raw string
    r'|//[^\n]*|/\*.*?\*/'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|\b\d[\w.]*(?:'[\w.]+)+"  # digit separators
    r"|'(?:\\.|[^'\\\n])+'"
    r"|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE)


def blank(match):
    """The same number of lines, nothing else."""
    return "\n" * match.group(0).count("\n") or " "


def opens_function(head):
    """Whether `head`, the text between the last `;`, `{` or `}` and a `{`, is a function's signature."""
    head = re.sub(r"\b(public|private|protected)\s*:", " ", head).strip()
    if "(" not in head or re.match(r"(namespace|extern\b(?!.*\())", head):
        return False
    if re.match(r"(template\s*<.*>\s*)?(class|struct|union|enum)\b(?!.*\)\s*(const|noexcept|->|$))", head, re.DOTALL):
        return False
    outside = re.sub(r"\([^()]*\)", "", head)
    while "(" in outside and outside != (shorter := re.sub(r"\([^()]*\)", "", outside)):
        outside = shorter
    outside = re.sub(r"operator\s*[=!<>]=?=?", "", outside)
    return not re.search(r"(?<![<>=!])=(?!=)", re.sub(r"<[^<>]*>", "", outside))


def cpp_functions(text):
    """(first line, last line) of every function body with its signature; lambdas belong to their function."""
    code = TOKEN.sub(blank, text)
    depth, parens, function_depth, head_start, first_line = 0, 0, None, 0, 0
    for match in re.finditer(r"[;{}()]", code):
        at, char = match.start(), match.group(0)
        if char in "()":
            parens += 1 if char == "(" else -1
            continue
        if function_depth is None and parens > 0:
            continue  # a default argument's braces
        if char == "{":
            head = code[head_start:at]
            if function_depth is None and opens_function(head):
                function_depth, parens = depth, 0
                first_line = code.count("\n", 0, at - len(head.lstrip())) + 1
            depth += 1
        elif char == "}":
            depth -= 1
            # `Foo() : a_{1}, b_{2} {`: the braces of initializers end no function; the body comes after them.
            initializer = re.match(r"\s*(,\s*[\w:<>]+\s*[({]|\{)", code[at + 1:at + 200])
            if function_depth == depth and not initializer:
                yield first_line, code.count("\n", 0, at) + 1
                function_depth, parens = None, 0
        if function_depth is None:
            head_start = at + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno


def measure():
    long_functions, long_files = [], []
    for path in source_files((".cc", ".h", ".py")):
        text = (ROOT / path).read_text("utf-8", errors="replace")
        num_lines = text.count("\n")
        kernels = str(path).startswith(("src/kernels/", "tests/check_kernels/"))
        limit = MAX_KERNEL_FILE_LINES if kernels else MAX_FILE_LINES
        if num_lines > limit:
            long_files.append(f"{path}: {num_lines} lines (limit {limit})")
        functions = python_functions(text) if path.suffix == ".py" else cpp_functions(text)
        for first, last in functions:
            if last - first + 1 > MAX_FUNCTION_LINES:
                long_functions.append(f"{path}:{first}: function of {last - first + 1} lines "
                                      f"(limit {MAX_FUNCTION_LINES})")
    return {"functions": long_functions, "files": long_files}


def main():
    found = measure()
    baseline = json.loads(BASELINE.read_text("utf-8"))
    failed = False
    for kind, offenders in found.items():
        risen = len(offenders) > baseline[kind]
        failed |= risen
        if risen or "--list" in sys.argv:
            print("\n".join(offenders))
        if risen:
            print(f"check_size: {len(offenders)} {kind} are too long, {baseline[kind]} were allowed. "
                  f"Split the new one; the baseline is never raised.")
        elif len(offenders) < baseline[kind]:
            print(f"check_size: {len(offenders)} {kind} are too long, {baseline[kind]} were allowed: "
                  f"lower the baseline with tools/check_size.py --update")
    if "--update" in sys.argv:
        lowered = {kind: min(len(found[kind]), baseline[kind]) for kind in baseline}
        BASELINE.write_text(json.dumps(lowered, indent=2) + "\n", "utf-8")
    if not failed:
        print(f"check_size: ok ({len(found['functions'])} long functions, {len(found['files'])} long files)")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
