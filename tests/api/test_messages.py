"""/v1/messages through Anthropic's own client."""
import json

import anthropic
import pytest

MESSAGES = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
COLD = {"temperature": 0}  # no parameter of this client, but a field of the API
GREEDY = {"max_tokens": 20, "extra_body": COLD}
WEATHER = {"name": "get_weather", "description": "The weather of a city.",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"],
                            "additionalProperties": False}}


@pytest.fixture(scope="module")
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120)


def test_whole_answer(claude, model):
    answer = claude.messages.create(model=model, messages=MESSAGES, **GREEDY)
    assert answer.type == "message" and answer.role == "assistant" and answer.id.startswith("msg_") and answer.model == model
    assert [block.type for block in answer.content] == ["text"] and "Paris" in answer.content[0].text
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens > 10 and 0 < answer.usage.output_tokens <= 20


def test_the_same_as_chat(claude, client, model):
    chat = client.chat.completions.create(model=model, messages=[{"role": "system", "content": "Be brief."}, *MESSAGES], max_tokens=20, temperature=0)
    answer = claude.messages.create(model=model, system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                                    messages=[{"role": "user", "content": [{"type": "text", "text": MESSAGES[0]["content"]}]}], **GREEDY)
    assert answer.content[0].text == chat.choices[0].message.content
    assert answer.usage.output_tokens == chat.usage.completion_tokens


def test_stream_equals_whole(claude, model):
    for extra in (COLD, {"temperature": 1, "seed": 7}):
        extra = {"extra_body": extra}
        whole = claude.messages.create(model=model, messages=MESSAGES, max_tokens=24, **extra)
        with claude.messages.stream(model=model, messages=MESSAGES, max_tokens=24, **extra) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert text == final.content[0].text == whole.content[0].text
        assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens


def test_events_in_their_order(claude, model):
    events = [event.type for event in claude.messages.create(model=model, messages=MESSAGES, stream=True, **GREEDY)]
    assert events[:2] == ["message_start", "content_block_start"] and events[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(events[2:-3]) == {"content_block_delta"}


def test_stop_sequences(claude, model):
    answer = claude.messages.create(model=model, messages=MESSAGES, stop_sequences=["ari"], **GREEDY)
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == "ari" and "ari" not in answer.content[0].text
    answer = claude.messages.create(model=model, messages=MESSAGES, max_tokens=1, extra_body=COLD)
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 1


def test_the_answer_goes_on_with_the_assistants_words(claude, client, model):
    begun = [*MESSAGES, {"role": "assistant", "content": "The capital of France is"}]
    answer = claude.messages.create(model=model, messages=begun, **GREEDY)
    chat = client.chat.completions.create(model=model, messages=begun, extra_body={"continue_final_message": True}, max_tokens=20, temperature=0)
    assert answer.content[0].text == chat.choices[0].message.content


def test_count_tokens(claude, model):
    asked = {"model": model, "system": "Be brief.", "messages": MESSAGES}
    counted = claude.messages.count_tokens(**asked)
    usage = claude.messages.create(**asked, **GREEDY).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_errors_have_anthropics_shape(claude, server, model):
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(model=model, messages=MESSAGES, max_tokens=0)
    assert refused.value.body["type"] == "error" and refused.value.body["error"]["type"] == "invalid_request_error"
    assert "max_tokens" in refused.value.body["error"]["message"]
    status, _, body = server.request("GET", "/v1/messages")
    assert status == 405 and json.loads(body)["error"]["type"] == "invalid_request_error"
    status, _, body = server.request("POST", "/v1/messages", b"{")
    assert status == 400 and "JSON" in json.loads(body)["error"]["message"]


def test_keys_of_both_clients(start_server):
    locked = start_server("--api-key", "secret")
    right = anthropic.Anthropic(base_url=locked.url, api_key="secret", max_retries=0)
    assert right.messages.count_tokens(model="m", messages=MESSAGES).input_tokens > 0
    with pytest.raises(anthropic.AuthenticationError) as refused:
        anthropic.Anthropic(base_url=locked.url, api_key="wrong", max_retries=0).messages.create(model="m", messages=MESSAGES, **GREEDY)
    assert refused.value.body["error"]["type"] == "authentication_error"
    assert locked.stop() == 0


def test_a_client_that_goes_aborts_its_answer(server, model):
    connection = server.raw_post("/v1/messages", {"messages": MESSAGES, "max_tokens": 4096, "ignore_eos": True, "stream": True})
    assert b"message_start" in connection.recv(4096) or connection.recv(4096)
    connection.close()
    server.wait_idle()


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_forced_call_and_its_result(claude, model, choice):
    asked = {"model": model, "max_tokens": 100, "extra_body": COLD, "tools": [WEATHER]}
    question = {"role": "user", "content": "What is the weather in Paris?"}
    whole = claude.messages.create(**asked, messages=[question], tool_choice={**choice, "disable_parallel_tool_use": True})
    assert whole.stop_reason == "tool_use"
    call = whole.content[-1]
    assert call.type == "tool_use" and call.name == "get_weather" and isinstance(call.input["city"], str)
    with claude.messages.stream(**asked, messages=[question], tool_choice={**choice, "disable_parallel_tool_use": True}) as stream:
        final = stream.get_final_message()
    assert [(b.type, b.name, b.input) for b in final.content] == [(b.type, b.name, b.input) for b in whole.content]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees, sun"}
    answer = claude.messages.create(**asked, messages=[question, {"role": "assistant", "content": whole.content},
                                                       {"role": "user", "content": [result]}], tool_choice={"type": "none"})
    assert answer.content[0].type == "text" and answer.content[0].text


def test_output_config_limits_the_answer(claude, model):
    schema = {"type": "object", "properties": {"capital": {"type": "string", "maxLength": 20}}, "required": ["capital"],
              "additionalProperties": False}
    answer = claude.messages.create(model=model, messages=MESSAGES, max_tokens=100,
                                    output_config={"format": {"type": "json_schema", "schema": schema}}, extra_body=COLD)
    assert set(json.loads(answer.content[0].text)) == {"capital"}
