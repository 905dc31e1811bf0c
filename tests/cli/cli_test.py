#!/usr/bin/env python3
"""The command line as a user meets it: results, errors, Ctrl-C, closed pipes, precedence of settings.

Usage: cli_test.py BINARY MODEL TINY_MODEL [unittest arguments]
Every error must be one line on stderr that names the cause, with exit status 1 or 2 and nothing on stdout.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = sys.argv[1]
MODEL = sys.argv[2]
TINY = sys.argv[3]  # 3 layers, random weights


def run(*args, env=None, stdin="", timeout=120):
    environment = {**os.environ, **(env or {})}
    return subprocess.run([BINARY, *args], input=stdin, capture_output=True, text=True, timeout=timeout, env=environment)


class Errors(unittest.TestCase):
    def assert_error(self, result, *words, status=(1, 2)):
        self.assertIn(result.returncode, status, result.stderr)
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertEqual(result.stdout, "")
        for word in words:
            self.assertIn(word, lines[0])

    def test_unknown_verb(self):
        self.assert_error(run("frobnicate"), "frobnicate", status=(2,))

    def test_unknown_flag(self):
        self.assert_error(run("run", "--no-such-flag"), "--no-such-flag", status=(2,))

    def test_flag_without_value(self):
        self.assert_error(run("run", "-p"), "prompt", status=(2,))

    def test_number_out_of_range(self):
        self.assert_error(run("run", "-p", "x", "-n", "0"), "max-tokens", status=(2,))
        self.assert_error(run("run", "-p", "x", "-t", "-3"), "threads", status=(2,))

    def test_bad_sampling(self):
        self.assert_error(run("run", "-m", MODEL, "-p", "x", "--temperature", "-1"), "temperature", status=(2,))
        self.assert_error(run("run", "-m", MODEL, "-p", "x", "--top-p", "nan"), "top", status=(2,))

    def test_missing_model(self):
        self.assert_error(run("run", "-m", "/no/such/model.gguf", "-p", "x"), "/no/such/model.gguf", status=(2,))

    def test_directory_as_model(self):
        self.assert_error(run("run", "-m", "/tmp", "-p", "x"), "/tmp", status=(2,))

    @unittest.skipIf(os.geteuid() == 0, "root reads every file")
    def test_unreadable_model(self):
        with tempfile.NamedTemporaryFile() as file:
            os.chmod(file.name, 0)
            self.assert_error(run("run", "-m", file.name, "-p", "x"), file.name)

    def test_empty_model(self):
        with tempfile.NamedTemporaryFile() as file:
            self.assert_error(run("run", "-m", file.name, "-p", "x"), file.name, status=(2,))

    def test_unknown_format_lists_the_known(self):
        self.assert_error(run("run", "-m", MODEL, "-p", "x", "--kv-cache-dtype", "int9"), "int9", "int8", "fp8_e4m3", status=(2,))

    def test_unknown_granularity(self):
        self.assert_error(run("run", "-m", MODEL, "-p", "x", "--kv-scale-granularity", "per_moon"), "per_moon", status=(2,))

    def test_group_that_does_not_divide_the_head(self):
        self.assert_error(run("run", "-m", MODEL, "-p", "x", "--kv-cache-dtype", "int4_sym", "--kv-scale-granularity", "per_group:128"),
                          "128", status=(2,))

    def test_block_size(self):
        self.assert_error(run("run", "-m", MODEL, "-p", "x", "--block-size", "24"), "24", status=(2,))

    def test_layers_out_of_range(self):
        self.assert_error(run("run", "-m", MODEL, "-p", "x", "--kv-cache-dtype-layers", "0-99:f16"), "99", status=(2,))

    def test_empty_prompt(self):
        self.assert_error(run("run", "-m", MODEL, "-p", ""), "prompt", "empty", status=(2,))
        self.assert_error(run("run", "-m", MODEL, stdin=""), "prompt", "empty", status=(2,))

    def test_prompt_longer_than_context(self):
        result = run("run", "-m", MODEL, "--max-model-len", "64", "--log-level", "error", stdin="word " * 500)
        self.assert_error(result, "64", status=(2,))

    def test_context_larger_than_memory(self):
        result = run("run", "-m", MODEL, "-p", "x", "--kv-cache-memory", "1Mi", "--max-model-len", "8192", "--log-level", "error")
        self.assert_error(result, "8192")

    def test_bad_size(self):
        self.assert_error(run("run", "-m", MODEL, "-p", "x", "--kv-cache-memory", "12 apples"), "12 apples", status=(2,))

    def test_unknown_isa(self):
        self.assert_error(run("run", "-m", MODEL, "-p", "x", "--isa", "mmx"), "mmx", status=(2,))

    def test_config_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write("no-such-key = 1\n")
            file.flush()
            self.assert_error(run("run", "--config", file.name, "-p", "x"), "no-such-key", status=(2,))
        for bad in ('threads = \u035c', '\u00e9 = 1', '[run]\nprompt = """\u00e9"""', 'prompt = """a\n\u2002"""'):
            with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
                file.write("# \u00e9\n" + bad)
                file.flush()
                self.assert_error(run("run", "--config", file.name), "characters beyond ASCII", status=(2,))
        self.assert_error(run("run", "--config", "/no/such.toml", "-p", "x"), "/no/such.toml", status=(2,))


class Calibration(unittest.TestCase):
    def calibrate(self, folder, *args):
        scales = os.path.join(folder, "scales.json")
        return scales, run("calibrate", "-m", MODEL, "--max-tokens", "300", "-o", scales, *args)

    def test_the_table_serves_the_model_it_was_made_for(self):
        with tempfile.TemporaryDirectory() as folder:
            scales, result = self.calibrate(folder, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            document = json.loads(result.stdout)
            self.assertEqual((document["num_tokens"], document["clip_rule"]), (300, "max"))
            flags = ["--kv-scales", scales, "--kv-scale-granularity", "per_head"]
            answer = run("run", "-m", MODEL, "-p", "The sea", "-n", "3", *flags, "--json")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertEqual(json.loads(answer.stdout)["kv"]["bits_per_value"], 8.0625)
            with open(scales, encoding="utf-8") as file:
                table = json.load(file)
            table["model"]["tensor_hash"] = "0" * 32
            with open(scales, "w", encoding="utf-8") as file:
                json.dump(table, file)
            refused = run("run", "-m", MODEL, "-p", "x", *flags)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("another model", refused.stderr)

    def test_errors_leave_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            prompts = os.path.join(folder, "prompts.jsonl")
            with open(prompts, "w", encoding="utf-8") as file:
                file.write('{"prompt": "ok"}\n{"nothing": 1}\n')
            for args, word in ((["--prompts", prompts], "prompts.jsonl:2"), (["--clip", "p99"], "clip rule"),
                               (["--text", "/no/such/file"], "/no/such/file")):
                scales, result = self.calibrate(folder, *args)
                self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
                self.assertIn(word, result.stderr)
                self.assertFalse(os.path.exists(scales))

    def test_static_scales_need_a_table(self):
        result = run("run", "-m", MODEL, "-p", "x", "--kv-scale-granularity", "per_head")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--kv-scales", result.stderr)


class Convert(unittest.TestCase):
    LAYOUTS = ("kv_cache_scales", "self_attn", "attn", "proj", "kv_scale")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def convert(self, source, layout, name, *args):
        return run("convert", "--from", self.path(source), "--to-layout", layout, "-o", self.path(name), *args)

    def write(self, name, document):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(document, file)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def test_there_and_back(self):
        made = run("calibrate", "-m", MODEL, "--max-tokens", "100", "-o", self.path("ours"))
        self.assertEqual(made.returncode, 0, made.stderr)
        for layout in self.LAYOUTS:
            result = self.convert("ours", layout, layout, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            document = json.loads(result.stdout)
            self.assertEqual((document["from_layout"], document["num_layers"]), ("turboquant", 30))
            self.assertIn("3 scales of a layer and side become 1", result.stderr)
            self.assertEqual("K and V share one factor" in result.stderr, layout in ("kv_cache_scales", "kv_scale"))
            for step in (("turboquant", "table", "-m", MODEL), (layout, "again")):
                result = self.convert(layout if step[0] == "turboquant" else "table", *step)
                self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn("largest", result.stderr)
            self.assertEqual(self.read(layout), self.read("again"))

    def test_a_converted_table_serves_and_is_refused_where_it_knows_nothing(self):
        self.write("theirs", {f"model.layers.{i}.self_attn.{side}_scale": 0.1 for i in range(30) for side in "kv"})
        result = self.convert("theirs", "turboquant", "table", "-m", MODEL)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("--kv-transform none", result.stderr)
        flags = ["-m", MODEL, "-p", "The sea", "-n", "3", "--kv-cache-dtype", "fp8_e4m3", "--kv-scales", self.path("table")]
        for granularity in ("per_tensor", "per_head"):
            answer = run("run", *flags, "--kv-scale-granularity", granularity, "--kv-transform", "none")
            self.assertEqual(answer.returncode, 0, answer.stderr)
        for granularity in ("per_head", "per_channel"):
            refused = run("run", *flags, "--kv-scale-granularity", granularity)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("converted from another engine's file", refused.stderr)

    def test_ranks(self):
        scales = {str(rank): {str(i): 0.25 * (rank + 1) for i in range(30)} for rank in range(3)}
        theirs = {"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": scales}}
        self.write("theirs", theirs)
        self.assertEqual(self.convert("theirs", "turboquant", "table", "-m", MODEL).returncode, 0)
        self.assertEqual(json.loads(self.read("table"))["layers"][7]["v"], {"ranges": [112.0, 224.0, 336.0]})
        result = self.convert("table", "kv_cache_scales", "again", "--tensor-parallel-size", "3")
        self.assertEqual(json.loads(self.read("again")), theirs, result.stderr)
        result = self.convert("table", "kv_cache_scales", "two", "--tensor-parallel-size", "2")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--tensor-parallel-size 2", result.stderr)

    def test_errors_are_named_and_leave_no_file(self):
        names = {f"model.layers.{i}.self_attn.{side}_scale": 0.1 for i in range(30) for side in "kv"}
        self.write("whole", names)
        self.write("short", dict(list(names.items())[:-2]))
        self.write("odd", dict(list(names.items())[:-1]))
        self.write("nan", {**names, "model.layers.3.self_attn.v_scale": float("nan")})
        self.write("other", {"weights": [1]})
        for source, layout, args, word in (
                ("odd", "proj", (), "no model.layers.29.self_attn.v_scale"), ("nan", "proj", (), "no JSON"),
                ("other", "proj", (), "holds no scales"), ("none", "proj", (), "No such file"),
                ("whole", "turboquant", (), "-m MODEL"), ("whole", "moon", (), "moon"),
                ("short", "turboquant", ("-m", MODEL), "29 layers, the model has 30"),
                ("whole", "kv_cache_scales", (), "--model-type"),
                ("whole", "proj", ("--tensor-parallel-size", "2"), "has no ranks"),
                ("whole", "kv_scale", ("--from-layout", "proj"), "is no name of layout proj")):
            result = self.convert(source, layout, "out", *args)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(word, result.stderr)
            self.assertFalse(os.path.exists(self.path("out")))


class Tune(unittest.TestCase):
    def layers(self, path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)["layers"]

    def test_a_plan_is_tuned_and_serves_this_model_only(self):
        with tempfile.TemporaryDirectory() as folder:
            text, plan = f"{folder}/text", f"{folder}/plan"
            with open(text, "w", encoding="utf-8") as file:
                file.write(" ".join(f"word{i * 7919 % 1000} and {i * i % 97}." for i in range(400)))
            flags = ["-m", TINY, "--text", text, "--ctx", "300", "--first-scored", "150", "--windows", "1"]
            result = run("tune", *flags, "--budget-bits", "5", "-o", plan, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            best = json.loads(result.stdout)["plans"][0]
            self.assertLessEqual(best["bits_per_value"], 5)
            self.assertEqual(self.layers(plan), best["layers"])

            several = run("tune", *flags, "--budget-bits", "4,5", "-o", f"{folder}/of.json", "--json")
            self.assertEqual(several.returncode, 0, several.stderr)
            of_4, of_5 = json.loads(several.stdout)
            self.assertEqual(of_5["plans"], json.loads(result.stdout)["plans"])
            self.assertLessEqual(max(row["bits_per_value"] for row in of_4["plans"]), 4)
            self.assertEqual(self.layers(f"{folder}/of-4.json"), of_4["plans"][0]["layers"])
            self.assertEqual(self.layers(f"{folder}/of-5.json"), best["layers"])

            measured = run("eval", *flags, "--kv-plan", plan, "--kv-cache-dtype", "f16", "--json")
            self.assertEqual(measured.returncode, 0, measured.stderr)
            row = json.loads(measured.stdout)["results"][0]
            self.assertEqual(row["kl_divergence"]["mean"], best["kl_divergence"]["mean"])
            self.assertEqual(row["bits_per_value"], best["bits_per_value"])

            planned = run("plan", "-m", TINY, "--kv-plan", plan, "--max-model-len", "1000", "--json")
            self.assertEqual(planned.returncode, 0, planned.stderr)
            self.assertEqual(json.loads(planned.stdout)["kv"]["bits_per_value"], best["bits_per_value"])

            for args, word in ((("run", "-m", MODEL, "-p", "x", "--kv-plan", plan), "another model: layers 3, this one has 30"),
                               (("run", "-m", TINY, "-p", "x", "--kv-plan", text), "text"),
                               (("run", "-m", TINY, "-p", "x", "--kv-plan", plan, "--kv-cache-dtype-layers", "0:f16"), "give one"),
                               (("tune", *flags, "-o", plan), "either a budget"),
                               (("tune", *flags, "-o", plan, "--budget-bits", "3"), "int3 alone")):
                refused = run(*args)
                self.assertEqual((refused.returncode, refused.stdout), (2, ""), refused.stderr)
                self.assertIn(word, refused.stderr)
                self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
            self.assertEqual(self.layers(plan), best["layers"])


class Gate(unittest.TestCase):
    def evaluate(self, *args, model=MODEL):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write(" ".join(f"word{i * 7919 % 1000} and {i * i % 97}." for i in range(400)))
            text.flush()
            return run("eval", "-m", model, "--text", text.name, "--windows", "1", "--ctx", "200", "--first-scored", "100", *args)

    def test_what_keeps_the_limits_passes(self):
        result = self.evaluate("--kv-cache-dtype", "f16,int8", "--gate", "kl<=0.5,top1>=10", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        self.assertEqual((document["verdict"], document["reasons"]), ("pass", []))
        self.assertEqual([entry["verdict"] for entry in document["results"]], ["pass", "pass"])

    def test_what_does_not_is_refused_with_a_change_that_does(self):
        measured = json.loads(self.evaluate("--kv-cache-dtype", "int4+none,int8", "--json").stdout)["results"]
        bad, good = (entry["kl_divergence"]["mean"] for entry in measured)
        self.assertLess(good, bad)
        limit = (good * bad) ** 0.5
        result = self.evaluate("--kv-cache-dtype", "int4+none,int8", "--gate", f"kl<={limit:.12f}", "--json")
        self.assertEqual(result.returncode, 3, result.stderr)
        document = json.loads(result.stdout)
        self.assertEqual(document["verdict"], "fail")
        self.assertEqual([entry["verdict"] for entry in document["results"]], ["fail", "pass"])
        self.assertEqual(len(document["reasons"]), 1)
        change = document["results"][0]["change_that_passes"]
        self.assertLessEqual(change["kl_divergence"]["mean"], limit)
        again = json.loads(self.evaluate(*change["flags"].split(), "--json").stdout)["results"][0]
        self.assertEqual(again["kl_divergence"]["mean"], change["kl_divergence"]["mean"])

    def test_formats_carry_a_temperature(self):
        formats = ["--kv-cache-dtype", "int8,int8^1,int8^0.9,recipe:keep128"]
        rows = json.loads(self.evaluate(*formats, "--json", model=TINY).stdout)["results"]
        kl = [row["kl_divergence"]["mean"] for row in rows]
        self.assertEqual(kl[0], kl[1])
        self.assertLess(kl[1], kl[2])
        self.assertTrue(rows[2]["kv_cache_dtype"].endswith(", temperature 0.9"), rows[2])
        for text, word in (("int8^", "temperature ''"), ("int8^0", "from 0.01 to 100"), ("int8^nan", "'nan'"), ("recipe:keep100", "recipe:keepN")):
            refused = self.evaluate("--kv-cache-dtype", text, model=TINY)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""), refused.stderr)
            self.assertIn(word, refused.stderr)

    def test_answers_are_compared(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
            prompts.write('{"prompt": "The sea"}\n\n{"text": "A word and another"}\n')
            prompts.flush()
            flags = ["eval", "-m", TINY, "--free-running", prompts.name, "--max-tokens", "5"]
            result = run(*flags, "--kv-cache-dtype", "int8", "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = json.loads(result.stdout)["free_running"]["results"]
            self.assertEqual([row["control"] for row in rows], [True, False])
            self.assertEqual((rows[0]["identical"], rows[0]["mean_edit_distance"]), (2, 0))
            self.assertAlmostEqual(rows[0]["bleu"], 100)
            self.assertEqual(rows[0]["rouge_l_f1"], 1)
            self.assertEqual(len(rows[1]["first_difference"]), 2)
            self.assertIn("f32 once more", run(*flags).stdout)
            prompts.write('{"prompt": 3}\n')
            prompts.flush()
            for args, word in ((flags, ":4: want one JSON object"), (["eval", "-m", TINY], "--text FILE, --tasks FILE or --free-running"),
                               ([*flags, "--gate", "strict"], "--text FILE for the gate")):
                refused = run(*args)
                self.assertEqual((refused.returncode, refused.stdout), (2, ""), refused.stderr)
                self.assertIn(word, refused.stderr)

    def test_tasks_are_judged(self):
        # The answer stands among the examples: the model need only copy it.
        words = ("cat", "stone", "river", "lamp", "bread", "cloud", "chair", "green", "apple", "night")
        examples = "".join(f"Question: Repeat: {word}\nAnswer: {word}\n\n" for word in words)
        prompt = examples + "Question: Repeat: river\nAnswer:"
        choice = {"type": "choice", "prompt": prompt, "choices": [" river", " chair", " bread"], "answer": 0}
        exact = {"type": "exact", "prompt": prompt, "answer": "river"}
        lines = [choice, choice | {"answer": 1}, exact, exact | {"answer": "rivers"}]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as tasks:
            tasks.write("\n".join(json.dumps(line) for line in lines) + "\n")
            tasks.flush()
            flags = ["eval", "-m", MODEL, "--weights", "file", "-t", "1", "--tasks", tasks.name, "--kv-cache-dtype", "f32,int8"]
            result = run(*flags, "--gate", "task<=1%", "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            document = json.loads(result.stdout)
            found = document["tasks"]
            self.assertEqual((found["items"], found["short_prompts"], found["reference"]["right"]), (4, 0, 2))
            self.assertEqual([found["reference"][kind] for kind in ("choice", "exact")], [{"items": 2, "right": 1}] * 2)
            same = found["results"][0]
            self.assertEqual((same["loss"], same["lost"], same["gained"], same["verdict"]), (0, [], [], "pass"))
            self.assertEqual(document["verdict"], "pass")
            self.assertNotIn("results", document)
            # Nothing gains so much: every change is tried and fails.
            refused = run(*(TINY if flag == MODEL else flag for flag in flags), "--gate", "task<=-101", "--json")
            self.assertEqual(refused.returncode, 3, refused.stderr)
            document = json.loads(refused.stdout)
            self.assertEqual((document["verdict"], len(document["reasons"])), ("fail", 2))
            self.assertNotIn("change_that_passes", document["tasks"]["results"][0])
            for gate, word in (("kl<=1", "with --tasks alone it takes task"), ("default", "--text FILE")):
                self.assertIn(word, run(*flags, "--gate", gate).stderr)
            tasks.write('\n{"type": "choice", "prompt": "a", "choices": ["b", "c"], "answer": 2}\n')
            tasks.flush()
            result = run(*flags)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(":6: \"answer\" is 2", result.stderr)

    def test_the_page_is_whole_and_needs_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            page = f"{folder}/page.html"
            result = self.evaluate("--kv-cache-dtype", "int8,int2", "--html", page)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(page, encoding="utf-8") as file:
                html = file.read()
            self.assertTrue(html.startswith("<!doctype html>") and html.endswith("</html>\n"))
            self.assertEqual(html.count("<img"), 2 * 4)  # channels of K and V, before and after
            html = re.sub(r"base64,[A-Za-z0-9+/=]+", "", html)
            self.assertNotIn("http", html)
            self.assertNotIn("nan", html)
            self.assertEqual(html.count("<svg"), 2)
            self.assertEqual(html.count("<b>"), 20)  # ten worst tokens of each format
            self.assertEqual(html.count("rgba("), 2 * 2 * 30 * 6)  # errors and end codes: layers x heads of K and V

    def test_a_gate_that_cannot_be_read(self):
        for gate in ("kl", "task<=1%", "tasks<=1%", "kl>=1"):
            result = self.evaluate("--gate", gate)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("gate", result.stderr)


class Results(unittest.TestCase):
    def test_json_of_run(self):
        result = run("run", "-m", MODEL, "-p", "Name a colour.", "-n", "8", "--json", "--log-level", "error")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        for key in ("text", "prompt_tokens", "generated_tokens", "ttft_ms", "tokens_per_second", "kv", "finish_reason"):
            self.assertIn(key, document)
        self.assertGreater(document["prompt_tokens"], 3)
        self.assertLessEqual(document["generated_tokens"], 8)
        self.assertGreater(document["tokens_per_second"]["prefill"], 0)
        self.assertGreater(document["kv"]["bytes_f16"], 0)
        self.assertAlmostEqual(document["kv"]["bits_per_value"], 8.25)

    def test_text_is_the_result_and_nothing_else(self):
        args = ("run", "-m", MODEL, "-p", "Name a colour.", "-n", "8")
        text = run(*args)
        document = json.loads(run(*args, "--json").stdout)
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertEqual(text.stdout, document["text"] + "\n")
        for word in ("prefill", "decode", "bits per value", "f16", "kernel qk/int8/"):
            self.assertIn(word, text.stderr)
        self.assertNotIn("\r", text.stderr)

    def test_prompt_from_stdin_equals_flag(self):
        args = ("run", "-m", MODEL, "-n", "6", "--log-level", "off")
        self.assertEqual(run(*args, stdin="Count to three.").stdout, run(*args, "-p", "Count to three.").stdout)

    def test_seeded_runs_repeat(self):
        args = ("run", "-m", MODEL, "-p", "Tell a story.", "-n", "12", "--temperature", "1")
        first, again = run(*args, "--seed", "7").stdout, run(*args, "--seed", "7").stdout
        self.assertEqual(first, again)
        self.assertNotEqual(first, run(*args, "--seed", "8").stdout)

    def test_stop_text(self):
        args = ("run", "-m", MODEL, "--raw", "-p", "1, 2, 3, 4,", "-n", "16", "--json", "--log-level", "off")
        whole = json.loads(run(*args).stdout)["text"]
        self.assertIn(",", whole)
        stopped = json.loads(run(*args, "--stop", ",").stdout)
        self.assertEqual(stopped["text"], whole.split(",")[0])
        self.assertEqual(stopped["finish_reason"], "stop")

    def test_precedence_flag_environment_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('\ufeff# caf\u00e9\nkv-cache-dtype = "f16"\n[run]\nstop = "\u00e9"  # \u00e9\nmax-tokens = 2\n')
            file.flush()
            args = ("run", "-m", MODEL, "-p", "x", "--json", "--log-level", "off", "--ignore-eos", "--config", file.name)
            of = lambda *more, env=None: json.loads(run(*args, *more, env=env).stdout)
            self.assertEqual(of()["generated_tokens"], 2)
            self.assertIn("f16", of()["kv"]["dtype"])
            self.assertIn("int4", of(env={"TURBOQUANT_KV_CACHE_DTYPE": "int4"})["kv"]["dtype"])
            flag = of("--kv-cache-dtype", "int8", env={"TURBOQUANT_KV_CACHE_DTYPE": "int4"})
            self.assertIn("int8", flag["kv"]["dtype"])

    def test_inspect(self):
        document = json.loads(run("inspect", MODEL, "--json").stdout)
        self.assertEqual(len(document["layers"]), 30)
        # 30 layers x 3 heads x 64 channels x K and V, 2 bytes each; int8: 1 byte and an f16 scale per 64.
        self.assertEqual(document["kv_bytes_per_token"]["f16"], 30 * 3 * 64 * 2 * 2)
        self.assertEqual(document["kv_bytes_per_token"]["int8"], 30 * 3 * 2 * (64 + 2))
        self.assertIn("bytes per token", run("inspect", MODEL).stdout)

    def test_chat_keeps_its_cache(self):
        script = "My name is Ada.\n/kv\nWhat is my name?\n/kv\n/reset\n/quit\n"
        result = run("chat", "-m", MODEL, "-n", "16", "--temperature", "0", "--log-level", "off", stdin=script)
        self.assertEqual(result.returncode, 0, result.stderr)
        reused = [int(line.rsplit(" ", 1)[1]) for line in result.stderr.splitlines() if "reused" in line]
        self.assertEqual(len(reused), 2, result.stderr)
        self.assertEqual(reused[0], 0)
        self.assertGreater(reused[1], 20)

    def test_help_version_completion(self):
        for args in (("help",), ("--help",), ("help", "run"), ("run", "--help"), ("--version",)):
            result = run(*args)
            self.assertEqual((result.returncode, result.stderr), (0, ""), args)
            self.assertTrue(result.stdout)
        self.assertIn("scalar", run("--version").stdout)
        for shell in ("bash", "zsh", "fish"):
            script = run("completion", shell).stdout
            self.assertIn("kv-cache-dtype", script)
        self.assertEqual(subprocess.run(["bash", "-n"], input=run("completion", "bash").stdout, text=True).returncode, 0)


class Interruption(unittest.TestCase):
    ARGS = (BINARY, "run", "-m", MODEL, "-p", "Write a very long story.", "-n", "4000", "--ignore-eos", "--log-level", "off")

    def test_ctrl_c_stops_within_a_step_and_sums_up(self):
        process = subprocess.Popen(self.ARGS, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(process.stdout.read(1))  # it is generating
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, errors = process.communicate(timeout=20)
        self.assertLess(time.monotonic() - start, 5)
        self.assertEqual(process.returncode, 130)
        self.assertIn(b"decode", errors)
        self.assertIn(b"cancelled", errors)

    def test_closed_stdout_ends_quietly(self):
        process = subprocess.Popen(self.ARGS, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(process.stdout.read(1))
        process.stdout.close()
        self.assertEqual(process.wait(timeout=20), 0)
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=1)
