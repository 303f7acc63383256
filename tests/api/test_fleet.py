"""A fleet: workers behind sglang-router 0.3.2, started as docs/fleet.md says. GAPLESS_ROUTER_PYTHON is a Python that has the package
(./dev test --full installs it)."""
import http.client
import os
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import Server, wait_for

pytestmark = pytest.mark.full

PACED = "sim:h100-llama3-8b"  # answers take as long as on such a machine, so that a worker can be lost in the middle of them


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def start_fleet(start_server, tmp_path):
    """start_fleet(device, policy) -> (router, workers). All are ended with the test."""
    started = []

    def start(device, policy):
        workers = [start_server("--device", device, model=None) for _ in range(2)]
        started.extend(worker.process for worker in workers)
        port, log_path = free_port(), tmp_path / f"router-{len(started)}.log"
        command = [os.environ["GAPLESS_ROUTER_PYTHON"], "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", port,
                   "--prometheus-port", free_port(), "--policy", policy, "--health-check-endpoint", "/ready", "--worker-urls", *(w.url for w in workers)]
        with open(log_path, "w") as log:
            process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        started.append(process)
        router = Server(process, port, log_path)

        def registered():
            assert process.poll() is None, router.log()
            try:
                return b'"healthy_workers":2' in router.request("GET", "/readiness")[2]
            except OSError:
                return False  # it does not listen yet
        wait_for(registered, 60, "two workers behind the router")
        return router, workers

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_router_reaches_every_endpoint_of_a_worker(start_fleet):
    router, workers = start_fleet("sim", "round_robin")
    status, answer = router.post("/generate", {"text": "a river", "sampling_params": {"max_new_tokens": 4, "temperature": 0}})
    assert status == 200 and answer["meta_info"]["completion_tokens"] == 4, answer
    assert answer["text"] == workers[0].post("/v1/completions", {"prompt": "a river", "max_tokens": 4, "temperature": 0})[1]["choices"][0]["text"]
    events = router.stream("/generate", {"text": "a river", "sampling_params": {"max_new_tokens": 4, "temperature": 0}})
    assert events[-1] == "[DONE]" and events[-2]["text"] == answer["text"]
    events = router.stream("/v1/chat/completions", {"model": "sim", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "ignore_eos": True})
    assert events[-1] == "[DONE]" and events[-2]["choices"][0]["finish_reason"] == "length"
    loads = router.request("GET", "/get_loads")[2]
    assert loads.count(b'"load":0') == 2, loads
    for worker in workers:
        worker.wait_idle()
    assert router.request("POST", "/flush_cache", b"")[0] == 200
    assert all(worker.metrics()["gapless_kv_cached_tokens"] == 0 for worker in workers)


def cached_tokens(router):
    """Nine chats of four turns by turns, each turn with all of the chat before it: what the prefix caches of the workers save."""
    cached = 0
    chats = [f"chat {i}: " + f"{i} " * 200 for i in range(9)]  # an odd number: who goes round meets another worker in the next turn
    for _ in range(4):
        for i, chat in enumerate(chats):
            status, answer = router.post("/v1/completions", {"model": "sim", "prompt": chat, "max_tokens": 8, "ignore_eos": True})
            assert status == 200, answer
            cached += answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            chats[i] += answer["choices"][0]["text"] + " and then?" * 10
    return cached


def test_prefix_affinity_raises_the_hit_rate(start_fleet):
    aware, by_turns = cached_tokens(start_fleet("sim", "cache_aware")[0]), cached_tokens(start_fleet("sim", "round_robin")[0])
    assert aware > 1.3 * by_turns > 0, (aware, by_turns)


@pytest.mark.parametrize("stream", [False, True])
def test_a_worker_is_lost_under_load(start_fleet, stream):
    router, workers = start_fleet(PACED, "cache_aware")
    killed_at, outcomes, lock = [], [], threading.Lock()

    def ask(body):
        if not stream:
            return router.post("/generate", body, timeout=30)[0]
        try:
            events = router.stream("/generate", body)
            return 200 if events and events[-1] == "[DONE]" else 599
        except (AssertionError, OSError, http.client.HTTPException):
            return 598  # refused, or cut off

    def client(i):
        for turn in range(8):
            began = time.monotonic()
            status = ask({"text": f"{i} and {turn}", "sampling_params": {"max_new_tokens": 100, "ignore_eos": True}})
            with lock:
                outcomes.append((began, status))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    wait_for(lambda: all(worker.metrics()["gapless_running_requests"] > 0 for worker in workers), 30, "both workers at work")
    workers[0].process.send_signal(signal.SIGKILL)
    killed_at.append(time.monotonic())
    for thread in threads:
        thread.join(timeout=90)
    assert not any(thread.is_alive() for thread in threads), "a request hangs"
    assert len(outcomes) == 64
    late = [status for began, status in outcomes if began > killed_at[0]]
    assert len(late) > 8 and set(late) == {200}, late
    workers[1].wait_idle()
