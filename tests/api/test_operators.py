"""What operators are told: docs/operations.md (metrics, logs) and docs/errors.md, compared with real servers."""
import json
import os
import pathlib
import re
import subprocess

import pytest
from conftest import BINARY, MODEL, wait_for
from prometheus_client.parser import text_string_to_metric_families

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SECRET = "xyzzyplugh"


def rows(page, heading):
    """The cells of the table below a heading."""
    section = (ROOT / "docs" / page).read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


@pytest.fixture(scope="module")
def simulation(start_server):
    return start_server("--device", "sim:zero", "--log-json", "--log-level", "debug", model=None)


def ask(server):
    return server.post("/v1/completions", {"prompt": "the river", "max_tokens": 3, "ignore_eos": True})


def scraped(server):
    """name -> (type, labels), from a server that has answered something."""
    assert ask(server)[0] == 200
    found = {}
    for family in text_string_to_metric_families(server.get("/metrics")[1]):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = (family.type, labels)
        assert family.documentation, name
    return found


def test_every_metric_has_a_row_and_every_row_a_metric(server, simulation):
    found = scraped(server)
    only_simulated = {name for name in found.keys() ^ scraped(simulation).keys()}
    assert all(name.startswith("gapless_sim_") for name in only_simulated)
    documented = {}
    for name, kind, *_ in rows("operations.md", "Metrics"):
        type_name, *labels = re.findall(r"[a-z]+", kind)
        documented[name.strip("`")] = (type_name, set(labels))
    assert documented == {**found, **scraped(simulation)}


def test_what_serves_is_in_the_labels_of_info(start_server):
    one = start_server("--served-model-name", 'a "quoted" \\ name')
    (info,) = [name for name in one.metrics() if name.startswith("gapless_info")]
    assert 'model="a "quoted" \\ name"' in info and 'architecture="llama"' in info and 'version="' in info
    assert one.stop() == 0


def test_the_process_is_in_the_metrics(server):
    wait_for(lambda: abs(server.metrics()["process_open_fds"] - server.descriptors()) <= 2, 10, "the number of open descriptors")
    metrics = server.metrics()
    assert abs(metrics["process_resident_memory_bytes"] - server.resident_bytes()) < 64 << 20
    assert metrics["process_open_fds"] < metrics["process_max_fds"]


def shape(line):
    """A log line with its figures and ids made equal, and without the rate, which a short answer has not."""
    line = re.sub(r" [\d.]+tok/s(?= finish)", "", line)
    return re.sub(r"\d+(\.\d+)?", "0", re.sub(r"(req|cmpl)-[0-9a-f]+", "ID", line))


def examples(language):
    text = (ROOT / "docs/operations.md").read_text()
    return text.split(f"```{language}\n", 1)[1].split("```", 1)[0].splitlines()


def test_the_log_lines_of_the_docs_are_those_of_a_server(start_server):
    answered, refused, figures = examples("text")
    one = start_server()
    ask(one)
    one.post("/v1/completions", {"prompt": "a", "max_tokens": SECRET})
    connection = one.raw_post("/v1/completions", {"prompt": "a", "max_tokens": 8000, "ignore_eos": True})
    wait_for(lambda: "running 1" in one.log(), 20, "a line of figures")
    connection.close()
    seen = {shape(line) for line in one.log().splitlines()}
    for line in (answered, refused, figures):
        assert shape(line) in seen, f"{shape(line)} is not among\n" + "\n".join(sorted(seen))
    assert one.stop() == 0


def test_every_json_line_is_an_object_of_the_documented_shape(start_server):
    example = json.loads(examples("json")[0])
    one = start_server("--device", "sim:zero", "--log-json", model=None)
    ask(one)
    assert one.stop() == 0
    lines = [json.loads(line) for line in one.log().splitlines()]
    assert all(list(line) == list(example) for line in lines)
    assert {re.sub(r"\d", "0", line["time"])[:24] for line in lines} == {re.sub(r"\d", "0", example["time"])[:24]}
    messages = [line["message"] for line in lines]
    assert shape(example["message"]) in [shape(message) for message in messages]
    assert any(message.startswith("gapless ") for message in messages) and messages[-1].startswith("stopped: ")


def tool(name, parameters=None):
    return {"type": "function", "function": {"name": name, "description": SECRET, "parameters": parameters or {"type": "object"}}}


def chat(**fields):
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 2, **fields}


def completion(**fields):
    return "/v1/completions", {"prompt": SECRET, "max_tokens": 2, **fields}


def schema(value):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": value}}}


# Good and bad: everything that a client writes is somewhere in one of these.
WITH_SECRETS = [
    completion(), completion(stop=[SECRET]), completion(stop=SECRET, user=SECRET, metadata={SECRET: SECRET}), completion(stop=[""]),
    completion(model=SECRET), completion(max_tokens=SECRET), completion(**{SECRET: SECRET}), completion(cache_salt=SECRET),
    completion(logit_bias={SECRET: 1}), completion(seed={SECRET: 1}), completion(stop=[SECRET] * 17), completion(suffix=SECRET),
    completion(prompt=[SECRET, 5]), completion(prompt=SECRET + " a" * 20000), completion(best_of=SECRET), completion(stream=SECRET),
    completion(regex=f"(?<={SECRET})*"), completion(regex=f"{SECRET}("), completion(regex=f"[{SECRET}"), completion(regex=SECRET),
    completion(ebnf=f"root ::= {SECRET}"), completion(ebnf=f'root ::= "{SECRET}'), completion(ebnf=SECRET), completion(ebnf=f"root ::= {SECRET} ::="),
    completion(guided_grammar=f"start: {SECRET}"), completion(guided_grammar=f"start: /{SECRET}(/"), completion(guided_grammar=SECRET),
    completion(guided_choice=[SECRET, ""]), completion(guided_json={"type": SECRET}), completion(structured_outputs={SECRET: 1}),
    completion(structured_outputs={"json": {"$ref": SECRET}}), completion(response_format={"type": SECRET}),
    completion(**schema({"type": SECRET})), completion(**schema({"type": "object", SECRET: 1})), completion(**schema({"$ref": f"#/{SECRET}"})),
    completion(**schema({"type": "object", "properties": {SECRET: {"type": "nothing"}}})), completion(**schema({"not": {SECRET: 1}})),
    completion(**schema({"type": "object", "properties": {SECRET: {"uniqueItems": True, "type": "array"}}})), completion(**schema(SECRET)),
    completion(**schema({"type": "object", "required": [SECRET], "additionalProperties": False})), completion(**schema({"pattern": f"{SECRET}("})),
    completion(**schema({"allOf": [{"const": SECRET}, {"const": 1}]})), completion(**schema({"enum": []})), completion(**schema({"format": SECRET})),
    chat(), chat(messages=[{"role": SECRET, "content": SECRET}]), chat(messages=[{"role": "user", "content": [{"type": SECRET}]}]),
    chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": SECRET}}]}]), chat(messages=SECRET),
    chat(messages=[{"role": "user", SECRET: SECRET}]), chat(messages=[{"role": "tool", "tool_call_id": SECRET, "content": SECRET}]),
    chat(messages=[{"role": "assistant", "tool_calls": [{"id": SECRET, "type": SECRET}]}]), chat(chat_template_kwargs={SECRET: SECRET}),
    chat(messages=[{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": SECRET, "arguments": SECRET}}]}]),
    chat(tools=[tool(SECRET)]), chat(tools=[tool(SECRET + " ")]), chat(tools=[tool(SECRET), tool(SECRET)]), chat(tools=SECRET), chat(tools=[SECRET]),
    chat(tools=[tool("a", {"type": SECRET})], tool_choice="required"), chat(tools=[tool("a", {"type": "object", "properties": {SECRET: {"not": {}}}})], tool_choice="required"),
    chat(tools=[tool("a")], tool_choice=SECRET), chat(tools=[tool("a")], tool_choice={"type": "function", "function": {"name": SECRET}}),
    chat(chat_template=SECRET), chat(reasoning_effort=SECRET), chat(modalities=[SECRET]), chat(top_logprobs=SECRET), chat(n=SECRET),
    ("/v1/responses", {"input": SECRET, "max_output_tokens": 2}), ("/v1/responses", {"input": [{"type": SECRET}]}),
    ("/v1/responses", {"input": SECRET, "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": SECRET}}}}),
    ("/v1/responses", {"input": SECRET, "previous_response_id": SECRET}), ("/v1/responses", {"input": SECRET, "tools": [{"type": SECRET}]}),
    ("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": SECRET}], "system": SECRET}),
    ("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": [{"type": SECRET}]}]}),
    ("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": "a"}], "tools": [{"name": SECRET, "input_schema": {"type": SECRET}}], "tool_choice": {"type": "any"}}),
    ("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": "a"}], "output_config": {"format": {"type": "json_schema", "schema": {"type": SECRET}}}}),
    ("/generate", {"text": SECRET, "rid": SECRET, "sampling_params": {"max_new_tokens": 2}}), ("/generate", {"text": SECRET, "rid": [SECRET]}),
    ("/generate", {"text": SECRET, "sampling_params": {"regex": f"{SECRET}(", "max_new_tokens": 2}}), ("/generate", {"text": SECRET, "sampling_params": SECRET}),
    ("/v1/embeddings", {"input": SECRET}), ("/v1/embeddings", {"input": SECRET, "encoding_format": SECRET}), ("/v1/embeddings", {"input": {SECRET: 1}}),
    ("/tokenize", {"content": SECRET}), ("/tokenize", {"content": {SECRET: SECRET}}), ("/detokenize", {"tokens": SECRET}), ("/detokenize", {"tokens": [SECRET]}),
    ("/apply-template", {"messages": [{"role": SECRET}]}), ("/abort_request", {"rid": SECRET}), ("/abort_request", {"abort_all": SECRET}),
    ("/scheduler/loop", {"loop": SECRET}), (f"/{SECRET}", {SECRET: SECRET}), (f"/v1/completions?{SECRET}={SECRET}", {"prompt": SECRET, "max_tokens": 1}),
    ("/v1/completions", f'{{"prompt": "{SECRET}'.encode()), ("/v1/completions", f'{{"{SECRET}": {SECRET}}}'.encode()),
    ("/v1/completions", f'{{"prompt": "{SECRET} \\ud83d"}}'.encode()), ("/v1/completions", f'"{SECRET}"'.encode()),
]


def test_the_log_has_none_of_a_clients_words(start_server):
    one = start_server("--strict-model", "--log-level", "debug", "--api-key", SECRET + "key")
    statuses = set()
    for path, body in WITH_SECRETS:
        status, _, _ = one.request("POST", path, body, headers={"Authorization": f"Bearer {SECRET}key", "User-Agent": SECRET, "Cookie": SECRET})
        statuses.add(status)
        assert status < 500, (path, body)
    one.request("GET", f"/v1/models/{SECRET}", headers={"Authorization": f"Bearer {SECRET}"})
    one.request("GET", f"/trace?seconds={SECRET}", headers={"Authorization": f"Bearer {SECRET}key"})
    one.raw(f"GET /{SECRET} {SECRET}/1.1\r\n\r\n".encode()).close()
    one.raw(f"POST /v1/completions HTTP/1.1\r\nHost: {SECRET}\r\nTransfer-Encoding: {SECRET}\r\n\r\n".encode()).close()
    assert {200, 400, 404} <= statuses
    assert one.stop() == 0
    assert len([line for line in one.log().splitlines() if " POST " in line]) >= len(WITH_SECRETS)
    leaks = [line for line in one.log().splitlines() if SECRET in line.lower()]
    assert not leaks, "\n".join(leaks)


def replies(start_server):
    """(status, headers, error) of requests that are refused."""
    many = start_server("--api-key", "k", "--strict-model", "--max-body-size", "64K", "--max-running-requests", 1, "--max-queued-requests", 1)
    key = {"Authorization": "Bearer k"}
    good = {"prompt": "a", "max_tokens": 1}
    requests = [("POST", "/v1/completions", {**good, "n": 0}, key), ("POST", "/v1/completions", {"prompt": [5] * 9000}, key),
                ("POST", "/v1/completions", {**good, "suffix": "x"}, key), ("GET", "/v1/models", None, {}), ("GET", "/nothing", None, key),
                ("POST", "/v1/completions", {**good, "model": "x"}, key), ("GET", "/v1/completions", None, key),
                ("POST", "/v1/completions", {"prompt": "a" * 70000}, key), ("POST", "/v1/completions", good, {**key, "Content-Encoding": "gzip"}),
                ("GET", "/health", None, {"X-Long": "a" * 40000}), ("POST", "/v1/completions", good, {**key, "Transfer-Encoding": "gzip"})]
    yield from (many.request(*request) for request in requests)
    data = json.dumps({"prompt": "a", "max_tokens": 8000, "ignore_eos": True}).encode()
    waiting = []
    for state in ("running", "queued"):
        waiting.append(many.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)))
        wait_for(lambda: f"gapless_{state}_requests 1\n" in many.request("GET", "/metrics", headers=key)[2].decode(), 20, "a long answer")
    yield many.request("POST", "/v1/completions", good, key)
    yield many.request("POST", "/flush_cache", {}, key)
    for connection in waiting:
        connection.close()
    assert many.stop() == 0
    base = start_server(model=os.environ["GAPLESS_GEMMA3"], ready=False)
    status, headers, body = base.request("GET", "/v1/models")
    if status == 503:  # a machine may have loaded it already
        yield status, headers, body
    wait_for(lambda: base.get("/ready")[0] == 200, 60, "a ready server")
    yield base.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})
    yield base.request("GET", "/trace", headers={"Origin": "http://elsewhere.example"})


def test_replies_are_those_of_the_errors_page(start_server):
    documented = {(int(status), code.strip("`"), kind.strip("`")) for status, code, kind, *_ in rows("errors.md", "Replies")}
    seen = set()
    for status, headers, body in replies(start_server):
        error = json.loads(body)["error"]
        seen.add((status, error["code"] or "null", error["type"]))
        assert ("Retry-After" in headers) == (status in (429, 503))
    assert seen <= documented, seen - documented
    assert {status for status, _, _ in documented - seen} <= {408, 499, 500, 503}, documented - seen


def test_the_errors_page_has_every_status_and_code_of_the_sources():
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.cc") if "_test" not in path.name and not {"testing", "library"} & set(path.parts)]
    text = "\n".join(sources)
    api_error = (ROOT / "src/server/api_error.cc").read_text()
    status_of = dict(re.findall(r"case StatusCode::(k\w+):\s+return (\d+);", api_error))
    made = set(re.findall(r"StatusCode::(k\w+)", "\n".join(source for source in sources if source != api_error)))
    statuses = {status for name, status in status_of.items() if name in made} | set(re.findall(r"error_response\(\s*(\d{3})", text)) | {"400", "500"}
    codes = set(re.findall(r'with_error_code\(\s*"(\w+)"', text)) | set(re.findall(r'error_response\(\s*\d{3},.*?"(\w+)"\)', text, re.S))
    codes |= {code for name, code in re.findall(r'case StatusCode::(k\w+):\s+return "(\w+)";', api_error) if name in made | {"kInternal"}} | {"unsupported", "null"}
    table = rows("errors.md", "Replies")
    assert {row[0] for row in table} == statuses - {"200"}
    assert {row[1].strip("`") for row in table} == codes


def bad_starts(folder):
    """Command lines that are refused."""
    (folder / "page.gguf").write_text("<!doctype html>")
    (folder / "empty.gguf").write_bytes(b"")
    data = pathlib.Path(MODEL).read_bytes()
    (folder / "cut.gguf").write_bytes(data[:1000])
    (folder / "other.gguf").write_bytes(data[:4096].replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lemma", 1) + data[4096:])
    (folder / "none").write_text("# nothing\n")
    flags = [["--prot", 80], ["--port", 99999], ["--schedule-policy", "x"], ["--kv-mem", "1K"], ["--max-total-tokens", 1 << 29],
             ["--context-length", 100000], ["--isa", "neon" if os.uname().machine == "x86_64" else "avx2"], ["--device", "x"], ["--chat-template", "x"],
             ["--api-key-file", folder / "nothing"], ["--api-key-file", folder / "none"], ["--host", "192.0.2.1"], ["--host", "a..b"],
             ["--port-file", folder / "no/such"]]
    models = [folder / name for name in ("nothing.gguf", "page.gguf", "empty.gguf", "cut.gguf", "other.gguf", "")]
    return [[]] + [[MODEL, "--port", 0, *extra] for extra in flags] + [[model, "--port", 0] for model in models]


def test_starts_that_fail_are_those_of_the_errors_page(server, tmp_path):
    def as_regex(cell):
        return re.compile(".*".join(re.escape(part) for part in cell.strip("`").split("...")))

    documented = [(int(code), as_regex(says)) for code, says, _ in rows("errors.md", "At the start")]
    seen = set()
    for arguments in [*bad_starts(tmp_path), [MODEL, "--port", server.port]]:
        result = subprocess.run([BINARY, "serve", *map(str, arguments)], capture_output=True, text=True, timeout=30)
        told = [line for line in result.stderr.splitlines() if not line.startswith("loading ")]  # on a slow machine
        assert told[0].startswith("gapless: "), result.stderr
        said = told[0].removeprefix("gapless: ")
        row = next((row for row in documented if row[0] == result.returncode and row[1].fullmatch(said)), None)
        assert row, f"{arguments}: exit code {result.returncode}, {said}"
        seen.add(row)
    parts = [row for row in documented if row not in seen]
    assert len(parts) == 1 and "parts of a model" in parts[0][1].pattern.replace("\\", ""), parts
