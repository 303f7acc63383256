"""The real program behind the official client. GAPLESS_BINARY is the program, GAPLESS_SMOLLM2 the model (./dev test sets both).
`server` runs for the whole session; tests that stop a server or want other flags start their own with `start_server`."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

BINARY = os.environ.get("GAPLESS_BINARY", "build/release/gapless")
MODEL = os.environ.get("GAPLESS_SMOLLM2", "")


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


class Server:
    def __init__(self, process, port, log_path):
        self.process, self.port, self.log_path = process, port, log_path
        self.url = f"http://127.0.0.1:{port}"

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, body bytes); body: bytes as they are, else JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def get(self, path):
        status, _, body = self.request("GET", path)
        return status, body.decode()

    def post(self, path, body, timeout=60):
        status, _, answer = self.request("POST", path, body, timeout=timeout)
        return status, json.loads(answer)

    def stream(self, path, body):
        """The events of a stream: parsed JSON, and "[DONE]"."""
        status, headers, answer = self.request("POST", path, {**body, "stream": True})
        assert status == 200, answer
        assert headers["Content-Type"].startswith("text/event-stream")
        events = [block[6:] for block in answer.decode().split("\n\n") if block.startswith("data: ")]
        return [event if event == "[DONE]" else json.loads(event) for event in events]

    def metrics(self):
        """name (with labels in braces, if any) -> value"""
        values = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                labels = ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items()))
                values[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return values

    def raw(self, data):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.sendall(data)
        return connection

    def raw_post(self, path, body):
        data = json.dumps(body).encode()
        return self.raw(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(data), data))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def wait_idle(self, seconds=30):
        """Nothing runs, nothing waits, no KV token belongs to a request."""
        def idle():
            m = self.metrics()
            return m["gapless_running_requests"] == 0 and m["gapless_queued_requests"] == 0 and m["gapless_kv_used_tokens"] == 0
        wait_for(idle, seconds, "an idle server")

    def log(self):
        return self.log_path.read_text()

    def stop(self, sig=signal.SIGTERM, timeout=60):
        self.process.send_signal(sig)
        return self.process.wait(timeout)


@pytest.fixture(scope="session")
def start_server(tmp_path_factory):
    """start_server(*flags, ready=True) -> Server. All are ended with the session. model=None: the device brings its own."""
    started = []

    def start(*flags, ready=True, model=MODEL):
        folder = tmp_path_factory.mktemp("server")
        port_file, log_path = folder / "port", folder / "log"
        with open(log_path, "w") as log:
            process = subprocess.Popen([BINARY, "serve", *([model] if model else []), "--port", "0", "--port-file", str(port_file), *map(str, flags)],
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        started.append(process)
        wait_for(lambda: process.poll() is not None or port_file.exists(), 20, "the port file")
        assert process.poll() is None, log_path.read_text()
        server = Server(process, int(port_file.read_text()), log_path)
        if ready:
            wait_for(lambda: process.poll() is not None or server.get("/ready")[0] == 200, 60, "a ready server")
            assert process.poll() is None, log_path.read_text()
        return server

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture(scope="session")
def server(start_server):
    return start_server()


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id


def pytest_configure(config):
    config.addinivalue_line("markers", "full: takes long; only in the full tier")
