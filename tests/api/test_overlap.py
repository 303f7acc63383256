"""The overlap loop from outside: the same answers as the normal loop while it is switched, on the CPU and on the simulated accelerator,
and (full tier) that it is not slower."""
import concurrent.futures
import json
import os
import subprocess
import threading

import openai
import pytest

BINARY = os.environ.get("GAPLESS_BINARY", "build/release/gapless")


def switch(server, loop):
    status, answer = server.post("/scheduler/loop", {"loop": loop})
    assert status == 200 and answer == {"loop": loop}, answer


def requests():
    """Mixed: greedy, sampled with a seed, penalties, logprobs, stop strings, several choices."""
    for i in range(24):
        yield {
            "prompt": "The " + "quick brown fox " * (i % 5 + 1) + str(i % 7),
            "max_tokens": 8 + i % 17,
            "temperature": 0 if i % 3 == 0 else 0.9,
            "seed": i,
            "n": 1 + i % 2,
            "frequency_penalty": 0.5 if i % 4 == 0 else 0,
            "logprobs": 2 if i % 5 == 0 else None,
            "stop": ["e "] if i % 6 == 0 else None,
        }


def ask(server, request):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)
    answer = client.completions.create(model="default", **request)
    return [(c.text, c.finish_reason, c.logprobs and c.logprobs.token_logprobs) for c in answer.choices]


def flags_of(device):
    return ("--device", device) if device != "cpu" else ()


@pytest.mark.parametrize("device", ["cpu", "sim:zero"])
def test_both_loops_and_switches_between_them_give_one_answer(start_server, device):
    server = start_server(*flags_of(device), **({"model": None} if device != "cpu" else {}))
    switch(server, "normal")
    want = [ask(server, request) for request in requests()]
    end = threading.Event()

    def keep_switching():
        while not end.is_set():
            for loop in ("overlap", "normal"):
                switch(server, loop)
                end.wait(0.005)

    for switching in (False, True):
        switch(server, "overlap")
        switcher = threading.Thread(target=keep_switching if switching else lambda: None)
        switcher.start()
        try:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                assert list(pool.map(lambda request: ask(server, request), requests())) == want
        finally:
            end.set()
            switcher.join()
    server.wait_idle()
    assert server.metrics()["gapless_kv_healed_total"] == 0


def test_the_trace_of_a_server_can_be_read(start_server, tmp_path):
    server = start_server("--device", "sim:h100-llama3.2-1b", model=None)
    ask(server, {"prompt": "one two three", "max_tokens": 60, "logit_bias": {"2": -100, "3": -100}})
    trace = tmp_path / "trace.json"
    trace.write_text(server.get("/trace")[1])
    report = json.loads(subprocess.run([BINARY, "trace", trace, "--json"], check=True, capture_output=True).stdout)
    assert report["steps"] >= 60, report
    # A look-ahead of one: the device waits for nobody once it has begun.
    assert report["device_busy_with_work"] > 0.5, report


@pytest.mark.full
@pytest.mark.parametrize("batch", [1, 8, 32])
@pytest.mark.parametrize("model", ["GAPLESS_SMOLLM2", "GAPLESS_GEMMA3"])
def test_a_ovl_10_overlap_is_not_slower_on_small_models(model, batch):
    """As many pairs of slices as the bound needs: 95 % sure that overlap has at least 0.98 of the normal loop's rate."""
    for pairs in (20, 60, 200):
        command = [BINARY, "bench", "overlap", os.environ[model], "--batch", batch, "--pairs", pairs, "--prompt-len", 64, "--json"]
        answer = subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=900).stdout
        ratio = json.loads(answer)["overlap_over_normal"]
        if ratio["low"] >= 0.98:
            return
    pytest.fail(f"overlap / normal on {model} at {batch}: {ratio}")
