"""A Hugging Face tokenizer folder made here: one token for each byte. Load generators want one to count with, and may not fetch the model's."""
import json
import pathlib


def byte_letters():
    """Byte -> the printable character that stands for it in a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in printable}
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + len(letters) - len(printable))
    return letters


def write_byte_tokenizer(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    end = "<|end|>"
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    vocab = {letter: byte for byte, letter in sorted(byte_letters().items())}
    special = {"id": 256, "content": end, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None, "pre_tokenizer": byte_level,
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocab | {end: 256}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "bos_token": end, "model_max_length": 1_000_000}))
    return folder
