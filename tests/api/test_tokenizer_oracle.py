"""A-TK-1: 10,000 random strings for each model have the same ids as in the tokenizer of llama-cpp-python 0.3.36. GAPLESS_LLAMA_PYTHON is a
Python that has the package (./dev test --full builds it)."""
import json
import os
import pathlib
import random
import subprocess
import unicodedata

import pytest

STRINGS = 10_000
PIECES = [
    "hello", " world", "The", "ing", "don't", "I'll", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " ", "é", "à", "ß", "ñ", "Ü", "日本", "語", "中文", "한국어",
    "Привет", "مرحبا", "हिन्दी", "😊", "👩‍👩‍👧", "🇫🇷", "½", "²", "٣", "0", "1", "42", "1234567", "3.14", "$", "%", "&&", "->", "{", "}", "[]", "();", "//", "#", "\\", "\"",
    "'", "`", "_", "__init__", "=", "==", "<", ">", "</s>", "<s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>",
    "<0x41>", "▁", "\u200d", "\u00a0", "\u3000", "\x00", "\x1b", "e\u0301", "Ａ", "ﬁ", "\U0010ffff",
]


def random_text(rng):
    pieces = []
    for _ in range(rng.randrange(1, 20)):
        if rng.random() < 0.8:
            pieces.append(rng.choice(PIECES))
        else:
            # What a character is (a letter, ...) differs between Unicode versions for those that only newer ones know.
            character = chr(rng.randrange(0x20, 0x30000))
            pieces.append(" " if unicodedata.category(character) in ("Cn", "Cs") else character)
    return "".join(pieces)


@pytest.mark.full
@pytest.mark.parametrize("model", ["GAPLESS_SMOLLM2", "GAPLESS_GEMMA3"])
def test_a_tk_1_ids_of_random_strings(start_server, model):
    seed = int(os.environ.get("GAPLESS_SEED", random.randrange(1 << 32)))
    print(f"GAPLESS_SEED={seed}")
    rng = random.Random(seed)
    texts = [random_text(rng) for _ in range(STRINGS)]
    oracle = [os.environ["GAPLESS_LLAMA_PYTHON"], pathlib.Path(__file__).with_name("llama_tokenize.py"), os.environ[model]]
    wanted = json.loads(subprocess.run(oracle, input=json.dumps(texts), capture_output=True, text=True, check=True).stdout)
    server = start_server(model=os.environ[model])
    for text, both in zip(texts, wanted):
        for parse_special, ids in zip((True, False), both):
            # llama.cpp takes Gemma's </s> for a control token whatever its type in the file; here it is the HTML tag that the file says it is.
            if not parse_special and model == "GAPLESS_GEMMA3" and "</s>" in text:
                continue
            status, answer = server.post("/tokenize", {"content": text, "add_special": False, "parse_special": parse_special})
            assert status == 200, (text, answer)
            assert answer["tokens"] == ids, (text, parse_special)
