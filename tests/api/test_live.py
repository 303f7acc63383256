"""GET /live of a real server on the simulated accelerator: its figures are those of the metrics, its size has a bound, and it leaves nothing
behind."""
import concurrent.futures
import http.client
import json
import pathlib
import threading
import time

import pytest
from conftest import wait_for

FRAMES_A_SECOND, STATES_A_SECOND, BYTES_A_SECOND = 10, 2, 200_000


class Viewer:
    """Reads events on a thread of its own, from hello on; closed by leaving the block."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        self.connection.request("GET", "/live")
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        self.events, self.bytes, self.ended = [], 0, threading.Event()
        self.thread = threading.Thread(target=self.read)

    def read(self):
        try:
            name = None
            for line in self.response:
                self.bytes += len(line)
                if line.startswith(b"event: "):
                    name = line[7:].decode().strip()
                elif line.startswith(b"data: "):
                    self.events.append((name, json.loads(line[6:])))
        except (OSError, ValueError, http.client.HTTPException):
            pass  # closed from this side
        self.ended.set()

    def __enter__(self):
        self.thread.start()
        wait_for(lambda: self.events and self.events[0][0] == "hello", 10, "hello")
        return self

    def __exit__(self, *_):
        self.connection.sock.shutdown(2)
        self.thread.join()
        self.connection.close()

    def all(self, name):
        return [event for kind, event in list(self.events) if kind == name]

    def wait(self, name, condition, what):
        """The first event from now on that the condition holds for."""
        seen = len(self.events)

        def found():
            return next((e for kind, e in self.events[seen:] if kind == name and condition(e)), None)

        wait_for(found, 20, what)
        return found()


def threads(server):
    return [(task / "comm").read_text().strip() for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()]


@pytest.fixture(scope="module")
def sim(start_server):
    return start_server("--device", "sim:h100-llama3.2-1b", "--max-running-requests", 512, model=None)


@pytest.fixture
def load(sim):
    """load(choices, tokens): that many answers of so many tokens, in the background; all have ended with the test."""
    pool, posts = concurrent.futures.ThreadPoolExecutor(16), []

    def start(choices, tokens, rid=None):
        body = {"text": f"load {len(posts)}", "sampling_params": {"n": choices, "max_new_tokens": tokens, "ignore_eos": True}}
        posts.append(pool.submit(sim.post, "/generate", body | ({"rid": rid} if rid else {})))
        return posts[-1]

    yield start
    sim.post("/abort_request", {"abort_all": True})
    for post in posts:
        post.result(30)
    sim.wait_idle()


def test_the_figures_are_those_of_the_metrics(sim, load):
    before = sim.metrics()
    with Viewer(sim) as viewer:
        for post in [load(8, 300) for _ in range(4)]:
            assert post.result(60)[0] == 200
        sim.wait_idle()
        after = sim.metrics()
        end = viewer.all("frame")[-1]["to"]
        viewer.wait("frame", lambda frame: frame["from"] > end, "the last frame")
        viewer.wait("state", lambda state: state["running"] == 0, "the last state")

    def grown(name):
        return sum(value - before.get(key, 0) for key, value in after.items() if key.split("{")[0] == name)

    frames, states = viewer.all("frame"), viewer.all("state")
    assert sum(frame["steps"]["n"] for frame in frames) == grown("gapless_steps_total")
    assert sum(frame["steps"]["gap_us"]["n"] for frame in frames) == grown("gapless_device_gap_seconds_count")
    assert sum(frame["steps"]["tokens"] for frame in frames) >= grown("gapless_generation_tokens_total")
    for frame in frames:
        gap = frame["steps"]["gap_us"]
        assert gap["n"] == 0 or 0 <= gap["p50"] <= gap["p99"] <= gap["max"]
        assert 0 <= frame["steps"]["busy"] <= 1
    # The frames join up, and none of their figures is lost where spans are.
    assert all(a["to"] <= b["from"] for a, b in zip(frames, frames[1:]))
    assert states[-1]["tokens"]["generated"] == after["gapless_generation_tokens_total"]
    assert states[-1]["kv"]["evictable"] == states[-1]["kv"]["tree"]


def test_a_switch_of_the_loop_is_seen_in_the_gaps(sim, load):
    with Viewer(sim) as viewer:
        load(32, 8000)
        p50 = {}
        for loop in ("normal", "overlap"):
            assert sim.post("/scheduler/loop", {"loop": loop})[0] == 200
            viewer.wait("frame", lambda frame: frame["loop"] == loop, "a frame of the loop")
            frames = [viewer.wait("frame", lambda frame: frame["steps"]["gap_us"]["n"] > 20, "gaps") for _ in range(5)]
            p50[loop] = min(frame["steps"]["gap_us"]["p50"] for frame in frames)
    assert p50["overlap"] < p50["normal"], p50


def test_a_request_is_found_and_ended_by_its_number(sim, load):
    with Viewer(sim) as viewer:
        load(1, 8000, "other")
        post = load(2, 8000, "mine")
        state = viewer.wait("state", lambda state: len(state["requests"]) == 3 and state["running"] == 3, "three choices")
        mine = [request for request in state["requests"] if request["rid"] == "mine"]
        assert [request["choice"] for request in mine] == [0, 1]
        assert all(request["phase"] in ("prefill", "decode") and request["max"] == 8000 for request in mine)
        assert sim.post("/abort_request", {"id": mine[0]["id"]}) == (200, {"aborted": 1})
        assert all(answer["meta_info"]["finish_reason"]["type"] == "abort" for answer in post.result(30)[1])
        viewer.wait("state", lambda state: [request["rid"] for request in state["requests"]] == ["other"], "the other alone")


def test_a_thousand_requests_stay_in_the_budget(sim, load):
    for _ in range(8):
        load(125, 8000)
    with Viewer(sim) as viewer:
        viewer.wait("state", lambda state: state["running"] + state["queued"] == 1000, "a thousand requests")
        begin, seen, read = time.monotonic(), len(viewer.events), viewer.bytes
        time.sleep(3)
        seconds, events = time.monotonic() - begin, viewer.events[seen:]
        read = viewer.bytes - read
    # One of each more: what was under way when the clock started.
    frames, states = ([event for kind, event in events if kind == name] for name in ("frame", "state"))
    assert len(frames) <= FRAMES_A_SECOND * seconds + 1 and len(states) <= STATES_A_SECOND * seconds + 1
    assert read <= BYTES_A_SECOND * (seconds + 0.5)
    assert states and all(len(state["requests"]) + state["requests_left_out"] == 1000 for state in states)
    assert all(len(frame["steps"]["gaps"]) <= 100 for frame in frames)


def test_without_a_viewer_there_is_no_thread(sim):
    wait_for(lambda: "live" not in threads(sim), 10, "the end of the thread")
    with Viewer(sim), Viewer(sim):
        assert threads(sim).count("live") == 1
    wait_for(lambda: "live" not in threads(sim), 10, "the end of the thread")


def test_pages_of_others_cannot_watch(sim):
    assert sim.request("GET", "/live", headers={"Origin": "http://page.example"})[0] == 403


def test_the_stream_ends_when_the_server_drains(start_server):
    server = start_server("--device", "sim:zero", model=None)
    with Viewer(server) as viewer:
        assert server.stop() == 0
        assert viewer.ended.wait(10)
