"""What a user of a busy server feels: how long answers pause when a long prompt arrives, and what a common prefix saves. Times are
compared with times of the same run; none is compared with a constant."""
import json
import os
import random
import statistics
import subprocess
import threading
import time

import pytest

BINARY = os.environ.get("GAPLESS_BINARY", "build/release/gapless")


def prompt_ids(length, seed):
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(length)]


class Stream(threading.Thread):
    """Reads a streamed answer; `times` has the arrival of each token."""

    def __init__(self, server, seed):
        super().__init__()
        self.times = []
        body = {"prompt": prompt_ids(32, seed), "max_tokens": 400, "temperature": 0, "ignore_eos": True, "stream": True}
        self.socket = server.raw_post("/v1/completions", body)

    def run(self):
        with self.socket, self.socket.makefile("rb") as lines:
            for line in lines:
                if line.startswith(b"data: {"):
                    self.times.append(time.monotonic())
                elif line.startswith(b"data: [DONE]"):
                    return

    def gaps_between(self, begin, end):
        return [b - a for a, b in zip(self.times, self.times[1:]) if b > begin and a < end]


def device_steps(server):
    """(kind, tokens, seconds) of the steps on the device, from the trace."""
    events = json.loads(server.get("/trace")[1])["traceEvents"]
    device = [e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name" and e["args"]["name"] == "device"]
    return [(e["name"], e["args"]["tokens"], e["dur"] / 1e6) for e in events if e["ph"] == "X" and e["tid"] in device]


def pauses_beside_a_long_prompt(server):
    """The longest pause of each running answer while a prompt of 4,000 tokens is computed, and what one step with a chunk and one without
    take on the device."""
    streams = [Stream(server, seed) for seed in range(4)]
    for stream in streams:
        stream.start()
    while any(len(stream.times) < 20 for stream in streams):
        time.sleep(0.01)
    begin = time.monotonic()
    status, _ = server.post("/v1/completions", {"prompt": prompt_ids(4000, 99), "max_tokens": 1, "temperature": 0})
    end = time.monotonic()
    assert status == 200
    for stream in streams:
        stream.join()
    steps = device_steps(server)
    assert sum(tokens >= 400 for kind, tokens, _ in steps if kind == "mixed") == 8, "4,000 tokens in chunks of at most 512"
    gaps = [stream.gaps_between(begin, end) for stream in streams]
    assert min(map(len, gaps)) >= 8, "an answer goes on in every chunk"
    return max(map(max, gaps)), max(seconds for _, _, seconds in steps), statistics.median(seconds for kind, _, seconds in steps if kind == "decode")


def test_a_long_prompt_delays_running_answers_by_one_chunk(start_server):
    measured = []
    for _ in range(4):  # the client shares the machine and may be late itself: one run in which it is not is enough
        server = start_server("--context-length", 8192)
        measured.append(pauses_beside_a_long_prompt(server))
        server.stop()
        pause, chunk, step = measured[-1]
        if pause <= 1.2 * (chunk + step):
            return
    raise AssertionError(f"(pause, chunk, step): {measured}")


def seconds_with_a_common_prefix(server):
    command = [BINARY, "bench", "serve", "--url", server.url, "--concurrency", 32, "--requests", 32, "--shared-prefix", 1000, "--prompt-tokens", 1024,
               "--max-tokens", 16]
    answer = json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=600).stdout)
    assert answer["failed"] == 0 and answer["completion_tokens"] == 32 * 16
    return answer["seconds"]


@pytest.mark.full
def test_a_common_prefix_is_computed_once(start_server):
    """32 requests with 1,000 tokens in common, 24 of their own and 16 to come."""
    without = start_server("--disable-radix-cache")
    seconds = seconds_with_a_common_prefix(without)
    without.stop()
    assert seconds_with_a_common_prefix(start_server()) <= seconds / 6
