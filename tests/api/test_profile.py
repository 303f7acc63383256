"""serve --profile and GET /profile: where the time of a running server's steps goes."""
import json

import pytest


@pytest.fixture(scope="module")
def profiled(start_server):
    return start_server("--profile")


def by_kind(server):
    return {steps["kind"]: steps for steps in json.loads(server.get("/profile")[1])["steps"]}


def test_a_server_without_the_flag_says_how_to_switch_it_on(server):
    status, body = server.get("/profile")
    assert status == 400 and "--profile" in json.loads(body)["error"]["message"]


def test_ops_add_up_to_their_steps_and_count_their_work(profiled):
    profiled.post("/profile", {})
    profiled.post("/v1/completions", {"prompt": "the river", "max_tokens": 32, "ignore_eos": True})
    decode = by_kind(profiled)["decode"]
    assert decode["steps"] >= 20 and decode["tokens"] == decode["steps"]
    assert sum(op["seconds"] for op in decode["ops"]) == pytest.approx(decode["seconds"], rel=1e-6)
    ops = {op["op"]: op for op in decode["ops"]}
    head = next(op for label, op in ops.items() if label.startswith("token_embd 49152x576"))
    assert head["calls"] == decode["steps"]
    assert head["int8_ops"] == decode["steps"] * 2 * 49152 * 576
    assert {"attention", "rms_norm", "rope_kv", "sample_scan", "copy"} <= ops.keys()
    assert all(op["seconds"] > 0 for op in decode["ops"])


def test_it_begins_anew_and_has_a_table_for_people(profiled):
    profiled.post("/profile", {})
    assert by_kind(profiled) == {}
    profiled.post("/v1/completions", {"prompt": "a new town", "max_tokens": 8, "ignore_eos": True})
    status, text = profiled.get("/profile?format=text")
    assert status == 200 and "decode steps:" in text and "extend steps:" in text and "attention" in text
