"""Runs inside the environment of mistral.rs, whose package has no server: one cell in process, one thread per stream. Prints one JSON
line with the keys of `gapless bench serve`."""
import pathlib
import queue
import threading
import time

import in_process
import mistralrs


def make_runner(job):
    path = pathlib.Path(job["model"])
    if path.is_dir():
        which = mistralrs.Which.Plain(model_id=str(path), arch=mistralrs.Architecture.Llama, dtype=mistralrs.ModelDType.BF16)
    else:
        which = mistralrs.Which.GGUF(quantized_model_id=str(path.parent), quantized_filename=path.name, tok_model_id=job["folder"],
                                     tokenizer_json=job["tokenizer"])
    return mistralrs.Runner(which=which, max_seqs=job["streams"], prefix_cache_n=0)


def one(runner, sending, prompt, output):
    request = mistralrs.ChatCompletionRequest(messages=[{"role": "user", "content": prompt}], model="default", max_tokens=output, temperature=0.0,
                                              ignore_eos=True, stream=True)
    start, stamps, usage = time.perf_counter(), [], None
    with sending:
        chunks = runner.send_chat_completion_request(request)
    for chunk in chunks:
        stamps.append(time.perf_counter())
        usage = getattr(chunk, "usage", None) or usage
    return in_process.Answer(start, stamps, usage.prompt_tokens if usage else -1, usage.completion_tokens if usage else len(stamps))


def run(runner, prompts, streams, output):
    waiting, ended, errors = queue.SimpleQueue(), [], []
    sending = threading.Lock()  # the package refuses two calls at the same time; the answers come in parallel
    for prompt in prompts:
        waiting.put(prompt)

    def stream():
        while True:
            try:
                prompt = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                ended.append(one(runner, sending, prompt, output))
            except Exception as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=stream) for _ in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return ended


if __name__ == "__main__":
    in_process.main(make_runner, run)
