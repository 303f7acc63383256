"""Wrong requests over the wire: always a 4xx with an OpenAI error, and the next good request works."""
import json

import pytest

GOOD = {"prompt": "Hello", "max_tokens": 2, "temperature": 0}


def refused(server, path, body, status=400):
    got, headers, answer = server.request("POST", path, body)
    assert got == status, (str(body)[:200], got, answer[:300])
    error = json.loads(answer)["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    assert server.post("/v1/completions", GOOD)[0] == 200
    return error


@pytest.mark.parametrize("prompt", ["", [""], [], [[]]])
def test_a_pa_1_empty_prompts(server, prompt):
    status, answer = server.post("/v1/completions", {**GOOD, "prompt": prompt})
    assert status in (200, 400), answer
    assert server.post("/v1/completions", GOOD)[0] == 200


@pytest.mark.parametrize("prompt", [[999999], [-1], [[-1]], [1.5], [1, "a"], [True], {"a": 1}, None, 5])
def test_a_pa_5_token_ids(server, prompt):
    assert refused(server, "/v1/completions", {**GOOD, "prompt": prompt})["param"] == "prompt"


@pytest.mark.parametrize("field,value", [
    ("temperature", 999999), ("temperature", -1), ("temperature", "NaN"), ("top_p", -1), ("top_p", 0), ("top_p", 1.1), ("top_k", 0.01),
    ("repetition_penalty", 0), ("stream", "true"), ("max_tokens", "256"), ("max_tokens", -1), ("n", 9223372036854775807), ("n", 2.0),
    ("n", 0), ("logprobs", 100000), ("logprobs", -1), ("logit_bias", {"191222": -100}), ("logit_bias", {"x": 1}), ("logit_bias", {"1": 101}),
    ("stop", ["a"] * 17), ("seed", 1.5), ("min_tokens", 20), ("suffix", "x"), ("best_of", 0),
    ("response_format", {"type": "json_schema", "json_schema": {}}), ("response_format", {"schema": {}})])
def test_a_pa_6_7_8_9_fields(server, field, value):
    error = refused(server, "/v1/completions", {**GOOD, field: value})
    assert error["param"] == field and error["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [
    b"", b"x", b'{"prompt":"a"} x', b"[]", b'"a"', b'{"prompt":"\xff"}', b'{"prompt":"emoji \\ud83d"}', b'{"prompt":"\\ude00"}',
    b'{"prompt":"\xc4\xe3\xba\xc3"}', b'{"prompt":NaN}', b'{"prompt":"a","stop":' + b"[" * 3000 + b"]" * 3000 + b"}",
    b'{"tools":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"messages":' + b'{"a":' * 100_000])
def test_a_ht_1_2_3_malformed_bodies(server, body):
    refused(server, "/v1/completions", body)
    refused(server, "/v1/chat/completions", body)


@pytest.mark.parametrize("body,cause", [
    (b'{"prompt":"secret \\ud83d"}', "surrogate"), (b'{"prompt":"secret \x01"}', "control character"), (b'{"prompt":NaN}', "NaN"),
    (b'{"prompt":"secret', "closing quote"), (b'{"prompt":"a"} secret', "follows")])
def test_a_ht_1_the_cause_is_named(server, body, cause):
    message = refused(server, "/v1/completions", body)["message"]
    assert cause in message and "secret" not in message


def test_refusals_are_logged_with_their_reason_and_without_user_text(start_server):
    one = start_server()
    one.post("/v1/completions", {"prompt": "a", "max_tokens": "top secret"})
    one.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "top secret"}]}]})
    one.post("/v1/completions", {"prompt": [5] * 100000})
    one.request("GET", "/top-secret")
    assert one.stop() == 0
    lines = [line for line in one.log().splitlines() if "error=" in line]
    assert any("param=max_tokens" in line and "must be an integer" in line for line in lines)
    assert any("error=context_length_exceeded" in line and "100000" in line for line in lines)
    assert any("param=messages" in line for line in lines) and any("error=not_found" in line for line in lines)
    assert "finish=none" not in one.log() and "secret" not in one.log()


def test_a_ht_3_a_surrogate_pair_works(server):
    assert server.request("POST", "/v1/completions", b'{"prompt":"\\ud83d\\ude00","max_tokens":1}')[0] == 200


def test_a_ht_2_a_50_mb_body_is_413(server):
    assert refused(server, "/v1/completions", b'{"prompt":"' + b"a" * (50 << 20) + b'"}', status=413)["code"] == "payload_too_large"


def test_a_ht_4_no_content_type(server):
    data = json.dumps(GOOD).encode()
    with server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)) as c:
        assert c.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("head,status", [
    (b"\r\nGET /health HTTP/1.1\r\nHost: x\r\n", 200), (b"GET /health HTTP/1.1\r\n", 400), (b"GET /he%61lth HTTP/1.1\r\nHost: x\r\n", 200),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n", 501)])
def test_heads(server, head, status):
    with server.raw(head + b"Connection: close\r\n\r\n") as c:
        answer = c.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 %d " % status) and b"\r\nDate: " in answer


def test_unknown_paths_and_methods(server):
    assert server.request("GET", "/v1/nothing")[0] == 404
    status, headers, answer = server.request("GET", "/v1/completions")
    assert status == 405 and headers["Allow"] == "POST, OPTIONS" and json.loads(answer)["error"]["code"] == "method_not_allowed"


def test_a_sse_1_errors_come_before_the_stream(server):
    status, headers, answer = server.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "stream": True, "n": 0})
    assert status == 400 and headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("messages", [[], [{"role": "user"}, "x"], "hi", [{"content": "x"}], [{"role": "user", "content": 5}],
                                      [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]])
def test_a_ch_1_messages(server, messages):
    assert refused(server, "/v1/chat/completions", {"messages": messages})["param"] == "messages"


def test_one_bad_prompt_of_a_list_refuses_the_request(server):
    refused(server, "/v1/completions", {**GOOD, "prompt": [[1, 2], [999999]]})
    server.wait_idle()
