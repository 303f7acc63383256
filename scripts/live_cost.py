#!/usr/bin/env python3
"""What one viewer of GET /live costs a server that is busy: scripts/live_cost.py [--pairs N] [--seconds S] PROGRAM ARGUMENT...

Starts `PROGRAM serve ARGUMENT...`, keeps 32 answers under way with `PROGRAM bench serve`, and goes through pairs of slices, one with a viewer and
one without, in the order ABBA. Prints the CPU time of everything that feeds the viewer, as a share of a step, and
what the viewer does to the time from one step to the next."""
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
STATES_A_SECOND = 2


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
        self.response = self.connection.getresponse()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            while self.response.read1(1 << 20):
                pass
        except (OSError, http.client.HTTPException):
            pass

    def close(self):
        self.connection.sock.shutdown(2)
        self.thread.join()


def sending_us_per_s(server, seconds):
    """CPU of the http thread for the viewer's events, while it has nothing else to do."""
    viewer = Viewer(server)
    time.sleep(0.5)
    before = server.thread_cpu()["http"]
    time.sleep(seconds)
    spent = server.thread_cpu()["http"] - before
    viewer.close()
    return 1e6 * spent / seconds


def measure(server, seconds, watched):
    """One slice: what its steps of all streams took, from one's begin to the next one's, and what the viewer cost."""
    viewer = Viewer(server) if watched else None
    time.sleep(0.5)
    cpu = server.thread_cpu()
    time.sleep(seconds)
    live = server.thread_cpu().get("live", 0) - cpu.get("live", 0)
    spans = [event for event in json.loads(server.get(f"/trace?seconds={seconds}"))["traceEvents"] if event["ph"] == "X"]
    if viewer:
        viewer.close()
        time.sleep(0.5)
    begins = [span["ts"] for span in spans if span["name"] == "decode" and span["args"]["rows"] == STREAMS]
    return {"step_us": statistics.median(b - a for a, b in zip(begins, begins[1:])), "live_us_per_s": 1e6 * live / seconds,
            "snapshots": [span["dur"] for span in spans if span["name"] == "snapshot"]}


def report(pairs, sending):
    watched = [slices[True] for slices in pairs]
    step = statistics.median(s["step_us"] for s in watched)
    live = statistics.median(s["live_us_per_s"] for s in watched)
    snapshot = statistics.median(us for s in watched for us in s["snapshots"])
    cost = (live + sending + STATES_A_SECOND * snapshot) / 1e6
    print(f"CPU in a second: {live:.0f} us to make the events, {sending:.0f} us to send them, {STATES_A_SECOND} snapshots of {snapshot:.1f} us; "
          f"{cost * step:.1f} us of a step of {step:.0f} us: {100 * cost:.3f} %")
    ratios = [slices[True]["step_us"] / slices[False]["step_us"] for slices in pairs]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    print(f"time of a step, watched / not watched: {statistics.mean(ratios):.4f} +- {error:.4f} (median {statistics.median(ratios):.4f}, {len(ratios)} pairs)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--load-tokens", type=int, default=2000, help="of each answer under way")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    server = Server(args.program, args.arguments)
    sending = sending_us_per_s(server, args.seconds)
    load = subprocess.Popen([args.program, "bench", "serve", "--url", server.url, "--concurrency", str(STREAMS), "--requests", "100000",
                             "--prompt-tokens", "32", "--max-tokens", str(args.load_tokens)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while server.counter("gapless_running_requests") < STREAMS:
            time.sleep(0.1)
        pairs = []
        for i in range(args.pairs):
            pairs.append({watched: measure(server, args.seconds, watched) for watched in ((True, False) if i % 2 == 0 else (False, True))})
        report(pairs, sending)
    finally:
        load.kill()
        server.process.kill()


if __name__ == "__main__":
    main()
