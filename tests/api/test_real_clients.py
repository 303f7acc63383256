"""Clients of other people, unmodified and at pinned versions, against the real program: docs/clients.md. GAPLESS_CLIENTS is the folder with an
environment for each, which ./dev test api_full sets up; without it these tests are skipped."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from byte_tokenizer import write_byte_tokenizer

HERE = pathlib.Path(__file__).resolve().parent.parent / "clients"
CLIENTS = os.environ.get("GAPLESS_CLIENTS", "")


def installed(path):
    if not CLIENTS:
        pytest.skip("GAPLESS_CLIENTS is not set: ./dev test api_full sets up the clients of other people")
    program = pathlib.Path(CLIENTS) / path
    if not program.exists():
        pytest.skip(f"{program} is not there")
    return program


def run(folder, *command, **environment):
    """stdout; the client's own caches and settings go to `folder`."""
    variables = {**os.environ, "HOME": str(folder), "HF_HOME": str(folder / "hf"), "NO_COLOR": "1", **environment}
    done = subprocess.run([str(word) for word in command], cwd=folder, env=variables, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command[0]}: exit {done.returncode}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


def test_prometheus_understands_every_metric(server):
    server.post("/v1/completions", {"prompt": "One request", "max_tokens": 2})
    families = list(text_string_to_metric_families(server.get("/metrics")[1]))
    assert len({family.name for family in families}) == len(families) > 20
    for family in families:
        assert family.documentation and family.type in ("counter", "gauge", "histogram"), family.name
        assert family.samples, f"{family.name}: a type without a value"
        series = {(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples}
        assert len(series) == len(family.samples), f"{family.name}: one series twice"
        if family.type == "histogram":
            check_histogram(family)


def check_histogram(family):
    """Buckets add up to the count, for each set of labels."""
    buckets, counts = {}, {}
    for sample in family.samples:
        labels = tuple(sorted((key, value) for key, value in sample.labels.items() if key != "le"))
        if sample.name.endswith("_bucket"):
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_count"):
            counts[labels] = sample.value
    assert buckets.keys() == counts.keys()
    for labels, row in buckets.items():
        assert row == sorted(row) and row[-1] == (float("inf"), counts[labels]), (family.name, labels)
        assert [value for _, value in row] == sorted(value for _, value in row)


@pytest.mark.full
def test_openai_in_javascript(server, model, tmp_path):
    if not shutil.which("node"):
        pytest.skip("there is no node on this machine")
    folder = installed("openai-node/node_modules/openai").parent.parent
    said = json.loads(run(tmp_path, "node", HERE / "openai" / "calls.mjs", folder, server.url + "/v1"))
    assert said["model"] == model
    assert said["whole"] and said["streamed"] == said["helper"] == said["whole"]
    assert said["usage"]["total_tokens"] == said["whole_usage"]["total_tokens"]
    assert said["logprobs"] == said["usage"]["completion_tokens"]
    assert said["completions"][0] and said["completions"][0] == said["completions"][1]
    assert said["finish"] == ["tool_calls", "tool_calls"] and said["streamed_calls"] == said["calls"]
    assert {name for name, _ in said["calls"]} <= {"weather", "stock"}
    assert said["refused"] == {"bad_request": True, "status": 400, "param": "temperature"}
    server.wait_idle()  # the stream that was aborted, too


def scores(server, question, choice):
    """The sum of the logprobs of `choice` after `question`, and whether each of its tokens was the likeliest."""
    begin = server.post("/tokenize", {"prompt": question})[1]["count"]
    ids = server.post("/tokenize", {"prompt": question + choice})[1]["tokens"]
    logprobs = server.post("/v1/completions", {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 0})[1]["choices"][0]["logprobs"]
    pairs = list(zip(logprobs["token_logprobs"][begin:], logprobs["top_logprobs"][begin:]))
    return sum(own for own, _ in pairs), all(own == max(top.values()) for own, top in pairs)


@pytest.mark.full
def test_lm_eval_scores_and_generates_as_we_do(server, model, tmp_path):
    program = installed("lm-eval/bin/lm_eval")
    for source in (HERE / "lm_eval").iterdir():
        (tmp_path / source.name).write_text(source.read_text().replace("FOLDER", str(tmp_path)))
    run(tmp_path, program, "run", "--model", "local-completions", "--model_args",
        f"model={model},base_url={server.url}/v1/completions,num_concurrent=4", "--include_path", tmp_path,
        "--tasks", "gapless_colours,gapless_rivers", "--output_path", tmp_path / "out", "--log_samples", HF_HUB_OFFLINE="1")
    samples = {task: [json.loads(line) for path in (tmp_path / "out").rglob(f"samples_gapless_{task}_*.jsonl") for line in path.open()]
               for task in ("colours", "rivers")}

    assert len(samples["colours"]) == 4
    for sample in samples["colours"]:
        for choice, resp in zip(sample["doc"]["choices"], sample["filtered_resps"], strict=True):
            logprob, greedy = scores(server, sample["doc"]["question"], " " + choice)  # lm-eval's own delimiter
            assert (float(resp[0]), str(resp[1])) == (logprob, str(greedy)), choice
    assert sum(sample["acc"] for sample in samples["colours"]) >= 3

    assert len(samples["rivers"]) == 2
    for sample in samples["rivers"]:
        status, answer = server.post("/v1/completions", {"prompt": sample["doc"]["question"], "max_tokens": 12, "temperature": 0, "stop": ["\n"]})
        assert status == 200 and sample["filtered_resps"] == [answer["choices"][0]["text"]]


@pytest.mark.full
def test_guidellm_finds_no_errors(server, tmp_path):
    program = installed("guidellm/bin/guidellm")
    run(tmp_path, program, "benchmark", "run", "--target", server.url, "--processor", write_byte_tokenizer(tmp_path / "tokenizer"),
        "--data", "prompt_tokens=64,output_tokens=16", "--rate-type", "concurrent", "--rate", 4, "--max-requests", 16, "--disable-progress",
        "--output-path", tmp_path / "out.json", "--random-seed", 1, HF_HUB_OFFLINE="1")
    benchmark = json.loads((tmp_path / "out.json").read_text())["benchmarks"][0]
    assert benchmark["request_totals"] == {"successful": 16, "errored": 0, "incomplete": 0, "total": 16}
    assert {request["output_tokens"] for request in benchmark["requests"]["successful"]} == {16}


@pytest.mark.full
def test_aiperf_finds_no_errors(server, model, tmp_path):
    program = installed("aiperf/bin/aiperf")
    run(tmp_path, program, "profile", "--model", model, "--url", server.url, "--endpoint-type", "chat", "--streaming",
        "--tokenizer", write_byte_tokenizer(tmp_path / "tokenizer"), "--use-server-token-count", "--extra-inputs", "ignore_eos:true",
        "--concurrency", 4, "--request-count", 16, "--synthetic-input-tokens-mean", 64, "--output-tokens-mean", 16, "--random-seed", 1,
        "--ui", "none", "--no-gpu-telemetry", "--artifact-dir", tmp_path / "out")
    report = json.loads((tmp_path / "out" / "profile_export_aiperf.json").read_text())
    assert report["error_summary"] == [] and report["is_complete"]
    assert report["request_count"]["avg"] == 16
    assert report["output_sequence_length"]["avg"] == 16
    metrics = json.loads((tmp_path / "out" / "server_metrics_export.json").read_text())
    assert "gapless_generation_tokens" in json.dumps(metrics)
