"""What grammars cost: a crowd of which half is constrained, beside one that is not, in the same run; and how much of the time for masks is hidden
behind the model part of their step."""
import json
import random
import threading
import time

import pytest

PEOPLE = {
    "type": "array",
    "minItems": 200,
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "city": {"enum": ["Rome", "Oslo", "Lima"]}},
        "required": ["name", "age", "city"],
        "additionalProperties": False,
    },
}
ROUNDS = 4


def sixteen(seed, constrained):
    """One request with 16 answers that all reach their limit: the array is far longer."""
    prompt = [random.Random(seed).randrange(1000, 40000) for _ in range(24)]
    body = {"prompt": prompt, "n": 16, "max_tokens": 192, "temperature": 1, "seed": seed, "ignore_eos": True}
    if constrained:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "people", "schema": PEOPLE}}
    return body


def tokens_per_second(server, bodies):
    answers = [None] * len(bodies)

    def ask(i):
        answers[i] = server.post("/v1/completions", bodies[i], timeout=600)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begin
    for status, answer in answers:
        assert status == 200, answer
        assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    return sum(answer["usage"]["completion_tokens"] for _, answer in answers) / seconds


def mask_microseconds(server):
    """Of the last steps with masks: sorted times of a step, and of a row."""
    trace = json.loads(server.get("/trace")[1])
    masks = [event for event in trace["traceEvents"] if event["name"] == "mask"]
    assert masks
    return sorted(mask["dur"] for mask in masks), sorted(mask["dur"] / mask["args"]["rows"] for mask in masks)


def percentile(values, share):
    return values[min(len(values) - 1, int(share * len(values)))]


@pytest.mark.full
def test_constrained_rows_cost_the_crowd_little(start_server):
    server = start_server("--disable-radix-cache")
    free, mixed = [], []
    for round_ in range(ROUNDS + 1):
        seeds = 2 * round_, 2 * round_ + 1
        free.append(tokens_per_second(server, [sixteen(seed, False) for seed in seeds]))
        mixed.append(tokens_per_second(server, [sixteen(seeds[0], False), sixteen(seeds[1], True)]))
    ratios = [m / f for f, m in zip(free[1:], mixed[1:])]  # the first round warms up
    m = server.metrics()
    masks, waited = m['gapless_host_phase_seconds_sum{phase="mask"}'], m["gapless_mask_wait_seconds_sum"]
    steps = m["gapless_mask_wait_seconds_count"]
    print(f"16 free and 16 constrained over 32 free: {sorted(ratios)}; masks {1e6 * masks / steps:.0f} us a step, {100 * (1 - waited / masks):.1f} % of it hidden")
    for name, times in zip(("step", "row"), mask_microseconds(server)):
        print(f"masks of a {name}: p50 {percentile(times, 0.5):.0f} us, p99 {percentile(times, 0.99):.0f} us ({len(times)} steps)")
    assert max(ratios) >= 0.95, ratios
    assert waited <= 0.1 * masks, (waited, masks)


def test_the_constrained_answer_is_what_was_asked_for(server):
    schema = {"type": "array", "minItems": 2, "maxItems": 2, "items": PEOPLE["items"]}
    status, answer = server.post("/v1/completions", {"prompt": "People: ", "max_tokens": 200, "temperature": 0, "response_format": {
        "type": "json_schema", "json_schema": {"name": "people", "schema": schema}}})
    assert status == 200, answer
    choice = answer["choices"][0]
    if choice["finish_reason"] == "stop":
        people = json.loads(choice["text"])
        assert len(people) == 2 and all(set(p) == {"name", "age", "city"} for p in people)
    else:
        assert choice["finish_reason"] == "length"
