#!/usr/bin/env python3
"""Runs clang-tidy on files, several at a time. A file that passed is not checked again until it, a header of ours that it includes, or
.clang-tidy changes: the cache holds one empty file per (contents) that passed."""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import subprocess
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def own_files(path, root, seen):
    """`path` and the headers of src/ that it includes, directly or not."""
    if path in seen or not path.exists():
        return seen
    seen.add(path)
    for include in INCLUDE.findall(path.read_text()):
        own_files(root / "src" / include, root, seen)
    return seen


def key_of(path, root, tool):
    digest = hashlib.sha256(tool.encode() + (root / ".clang-tidy").read_bytes())
    for name in sorted(own_files(path, root, set())):
        digest.update(str(name.relative_to(root)).encode() + b"\0" + name.read_bytes())
    return digest.hexdigest()


def check(path, arguments):
    marker = arguments.cache / key_of(path, arguments.root, arguments.tool)
    if marker.exists():
        return path, True, ""
    run = subprocess.run([arguments.tool, "--quiet", "-p", str(arguments.build), "--extra-arg=-Wno-unknown-warning-option", str(path)], capture_output=True, text=True)
    if run.returncode == 0:
        marker.touch()
    return path, run.returncode == 0, run.stdout + run.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.root = pathlib.Path(__file__).resolve().parent.parent
    arguments.cache.mkdir(parents=True, exist_ok=True)
    known = {entry["file"] for entry in json.loads((arguments.build / "compile_commands.json").read_text())}
    files = [path for path in (f.resolve() for f in arguments.files) if str(path) in known]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for done, (path, ok, text) in enumerate(pool.map(lambda f: check(f, arguments), files), 1):
            if not ok:
                failed += 1
                print(f"[tidy {done}/{len(files)}] {path.relative_to(arguments.root)}\n{text}", flush=True)
            elif done % 10 == 0 or done == len(files):
                print(f"[tidy {done}/{len(files)}]", file=sys.stderr, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
