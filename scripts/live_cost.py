#!/usr/bin/env python3
"""What one viewer of GET /live costs a server that is busy: scripts/live_cost.py [--pairs N] [--seconds S] PROGRAM ARGUMENT...

Starts `PROGRAM serve ARGUMENT...`, keeps 32 answers under way with `PROGRAM bench serve`, and goes through pairs of slices, one with a viewer and
one without, in the order ABBA. Prints the CPU time of the thread that feeds the viewer and of the scheduler's snapshots, as a share of a step, and
what the viewer does to the number of tokens."""
import argparse
import http.client
import json
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

STREAMS = 32


class Server:
    def __init__(self, program, arguments):
        port_file = pathlib.Path(tempfile.mkdtemp()) / "port"
        self.process = subprocess.Popen([program, "serve", *arguments, "--port", "0", "--port-file", port_file], stderr=subprocess.DEVNULL)
        while not port_file.exists():
            time.sleep(0.05)
        self.port = int(port_file.read_text())
        self.url = f"http://127.0.0.1:{self.port}"
        while self.get("/ready", check=False) is None:
            time.sleep(0.05)

    def get(self, path, check=True):
        try:
            return urllib.request.urlopen(self.url + path).read().decode()
        except OSError:
            if check:
                raise

    def counter(self, name):
        return sum(float(line.split()[-1]) for line in self.get("/metrics").splitlines() if line.split("{")[0].split(" ")[0] == name)

    def thread_cpu(self):
        """Seconds on a CPU of each thread, by name."""
        seconds = {}
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            name = (task / "comm").read_text().strip()
            seconds[name] = seconds.get(name, 0) + int((task / "schedstat").read_text().split()[0]) / 1e9
        return seconds


class Viewer:
    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port)
        self.connection.request("GET", "/live")
        self.response, self.bytes = self.connection.getresponse(), 0
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            while data := self.response.read1(1 << 20):
                self.bytes += len(data)
        except (OSError, http.client.HTTPException):
            pass

    def close(self):
        self.connection.sock.shutdown(2)
        self.thread.join()


def measure(server, seconds, watched):
    """One slice: {"tokens_per_s", "steps", "live_s", "snapshots": [us]}"""
    viewer = Viewer(server) if watched else None
    time.sleep(0.5)
    tokens, steps, cpu, begin = (server.counter("gapless_generation_tokens_total"), server.counter("gapless_steps_total"), server.thread_cpu(),
                                 time.monotonic())
    time.sleep(seconds)
    elapsed = time.monotonic() - begin
    cpu_after = server.thread_cpu()
    slice_ = {"tokens_per_s": (server.counter("gapless_generation_tokens_total") - tokens) / elapsed, "seconds": elapsed,
              "steps": server.counter("gapless_steps_total") - steps, "live_s": cpu_after.get("live", 0) - cpu.get("live", 0)}
    if viewer:
        events = json.loads(server.get(f"/trace?seconds={seconds}"))["traceEvents"]
        slice_["snapshots"] = [event["dur"] for event in events if event["ph"] == "X" and event["name"] == "snapshot"]
        slice_["bytes_per_s"] = viewer.bytes / (time.monotonic() - begin + 0.5)
        viewer.close()
        time.sleep(0.5)
    return slice_


def report(pairs):
    watched = [slices[True] for slices in pairs]
    steps, seconds = sum(s["steps"] for s in watched), sum(s["seconds"] for s in watched)
    snapshots = [us for s in watched for us in s["snapshots"]]
    step_us, live_us = 1e6 * seconds / steps, 1e6 * sum(s["live_s"] for s in watched) / steps
    snapshot_us = sum(snapshots) / steps
    print(f"step {step_us:.0f} us; of it thread live {live_us:.1f} us, snapshots {snapshot_us:.2f} us (one: {statistics.median(snapshots):.1f} us): "
          f"{100 * (live_us + snapshot_us) / step_us:.3f} %")
    print(f"{statistics.mean(s['bytes_per_s'] for s in watched) / 1000:.1f} KB/s to the viewer")
    ratios = [slices[True]["tokens_per_s"] / slices[False]["tokens_per_s"] for slices in pairs]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    print(f"tokens/s watched / not watched: {statistics.mean(ratios):.4f} +- {error:.4f} ({len(ratios)} pairs)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--load-tokens", type=int, default=2000, help="of each answer under way")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    server = Server(args.program, args.arguments)
    load = subprocess.Popen([args.program, "bench", "serve", "--url", server.url, "--concurrency", str(STREAMS), "--requests", "100000",
                             "--prompt-tokens", "32", "--max-tokens", str(args.load_tokens)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while server.counter("gapless_running_requests") < STREAMS:
            time.sleep(0.1)
        pairs = []
        for i in range(args.pairs):
            pairs.append({watched: measure(server, args.seconds, watched) for watched in ((True, False) if i % 2 == 0 else (False, True))})
        report(pairs)
    finally:
        load.kill()
        server.process.kill()


if __name__ == "__main__":
    main()
