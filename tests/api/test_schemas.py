"""Answers that follow a JSON schema, a regular expression or a grammar, as a client sees them. `jsonschema` is the judge."""
import decimal
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import pytest

from schema_cases import ACCEPTED, REFUSED

QUICK = list(ACCEPTED)[:: len(ACCEPTED) // 12]


def ask(schema, **fields):
    prompt = "Give me one example as JSON for this schema: " + json.dumps(schema)[:300]
    form = {"type": "json_schema", "json_schema": {"name": "example", "strict": True, "schema": schema}}
    return {"messages": [{"role": "user", "content": prompt}], "response_format": form, "temperature": 1, "max_tokens": 512, **fields}


def chat(server, body):
    return server.post("/v1/chat/completions", body, timeout=600)


def judge(schema, text):
    """Decimal numbers: 0.29 is a multiple of 0.01 only in decimal."""
    exact = json.loads(json.dumps(schema), parse_float=decimal.Decimal)
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator(exact).validate(json.loads(text, parse_float=decimal.Decimal))


def follows(server, name, max_tokens):
    """Whether the answer ended by itself; then it follows the schema."""
    status, answer = chat(server, ask(ACCEPTED[name], seed=1, max_tokens=max_tokens))
    assert status == 200, (name, answer)
    choice = answer["choices"][0]
    if choice["finish_reason"] == "length":
        assert answer["usage"]["completion_tokens"] == max_tokens, name
        return False
    assert choice["finish_reason"] == "stop", (name, choice)
    try:
        judge(ACCEPTED[name], choice["message"]["content"])
    except (ValueError, jsonschema.ValidationError) as error:
        raise AssertionError(f"{name}: {choice['message']['content']!r}: {error}") from error
    return True


def all_follow(server, names, max_tokens):
    """How many ended."""
    with ThreadPoolExecutor(16) as pool:
        return sum(pool.map(lambda name: follows(server, name, max_tokens), names))


def test_some_schemas_are_followed(server):
    assert all_follow(server, QUICK, max_tokens=64) > 0


@pytest.mark.full
def test_all_schemas_are_followed(server):
    ended = all_follow(server, list(ACCEPTED), max_tokens=512)
    assert ended >= 0.9 * len(ACCEPTED), f"{ended} of {len(ACCEPTED)} ended within 512 tokens"


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused(server, name):
    status, answer = chat(server, ask(REFUSED[name], max_tokens=1))
    assert status == 400, answer
    assert answer["error"]["param"] == "response_format"
    assert answer["error"]["message"].startswith("response_format: "), answer


FIELDS = {
    "guided_regex": ("[a-c]{3}-[0-9]{2}", r"[a-c]{3}-[0-9]{2}"), "regex": ("(yes|no)!", r"(yes|no)!"), "guided_choice": (["red", "green", "a \"b\""], r'red|green|a "b"'),
    "ebnf": ('root ::= "x" [0-9]{2,3}', r"x[0-9]{2,3}"), "grammar": ('root ::= pair ("," pair)?\npair ::= [a-z]{2} "=" [0-9]', r"[a-z]{2}=[0-9](,[a-z]{2}=[0-9])?"),
    "guided_grammar": ('start: "a" "b"{2,4}', r"ab{2,4}"), "structured_outputs": ({"choice": ["one", "two"]}, r"one|two"),
    "guided_json": ({"enum": ["p", "q"]}, r'"[pq]"'), "json_schema": ('{"const": [1, 2]}', r"\[\s*1\s*,\s*2\s*\]")}


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_limits_both_endpoints(server, field):
    value, pattern = FIELDS[field]
    for path, prompt in (("/v1/completions", {"prompt": "Say"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Say something."}]})):
        status, answer = server.post(path, {**prompt, field: value, "max_tokens": 100, "temperature": 1, "n": 3})
        assert status == 200, answer
        for choice in answer["choices"]:
            text = choice["text"] if "text" in choice else choice["message"]["content"]
            assert choice["finish_reason"] == "stop" and re.fullmatch(pattern, text), (path, choice)


def test_a_js_6_json_object_mode_gives_an_object_and_ends_with_it(server):
    """A small model that may write blanks writes blanks."""
    status, answer = chat(server, {"messages": [{"role": "user", "content": "List three colours as JSON."}], "response_format": {"type": "json_object"},
                                   "max_tokens": 120, "n": 4, "seed": 1, "temperature": 1})
    assert status == 200, answer
    for choice in answer["choices"]:
        text = choice["message"]["content"]
        assert text.startswith("{") and not re.search(r"\s{25}", text), text
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(text), dict) and text.endswith("}")


def test_a_stream_is_the_same_answer(server):
    schema = ACCEPTED["person"]
    status, whole = chat(server, ask(schema, seed=3))
    events = server.stream("/v1/chat/completions", ask(schema, seed=3))
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event != "[DONE]" and event["choices"])
    assert status == 200 and text == whole["choices"][0]["message"]["content"]


def test_cut_by_length_says_so(server):
    status, answer = chat(server, ask(ACCEPTED["nested_6"], max_tokens=5))
    assert status == 200 and answer["choices"][0]["finish_reason"] == "length"


def test_a_js_7_a_stop_string_inside_wins(server):
    status, answer = chat(server, ask(ACCEPTED["person"], stop=["}"]))
    assert status == 200 and answer["choices"][0]["finish_reason"] == "stop"
    assert "}" not in answer["choices"][0]["message"]["content"]
    status, answer = chat(server, ask({"const": "x"}, ignore_eos=True, min_tokens=20))
    assert status == 200 and answer["choices"][0]["message"]["content"] == '"x"', answer


def test_a_ht_1_a_wrong_response_format_is_a_400_that_names_it(server):
    for form in ({"type": "json_schema", "json_schema": {}}, {"type": "json_schema", "schema": {}}, {"schema": {}}, [], "json", {"type": "xml"}):
        status, answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "response_format": form})
        assert status == 400 and answer["error"]["param"] == "response_format", (form, answer)
    status, answer = server.post("/v1/completions", {"prompt": "x", "regex": "a", "guided_json": {}})
    assert status == 400 and "cannot both be given" in answer["error"]["message"]


@pytest.mark.full
def test_a_js_5_others_go_on_while_schemas_are_refused(server):
    """Compiling is not the scheduler's: a stream that runs gets all of its tokens, and gets them steadily."""
    stop = threading.Event()

    def attack():
        while not stop.is_set():
            for name in ("long", "patterns_at_once", "wide", "deep_pattern", "large_multiple"):
                assert chat(server, ask(REFUSED[name]))[0] == 400

    with ThreadPoolExecutor(4) as pool:
        attackers = [pool.submit(attack) for _ in range(4)]
        answers = [server.post("/v1/completions", {"prompt": "Once", "max_tokens": 64, "ignore_eos": True, "temperature": 0}, timeout=300) for _ in range(3)]
        stop.set()
        for attacker in attackers:
            attacker.result()
    assert all(status == 200 and answer["usage"]["completion_tokens"] == 64 for status, answer in answers)
    assert len({answer["choices"][0]["text"] for _, answer in answers}) == 1
