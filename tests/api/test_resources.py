"""Memory, start-up and how far one request can disturb others, measured on the real program. Times are compared with each other, never with a
constant."""
import json
import os
import threading
import time

import pytest

MIB = 1 << 20


def resident_bytes(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


@pytest.mark.parametrize("model, allowance", [("GAPLESS_SMOLLM2", 150 * MIB), ("GAPLESS_GEMMA3", 400 * MIB)])
def test_resident_memory_is_the_file_the_kv_in_use_and_little_else(start_server, model, allowance):
    path = os.environ[model]
    server = start_server(model=path)
    before = server.metrics()["gapless_kv_cached_tokens"]
    assert before == 0
    for i in range(8):
        status, _ = server.post("/v1/completions", {"prompt": [20 + i] + [50 + i] * 600, "max_tokens": 4, "temperature": 0})
        assert status == 200
    used = server.metrics()["gapless_kv_cached_tokens"]
    assert used >= 8 * 592
    kv_bytes = used * {"GAPLESS_SMOLLM2": 30 * 2 * 3 * 64 * 2, "GAPLESS_GEMMA3": 18 * 2 * 1 * 256 * 2}[model]
    assert resident_bytes(server) <= os.path.getsize(path) + kv_bytes + allowance


def stream_times(server, body):
    """When each event with text came."""
    connection = server.raw_post("/v1/completions", {**body, "stream": True})
    times, data = [], b""
    while b"data: [DONE]" not in data:
        piece = connection.recv(65536)
        if not piece:
            break
        times += [time.monotonic()] * piece.count(b'"finish_reason":null')
        data = (data + piece)[-1000:]
    connection.close()
    return times


def test_a_fa_1_a_long_prompt_does_not_freeze_the_streams(start_server):
    server = start_server("--chunked-prefill-size", 256)
    streams = [None] * 4
    def run(i):
        streams[i] = stream_times(server, {"prompt": [30 + i, 40, 50], "max_tokens": 400, "temperature": 0, "ignore_eos": True})
    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    while server.metrics()["gapless_generation_tokens_total"] < 20:
        time.sleep(0.01)
    begin = time.monotonic()
    status, answer = server.post("/v1/completions", {"prompt": [100 + i % 1000 for i in range(4096)], "max_tokens": 1, "temperature": 0})
    end = time.monotonic()
    assert status == 200, answer
    for thread in threads:
        thread.join()
    gaps = [b - a for times in streams for a, b in zip(times, times[1:]) if a < end and b > begin]
    tokens_meanwhile = sum(begin < t < end for times in streams for t in times)
    # 16 chunks: each stream goes on between any two, so its longest pause is about a sixteenth of the whole.
    assert tokens_meanwhile >= 4 * 12, json.dumps(gaps)
    assert max(gaps) < (end - begin) / 3
