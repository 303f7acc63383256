"""Text completions through the official client."""
import os

import pytest

GEMMA = os.environ.get("GAPLESS_GEMMA3", "")
PROMPT = "The quick brown fox"


def complete(client, model, **parameters):
    return client.completions.create(model=model, **{"prompt": PROMPT, "temperature": 0, "max_tokens": 12, **parameters})


def test_defaults(client, model):
    answer = client.completions.create(model=model, prompt=PROMPT, temperature=0, extra_body={"ignore_eos": True})
    assert answer.object == "text_completion" and answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 16, "OpenAI's default of max_tokens"


def test_stream_equals_whole(client, model):
    for parameters in ({}, {"temperature": 1, "seed": 3, "n": 2}, {"prompt": ["Once", "Twice"], "logprobs": 2, "echo": True}):
        whole = complete(client, model, **parameters)
        text, finish, offsets = {}, {}, {}
        for chunk in complete(client, model, stream=True, **parameters):
            for choice in chunk.choices:
                text[choice.index] = text.get(choice.index, "") + choice.text
                if choice.logprobs:
                    offsets.setdefault(choice.index, []).extend(choice.logprobs.text_offset)
                if choice.finish_reason:
                    finish.setdefault(choice.index, []).append(choice.finish_reason)
        for choice in whole.choices:
            assert text[choice.index] == choice.text and finish[choice.index] == [choice.finish_reason]
            if choice.logprobs:
                assert offsets[choice.index] == choice.logprobs.text_offset


def test_list_prompts_keep_their_order(client, model):
    prompts = ["One, two, three,", "The capital of France is", "A B C D"]
    alone = [complete(client, model, prompt=p).choices[0].text for p in prompts]
    together = complete(client, model, prompt=prompts)
    assert [c.index for c in together.choices] == [0, 1, 2]
    assert [c.text for c in together.choices] == alone


def test_token_ids_equal_text(client, model, server):
    ids = server.post("/tokenize", {"content": PROMPT, "add_special": True})[1]["tokens"]
    assert complete(client, model, prompt=ids).choices[0].text == complete(client, model).choices[0].text
    assert [c.text for c in complete(client, model, prompt=[ids, ids[:2]]).choices][0] == complete(client, model).choices[0].text
    assert server.post("/detokenize", {"tokens": server.post("/tokenize", {"content": "Café 漢 😀"})[1]["tokens"]})[1]["content"] == "Café 漢 😀"


def test_a_lp_1_echo_with_logprobs(client, model, server):
    ids = server.post("/tokenize", {"content": "Café déjà vu is", "add_special": False})[1]["tokens"]
    choice = complete(client, model, prompt=ids, echo=True, logprobs=1, max_tokens=1).choices[0]
    lp = choice.logprobs
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset) == len(ids) + 1
    assert lp.token_logprobs[0] is None and lp.top_logprobs[0] is None
    assert all(value <= 0 for value in lp.token_logprobs[1:])
    for token, offset in zip(lp.tokens, lp.text_offset):
        if not token.startswith("bytes:"):
            assert choice.text[offset:offset + len(token)] == token
    # lm-eval compares for exact equality.
    assert lp.token_logprobs[-1] == max(lp.top_logprobs[-1].values())


def assert_offsets(choice, hidden=()):
    """The offsets cut the text into one piece per token, and tokens that are not text have none."""
    text, offsets = choice["text"], choice["logprobs"]["text_offset"]
    assert offsets[0] == 0 and offsets == sorted(offsets) and offsets[-1] <= len(text)
    for i, (token, begin, end) in enumerate(zip(choice["logprobs"]["tokens"], offsets, offsets[1:] + [len(text)])):
        if i in hidden:
            assert begin == end, (i, token)
        elif not token.startswith("bytes:"):
            assert text[begin:end] == token, (i, token)


def test_a_lp_1_echo_is_the_text_that_was_sent(server):
    prompt = "<|im_start|>user\nhi<|im_end|>\nCafé xy"
    body = {"prompt": prompt, "echo": True, "temperature": 0, "max_tokens": 1}
    choice = server.post("/v1/completions", {**body, "logprobs": 1})[1]["choices"][0]
    assert choice["text"].startswith(prompt) and choice["logprobs"]["tokens"][0] == "<|im_start|>"
    assert_offsets(choice)
    assert server.post("/v1/completions", body)[1]["choices"][0]["text"] == choice["text"]


def test_a_lp_1_echo_of_ids_shows_what_an_answer_would(server):
    prompt = "<|im_start|>user\nhi<|im_end|>\nxy"
    ids = server.post("/tokenize", {"content": prompt})[1]["tokens"]
    control = [i for i, token in enumerate(ids) if server.post("/detokenize", {"tokens": [token], "skip_special_tokens": True})[1]["content"] == ""]
    assert len(control) == 2
    body = {"prompt": ids, "echo": True, "logprobs": 1, "temperature": 0, "max_tokens": 1}
    choice = server.post("/v1/completions", body)[1]["choices"][0]
    assert choice["text"].startswith("user\nhi\nxy")
    assert_offsets(choice, control)
    shown = server.post("/v1/completions", {**body, "skip_special_tokens": False})[1]["choices"][0]
    assert shown["text"].startswith(prompt)
    assert_offsets(shown)


@pytest.mark.skipif(not GEMMA, reason="needs GAPLESS_GEMMA3")
def test_a_lp_1_a_bos_that_was_added_has_no_place_in_the_text(start_server):
    gemma = start_server(model=GEMMA)
    body = {"echo": True, "logprobs": 1, "temperature": 0, "max_tokens": 2}
    choice = gemma.post("/v1/completions", {**body, "prompt": "Hello there"})[1]["choices"][0]
    assert choice["text"].startswith("Hello there") and choice["logprobs"]["tokens"][0] == "<bos>"
    assert_offsets(choice, [0])
    written = gemma.post("/v1/completions", {**body, "prompt": "<bos>Hello there"})[1]["choices"][0]
    assert written["text"].startswith("<bos>Hello there")
    assert_offsets(written)
    assert gemma.stop() == 0


def test_a_lp_1_random_ids_have_offsets_inside_the_text(server):
    import random
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(20):
        ids = [rng.choice([rng.randrange(300), rng.randrange(49000)]) for _ in range(8)]
        body = {"prompt": ids, "echo": True, "logprobs": 1, "temperature": 2, "max_tokens": 6, "seed": 1}
        choice = server.post("/v1/completions", body)[1]["choices"][0]
        text, offsets = choice["text"], choice["logprobs"]["text_offset"]
        assert offsets == sorted(offsets) and offsets[-1] <= len(text), ids
        for token, begin, end in zip(choice["logprobs"]["tokens"], offsets, offsets[1:]):
            if not token.startswith("bytes:"):
                assert text[begin:end] in (token, ""), (ids, token)


def test_a_lp_1_tokens_of_a_stop_string_end_at_the_text(server):
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 12, "logprobs": 0}
    text = server.post("/v1/completions", body)[1]["choices"][0]["text"]
    stop = {**body, "stop": text[4:14]}
    choice = server.post("/v1/completions", stop)[1]["choices"][0]
    assert choice["text"] == text[:4] and max(choice["logprobs"]["text_offset"]) <= 4
    offsets, sent = [], ""
    for event in server.stream("/v1/completions", stop)[:-1]:
        piece = event["choices"][0]
        sent += piece["text"]
        offsets += (piece["logprobs"] or {}).get("text_offset", [])
        assert all(offset <= len(sent) for offset in offsets)
    assert sent == choice["text"] and offsets == choice["logprobs"]["text_offset"]


def test_a_pa_2_max_tokens_zero(client, model):
    answer = complete(client, model, max_tokens=0, echo=True, logprobs=1)
    assert answer.choices[0].text == PROMPT and answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 0
    assert len(answer.choices[0].logprobs.tokens) == answer.usage.prompt_tokens


def test_a_pa_6_logit_bias_bans_and_forces(client, model, server):
    banned = server.post("/tokenize", {"content": complete(client, model, max_tokens=1).choices[0].text})[1]["tokens"][0]
    biased = complete(client, model, max_tokens=1, logit_bias={str(banned): -100}).choices[0].text
    assert biased != complete(client, model, max_tokens=1).choices[0].text
    assert complete(client, model, logit_bias={}).choices[0].text == complete(client, model).choices[0].text


def test_a_mt_1_min_tokens(client, model):
    answer = complete(client, model, max_tokens=60, extra_body={"min_tokens": 50})
    assert answer.usage.completion_tokens >= 50


def test_a_u8_1_wild_sampling_is_valid_text(client, model):
    for seed in range(3):
        answer = complete(client, model, temperature=2, max_tokens=80, seed=seed, n=4, logprobs=1, extra_body={"top_k": 100})
        assert len(answer.choices) == 4


def test_a_u8_3_every_length_is_the_same_in_both_modes(client, model):
    for length in (1, 2, 3):
        parameters = {"prompt": "😀😀😀", "max_tokens": length}
        streamed = "".join(c.choices[0].text for c in complete(client, model, stream=True, **parameters) if c.choices)
        assert streamed == complete(client, model, **parameters).choices[0].text


def test_a_pa_3_prompts_around_the_context(start_server):
    short = start_server("--context-length", 256)

    def ask(path, **body):
        status, answer = short.post(path, {"temperature": 0, "ignore_eos": True, **body})
        return status, answer

    for stream in (False, True):
        status, answer = ask("/v1/completions", prompt=[500] * 257, stream=stream)
        assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
        assert "257" in answer["error"]["message"] and "256" in answer["error"]["message"]
    assert ask("/v1/chat/completions", messages=[{"role": "user", "content": "word " * 400}])[1]["error"]["code"] == "context_length_exceeded"
    status, answer = ask("/v1/completions", prompt=[500] * 254, max_tokens=50)
    assert status == 200 and answer["usage"]["completion_tokens"] == 2, "clipped to what is left"
    assert answer["choices"][0]["finish_reason"] == "length"
    status, answer = ask("/v1/completions", prompt=[500] * 256)
    assert status in (200, 400) and short.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
    assert short.stop() == 0


def test_a_sd_1_greedy_is_the_same_in_a_crowd(client, model):
    import concurrent.futures
    alone = complete(client, model, logprobs=1)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        crowd = [pool.submit(complete, client, model, logprobs=1) for _ in range(8)]
        crowd += [pool.submit(complete, client, model, prompt=f"Number {i}", temperature=1, max_tokens=20) for i in range(8)]
        for answer in [f.result() for f in crowd][:8]:
            assert answer.choices[0].text == alone.choices[0].text
            assert answer.choices[0].logprobs.token_logprobs == alone.choices[0].logprobs.token_logprobs


def test_a_sd_3_one_request_does_not_leak_into_another(client, model):
    import concurrent.futures
    def ask(ignore_eos):
        return complete(client, model, prompt="Hi", max_tokens=40, stop=["\n"], extra_body={"ignore_eos": ignore_eos}).choices[0]
    alone = {flag: ask(flag).text for flag in (True, False)}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for flag, future in [(flag, pool.submit(ask, flag)) for flag in (True, False) * 4]:
            assert future.result().text == alone[flag]


def test_best_of_returns_the_likeliest_of_the_same_answers(client, model):
    sampled = {"prompt": [PROMPT, "Once"], "temperature": 1.2, "seed": 5, "logprobs": 0}
    every = complete(client, model, n=5, **sampled).choices
    best = complete(client, model, n=2, extra_body={"best_of": 5}, **sampled)
    mean = {c.index: sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs) for c in every}
    for prompt in range(2):
        order = sorted(range(5 * prompt, 5 * prompt + 5), key=lambda i: -mean[i])[:2]
        assert [c.text for c in best.choices[2 * prompt:2 * prompt + 2]] == [every[i].text for i in order]
    assert [c.index for c in best.choices] == [0, 1, 2, 3]
    assert best.usage.completion_tokens == sum(len(c.logprobs.tokens) for c in every), "all that was generated"
    plain = complete(client, model, n=2, extra_body={"best_of": 5}, **{**sampled, "logprobs": None})
    assert [c.text for c in plain.choices] == [c.text for c in best.choices] and plain.choices[0].logprobs is None


def test_the_stop_string_is_in_the_output_only_if_asked_for(client, model, server):
    whole = complete(client, model, max_tokens=24, extra_body={"ignore_eos": True, "return_token_ids": True}).choices[0]
    text, ids = whole.text, whole.token_ids
    stop = text[len(text) // 2:len(text) // 2 + 4]
    before = text[:text.index(stop)]
    for stream in (False, True):
        def answer(**fields):
            given = {"prompt": PROMPT, "temperature": 0, "max_tokens": 24, "ignore_eos": True, **fields}
            if not stream:
                return server.post("/v1/completions", given)[1]["choices"][0]["text"]
            return "".join(e["choices"][0]["text"] for e in server.stream("/v1/completions", given) if e != "[DONE]")
        assert answer(stop=stop) == before
        assert answer(stop=stop, include_stop_str_in_output=True) == before + stop
        cut = answer(stop_token_ids=[ids[5]], include_stop_str_in_output=True)
        assert cut == server.post("/detokenize", {"tokens": ids[:ids.index(ids[5]) + 1]})[1]["content"]
        assert answer(stop_token_ids=[ids[5]]) == server.post("/detokenize", {"tokens": ids[:ids.index(ids[5])]})[1]["content"]


def test_return_token_ids(server):
    fields = {"prompt": PROMPT, "temperature": 0, "max_tokens": 12, "return_token_ids": True}
    (choice,) = server.post("/v1/completions", fields)[1]["choices"]
    prompt = server.post("/tokenize", {"content": PROMPT, "add_special": True})[1]["tokens"]
    assert choice["prompt_token_ids"] == prompt and len(choice["token_ids"]) == 12
    assert server.post("/detokenize", {"tokens": choice["token_ids"], "skip_special_tokens": True})[1]["content"] == choice["text"]
    chunks = [event["choices"][0] for event in server.stream("/v1/completions", fields) if event != "[DONE]"]
    assert chunks[0]["prompt_token_ids"] == prompt and all("prompt_token_ids" not in chunk for chunk in chunks[1:])
    assert [i for chunk in chunks for i in chunk["token_ids"]] == choice["token_ids"]
    assert "token_ids" not in server.post("/v1/completions", {**fields, "return_token_ids": False})[1]["choices"][0]
    chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "return_token_ids": True})[1]
    assert len(chat["choices"][0]["token_ids"]) == chat["usage"]["completion_tokens"]
    assert len(chat["prompt_token_ids"]) == chat["usage"]["prompt_tokens"]
