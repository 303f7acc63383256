"""What the peers that are called in their own process share: a job comes as a file, one JSON line with the keys of `gapless bench serve`
goes out."""
import dataclasses
import json
import math
import sys
import time


@dataclasses.dataclass
class Answer:
    start: float   # seconds of time.perf_counter()
    stamps: list   # when text arrived
    prompt_tokens: int
    tokens: int


def summary(values):
    values = sorted(values) or [0.0]

    def at(share):
        return round(1e3 * values[min(len(values) - 1, math.floor(share * len(values)))], 2)
    return {"mean": round(1e3 * sum(values) / len(values), 2), "p50": at(0.5), "p99": at(0.99)}


def figures(answers, begin):
    seconds = max(answer.stamps[-1] for answer in answers) - begin
    tokens = sum(answer.tokens for answer in answers)
    gaps = [b - a for answer in answers for a, b in zip(answer.stamps, answer.stamps[1:])]
    return {"seconds": round(seconds, 3), "output_tok_s": round(tokens / seconds, 1), "completion_tokens": tokens,
            "prompt_tokens": sum(answer.prompt_tokens for answer in answers),
            "ttft_ms": summary([answer.stamps[0] - answer.start for answer in answers]), "itl_ms": summary(gaps)}


def main(load, run):
    """load(job) -> the model; run(model, prompts, streams, tokens each) -> answers."""
    with open(sys.argv[1]) as source:
        job = json.load(source)
    model = load(job)
    run(model, job["warm_up"], job["streams"], 8)
    print("ready", flush=True)
    begin = time.perf_counter()
    answers = run(model, job["prompts"], job["streams"], job["output"])
    print(json.dumps(figures(answers, begin)), flush=True)
