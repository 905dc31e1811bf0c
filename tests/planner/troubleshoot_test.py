#!/usr/bin/env python3
"""docs/how-to/troubleshoot.md: every cause planted, and the command of its line shows it.

Usage: troubleshoot_test.py BINARY MODEL [unittest arguments]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

BINARY, MODEL = sys.argv[1:3]


def run(*args, env=None):
    return subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=300, env={**os.environ, **(env or {})})


def plan(*args):
    return json.loads(run("plan", "-m", MODEL, "--memory", "8Gi", "--json", *args).stdout)


def line(result, name):
    return next(entry["bytes"] for entry in result["lines"] if entry["name"] == name)


def doctor(*args, env=None, model=MODEL):
    result = run("doctor", "-m", model, "--seconds", "0", "--json", *args, env=env)
    return {check["name"]: check for check in json.loads(result.stdout)["checks"]}, result.returncode


class Memory(unittest.TestCase):
    def test_layers_in_a_larger_format(self):
        layers = plan("--kv-cache-dtype", "int4", "--kv-cache-dtype-layers", "0-19:f16")["layers"]
        self.assertEqual([layer["bits_per_value"] for layer in layers], [16] * 20 + [4.1875] * 10)

    def test_short_sequences(self):
        short, long = plan("--max-model-len", "100", "--max-num-seqs", "16"), plan("--max-model-len", "8000", "--max-num-seqs", "16")
        self.assertGreater(line(short, "KV tails and sinks"), line(short, "KV payload"))
        self.assertLess(line(long, "KV tails and sinks"), line(long, "KV payload") / 10)
        smaller = plan("--max-model-len", "100", "--max-num-seqs", "16", "--block-size", "16")
        self.assertLess(line(smaller, "KV tails and sinks"), line(short, "KV tails and sinks"))

    def test_weights_are_the_larger_part(self):
        result = plan("--max-model-len", "1024")
        self.assertGreater(line(result, "weights"), result["kv"]["bytes"])


class Latency(unittest.TestCase):
    def test_slower_kernels_are_forced(self):
        checks, _ = doctor()
        if "kernels scalar" in checks["cpu"]["found"]:
            self.skipTest("this CPU has plain kernels only")
        checks, _ = doctor(env={"TURBOQUANT_ISA": "scalar"})
        self.assertEqual(checks["cpu"]["status"], "warning")
        self.assertIn("unset TURBOQUANT_ISA", checks["cpu"]["advice"])

    def test_more_threads_than_cores(self):
        checks, _ = doctor("-t", "1024")
        self.assertEqual(checks["threads"]["status"], "warning")
        self.assertRegex(checks["threads"]["advice"], r"^-t \d+:")


class Results(unittest.TestCase):
    def test_context_beyond_training(self):
        self.assertTrue(any("trained for 8192" in note for note in plan("--max-model-len", "30000")["notes"]))
        self.assertFalse(any("trained for" in note for note in plan("--max-model-len", "8192")["notes"]))

    def test_a_long_prompt_is_a_slow_first_token(self):
        short = json.loads(run("run", "-m", MODEL, "--json", "--raw", "-n", "2", "-p", "one").stdout)
        long = json.loads(run("run", "-m", MODEL, "--json", "--raw", "-n", "2", "-p", "one " * 300).stdout)
        self.assertGreater(long["prompt_tokens"], 20 * short["prompt_tokens"])
        self.assertGreater(long["ttft_ms"], short["ttft_ms"])

    def test_seeds(self):
        def text(*flags):
            return json.loads(run("run", "-m", MODEL, "--json", "--raw", "-n", "12", "-p", "Once", *flags).stdout)["text"]

        hot = ["--temperature", "3", "--top-p", "1", "--top-k", "0"]
        self.assertNotEqual(text(*hot, "--seed", "1"), text(*hot, "--seed", "2"))
        self.assertEqual(text(*hot, "--seed", "1"), text(*hot, "--seed", "1"))
        self.assertEqual(text("--temperature", "0", "--seed", "1"), text("--temperature", "0", "--seed", "2"))

    def test_a_coarse_format_costs_quality(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("The cache holds keys and values of every token that the model has read. " * 60)
            file.flush()
            result = run("eval", "-m", MODEL, "--text", file.name, "--ctx", "512", "--first-scored", "256", "--windows", "1", "--weights", "file",
                         "--kv-cache-dtype", "int8,int4", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)["results"]
        self.assertLess(rows[0]["kl_divergence"]["mean"], rows[1]["kl_divergence"]["mean"])

    def test_what_does_not_fit(self):
        result = run("plan", "-m", MODEL, "--memory", "300Mi", "--max-num-seqs", "8")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("would fit, cheapest first", result.stdout)


class Doctor(unittest.TestCase):
    def test_every_check_says_what_to_do(self):
        checks, status = doctor("--port", "1")
        for name in ("cpu", "kernels chosen", "memory", "address space", "huge pages", "numa", "threads", "model", "kernels", "read bandwidth"):
            self.assertIn(name, checks)
        for check in checks.values():
            self.assertTrue(check["found"])
            if check["status"] in ("warning", "failure"):
                self.assertTrue(check["advice"], check)

    def test_a_port_in_use(self):
        import socket
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            checks, status = doctor("--port", str(other.getsockname()[1]))
        self.assertEqual((checks["port"]["status"], status), ("failure", 1))

    def test_a_broken_model_file(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file, open(MODEL, "rb") as whole:
            file.write(whole.read(1 << 20))
            file.flush()
            checks, status = doctor(model=file.name)
        self.assertEqual((checks["model"]["status"], status), ("failure", 1))
        self.assertIn("download", checks["model"]["advice"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
