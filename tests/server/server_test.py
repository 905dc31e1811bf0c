#!/usr/bin/env python3
"""The server as a client meets it: OpenAI's shapes, streams, faults, many at once, clients that go, the end.

Usage: server_test.py BINARY MODEL TINY_MODEL [unittest arguments]
"""
import concurrent.futures
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from client import Server

BINARY, MODEL, TINY = sys.argv[1:4]
MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1"
QUESTIONS = [f"Write a sentence about {topic}." for topic in
             ("rivers", "bread", "the moon", "horses", "glass", "rain", "letters", "iron")]


def chat(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 24, **fields}


def answer_of(document):
    return document["choices"][0]["message"]["content"]


class OnTheDefaultModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(BINARY, MODEL, "--max-model-len", "1024", "--max-num-seqs", "4")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def ask(self, text, **fields):
        status, document, _ = self.server.call("/v1/chat/completions", chat(text, **fields))
        self.assertEqual(status, 200, document)
        return document

    def test_says_what_run_says(self):
        run = subprocess.run([BINARY, "run", "-m", MODEL, "-p", QUESTIONS[0], "-n", "24", "--max-model-len", "1024", "--json"],
                             capture_output=True, text=True, check=True)
        expected = json.loads(run.stdout)
        document = self.ask(QUESTIONS[0])
        self.assertEqual(answer_of(document), expected["text"])
        self.assertEqual(document["usage"]["prompt_tokens"], expected["prompt_tokens"])
        self.assertEqual(document["usage"]["completion_tokens"], expected["generated_tokens"])
        self.assertEqual(document["choices"][0]["finish_reason"], expected["finish_reason"])
        self.assertEqual(document["model"], MODEL_NAME)

    def test_stream_says_the_same(self):
        whole = self.ask(QUESTIONS[1])
        events = self.server.stream("/v1/chat/completions", chat(QUESTIONS[1], stream_options={"include_usage": True}))
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-2])
        self.assertEqual(text, answer_of(whole))
        self.assertEqual(events[-3]["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"])
        self.assertEqual(events[-2]["choices"], [])
        self.assertEqual(events[-2]["usage"]["total_tokens"], whole["usage"]["total_tokens"])
        self.assertEqual(len({event["id"] for event in events[:-1]}), 1)

    def test_many_at_once_say_what_each_says_alone(self):
        alone = [answer_of(self.ask(question)) for question in QUESTIONS]
        with concurrent.futures.ThreadPoolExecutor(len(QUESTIONS)) as pool:
            together = list(pool.map(lambda question: answer_of(self.ask(question)), QUESTIONS))
        self.assertEqual(together, alone)

    def test_a_second_turn_computes_only_what_is_new(self):
        first = self.ask("Name three colours.", max_tokens=40)
        messages = [{"role": "user", "content": "Name three colours."},
                    {"role": "assistant", "content": answer_of(first)}, {"role": "user", "content": "And a fourth?"}]
        again = {**chat(""), "messages": messages}
        second = self.server.call("/v1/chat/completions", again)[1]
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreaterEqual(cached, first["usage"]["prompt_tokens"])
        fresh = Server(BINARY, MODEL, "--max-model-len", "1024")
        try:
            unshared = fresh.call("/v1/chat/completions", again)[1]
        finally:
            fresh.stop()
        self.assertEqual(unshared["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(answer_of(unshared), answer_of(second))

    def test_seeds_repeat_and_differ(self):
        texts = [answer_of(self.ask("Tell me a story.", temperature=1.5, seed=seed)) for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_completions_of_text_and_tokens(self):
        call = {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 4}
        _, text, _ = self.server.call("/v1/completions", call)
        self.assertIn("Paris", text["choices"][0]["text"])
        self.assertEqual(text["object"], "text_completion")
        _, tokens, _ = self.server.call("/tokenize", {"prompt": call["prompt"]})
        _, same, _ = self.server.call("/v1/completions", {**call, "prompt": tokens["tokens"]})
        self.assertEqual(same["choices"][0]["text"], text["choices"][0]["text"])
        _, back, _ = self.server.call("/detokenize", {"tokens": tokens["tokens"]})
        self.assertEqual(back["prompt"], call["prompt"])

    def test_stop_strings_end_the_answer(self):
        whole = answer_of(self.ask(QUESTIONS[2]))
        stop = whole.split()[3]
        document = self.ask(QUESTIONS[2], stop=[stop])
        self.assertEqual(answer_of(document), whole[:whole.index(stop)])
        self.assertEqual(document["choices"][0]["finish_reason"], "stop")

    def test_prompts_that_do_not_fit(self):
        status, document, _ = self.server.call("/v1/completions", {"prompt": "word " * 2000})
        self.assertEqual((status, document["error"]["code"]), (400, "context_length_exceeded"))
        self.assertIn("1024", document["error"]["message"])
        # A stream that is refused is no stream.
        self.assertEqual(self.server.call("/v1/completions", {"prompt": "word " * 2000, "stream": True})[0], 400)

    def test_what_the_server_says_of_itself(self):
        status, models, _ = self.server.call("/v1/models")
        self.assertEqual((status, models["data"][0]["id"], models["data"][0]["max_model_len"]), (200, MODEL_NAME, 1024))
        self.assertEqual(self.server.call(f"/v1/models/{MODEL_NAME}")[0], 200)
        self.assertEqual(self.server.call("/v1/models/other")[0], 404)
        self.assertEqual(self.server.call("/health")[1], {"status": "ok"})
        kv = self.server.call("/v1/kv")[1]
        self.assertEqual((kv["max_num_seqs"], kv["max_model_len"], kv["bits_per_value"]), (4, 1024, 8.25))
        plan = subprocess.run([BINARY, "plan", "-m", MODEL, "--max-model-len", "1024", "--max-num-seqs", "4", "--json"],
                              capture_output=True, text=True, check=True)
        planned = json.loads(plan.stdout)["kv"]
        self.assertEqual(kv["pool_bytes"], planned["pool_bytes"])
        self.assertIn("version", self.server.call("/version")[1])

    def test_metrics_count(self):
        before = {name: self.server.metric(name) for name in
                  ("prompt_tokens_total", "generation_tokens_total", "request_success_total", "time_to_first_token_seconds_count")}
        usage = self.ask("Count me.")["usage"]
        self.assertEqual(self.server.metric("prompt_tokens_total") - before["prompt_tokens_total"], usage["prompt_tokens"])
        self.assertEqual(self.server.metric("generation_tokens_total") - before["generation_tokens_total"], usage["completion_tokens"])
        self.assertEqual(self.server.metric("request_success_total") - before["request_success_total"], 1)
        self.assertEqual(self.server.metric("time_to_first_token_seconds_count") - before["time_to_first_token_seconds_count"], 1)
        self.assertEqual(self.server.metric("num_requests_running"), 0)


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(BINARY, TINY, "--max-model-len", "4096", "--max-num-seqs", "2", "--max-num-queued-reqs", "1",
                            "--served-model-name", "tiny", "-t", "1")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def long_call(self, tokens=4000):
        return {"model": "tiny", "prompt": "a", "max_tokens": tokens, "ignore_eos": True, "temperature": 0}

    def open_stream(self, tokens=4000):
        """A stream under way: its socket, with the first event read."""
        sock = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
        body = json.dumps({**self.long_call(tokens), "stream": True}).encode()
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        data = b""
        while b"data: " not in data:
            data += sock.recv(4096)
        return sock

    def idle(self):
        return self.server.metric("num_requests_running") == 0 and self.server.metric("num_requests_waiting") == 0

    def raw(self, data):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            reply = b""
            while chunk := sock.recv(65536):
                reply += chunk
        return reply.decode(errors="replace")

    def test_errors_have_the_shape_that_clients_read(self):
        for path, body, status, code, param in (
                ("/v1/chat/completions", "{", 400, "invalid_json", None),
                ("/v1/chat/completions", {"messages": []}, 400, "invalid_value", "messages"),
                ("/v1/completions", {"prompt": "a", "temperature": 9}, 400, "invalid_value", "temperature"),
                ("/v1/completions", {"prompt": "a", "n": 3}, 400, "unsupported_parameter", "n"),
                ("/v1/completions", {"prompt": "a", "model": "other"}, 404, "model_not_found", "model"),
                ("/v1/completions", {"prompt": [10 ** 6]}, 400, None, None),
                ("/detokenize", {"tokens": [10 ** 6]}, 400, "invalid_value", "tokens"),
                ("/no/such/path", {}, 404, "not_found", None),
                ("/v1/models", {}, 405, "method_not_allowed", None)):
            got, document, headers = self.server.call(path, body)
            self.assertEqual((got, document["error"]["code"], document["error"]["param"]), (status, code, param), path)
            self.assertTrue(document["error"]["message"] and document["error"]["type"])
            self.assertTrue(headers["X-Request-Id"])

    def test_request_ids_come_back(self):
        self.assertEqual(self.server.call("/health", headers={"X-Request-Id": "abc"})[2]["X-Request-Id"], "abc")

    def test_a_client_that_goes_is_noticed(self):
        for wait in ("stream", "whole"):
            before = self.server.metric("request_success_total")
            if wait == "stream":
                sock = self.open_stream()
            else:
                sock = socket.create_connection(("127.0.0.1", self.server.port))
                body = json.dumps(self.long_call()).encode()
                sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                self.server.wait_for(lambda: self.server.metric("num_requests_running") == 1, "the request runs")
            sock.close()
            self.server.wait_for(self.idle, "the request is cancelled", seconds=5)
            self.server.wait_for(lambda: self.server.metric("request_success_total") == before + 1, "it is counted", seconds=5)
        text = self.server.call("/metrics")[1]
        self.assertRegex(text, r'finished_reason="cancelled"[^\n]* 2')

    def test_more_than_can_wait_are_refused(self):
        streams = [self.open_stream() for _ in range(2)]
        waiting = threading.Thread(target=lambda: self.server.call("/v1/completions", self.long_call(2)))
        waiting.start()
        self.server.wait_for(lambda: self.server.metric("num_requests_waiting") == 1, "one waits")
        status, document, headers = self.server.call("/v1/completions", self.long_call(2))
        self.assertEqual((status, document["error"]["code"]), (503, "overloaded"))
        self.assertTrue(headers["Retry-After"])
        self.assertEqual(self.server.call("/health")[0], 200)
        for sock in streams:
            sock.close()
        waiting.join()
        self.server.wait_for(self.idle, "all is over")

    def test_one_connection_takes_many_calls(self):
        connection = self.server.connect()
        for _ in range(3):
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().read(), b'{"status":"ok"}')
            connection.request("POST", "/v1/completions", json.dumps({**self.long_call(3), "stream": True}))
            self.assertTrue(connection.getresponse().read().endswith(b"data: [DONE]\n\n"))
        connection.close()

    def test_calls_sent_at_once_are_answered_in_turn(self):
        body = json.dumps(self.long_call(3))
        call = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        last = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as sock:
            sock.sendall((call + call + last).encode())
            reply = b""
            while chunk := sock.recv(65536):
                reply += chunk
        self.assertEqual(re.findall(rb"HTTP/1.1 (\d+)", reply), [b"200"] * 3)
        self.assertEqual(reply.count(b'"text_completion"'), 2)

    def test_bytes_that_are_no_http(self):
        self.assertIn("HTTP/1.1 400", self.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n"))
        self.assertIn("HTTP/1.1 400", self.raw(b"GET / HTTP/9.9\r\n\r\n"))
        self.assertIn("HTTP/1.1 431", self.raw(b"GET / HTTP/1.1\r\nA: " + b"x" * 100000 + b"\r\n\r\n"))
        self.assertIn("HTTP/1.1 413", self.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"))
        self.assertEqual(self.server.call("/health")[0], 200)

    def test_pages_of_others_may_not_call(self):
        self.assertEqual(self.server.call("/health", headers={"Host": "evil.example"})[0], 403)
        self.assertEqual(self.server.call("/health", headers={"Origin": "https://evil.example"})[0], 403)
        headers = self.server.call("/health", headers={"Origin": "http://localhost:3000"})[2]
        self.assertEqual(headers["Access-Control-Allow-Origin"], "http://localhost:3000")


class StartAndEnd(unittest.TestCase):
    def test_taken_port(self):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            sock.listen()
            port = sock.getsockname()[1]
            result = subprocess.run([BINARY, "serve", "-m", TINY, "--port", str(port), "--log-level", "off"],
                                    capture_output=True, text=True, timeout=60)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(f"port {port}", result.stderr)
        self.assertIn("--port", result.stderr)

    def test_no_such_address(self):
        result = subprocess.run([BINARY, "serve", "-m", TINY, "--host", "nowhere", "--log-level", "off"],
                                capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 2)
        self.assertIn("nowhere", result.stderr)

    def test_key(self):
        server = Server(BINARY, TINY, "--api-key", "secret")
        try:
            self.assertEqual(server.call("/v1/models")[0], 401)
            self.assertEqual(server.call("/v1/models", headers={"Authorization": "Bearer secret"})[0], 200)
            self.assertEqual(server.call("/health")[0], 200)
        finally:
            server.stop()

    def answer_under_way(self, server, tokens):
        """Starts a call; returns the thread and a list that gets its reply."""
        replies = []
        body = {"prompt": "a", "max_tokens": tokens, "ignore_eos": True}
        thread = threading.Thread(target=lambda: replies.append(server.call("/v1/completions", body)))
        thread.start()
        server.wait_for(lambda: server.metric("num_requests_running") == 1, "the request runs")
        return thread, replies

    def test_sigterm_lets_answers_end(self):
        server = Server(BINARY, TINY, "-t", "1")
        thread, replies = self.answer_under_way(server, 1000)
        server.process.send_signal(signal.SIGTERM)
        thread.join(timeout=60)
        self.assertEqual(server.stop(None), 0)
        status, document, _ = replies[0]
        self.assertEqual((status, document["usage"]["completion_tokens"]), (200, 1000))

    def test_sigterm_cuts_what_takes_too_long(self):
        server = Server(BINARY, TINY, "-t", "1", "--shutdown-timeout", "0.2", "--max-model-len", "65536")
        thread, replies = self.answer_under_way(server, 60000)
        start = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        thread.join(timeout=60)
        self.assertEqual(server.stop(None), 0)
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual(replies[0][0], 503)
        self.assertIn("shutting down", replies[0][1]["error"]["message"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
