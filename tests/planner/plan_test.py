#!/usr/bin/env python3
"""`turboquant plan` as a user meets it: text, JSON, page; the changes that it prints, pasted back.

Usage: plan_test.py BINARY MODEL CONFIGS [unittest arguments]
"""
import html.parser
import json
import os
import subprocess
import sys
import tempfile
import unittest

BINARY, MODEL, CONFIGS = sys.argv[1:4]


def run(*args):
    return subprocess.run([BINARY, "plan", *args], capture_output=True, text=True, timeout=300)


def config(name):
    return os.path.join(CONFIGS, name + ".json")


def plan(*args):
    result = run("--json", *args)
    assert result.returncode in (0, 3), result.stderr
    return json.loads(result.stdout)


def replace_flags(args, changes):
    """The command line with these flags instead of those of the same name."""
    changed = changes.split()
    names = set(changed[0::2])
    kept = [pair for pair in zip(args[0::2], args[1::2]) if pair[0] not in names]
    return [word for pair in kept for word in pair] + changed


class Json(unittest.TestCase):
    def test_keys(self):
        result = plan("-m", MODEL, "--memory", "8Gi")
        for key in ("schema", "weights_bytes", "kv", "activations_bytes", "runtime_bytes", "total_bytes", "fits", "max_sequences",
                    "max_context", "grid", "layers", "changes"):
            self.assertIn(key, result)
        for key in ("bytes_per_token", "payload", "scales", "padding", "tail"):
            self.assertIn(key, result["kv"])
        self.assertEqual(result["schema"], "turboquant.plan/1")
        self.assertEqual(result["total_bytes"], sum(line["bytes"] for line in result["lines"]))
        self.assertEqual(len(result["layers"]), 30)

    def test_is_inspects_figure(self):
        inspected = json.loads(subprocess.run([BINARY, "inspect", "-m", MODEL, "--json"], capture_output=True, text=True).stdout)
        for dtype in ("f16", "int8", "int4", "int4_asym"):
            planned = plan("-m", MODEL, "--memory", "8Gi", "--kv-cache-dtype", dtype)
            self.assertEqual(planned["kv"]["bytes_per_token"], inspected["kv_bytes_per_token"][dtype])

    def test_a_folder_and_the_size_of_its_weights(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(config("qwen3-4b")) as source, open(os.path.join(folder, "config.json"), "w") as copy:
                copy.write(source.read())
            with open(os.path.join(folder, "model.safetensors.index.json"), "w") as index:
                json.dump({"metadata": {"total_size": 8044936192}}, index)
            self.assertEqual(plan("-m", folder, "--memory", "64Gi")["weights_bytes"], 8044936192)


class Changes(unittest.TestCase):
    def paste(self, *args):
        first = run("--json", *args)
        self.assertEqual(first.returncode, 3, first.stdout + first.stderr)
        changes = json.loads(first.stdout)["changes"]
        self.assertTrue(changes)
        for change in changes:
            again = run("--json", *replace_flags(list(args), change["flags"]))
            self.assertEqual(again.returncode, 0, change["flags"] + again.stdout + again.stderr)
            self.assertTrue(json.loads(again.stdout)["fits"])

    def test_a_gguf_in_a_small_machine(self):
        self.paste("-m", MODEL, "--memory", "400Mi", "--max-num-seqs", "4")

    def test_a_pool_by_size(self):
        self.paste("-m", MODEL, "--memory", "4Gi", "--max-num-seqs", "4", "--kv-cache-memory", "200Mi")

    def test_with_a_granularity_that_the_next_format_lacks(self):
        self.paste("-m", MODEL, "--memory", "400Mi", "--max-num-seqs", "6", "--kv-scale-granularity", "per_group:32")

    def test_configs(self):
        self.paste("-m", config("llama-3.1-8b"), "--memory", "24Gi", "--kv-cache-dtype", "f16", "--max-model-len", "32768",
                   "--max-num-seqs", "4")
        self.paste("-m", config("llama-2-7b"), "--memory", "32Gi", "--max-num-seqs", "50", "--weights-memory", "4G")
        self.paste("-m", config("qwen3-4b"), "--memory", "24Gi", "--engine", "vllm", "--max-num-seqs", "8")
        self.paste("-m", config("gemma-3-27b"), "--memory", "80Gi", "--engine", "llama.cpp", "--max-num-seqs", "8")


class Errors(unittest.TestCase):
    def assert_error(self, result, *words):
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_unknown_architecture(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"model_type": "frobnicator"}, file)
            file.flush()
            self.assert_error(run("-m", file.name), "frobnicator", "not guessed")

    def test_layers_that_our_cache_cannot_hold(self):
        self.assert_error(run("-m", config("deepseek-v3")), "latent", "--engine")

    def test_hostile_flags(self):
        for flags in (["--max-num-seqs", "-1"], ["--max-model-len", "-5"], ["--memory", "-3G"], ["--memory", "1e99"],
                      ["--max-num-seqs", "99999999999"], ["--kv-cache-dtype", "int9"], ["--engine", "torch"],
                      ["--tensor-parallel-size", "0"], ["--bandwidth", "nan"], ["--weights-memory", "99999999999999999999"]):
            self.assert_error(run("-m", MODEL, *flags))

    def test_no_such_file_and_no_model(self):
        self.assert_error(run("-m", "/no/such/config.json"), "/no/such/config.json")
        self.assert_error(run("-m", CONFIGS), "config.json")
        self.assert_error(run("-m", __file__), "JSON")

    def test_verify_wants_a_file_that_runs(self):
        self.assert_error(run("-m", config("qwen3-4b"), "--verify"), "--verify")


class Page(unittest.TestCase):
    def test_is_one_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.html")
            result = run("-m", config("llama-3.1-8b"), "--memory", "64Gi", "--html", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path) as file:
                page = file.read()
        links = []

        class Links(html.parser.HTMLParser):
            def handle_starttag(self, tag, attrs):
                links.extend(value for key, value in attrs if key in ("src", "href"))
                self_closing = {"script", "link", "img", "iframe"}
                assert tag not in self_closing, tag

        Links().feed(page)
        self.assertEqual(links, [])
        self.assertNotIn("http", page)
        for words in ("Longest context", "What fits", "int6/int4", "runtime"):
            self.assertIn(words, page)


class Text(unittest.TestCase):
    def test_says_what_matters(self):
        result = run("-m", MODEL, "--memory", "8Gi", "--bandwidth", "20")
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ("fits", "longest context", "most sequences", "KV scales", "tails and sinks", "tokens/s", "int6/int4"):
            self.assertIn(words, result.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=1)
