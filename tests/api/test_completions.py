"""Text completions through the official client."""
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
