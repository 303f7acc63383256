"""Calls of functions with a real model: forced ones always parse, whatever the model is; what it does by itself is its own."""
import json

import pytest

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city now",
    "parameters": {"type": "object", "additionalProperties": False, "required": ["city", "unit"],
                   "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}}}}}
ADD = {"type": "function", "function": {
    "name": "add", "description": "Adds two numbers",
    "parameters": {"type": "object", "additionalProperties": False, "required": ["a", "b"],
                   "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 999}, "b": {"type": "integer", "minimum": 0, "maximum": 999}}}}}
TOOLS = [WEATHER, ADD]
ADD_ONLY = {"type": "function", "function": {"name": "add"}}
QUESTION = [{"role": "user", "content": "What is the weather in Oslo, and what is 2 + 3?"}]


def check(name, arguments):
    """The arguments match the function's schema."""
    values = json.loads(arguments)
    if name == "add":
        assert sorted(values) == ["a", "b"] and all(isinstance(v, int) and 0 <= v <= 999 for v in values.values()), values
    else:
        assert name == "get_weather" and sorted(values) == ["city", "unit"], values
        assert len(values["city"]) <= 20 and values["unit"] in ("celsius", "fahrenheit"), values


def joined(stream):
    """(content, [[id, name, arguments]], finish_reason) of a stream, as a client puts them together."""
    content, calls, finish = "", [], None
    for chunk in stream:
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        for piece in choice.delta.tool_calls or []:
            if piece.id:
                assert piece.index == len(calls) and piece.type == "function" and piece.function.name
                calls.append([piece.id, piece.function.name, ""])
            assert piece.index == len(calls) - 1
            calls[-1][2] += piece.function.arguments or ""
        finish = choice.finish_reason or finish
    return content, calls, finish


def test_a_call_that_a_stop_string_cuts_is_not_told_as_a_call_that_is_whole(client, model):
    parameters = dict(model=model, messages=QUESTION, tools=[WEATHER], tool_choice="required", stop=["unit"], temperature=0, max_tokens=100)
    answer = client.chat.completions.create(**parameters).choices[0]
    _, calls, finish = joined(client.chat.completions.create(**parameters, stream=True))
    assert answer.finish_reason == finish == "stop"
    assert calls[0][2] == answer.message.tool_calls[0].function.arguments and "unit" not in calls[0][2]


@pytest.mark.parametrize("choice", ["required", ADD_ONLY])
@pytest.mark.parametrize("seed", range(2))
def test_a_tl_1_forced_calls_always_parse(client, model, choice, seed):
    parameters = dict(model=model, messages=QUESTION, tools=TOOLS, tool_choice=choice, temperature=1.0, seed=seed,
                      parallel_tool_calls=False, max_tokens=200)
    answer = client.chat.completions.create(**parameters).choices[0]
    assert answer.finish_reason == "tool_calls" and answer.message.content is None
    [call] = answer.message.tool_calls
    assert call.id.startswith("call_") and call.type == "function"
    check(call.function.name, call.function.arguments)
    if choice != "required":
        assert call.function.name == "add"
    content, calls, finish = joined(client.chat.completions.create(**parameters, stream=True))
    assert (content, finish) == ("", "tool_calls")
    assert [call[1:] for call in calls] == [[answer.message.tool_calls[0].function.name, call.function.arguments]]
    assert calls[0][0] != call.id


def test_forced_parallel_calls_each_parse(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, tools=TOOLS, tool_choice="required", temperature=1.0,
                                            seed=5, max_tokens=400).choices[0]
    calls = answer.message.tool_calls
    assert 1 <= len(calls) <= 16 and len({call.id for call in calls}) == len(calls)
    for call in calls if answer.finish_reason == "tool_calls" else calls[:-1]:
        check(call.function.name, call.function.arguments)


def test_a_forced_call_that_is_cut_says_so(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, tools=TOOLS, tool_choice=ADD_ONLY, temperature=0, max_tokens=3).choices[0]
    assert answer.finish_reason == "length"


def test_auto_loses_nothing(client, model):
    parameters = dict(model=model, messages=QUESTION, tools=TOOLS, temperature=0, max_tokens=60)
    answer = client.chat.completions.create(**parameters).choices[0]
    content, calls, finish = joined(client.chat.completions.create(**parameters, stream=True))
    assert content == (answer.message.content or "") and finish == answer.finish_reason
    assert [call[1:] for call in calls] == [[c.function.name, c.function.arguments] for c in answer.message.tool_calls or []]
    assert content or calls


def test_a_loop_with_two_tools(client, model):
    """An agent's loop: each tool is called once, its result goes back, and then the model answers in words."""
    messages = list(QUESTION)
    for name in ("get_weather", "add"):
        message = client.chat.completions.create(model=model, messages=messages, tools=TOOLS, temperature=0, max_tokens=100,
                                                 tool_choice={"type": "function", "function": {"name": name}}).choices[0].message
        [call] = message.tool_calls
        check(name, call.function.arguments)
        messages.append(message.model_dump(exclude_none=True))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps({"result": 5})})
    answer = client.chat.completions.create(model=model, messages=messages, tools=TOOLS, tool_choice="none", temperature=0, max_tokens=20)
    assert answer.choices[0].message.content and not answer.choices[0].message.tool_calls
    # The results reach the model: without them the prompt is shorter.
    shorter = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=1)
    assert answer.usage.prompt_tokens > shorter.usage.prompt_tokens + 40


def test_a_schema_that_cannot_be_used_is_refused(server):
    def ask(parameters):
        return server.post("/v1/chat/completions", {"messages": QUESTION, "tool_choice": "required",
                                                    "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]})
    for parameters in ({"type": "object", "properties": 5}, {"type": "object", "properties": {"a": {"pattern": "("}}},
                       {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}):
        status, answer = ask(parameters)
        assert status == 400 and answer["error"]["type"] == "invalid_request_error", (parameters, answer)
    assert server.get("/health")[0] == 200


def test_with_a_schema_an_answer_is_a_call_or_a_text_of_it(client, model):
    schema = {"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["sum"], "additionalProperties": False}
    for seed in range(3):
        answer = client.chat.completions.create(
            model=model, messages=QUESTION, tools=TOOLS, parallel_tool_calls=False, temperature=1.0, seed=seed, max_tokens=200,
            response_format={"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}).choices[0]
        if answer.finish_reason == "tool_calls":
            [call] = answer.message.tool_calls
            check(call.function.name, call.function.arguments)
        else:
            assert answer.finish_reason == "stop" and list(json.loads(answer.message.content)) == ["sum"]
