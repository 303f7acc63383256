"""Starts the program that is tested: GAPLESS_BINARY, with the model files GAPLESS_SMOLLM2 and GAPLESS_GEMMA3 (./dev test sets all three)."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.error
import urllib.request

BINARY = os.environ["GAPLESS_BINARY"]
SMOLLM2 = os.environ["GAPLESS_SMOLLM2"]
GEMMA3 = os.environ["GAPLESS_GEMMA3"]


def run(*arguments, stdin="", timeout=120):
    return subprocess.run([BINARY, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=timeout)


class Server:
    def __init__(self, process, port, log):
        self.process, self.port, self.log_path = process, port, log
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path, timeout=10):
        try:
            with urllib.request.urlopen(self.url + path, timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path, body, timeout=120):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def log(self):
        return self.log_path.read_text()

    def stop(self, sig=signal.SIGTERM, timeout=60):
        self.process.send_signal(sig)
        return self.process.wait(timeout)


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


@contextlib.contextmanager
def serving(tmp_path, *flags, model=SMOLLM2, ready=True):
    port_file, log_path = pathlib.Path(tmp_path) / "port", pathlib.Path(tmp_path) / "log"
    with open(log_path, "w") as log:
        process = subprocess.Popen([BINARY, "serve", model, "--port", "0", "--port-file", str(port_file), *map(str, flags)],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_for(lambda: process.poll() is not None or (port_file.exists() and port_file.read_text().strip()), 10, "the port file")
        assert process.poll() is None, log_path.read_text()
        server = Server(process, int(port_file.read_text()), log_path)
        if ready:
            wait_for(lambda: server.get("/ready")[0] == 200, 60, "ready: " + log_path.read_text())
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
