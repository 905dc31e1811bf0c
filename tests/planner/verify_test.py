#!/usr/bin/env python3
"""`turboquant plan --verify` for 22 combinations: the pool exact, resident memory within 3 %.

Usage: verify_test.py BINARY MODEL [unittest arguments]
"""
import json
import pathlib
import subprocess
import sys
import unittest

BINARY, MODEL = sys.argv[1:3]
PLAN = str(pathlib.Path(__file__).parent / "default_model_plan.json")  # tune --budget-bits 5

COMBINATIONS = [
    ["--kv-cache-dtype", "f32", "--max-model-len", "2048"],
    ["--kv-cache-dtype", "f16", "--max-model-len", "8192"],
    ["--kv-cache-dtype", "bf16", "--max-model-len", "4096"],
    ["--kv-cache-dtype", "int8", "--max-model-len", "8192"],
    ["--kv-cache-dtype", "fp8_e4m3", "--max-model-len", "8192"],
    ["--kv-cache-dtype", "fp8_e5m2", "--max-model-len", "4096"],
    ["--kv-cache-dtype", "int4", "--max-model-len", "8192"],
    ["--kv-cache-dtype", "int4_asym", "--max-model-len", "8192"],
    ["--kv-cache-dtype", "int4", "--kv-recent-tokens", "512", "--max-num-seqs", "2", "--max-model-len", "4096"],
    ["--kv-cache-dtype", "int8/int4", "--max-model-len", "8192"],
    ["--kv-plan", PLAN, "--max-model-len", "8192"],
    ["--kv-cache-dtype", "int4_sym", "--kv-scale-granularity", "per_group:32", "--max-model-len", "8192"],
    ["--kv-cache-dtype", "int8", "--kv-scale-granularity", "per_group:64", "--max-model-len", "8192"],
    ["--kv-cache-dtype", "int8", "--kv-cache-dtype-layers", "0-3:f16,28-29:int4", "--max-model-len", "8192"],
    ["--kv-cache-dtype", "int4", "--kv-cache-dtype-layers", "0:f32,1-5:int8/int4", "--max-model-len", "4096"],
    ["--kv-cache-dtype", "int8", "--block-size", "16", "--max-model-len", "8192"],
    ["--kv-cache-dtype", "int8", "--block-size", "32", "--max-model-len", "4096", "--max-num-seqs", "2"],
    ["--kv-cache-dtype", "int4", "--block-size", "128", "--max-model-len", "8192", "--max-num-seqs", "2"],
    ["--kv-cache-dtype", "int8/int4", "--block-size", "256", "--max-model-len", "8192", "--max-num-seqs", "4"],
    ["--kv-cache-dtype", "int8", "--max-model-len", "2048", "--max-num-seqs", "8"],
    ["--kv-cache-dtype", "int4", "--max-model-len", "1000", "--max-num-seqs", "16"],
    ["--kv-cache-dtype", "int8", "--max-model-len", "4096", "--kv-cache-memory", "400Mi"],
]


class Verify(unittest.TestCase):
    def test_combinations(self):
        self.assertEqual(len(COMBINATIONS), 22)
        for flags in COMBINATIONS:
            with self.subTest(" ".join(flags)):
                result = subprocess.run([BINARY, "plan", "-m", MODEL, "--verify", "--json", "--log-level", "warn", *flags],
                                        capture_output=True, text=True, timeout=600)
                self.assertIn(result.returncode, (0, 3), result.stderr)
                figures = {figure["name"]: figure for figure in json.loads(result.stdout)["figures"]}
                memory = figures["resident memory"]
                print("%-96s %11d %11d %+.2f %%" % (" ".join(flags), memory["planned"], memory["found"],
                                                     100 * (memory["found"] / memory["planned"] - 1)), flush=True)
                for name in ("weights", "pool of blocks", "tails and sinks", "one block, all layers", "total at start-up"):
                    self.assertEqual(figures[name]["planned"], figures[name]["found"], name)
                self.assertEqual(result.returncode, 0, memory)

    def test_over_tolerance_is_status_3(self):
        result = subprocess.run([BINARY, "plan", "-m", MODEL, "--verify", "--tolerance", "0", "--max-model-len", "1024"],
                                capture_output=True, text=True, timeout=600)
        self.assertEqual(result.returncode, 3, result.stdout)
        self.assertIn("OVER TOLERANCE", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
