"""The workloads: every server gets the same ones, so only figures of one run compare."""
import dataclasses
import pathlib
import random
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Cell:
    """`requests` prompts of `prompt` tokens, `streams` of them at a time, `output` tokens each. Prompts are a function of `seed`.
    `shown`: what the table has of it, "rate", "ttft" or "memory"."""
    name: str
    shown: str
    streams: int
    prompt: int
    output: int
    requests: int
    seed: int

    @property
    def tokens(self):
        """Of one request, rounded up to what a KV cache is cut into: what a server with fixed places must reserve for each."""
        return -(-(self.prompt + self.output) // 512) * 512


def make_cells(streams, quick):
    """One cell for each number of streams, the time to first token of a long prompt that comes alone, and the memory of many requests that
    have 512 tokens each in the end."""
    cells = []
    for number, count in enumerate(streams):
        requests = max(2, count) if quick else max(4, 2 * count)
        cells.append(Cell(f"{count} streams" if count > 1 else "1 stream", "rate", count, 128, 128, requests, 11 + number))
    cells.append(Cell("512-token prompt", "ttft", 1, 512, 4, 3 if quick else 8, 10))
    # A few tokens of room in a server's fixed places: a first word may take two, and some models put one before it.
    cells.append(Cell("32 streams of 512 tokens", "memory", 32, 380, 128, 32, 9))
    return cells


def common_words():
    """The list that the load generator of Gapless has."""
    text = (ROOT / "src/model/common_words.h").read_text()
    return re.findall(r'"(\w+)"', text.split("kCommonWords[]", 1)[1])


def make_prompts(cell):
    """The same prompts as `gapless bench serve --seed` makes, for a peer that is not a server."""
    words, chance = common_words(), random.Random(cell.seed)
    return [" ".join(chance.choice(words) for _ in range(cell.prompt)) for _ in range(cell.requests)]
