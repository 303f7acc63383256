"""Every field that docs/api.md lists, sent to every endpoint that has it: as null, as a wrong type, and out of its range."""
import concurrent.futures
import json
import pathlib
import re

import pytest

CHAT, COMPLETION, EMBEDDING = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
BASE = {CHAT: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}, COMPLETION: {"prompt": "Hi", "max_tokens": 1}, EMBEDDING: {"input": "Hi"}}
REQUIRED = {"messages", "prompt", "input"}
FLAG = ["yes", 1]
ANYTHING = None  # ignored whatever it is

# field: values that are a 400 about it. A dotted name is a member of an object.
SHARED = {
    "model": [5], "stream": FLAG, "stream_options.include_usage": FLAG, "stream_options.continuous_usage_stats": FLAG,
    "n": ["2", 1.5, 0, 129], "max_tokens": ["5", 1.5, -1], "max_completion_tokens": ["5", -1], "min_tokens": ["1", -1, 2],
    "temperature": ["hot", -0.1, 2.1], "top_p": ["1", 0, 1.1], "top_k": ["5", 1.5, -2], "min_p": ["0", -0.1, 1.1],
    "frequency_penalty": ["0", -2.1, 2.1], "presence_penalty": ["0", -2.1, 2.1], "repetition_penalty": ["1", 0, 2.1],
    "logit_bias": [5, [1], {"x": 1}, {"999999": 1}, {"5": 101}, {"5": "1"}], "seed": ["x", 1.5, 2**70],
    "stop": [5, {"a": 1}, [""], [5], ["x"] * 17, "x" * 1025], "stop_token_ids": [5, ["x"], [-1], [999999]], "ignore_eos": FLAG,
    "skip_special_tokens": FLAG, "include_stop_str_in_output": FLAG, "return_token_ids": FLAG, "response_format": [5, {"type": "xml"}],
    "use_beam_search": ["yes", True], "prompt_logprobs": [1], "prompt_embeds": ["x"],
    "user": ANYTHING, "metadata": ANYTHING, "store": ANYTHING, "service_tier": ANYTHING, "safety_identifier": ANYTHING, "prompt_cache_key": ANYTHING,
    "prediction": ANYTHING, "reasoning_effort": ANYTHING, "spaces_between_special_tokens": ANYTHING,
}
SALT = {"cache_salt": [5, "x" * 257]}
FIELDS = {
    CHAT: {**SHARED, **SALT, "messages": [5, [], ["x"]], "logprobs": ["yes", 2], "top_logprobs": ["2", -1, 21], "tools": [5, [1]],
           "tool_choice": [5, "maybe"], "parallel_tool_calls": FLAG, "separate_reasoning": FLAG, "functions": [[{"name": "f"}]],
           "function_call": [{"name": "f"}], "chat_template_kwargs": [5], "add_generation_prompt": FLAG, "continue_final_message": FLAG, "modalities": [["audio"]], "audio": [{}], "chat_template": ["{{ messages }}"], "echo": ["yes", True]},
    COMPLETION: {**SHARED, **SALT, "prompt": [5, {"a": 1}, [-1], [999999]], "echo": FLAG, "logprobs": ["2", -1, 6], "best_of": ["2", 0, 129],
                 "suffix": [5, "x"], "add_special_tokens": FLAG},
    EMBEDDING: {**SALT, "model": [5], "input": [5, {"a": 1}, [-1], [999999]], "encoding_format": [5, "hex"], "pooling": [5, "max"], "normalize": FLAG,
                "dimensions": ["576", 0, 100], "truncate_prompt_tokens": [5], "add_special_tokens": FLAG, "user": ANYTHING},
}
# What limits an answer has tests of its own.
ELSEWHERE = {"guided_whitespace_pattern", "structural_tag", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs",
             "json_schema", "regex", "ebnf", "grammar"}


def body(endpoint, field, value):
    fields = dict(BASE[endpoint])
    if field == "max_tokens":
        fields["max_completion_tokens"] = 1
    name, _, member = field.partition(".")
    if member:
        fields["stream"] = True
    return {**fields, name: {member: value} if member else value}


def post_all(server, requests):
    """[(endpoint, field, value)] -> [(status, answer)]"""
    def post(request):
        endpoint, field, value = request
        status, _, answer = server.request("POST", endpoint, body(endpoint, field, value))
        return status, answer
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return list(pool.map(post, requests))


def cases(pick):
    return [(endpoint, field, value) for endpoint, fields in FIELDS.items() for field, bad in fields.items() for value in pick(field, bad)]


def test_null_is_the_same_as_absent(server):
    requests = cases(lambda field, bad: [None])
    for (endpoint, field, _), (status, answer) in zip(requests, post_all(server, requests)):
        assert status == (400 if field in REQUIRED else 200), (endpoint, field, answer)


def test_all_nulls_at_once(server):
    for endpoint, fields in FIELDS.items():
        nulls = {field: None for field in fields if "." not in field and field not in REQUIRED} | {"stream_options": None}
        status, answer = server.post(endpoint, {**nulls, **BASE[endpoint]})
        assert status == 200, (endpoint, answer)


def test_wrong_types_and_ranges_are_a_400_about_the_field(server):
    requests = cases(lambda field, bad: bad or [])
    for (endpoint, field, value), (status, answer) in zip(requests, post_all(server, requests)):
        assert status == 400, (endpoint, field, value, answer)
        error = json.loads(answer)["error"]
        assert error["param"] == field.partition(".")[0] and error["type"] == "invalid_request_error", (endpoint, field, value, error)


def test_ignored_fields_may_be_anything(server):
    requests = cases(lambda field, bad: [5, "x", {"a": [None]}] if bad is ANYTHING else [])
    for request, (status, answer) in zip(requests, post_all(server, requests)):
        assert status == 200, (request, answer)


@pytest.mark.parametrize("endpoint,heading", [(CHAT, "/v1/chat/completions"), (COMPLETION, "/v1/completions"), (EMBEDDING, "/v1/embeddings")])
def test_the_documented_fields_are_the_tested_ones(endpoint, heading):
    sections = re.split(r"^## ", (pathlib.Path(__file__).parents[2] / "docs/api.md").read_text(), flags=re.M)
    headings = [heading] if endpoint == EMBEDDING else [heading, "Fields of both generation endpoints"]
    text = "".join(section for section in sections if section.split("\n")[0] in headings)
    names = {name for line in text.split("\n") if line.startswith("| `") for name in re.findall(r"`([a-z_.]+)`", line.split("|")[1])}
    assert names - ELSEWHERE - set(FIELDS[endpoint]) == set()
