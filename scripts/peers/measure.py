"""One cell on one peer: start, warm up, load, read what it used, stop."""
import contextlib
import fcntl
import json
import pathlib
import socket
import time
import urllib.error
import urllib.request

import machine
from processes import Failure, Group, Usage, read_usage

WARM_UP_SEED = 99
BUSY_CORES = 0.15  # used by other programs or taken by the host: more than this and a measurement counts as disturbed


@contextlib.contextmanager
def holding(lock):
    """Other jobs that take the same lock file wait meanwhile."""
    if not lock:
        yield
        return
    with open(lock, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def wait_ready(server, url, seconds):
    end = time.monotonic() + seconds
    while not answers(url):
        if server.ended():
            raise Failure(f"ended with {server.exit_code} while starting: {server.last_line()}")
        if time.monotonic() > end:
            raise Failure(f"not ready within {seconds:.0f} s: {server.last_line()}")
        time.sleep(0.05)


def load_command(gapless, port, peer, cell, seed, requests, prompt, output):
    return [gapless, "bench", "serve", "--url", f"http://127.0.0.1:{port}", "--model", peer.model_name, "--concurrency", cell.streams,
            "--requests", requests, "--prompt-tokens", prompt, "--max-tokens", output, "--seed", seed]


def read_json(log):
    for line in reversed(pathlib.Path(log).read_text(errors="replace").splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise Failure(f"no figures in {log}")


class Watch:
    """What the peer's processes and the rest of the machine use between two moments."""

    def __init__(self, leader):
        self.leader = leader
        self.first, self.begin, self.clock = read_usage(leader), time.monotonic(), machine.read_clock()
        self.last = self.first

    def look(self):
        now = read_usage(self.leader)
        if now.peak_bytes:  # it has not ended
            self.last = Usage(now.cpu_s, now.run_delay_s, max(now.peak_bytes, self.last.peak_bytes))

    def figures(self, load_cpu_s):
        seconds = max(time.monotonic() - self.begin, 1e-9)
        clock = machine.read_clock()
        used = self.last.cpu_s - self.first.cpu_s
        return {"wall_s": seconds, "peak_bytes": self.last.peak_bytes, "server_cpu_s": used, "load_cpu_s": load_cpu_s,
                "other_cores": max(0.0, clock.busy - self.clock.busy - used - load_cpu_s) / seconds,
                "steal_cores": (clock.steal - self.clock.steal) / seconds,
                "run_delay_share": (self.last.run_delay_s - self.first.run_delay_s) / seconds}


def checked(figures, cell):
    """The same number of tokens for everybody, or no figure."""
    wanted = cell.requests * cell.output
    if figures["completion_tokens"] != wanted:
        raise Failure(f"{figures['completion_tokens']} tokens came, {wanted} were asked for")
    return figures


def measure_server(peer, cell, tools, folder, seconds):
    port = free_port()
    with Group(peer.command(cell, port), folder / "server.log", peer.environment) as server:
        wait_ready(server, f"http://127.0.0.1:{port}{peer.ready_path}", peer.start_seconds)
        warm = load_command(tools.gapless, port, peer, cell, WARM_UP_SEED, cell.streams, 32, 8)
        with Group(warm, folder / "warm.log") as load:
            load.wait(seconds, "warm-up")
        with holding(tools.lock):
            watch = Watch(server.pid)
            command = load_command(tools.gapless, port, peer, cell, cell.seed, cell.requests, cell.prompt, cell.output)
            with Group(command, folder / "load.log") as load:
                load.wait(seconds, "load", watch.look)
            watch.look()
            used = watch.figures(load.cpu_s)
    return checked({**read_json(folder / "load.log"), **used}, cell)


def measure_in_process(peer, cell, tools, folder, seconds):
    """The peer loads itself, so the load generator's time is within the peer's. It reports its own start of the measurement."""
    with holding(tools.lock):
        with Group(peer.command(cell, folder), folder / "load.log", peer.environment) as load:
            watch = Watch(load.pid)
            load.wait(seconds + peer.start_seconds, "load", watch.look)
            used = watch.figures(0)
    return checked({**read_json(folder / "load.log"), **used, "load_cpu_s": None}, cell)


def measure(peer, cell, tools, folder, tries=1, seconds=400):
    """Up to `tries` times while other programs keep the machine busy: the figures of the least disturbed one."""
    folder.mkdir(parents=True, exist_ok=True)
    once = measure_in_process if peer.in_process else measure_server
    best = None
    for _ in range(tries):
        figures = once(peer, cell, tools, folder, seconds)
        if best is None or disturbance(figures) < disturbance(best):
            best = figures
        if disturbance(best) <= BUSY_CORES:
            break
    return best


def disturbance(figures):
    return figures["other_cores"] + figures["steal_cores"]
