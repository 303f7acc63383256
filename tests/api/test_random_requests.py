"""Random requests, each three times: whole, streamed, and with the normal loop. The stream joins to the whole answer, and the loops answer the same:
text, tokens, logprobs, finish reasons and usage (what the prefix cache saved aside). GAPLESS_RANDOM_SEED repeats a run."""
import concurrent.futures
import json
import os
import random

import pytest

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
WORDS = "the of and river stone 12 7.5 Paris code def x = {\"a\": [1]} naïve 漢字 😀 \n\t, . Once upon a time there was".split(" ")


def words(rng, low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}
LIMITS = [{"regex": "[a-z ]{3,30}"}, {"regex": "(yes|no), [0-9]+"}, {"guided_choice": ["one", "two", "three"]}, {"response_format": {"type": "json_object"}},
          {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}}]


def random_sampling(rng):
    fields = {"temperature": 0}
    if rng.random() < 0.6:
        fields = {"temperature": rng.choice([0.3, 0.8, 1, 1.6]), "seed": rng.randint(-2**63, 2**63 - 1)}
    for name, chance, values in [
            ("top_p", 0.2, [0.4, 0.9]), ("top_k", 0.2, [1, 5, 40]), ("min_p", 0.1, [0.05]), ("frequency_penalty", 0.15, [-0.5, 1]),
            ("presence_penalty", 0.15, [-0.5, 1]), ("repetition_penalty", 0.15, [0.8, 1.3]), ("logit_bias", 0.1, [{"28": 5, "198": -100}]),
            ("stop", 0.3, ["e", [" the", "\n"], ["a", "is", ". "]]), ("stop_token_ids", 0.1, [[28, 30, 198]]), ("ignore_eos", 0.5, [True]),
            ("include_stop_str_in_output", 0.3, [True]), ("skip_special_tokens", 0.2, [False]), ("return_token_ids", 0.4, [True]),
            ("n", 0.2, [2, 3])]:
        if rng.random() < chance:
            fields[name] = rng.choice(values)
    if rng.random() < 0.25:
        fields.update(rng.choice(LIMITS))
    return fields


def random_request(rng):
    fields = random_sampling(rng)
    if rng.random() < 0.5:
        fields.update(messages=[{"role": "user", "content": words(rng, 1, 40)}], max_tokens=rng.randint(1, 24))
        if rng.random() < 0.5:
            fields.update(logprobs=True, top_logprobs=rng.randint(0, 4))
        return CHAT, fields
    shapes = [lambda: words(rng, 1, 60), lambda: [words(rng, 1, 10) for _ in range(rng.randint(1, 3))], lambda: [rng.randint(20, 40000) for _ in range(20)]]
    fields.update(prompt=rng.choice(shapes)(), max_tokens=rng.randint(0, 24))
    if rng.random() < 0.5:
        fields.update(logprobs=rng.randint(0, 5))
    if rng.random() < 0.3:
        fields.update(echo=True)
    return COMPLETION, fields


def add_lists(into, more):
    for key, values in (more or {}).items():
        if values:  # of no tokens there are empty lists, or none
            into.setdefault(key, []).extend(values)


def empty():
    return {"text": "", "finish": None, "logprobs": {}, "token_ids": [], "prompt_token_ids": None}


def choice_of(joined, choice, text):
    into = joined.setdefault(choice["index"], empty())
    assert into["finish"] is None, "a choice goes on after its end"
    into["text"] += text or ""
    into["finish"] = choice["finish_reason"]
    add_lists(into["logprobs"], choice["logprobs"])
    into["token_ids"] += choice.get("token_ids", [])
    into["prompt_token_ids"] = choice.get("prompt_token_ids", into["prompt_token_ids"])
    return into


def outcome(choices, usage):
    return choices, {name: value for name, value in usage.items() if isinstance(value, int)}


def whole(server, request):
    endpoint, fields = request
    status, answer = server.post(endpoint, fields, timeout=300)
    assert status == 200, (request, answer)
    choices = {}
    for choice in answer["choices"]:
        into = choice_of(choices, choice, choice["message"]["content"] if endpoint == CHAT else choice["text"])
        if endpoint == CHAT:
            into["prompt_token_ids"] = answer.get("prompt_token_ids")
    return outcome(choices, answer["usage"])


def streamed(server, request):
    endpoint, fields = request
    events = server.stream(endpoint, {**fields, "stream_options": {"include_usage": True}})
    assert events.pop() == "[DONE]", request
    usage = events.pop()
    assert usage["choices"] == [] and usage["usage"], request
    choices = {}
    for event in events:
        assert event["usage"] is None
        for choice in event["choices"]:
            into = choice_of(choices, choice, choice["delta"].get("content") if endpoint == CHAT else choice["text"])
            if endpoint == CHAT and "prompt_token_ids" in event:
                into["prompt_token_ids"] = event["prompt_token_ids"]
    return outcome(choices, usage["usage"])


def run(function, server, requests):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return list(pool.map(lambda request: function(server, request), requests))


def expect_equal(requests, got, want, what):
    for request, a, b in zip(requests, got, want):
        assert a == b, f"{what}: {json.dumps(request)}"


@pytest.mark.parametrize("count", [30, pytest.param(500, marks=pytest.mark.full)])
def test_streams_join_to_the_whole_and_the_loops_agree(start_server, count):
    seed = int(os.environ.get("GAPLESS_RANDOM_SEED", random.SystemRandom().randrange(2**32)))
    print(f"GAPLESS_RANDOM_SEED={seed}")
    rng = random.Random(seed)
    requests = [random_request(rng) for _ in range(count)]
    server = start_server()
    want = run(whole, server, requests)
    expect_equal(requests, run(streamed, server, requests), want, "streamed")
    assert server.post("/scheduler/loop", {"loop": "normal"}) == (200, {"loop": "normal"})
    expect_equal(requests, run(whole, server, requests), want, "normal loop")
    server.wait_idle()
