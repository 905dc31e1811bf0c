#!/usr/bin/env python3
"""Gives every hostile file to the program as its model. Each run must end with exit status 1 or 2, write nothing to
stdout and exactly one line to stderr that names the cause, within the limits of address space and time.

    run_hostile.py PROGRAM HOSTILE_DIR [--address-space BYTES] [--good GOOD.gguf]

--address-space 0: no limit (sanitizers reserve terabytes). --good: a file that must still run, so that the test cannot
pass because everything fails.
"""
import argparse
import pathlib
import resource
import subprocess
import sys

TIMEOUT_S = 60


def run(program, model, address_space):
    def limit():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if address_space:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

    command = [program, "run", "-m", str(model), "-p", "x", "-n", "1"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, preexec_fn=limit)


def problem(result, name, expected):
    """None if the run ended as it must."""
    if result.returncode < 0:
        return f"died of signal {-result.returncode}"
    if result.returncode not in (1, 2):
        return f"exit status {result.returncode}"
    if result.stdout:
        return "wrote to stdout"
    message = result.stderr.decode(errors="replace")
    if not message.endswith("\n") or message.count("\n") != 1:
        return f"{message.count(chr(10))} lines on stderr"
    if expected not in message or name not in message:
        return f"the message does not name '{name}' and '{expected}'"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--address-space", type=int, default=4 << 30)
    parser.add_argument("--good", type=pathlib.Path)
    args = parser.parse_args()

    cases = [line.split("\t") for line in (args.folder / "expected.tsv").read_text().splitlines()]
    failures = 0
    for name, expected in cases:
        try:
            result = run(args.program, args.folder / name, args.address_space)
            wrong = problem(result, name, expected)
        except subprocess.TimeoutExpired:
            result, wrong = None, f"still running after {TIMEOUT_S} s"
        if wrong:
            failures += 1
            print(f"{name}: {wrong}")
            if result:
                print("    " + result.stderr.decode(errors="replace")[:1000].replace("\n", "\n    "))
    if args.good:
        result = run(args.program, args.good, args.address_space)
        if result.returncode != 0:
            failures += 1
            print(f"{args.good.name}: a good file ended with {result.returncode}: {result.stderr.decode(errors='replace')[:1000]}")
    print(f"{len(cases)} hostile files, {failures} failures")
    return 1 if failures or len(cases) < 30 else 0


if __name__ == "__main__":
    sys.exit(main())
