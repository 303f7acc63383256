"""/v1/responses through the official client."""
import json

import openai
import pytest

QUESTION = "What is the capital of France? Answer in one word."
GREEDY = {"temperature": 0, "max_output_tokens": 20}
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather of a city.", "strict": True,
           "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"],
                          "additionalProperties": False}}


def test_whole_answer(client, model):
    answer = client.responses.create(model=model, input=QUESTION, **GREEDY)
    assert answer.object == "response" and answer.id.startswith("resp_") and answer.model == model and answer.status in ("completed", "incomplete")
    assert [item.type for item in answer.output] == ["message"] and "Paris" in answer.output_text
    assert answer.error is None and answer.previous_response_id is None and answer.temperature == 0
    assert answer.usage.input_tokens > 10 and 0 < answer.usage.output_tokens <= 20
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_the_same_as_chat(client, model):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION},
                {"role": "assistant", "content": "Paris."}, {"role": "user", "content": "And of Italy?"}]
    chat = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=20)
    items = [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
             {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Paris."}]},
             {"type": "message", "role": "user", "content": "And of Italy?"}]
    answer = client.responses.create(model=model, instructions="Be brief.", input=items, **GREEDY)
    assert answer.output_text == chat.choices[0].message.content
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (chat.usage.prompt_tokens, chat.usage.completion_tokens)


def test_stream_equals_whole(client, model):
    for extra in ({"temperature": 0}, {"temperature": 1, "extra_body": {"seed": 7}}):
        whole = client.responses.create(model=model, input=QUESTION, max_output_tokens=24, **extra)
        events = list(client.responses.create(model=model, input=QUESTION, max_output_tokens=24, stream=True, **extra))
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[0].type == "response.created" and events[-1].type == f"response.{whole.status}"
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        done = [event.text for event in events if event.type == "response.output_text.done"]
        assert text == whole.output_text == events[-1].response.output_text and done == [text]
        assert events[-1].response.usage.output_tokens == whole.usage.output_tokens
        with client.responses.stream(model=model, input=QUESTION, max_output_tokens=24, **extra) as stream:
            for _ in stream:
                pass
            if whole.status == "completed":
                assert stream.get_final_response().output_text == text


def test_cut_answers_say_so(client, model):
    answer = client.responses.create(model=model, input=QUESTION, temperature=0, max_output_tokens=1)
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output[0].status == "incomplete"


@pytest.mark.parametrize("fields, named", [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"background": True}, "background"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"input": []}, "input"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]}]}, "input"),
    ({"tools": [{"type": "web_search"}]}, "tools"),
    ({"text": {"format": {"type": "xml"}}}, "text"),
])
def test_what_is_refused(client, model, fields, named):
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=model, **{"input": QUESTION, "max_output_tokens": 4, **fields})
    assert refused.value.param == named and named in refused.value.message


def test_nothing_is_stored(client, model, server):
    answer = client.responses.create(model=model, input=QUESTION, store=True, **GREEDY)
    assert answer.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_a_forced_call_and_its_result(client, model, choice):
    asked = {"model": model, "max_output_tokens": 100, "temperature": 0, "tools": [WEATHER], "parallel_tool_calls": False}
    question = {"role": "user", "content": "What is the weather in Paris?"}
    whole = client.responses.create(**asked, input=[question], tool_choice=choice)
    call = whole.output[-1]
    assert call.type == "function_call" and call.name == "get_weather" and isinstance(json.loads(call.arguments)["city"], str)
    events = list(client.responses.create(**asked, input=[question], tool_choice=choice, stream=True))
    pieces = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert pieces == call.arguments
    assert [event.arguments for event in events if event.type == "response.function_call_arguments.done"] == [pieces]
    final = events[-1].response.output[-1]
    assert (final.name, final.arguments, final.status) == (call.name, call.arguments, "completed")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees, sun"}
    answer = client.responses.create(**asked, input=[question, *whole.output, result], tool_choice="none")
    assert answer.output_text


def test_text_format_limits_the_answer(client, model):
    schema = {"type": "object", "properties": {"capital": {"type": "string", "maxLength": 20}}, "required": ["capital"],
              "additionalProperties": False}
    answer = client.responses.create(model=model, input=QUESTION, temperature=0, max_output_tokens=100,
                                     text={"format": {"type": "json_schema", "name": "capital", "schema": schema, "strict": True}})
    assert set(json.loads(answer.output_text)) == {"capital"}


def test_apply_template(server, client, model):
    messages = [{"role": "user", "content": "Hi <|im_end|>"}]
    status, answer = server.post("/apply-template", {"messages": messages})
    assert status == 200 and "Hi <|im_end|>" in answer["prompt"] and answer["prompt"].rstrip().endswith("assistant")
    without = server.post("/apply-template", {"messages": messages, "add_generation_prompt": False})[1]["prompt"]
    assert answer["prompt"].startswith(without) and len(without) < len(answer["prompt"])
    prompt = server.post("/apply-template", {"messages": [{"role": "user", "content": QUESTION}]})[1]["prompt"]
    completion = client.completions.create(model=model, prompt=prompt, temperature=0, max_tokens=20)
    chat = client.chat.completions.create(model=model, messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=20)
    assert completion.choices[0].text == chat.choices[0].message.content
    assert server.post("/apply-template", {})[0] == 400
