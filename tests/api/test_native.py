"""SGLang's native API on the real model: /generate against /v1/completions, streams against whole answers, and what routers and operators ask."""
import threading

from conftest import wait_for

GREEDY = {"temperature": 0, "max_new_tokens": 24}


def generate(server, **fields):
    status, answer = server.post("/generate", fields)
    assert status == 200, answer
    return answer


def test_the_same_answer_as_completions(server):
    prompt = "The river rises in the mountains and"
    native = generate(server, text=prompt, sampling_params=GREEDY, return_logprob=True, logprob_start_len=0, top_logprobs_num=2, return_text_in_logprobs=True)
    status, openai = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 24, "temperature": 0, "logprobs": 2, "echo": True})
    assert status == 200
    assert prompt + native["text"] == openai["choices"][0]["text"]
    meta = native["meta_info"]
    triples = meta["input_token_logprobs"] + meta["output_token_logprobs"]
    assert [logprob for logprob, _, _ in triples] == openai["choices"][0]["logprobs"]["token_logprobs"]
    assert [text for _, _, text in triples] == openai["choices"][0]["logprobs"]["tokens"]
    assert [token for _, token, _ in meta["output_token_logprobs"]] == native["output_ids"]
    assert all(top[0] == chosen for top, chosen in zip(meta["output_top_logprobs"], meta["output_token_logprobs"])), "greedy takes the likeliest"
    assert meta["completion_tokens"] == len(native["output_ids"]) == openai["usage"]["completion_tokens"]
    ids = [token for _, token, _ in meta["input_token_logprobs"]]
    assert generate(server, input_ids=ids, sampling_params=GREEDY)["text"] == native["text"]


def test_the_last_event_is_the_whole_answer(server):
    body = {"text": ["One", "Two and three"], "rid": ["a", "b"], "return_logprob": True,
            "sampling_params": {"temperature": 0.8, "sampling_seed": 7, "n": 2, "max_new_tokens": 12, "stop": ["."]}}
    generate(server, **body)  # both of those compared find the prompts cached
    whole, last = generate(server, **body), {}
    for event in server.stream("/generate", body)[:-1]:
        index = event.pop("index")
        assert event["text"].startswith(last.get(index, {"text": ""})["text"])
        last[index] = event
    assert [last[i] for i in range(4)] == whole
    assert [answer["meta_info"]["id"] for answer in whole] == ["a", "a", "b", "b"]


def test_how_answers_end(server):
    assert generate(server, text="a", sampling_params={"max_new_tokens": 3, "ignore_eos": True})["meta_info"]["finish_reason"] == {"type": "length", "length": 3}
    stopped = generate(server, text="One, two, three, four,", sampling_params={"temperature": 0, "max_new_tokens": 40, "stop": [","]})
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": ","} and "," not in stopped["text"]


def test_cached_tokens_of_a_stream(server):
    body = {"text": "A long and winding road that leads to the door of the house " * 4, "sampling_params": {"max_new_tokens": 2}}
    generate(server, **body)
    first = server.stream("/generate", body)[0]
    assert first["meta_info"]["cached_tokens"] > 16


def test_an_aborted_request_says_so(server):
    answers = {}

    def ask(name):
        answers[name] = generate(server, text=name, rid=name, sampling_params={"max_new_tokens": 4000, "ignore_eos": True})

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    wait_for(lambda: server.metrics()["gapless_running_requests"] == 2, 20, "two requests")
    status, busy = server.post("/flush_cache", {})
    assert status == 409 and busy["error"]["code"] == "busy"
    assert server.post("/abort_request", {"rid": "second"})[1] == {"aborted": 1}
    threads[1].join(20)
    assert "second" in answers and "first" not in answers
    assert server.post("/abort_request", {"abort_all": True})[1] == {"aborted": 1}
    threads[0].join(20)
    assert {answer["meta_info"]["finish_reason"]["type"] for answer in answers.values()} == {"abort"}
    server.wait_idle()


def test_what_a_router_asks(server):
    assert server.get("/health_generate")[0] == 200
    server.wait_idle()
    status, _, body = server.request("GET", "/get_load")
    assert status == 200 and b'"num_reqs":0' in body
    generate(server, text="Something to remember, long enough for a page of the cache to hold it.", sampling_params={"max_new_tokens": 16, "ignore_eos": True})
    server.wait_idle()
    assert server.metrics()["gapless_kv_cached_tokens"] > 0
    status, flushed = server.post("/flush_cache", {})
    assert status == 200 and flushed["flushed_tokens"] > 0
    assert server.metrics()["gapless_kv_cached_tokens"] == 0
