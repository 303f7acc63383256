"""Embeddings through the official client: values that mean something, and the same bits however they were computed."""
import base64
import concurrent.futures
import math
import struct

import openai
import pytest

TEXTS = ["The cat sat on the mat.", "A kitten lay on the rug.", "Interest rates rose by half a percent.", "x " * 300]


def embed(server, **fields):
    status, answer = server.post("/v1/embeddings", fields)
    assert status == 200, answer
    return [item["embedding"] for item in answer["data"]]


def test_official_client(client, model):
    answer = client.embeddings.create(model=model, input=TEXTS)  # asks for base64
    assert answer.object == "list" and [item.index for item in answer.data] == list(range(len(TEXTS)))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 300
    for item in answer.data:
        assert len(item.embedding) == 576
        assert math.isclose(sum(x * x for x in item.embedding), 1, rel_tol=1e-5)
    floats = client.embeddings.create(model=model, input=TEXTS, encoding_format="float")
    assert [item.embedding for item in floats.data] == [pytest.approx(list(item.embedding), rel=1e-6) for item in answer.data]


def test_mean_pooling_knows_what_a_text_is_about(server):
    cat, kitten, rates, _ = embed(server, input=TEXTS, pooling="mean")
    def dot(a, b):
        return sum(x * y for x, y in zip(a, b))
    assert dot(cat, kitten) > dot(cat, rates)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_same_alone_together_cold_cached_and_among_answers(server, pooling):
    alone = [embed(server, input=text, pooling=pooling)[0] for text in TEXTS]
    assert embed(server, input=TEXTS, pooling=pooling) == alone
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        chats = [pool.submit(server.post, "/v1/completions", {"prompt": f"{i} bottles", "max_tokens": 40, "ignore_eos": True}) for i in range(4)]
        together = [pool.submit(embed, server, input=text, pooling=pooling, cache_salt=f"{pooling}") for text in TEXTS]
        assert [f.result()[0] for f in together] == alone
        assert all(f.result()[0] == 200 for f in chats)
    server.wait_idle()


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_overlap_equals_normal_and_chunks_of_any_size(server, start_server, pooling):
    want = embed(server, input=TEXTS, pooling=pooling)
    other = start_server("--disable-overlap-schedule", "--chunked-prefill-size", 48, "--page-size", 1)
    assert embed(other, input=TEXTS, pooling=pooling) == want


def test_shapes_of_the_input(server):
    ids = server.post("/tokenize", {"content": TEXTS[0], "add_special": True})[1]["tokens"]
    text = embed(server, input=TEXTS[0])
    assert embed(server, input=ids) == embed(server, input=[ids]) == embed(server, input=[TEXTS[0]]) == text
    (coded,) = embed(server, input=TEXTS[0], encoding_format="base64")
    assert list(struct.unpack("<576f", base64.b64decode(coded))) == pytest.approx(text[0], rel=1e-6)
    (raw,) = embed(server, input=TEXTS[0], normalize=False)
    length = math.sqrt(sum(x * x for x in raw))
    assert length > 2 and [x / length for x in raw] == pytest.approx(text[0], rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("fields,param", [
    ({}, "input"), ({"input": ""}, "input"), ({"input": ["a", ""]}, "input"), ({"input": [49152]}, "input"), ({"input": "word " * 9000}, "input"),
    ({"input": "a", "dimensions": 100}, "dimensions"), ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ({"input": "a", "pooling": "max"}, "pooling"), ({"input": "a", "truncate_prompt_tokens": 3}, "truncate_prompt_tokens")])
def test_refusals_name_the_field(client, model, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/embeddings", body={"model": model, **fields}, cast_to=object)
    assert caught.value.param == param


def test_the_simulated_device_answers_too(start_server):
    sim = start_server("--device", "sim:zero", model=None)
    first, second = embed(sim, input=["one two", "one three"])
    assert len(first) == 16 and first != second and embed(sim, input="one two") == [first]
