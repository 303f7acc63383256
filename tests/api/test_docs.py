"""The commands of README.md and docs/*.md, run as a reader would: in a folder that looks like this repository, against a real server.
A command that is not run is listed in NOT_RUN with the reason; its flags are still compared with --help. Links, files and names:
tests/docs_test.py."""
import functools
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys

import pytest

from conftest import BINARY, MODEL, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import doc_pages  # noqa: E402

ROOT = doc_pages.ROOT

# What a command looks like -> why it is not run.
NOT_RUN = {
    r"^\./dev (build|install|test|lint|fmt)\b|^G=build/release/gapless; M=": "builds and tests: what runs this test does it",
    r"^\./dev bench peers": "fetches and builds other servers for half an hour",
    r"^pip install|^python -m (venv|sglang_router)|^gapless serve .*--api-key-file keys|^lm_eval": "clients: test_fleet.py, test_real_clients.py",
    r"^install -D|^systemctl |^journalctl |^docker ": "changes the machine, or needs Docker; test_packaging.py reads what is installed",
    r"^cmake |^g\+\+ ": "tests/install_test.py builds the example with the installed library",
    r"^nice -n -\d+$|^gapless COMMAND --help$": "the beginning of a command",
    r"^gapless serve / chat": "a list of commands",
}
# What takes long: run in the full tier.
SLOW = r"\bbench\b|selftest|scripts/live_cost|serve gemma3|--kv-mem 2G|--max-running-requests 1|timeout 5 [^;]*$"
# What does not end with 0: what it looks like -> its exit status and what it says.
ENDS_WITH = {
    r'"max_tokens": "256"': (22, "max_tokens"),
    r"-d '\{'$": (22, "JSON"),
    r"--prot 80": (2, "did you mean --port"),
    r"--kv-mem 1K": (2, "--kv-mem"),
    r"^timeout 5 .*; grep -c secret log$": (1, "^0$"),
    r"^timeout 5 [^;]*$": (124, "http://"),
    r"\| head": ((0, 23), "event"),  # 23: nobody reads on
    r"bench overlap": ((0, 1), "overlap / normal"),  # 1: void, this machine was busy
}
# Words in capitals that stand for something.
STANDS_FOR = {"URL": "$DOCS_URL", "MODEL.gguf": MODEL, "model.gguf": MODEL, "/path/to/model.gguf": MODEL, "FILE": MODEL, "MODEL": MODEL}

# An answer that is an error is a failure, as with -f, but shown.
CURL = """#!/bin/bash
case $1 in -*f*) ;; *) set -- --fail-with-body "$@" ;; esac
exec /usr/bin/curl --max-time 60 "$@"
"""
# A server gets a port that is free.
GAPLESS = """#!/bin/bash
case " $* " in
  *" --help "* | *" -h "* | *" --port "* | *" bench "*) ;;
  *" serve "*) set -- "$@" --port "$DOCS_PORT" ;;
esac
exec "$DOCS_BINARY" "$@"
"""
# ./dev without building and fetching.
DEV = """#!/bin/bash
case "$1 $2" in
  "model gemma3") echo "$GAPLESS_GEMMA3" ;;
  "model "*) echo "$GAPLESS_SMOLLM2" ;;
  "serve "* | "chat "* | "selftest "* | "bench "*)
    command=("$1"); shift
    if [ "$command" = bench ] && [[ "$1" =~ ^(serve|overlap|kernels|sampling)$ ]]; then command+=("$1"); shift; fi
    model=$GAPLESS_SMOLLM2
    case " $* " in *" --device sim"*) model= ;; esac
    case "${command[*]}" in "bench serve" | "bench kernels" | "bench sampling") model= ;; esac
    case "$1" in gemma3) model=$GAPLESS_GEMMA3; shift ;; smollm2) shift ;; -* | "") ;; *) model=$1; shift ;; esac
    exec gapless "${command[@]}" ${model:+"$model"} "$@" ;;
  *) exec "$DOCS_ROOT/dev" "$@" ;;
esac
"""


def is_complete(script):
    return subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True).returncode == 0 and not script.rstrip().endswith("\\")


def statements(code):
    """A block's commands one by one, or as one script if a line needs what one before it set or started."""
    if re.search(r"&(\s*#.*)?$|^[A-Za-z]\w*=", code.text, re.M):
        return [code]
    found, lines = [], []
    for line in code.text.splitlines():
        lines.append(line)
        script = "\n".join(lines)
        if not script.strip() or script.lstrip().startswith("#"):
            lines = []
        elif is_complete(script):
            found.append(doc_pages.Code(code.page, code.line, code.language, script))
            lines = []
    return found


@functools.cache
def all_commands():
    found = [code for path in doc_pages.PAGES for codes in doc_pages.read(path)[::2] for code in codes if code.is_command()]
    found = [command for code in found for command in statements(code)]
    return list({code.text: code for code in reversed(found)}.values())[::-1]  # each text once


def is_name(code):
    """Whether it only names a command, as in `gapless trace`; which may be one that ends or one that does not."""
    return re.fullmatch(r"(\./dev|(build/release/)?gapless)( [a-z]+)+", code.text) is not None and code.language == "span"


def commands():
    return [code for code in all_commands() if not is_name(code)]


def python_blocks():
    return [code for path in doc_pages.PAGES for code in doc_pages.read(path)[0] if code.language == "python"]


def why_not_run(code):
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, code.text)), None)


def name(code):
    return f"{code.page}:{code.line}:{' '.join(code.text.split())[:50]}"


def meaning(code):
    """The same for a command that is written in two ways: $G selftest $M, build/release/gapless selftest FILE."""
    return re.sub(r" (\$M|FILE|(MODEL|model)\.gguf)\b", "", re.sub(r"\$G\b|build/release/gapless\b|\./dev\b", "gapless", code.text))


def runnable():
    different = {meaning(code): code for code in commands() if not why_not_run(code)}
    return [pytest.param(code, id=name(code), marks=[pytest.mark.full] if re.search(SLOW, code.text) else []) for code in different.values()]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def server(start_server):
    return start_server("--profile")


@pytest.fixture(scope="module")
def folder(server, tmp_path_factory):
    """What a reader's folder has: the program, ./dev, the sources' folders, a trace."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "build/release").mkdir(parents=True)
    (folder / "bin").mkdir()
    for path, text in {"bin/curl": CURL, "bin/gapless": GAPLESS, "build/release/gapless": GAPLESS, "dev": DEV}.items():
        (folder / path).write_text(text)
        (folder / path).chmod(0o755)
    for name in ("docs", "examples", "scripts", "src", "tests"):
        (folder / name).symlink_to(ROOT / name)
    server.post("/v1/completions", {"prompt": "the river", "max_tokens": 40, "ignore_eos": True})
    for name in ("t.json", "trace.json", "overlap.json"):
        (folder / name).write_text(server.get("/trace")[1])
    return folder


def adapted(text, url):
    """With this server's address, and the words in capitals replaced."""
    text = re.sub(r"(http://)?(127\.0\.0\.1|localhost):8080", url, text)
    for word, meaning in STANDS_FOR.items():
        text = re.sub(rf"(?<![\w/.$-]){re.escape(word)}(?![\w=/.-])", meaning, text)
    return text


def assignments(page):
    """The lines of a page's blocks that give names to what later commands use: G=build/release/gapless; ..."""
    blocks, _, _ = doc_pages.read(ROOT / page)
    return "\n".join(line for code in blocks if code.is_command() for line in code.text.splitlines()
                     if re.fullmatch(r"([A-Za-z]\w*=(\$\([^)]*\)|[^\s;]*)(; *|$))+", line))


def starts_server(text):
    return re.search(r"(gapless|\$G|\./dev) serve ", text + " ") is not None


def in_foreground(text):
    return starts_server(text) and not re.search(r"&|timeout|--help|--prot|--kv-mem 1K", text)


def start(code, folder, url, port, output):
    script = adapted((assignments(code.page) + "\n" if "$G" in code.text or "$URL" in code.text else "") + code.text, url)
    environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "DOCS_PORT": str(port), "DOCS_URL": url,
                   "DOCS_BINARY": str(pathlib.Path(BINARY).resolve()), "DOCS_ROOT": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(["bash", "-uo", "pipefail", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                            stdout=output, stderr=subprocess.STDOUT, start_new_session=True)


def end(process):
    """What is left of a command's processes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def is_ready(port):
    return subprocess.run(["curl", "-sf", f"http://127.0.0.1:{port}/ready"], capture_output=True).returncode == 0


@pytest.mark.parametrize("code", runnable())
def test_the_command_runs(code, folder, server, tmp_path):
    port = free_port() if starts_server(code.text) else server.port
    with open(tmp_path / "output", "w") as output:  # not a pipe, which a server left in the background would hold open
        process = start(code, folder, f"http://127.0.0.1:{port}", port, output)
    try:
        if in_foreground(code.text):
            wait_for(lambda: process.poll() is not None or is_ready(port), 60, "a ready server")
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=1200)
    finally:
        end(process)
    output = (tmp_path / "output").read_text()
    status, says = next((end for pattern, end in ENDS_WITH.items() if re.search(pattern, code.text)), (0, ""))
    if in_foreground(code.text):
        status, says = (0, -signal.SIGTERM, 128 + signal.SIGTERM), "http://"
    assert process.returncode in (status if isinstance(status, tuple) else (status,)), output
    assert re.search(says, output, re.M), output


@pytest.mark.parametrize("code", [pytest.param(code, id=name(code)) for code in python_blocks()])
def test_the_program_runs(code, folder, server):
    result = subprocess.run([sys.executable, "-c", adapted(code.text, server.url)], cwd=folder, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_what_is_not_run_is_in_the_docs():
    texts = [code.text for code in commands()]
    for pattern in [*NOT_RUN, *(pattern for whole in NOT_RUN for pattern in whole.split("|^"))]:
        pattern = pattern if pattern.startswith("^") else "^" + pattern
        assert any(re.search(pattern, text) for text in texts), f"nothing looks like {pattern} any more"
    for pattern in ENDS_WITH:
        assert any(re.search(pattern, text) for text in texts), f"nothing looks like {pattern} any more"


def test_pages_are_cut_into_commands():
    block = doc_pages.Code("p", 1, "bash", "a -d '{\n  }'\n\n# why\nb \\\n  c  # how")
    assert [code.text for code in statements(block)] == ["a -d '{\n  }'", "b \\\n  c  # how"]
    together = doc_pages.Code("p", 1, "bash", "a &\nb")
    assert statements(together) == [together]
    text = "curl localhost:8080/x http://127.0.0.1:8080/y FILE; cat PROFILE"
    assert adapted(text, "http://h:1") == f"curl http://h:1/x http://h:1/y {MODEL}; cat PROFILE"
    assert list(calls("x=1; ./dev bench serve --url U | cat; $G trace t.json > gapless")) == [["./dev", "bench", "serve", "--url", "U"],
                                                                                         ["$G", "trace", "t.json"]]


@functools.cache
def help_of(*command):
    result = subprocess.run([*command, "--help"], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}"
    return result.stdout


def calls(text):
    """(program, words) of each call of Gapless in a script."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    words = []
    for word in [*lexer, ";"]:
        if re.fullmatch(r"[|&;<>()]+", word):
            if len(words) > 1:
                yield words
            words = []
        elif words or re.fullmatch(r"(build/release/)?gapless|\$G|\./dev", word):
            words.append(word)


@pytest.mark.parametrize("code", [pytest.param(code, id=name(code)) for code in commands()
                                  if " --" in code.text and not code.text.startswith("docker")])  # whose image has the name
def test_its_flags_exist(code):
    for words in calls(code.text):
        if words[:3] == ["./dev", "bench", "peers"]:
            help_text = help_of(sys.executable, "scripts/peers")
        elif words[0] == "./dev" and words[1] in ("test", "fmt", "build", "lint"):
            help_text = (ROOT / "dev").read_text()
        else:
            command = words[1:3] if words[1] == "bench" and re.fullmatch("[a-z]+", (words + [""])[2]) else words[1:2]
            help_text = help_of(BINARY, *command)
        for flag in [word.split("=")[0] for word in words if word.startswith("--") and word not in ("--help", "--prot")]:
            assert re.search(re.escape(flag) + r"(?![\w-])", help_text), f"{' '.join(words)}: no flag {flag}"


@pytest.mark.parametrize("code", [pytest.param(code, id=name(code)) for code in all_commands() if is_name(code)])
def test_a_command_that_is_named_exists(code):
    program, *words = code.text.split()
    if program == "./dev":
        assert re.search(rf"^  {words[0]}\b", (ROOT / "dev").read_text(), re.M), f"./dev has no {words[0]}"
    else:
        assert f"usage: gapless {' '.join(words)}" in help_of(BINARY, *words)


def test_what_dev_test_is_asked_for_exists():
    stages = re.findall(r"stage_(\w+)\(\)", (ROOT / "scripts/tests.sh").read_text())
    lists = "".join(path.read_text() for path in (ROOT / "src").rglob("CMakeLists.txt"))
    programs = {folder.name + "_test" for folder in (ROOT / "src").iterdir()} | set(re.findall(r"gapless_test\((\w+)", lists))
    python = "".join(path.stem + path.read_text() for path in (ROOT / "tests/api").glob("*.py"))
    for code in all_commands():
        for words in calls(code.text):
            for name in [word for word in words[2:] if words[:2] == ["./dev", "test"] and not word.startswith("-")]:
                assert name in stages or name in programs or name in python, f"{code}: no stage and no test {name}"
