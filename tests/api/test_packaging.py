"""What is in packaging/, and Dockerfile: the program has what they name, and does under them what docs/operations.md says."""
import ast
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import promql_parser
import pytest
from conftest import BINARY, MODEL, wait_for
from prometheus_client.parser import text_string_to_metric_families

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGING = ROOT / "packaging"


@pytest.fixture(scope="module")
def exposed(server):
    """name of a sample -> its labels, as Prometheus has it: with those that it adds."""
    server.post("/v1/completions", {"prompt": "a", "max_tokens": 2})
    found = {"up": {"job", "instance"}}
    for family in text_string_to_metric_families(server.get("/metrics")[1]):
        for sample in family.samples:
            found.setdefault(sample.name, {"job", "instance"}).update(sample.labels)
    return found


def dashboard():
    return json.loads((PACKAGING / "grafana/gapless.json").read_text())


def alert_expressions():
    return re.findall(r"^ +expr: (.+)$", (PACKAGING / "prometheus/gapless.rules.yml").read_text(), re.M)


def panel_expressions():
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])]


def check_query(query, exposed):
    """Every series and label that a query names exists."""
    promql_parser.parse(re.sub(r"\$__rate_interval", "1m", query).replace("$job", "a").replace("$instance", "a"))
    names = re.findall(r"\b((?:gapless|process)_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?", query)
    assert names, query
    for name, matchers in names:
        assert name in exposed, f"{name} of {query}"
        labels = set(re.findall(r"(\w+)\s*[=!]~?\s*\"", matchers))
        assert labels <= exposed[name], f"{name} has no {labels - exposed[name]}: {query}"
    for labels in re.findall(r"(?:by|on) \(([^)]*)\)", query):
        for label in labels.split(", "):
            assert all(label in exposed[name] for name, _ in names), f"not all have {label}: {query}"


def test_every_query_names_what_there_is(exposed):
    assert len(panel_expressions()) > 40 and len(alert_expressions()) >= 8
    for query in [*panel_expressions(), *alert_expressions()]:
        check_query(query, exposed)


@pytest.mark.parametrize("query", ["gapless_no_such_thing", 'gapless_steps_total{no_label="a"}', "sum by (mode) (gapless_retractions_total)", "sum(gapless_steps_total"])
def test_a_wrong_query_is_noticed(exposed, query):
    with pytest.raises((AssertionError, ValueError)):
        check_query(query, exposed)


def test_the_dashboard_can_be_imported():
    board = dashboard()
    assert board["title"] and board["uid"] and "id" not in board
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "job", "instance"]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == ["What users see", "Scheduler", "KV memory and prefix cache", "Process"]
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
    names = " ".join(panel_expressions())
    undrawn = {row for row in re.findall(r"^\| `(gapless_\w+)`", (ROOT / "docs/operations.md").read_text(), re.M) if row not in names}
    assert undrawn == {"gapless_sim_steps_total", "gapless_sim_late_steps_total"}


def unit():
    """key -> its values, of the service's unit."""
    found = {}
    for line in (PACKAGING / "systemd/gapless.service").read_text().splitlines():
        if re.match(r"\w+=", line):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


def environment():
    return dict(line.split("=", 1) for line in (PACKAGING / "systemd/gapless.env").read_text().splitlines() if re.match(r"[A-Z_]+=", line))


def test_the_unit_starts_the_program_with_its_flags(start_server, tmp_path):
    keys = tmp_path / "api-keys"
    keys.write_text("a-key\n")
    command, = unit()["ExecStart"]
    for name, value in environment().items():  # systemd's own rules: $X is words, ${X} is one
        command = command.replace(f"${{{name}}}", value).replace(f"${name}", value)
    words = command.replace("%d/api-keys", str(keys)).split()
    assert words[:3] == ["/usr/local/bin/gapless", "serve", environment()["GAPLESS_MODEL"]]
    assert words[-1] != words[-2] and "--port" in words
    port = words.index("--port")
    one = start_server(*words[3:port], *words[port + 2:])  # on another port
    assert one.request("GET", "/v1/models", headers={"Authorization": "Bearer a-key"})[0] == 200
    assert one.get("/v1/models")[0] == 401
    assert one.stop() == 0


def test_the_unit_waits_longer_than_the_program():
    flags = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True).stdout
    patience = int(re.search(r"--shutdown-timeout SECONDS\s+\[default: (\d+)\]", flags).group(1))
    assert int(unit()["TimeoutStopSec"][0]) > patience + 5
    assert unit()["Type"] == ["notify"] and unit()["Restart"] == ["on-failure"] and unit()["RestartPreventExitStatus"] == ["2"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_the_unit_is_what_systemd_understands(tmp_path):
    path = tmp_path / "gapless.service"
    path.write_text((PACKAGING / "systemd/gapless.service").read_text().replace("/usr/local/bin/gapless", str(pathlib.Path(BINARY).resolve())))
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
    assert result.returncode == 0 and str(path) not in result.stderr, result.stderr
    exposure = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", path], capture_output=True, text=True)
    assert exposure.returncode == 0, exposure.stdout


@pytest.mark.parametrize("name", ["{folder}/notify", "@gapless-test-{pid}"])
def test_systemd_is_told_when_the_server_is_ready_and_when_it_stops(start_server, tmp_path, monkeypatch, name):
    name = name.format(folder=tmp_path, pid=os.getpid())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        one = start_server("--device", "sim:zero", model=None, ready=False)
        assert manager.recv(1000) == b"READY=1"
        assert one.get("/ready")[0] == 200
        one.process.send_signal(signal.SIGTERM)
        assert manager.recv(1000) == b"STOPPING=1"
        assert one.process.wait(20) == 0


@pytest.mark.parametrize("name", ["/nonexistent/socket", "@nobody", "x" * 200, "", "relative"])
def test_a_manager_that_does_not_listen_is_no_harm(start_server, monkeypatch, name):
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    assert start_server("--device", "sim:zero", model=None).stop() == 0


def instructions():
    """(instruction, arguments) of the Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if line and not line.startswith("#")]


def last_stage():
    all_instructions = instructions()
    begin = max(i for i, (name, _) in enumerate(all_instructions) if name == "FROM")
    return dict(all_instructions[begin:]), all_instructions[begin:]


def test_the_image_runs_the_program_without_a_shell_and_not_as_root():
    stage, _ = last_stage()
    assert ast.literal_eval(stage["ENTRYPOINT"]) == ["/usr/local/bin/gapless", "serve", "--host", "0.0.0.0"]
    assert ast.literal_eval(stage["CMD"]) == ["/models/model.gguf"]
    assert int(stage["USER"].split(":")[0]) > 0
    assert ast.literal_eval(stage["VOLUME"]) == ["/models"] and stage["EXPOSE"] == "8080"


def test_what_the_image_copies_is_installed():
    _, lines = last_stage()
    copied = [arguments.split()[1].removeprefix("/out/") for name, arguments in lines if name == "COPY"]
    assert copied == ["bin/gapless", "share/doc"]
    assert ("RUN", "./dev install /out") in instructions()
    rules = (ROOT / "cmake/install.cmake").read_text()
    assert "install(TARGETS gapless)" in rules and "CMAKE_INSTALL_DOCDIR" in rules
    assert set((ROOT / ".dockerignore").read_text().split()) >= {".git", "build"}


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="not a Debian")
def test_the_image_has_the_libraries_that_the_program_needs():
    listed = set(re.search(r"--no-install-recommends ([\w. +-]+)", last_stage()[0]["RUN"]).group(1).split())
    libraries = re.findall(r"=> (/\S+)", subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout)
    needed = set()
    for library in libraries:
        path = library.removeprefix("/usr")  # a package may name either
        found = subprocess.run(["dpkg-query", "-S", path, "/usr" + path], capture_output=True, text=True).stdout
        needed |= set(re.findall(r"^([\w.+-]+)(?::\w+)?: ", found, re.M))
    assert {"libfmt9", "libstdc++6"} <= needed
    assert needed - {"libc6", "libgcc-s1"} <= listed | {"libstdc++6"} and listed <= needed, (needed, listed)  # the rest is in every image


def health_command(port):
    _, arguments = last_stage()[0]["HEALTHCHECK"].split("CMD ", 1)
    return [word.replace("8080", str(port)) for word in json.loads(arguments)]


def test_the_health_check_tells_ready_from_not(start_server):
    one = start_server("--api-key", "k")
    assert subprocess.run(health_command(one.port), timeout=10).returncode == 0
    connection = one.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nContent-Length: 60\r\n\r\n"
                         + b'{"prompt":"a","max_tokens":4000,"ignore_eos":true}'.ljust(60))
    wait_for(lambda: b"gapless_running_requests 1" in one.request("GET", "/metrics", headers={"Authorization": "Bearer k"})[2], 20, "an answer")
    one.process.send_signal(signal.SIGTERM)
    wait_for(lambda: subprocess.run(health_command(one.port), timeout=10, stderr=subprocess.DEVNULL).returncode != 0, 10, "not healthy while draining")
    connection.close()
    assert one.process.wait(30) == 0
    assert subprocess.run(health_command(one.port), timeout=10, stderr=subprocess.DEVNULL).returncode != 0


def can_unshare():
    return shutil.which("unshare") and subprocess.run(["unshare", "--pid", "--fork", "--kill-child", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="this user may make no PID namespace")
def test_a_ht_10_process_1_gets_its_signals(tmp_path):
    """The kernel drops signals for process 1 that it does not ask for."""
    port_file, log = tmp_path / "port", tmp_path / "log"
    with open(log, "w") as out:
        outer = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", BINARY, "serve", MODEL, "--port", "0", "--port-file", port_file], stdout=out, stderr=out)
    try:
        wait_for(lambda: "listening" in log.read_text(), 30, "a server")
        inner, = pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        assert re.search(r"^NSpid:\t\d+\t1$", pathlib.Path(f"/proc/{inner}/status").read_text(), re.M)
        os.kill(int(inner), signal.SIGTERM)
        assert outer.wait(20) == 0
        assert "stopped: " in log.read_text()
    finally:
        outer.kill()
        outer.wait()
