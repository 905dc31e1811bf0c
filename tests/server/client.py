"""Starts a server for a test and calls it; nothing but Python's own library."""
import http.client
import json
import re
import signal
import subprocess
import threading
import time


class Server:
    """A running `turboquant serve`; its log is kept in `log`."""

    def __init__(self, binary, model, *flags):
        self.process = subprocess.Popen([binary, "serve", "-m", model, "--port", "0", *flags],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.log = []
        self.port = None
        for line in self.process.stderr:
            self.log.append(line)
            match = re.search(r"listening on http://[^ ]*:(\d+)", line)
            if match:
                self.port = int(match.group(1))
                break
        if self.port is None:
            raise RuntimeError(f"the server did not start: {''.join(self.log)}")
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def connect(self, timeout=120):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(self, path, body=None, headers=None, method=None):
        """(status, document or text, header fields)"""
        connection = self.connect()
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        connection.request(method or ("GET" if body is None else "POST"), path, data, headers or {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        is_json = response.headers.get("Content-Type", "").startswith("application/json") and text
        return response.status, json.loads(text) if is_json else text, response.headers

    def stream(self, path, body):
        """The events of a stream, as they came; "[DONE]" is the text itself."""
        connection = self.connect()
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        events = []
        for line in response:
            if line.startswith(b"data: "):
                data = line[6:].decode().strip()
                events.append(data if data == "[DONE]" else json.loads(data))
        connection.close()
        return events

    def metric(self, name):
        """The value of a metric without labels of its own; the sum over those that have some."""
        text = self.call("/metrics")[1]
        values = re.findall(rf"^turboquant:{name}(?:{{[^}}]*}})? ([0-9.e+-]+)$", text, re.M)
        assert values, f"no metric {name}"
        return sum(map(float, values))

    def wait_for(self, condition, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
            time.sleep(0.02)

    def stop(self, how=signal.SIGTERM):
        """The exit status. how: a signal; None where one has been sent."""
        if how is not None and self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(timeout=60)
        self.reader.join(timeout=10)
        self.process.stderr.close()
        return status
