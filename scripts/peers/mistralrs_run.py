"""Runs inside the environment of mistral.rs, whose package has no server: one cell in process, one thread per stream. Prints one JSON
line with the keys of `gapless bench serve`."""
import json
import math
import pathlib
import queue
import sys
import threading
import time

import mistralrs


def make_runner(job):
    path = pathlib.Path(job["model"])
    if path.is_dir():
        which = mistralrs.Which.Plain(model_id=str(path), arch=mistralrs.Architecture.Llama, dtype=mistralrs.ModelDType.BF16)
    else:
        which = mistralrs.Which.GGUF(quantized_model_id=str(path.parent), quantized_filename=path.name, tok_model_id=job["folder"],
                                     tokenizer_json=job["tokenizer"])
    return mistralrs.Runner(which=which, max_seqs=job["streams"], prefix_cache_n=0)


def one(runner, prompt, output):
    """(start, stamps, prompt tokens, completion tokens)"""
    request = mistralrs.ChatCompletionRequest(messages=prompt, model="default", max_tokens=output, temperature=0.0, ignore_eos=True, stream=True)
    start, stamps, usage = time.perf_counter(), [], None
    for chunk in runner.send_chat_completion_request(request):
        stamps.append(time.perf_counter())
        usage = getattr(chunk, "usage", None) or usage
    return start, stamps, usage.prompt_tokens if usage else -1, usage.completion_tokens if usage else len(stamps)


def run(runner, prompts, streams, output):
    waiting, ended = queue.SimpleQueue(), []
    for prompt in prompts:
        waiting.put(prompt)

    def stream():
        while True:
            try:
                prompt = waiting.get_nowait()
            except queue.Empty:
                return
            ended.append(one(runner, prompt, output))
    threads = [threading.Thread(target=stream) for _ in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def summary(values):
    values = sorted(values) or [0.0]
    at = lambda share: round(1e3 * values[min(len(values) - 1, math.floor(share * len(values)))], 2)
    return {"mean": round(1e3 * sum(values) / len(values), 2), "p50": at(0.5), "p99": at(0.99)}


def main():
    with open(sys.argv[1]) as source:
        job = json.load(source)
    runner = make_runner(job)
    run(runner, job["warm_up"], job["streams"], 8)
    print("ready", flush=True)
    begin = time.perf_counter()
    ended = run(runner, job["prompts"], job["streams"], job["output"])
    seconds = max(stamps[-1] for _, stamps, _, _ in ended) - begin
    tokens = sum(count for *_, count in ended)
    gaps = [b - a for _, stamps, *_ in ended for a, b in zip(stamps, stamps[1:])]
    print(json.dumps({"seconds": round(seconds, 3), "output_tok_s": round(tokens / seconds, 1), "completion_tokens": tokens,
                      "prompt_tokens": sum(count for *_, count, _ in ended),
                      "ttft_ms": summary([stamps[0] - start for start, stamps, *_ in ended]), "itl_ms": summary(gaps)}), flush=True)


if __name__ == "__main__":
    main()
