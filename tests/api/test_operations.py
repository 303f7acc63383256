"""Starting, watching and stopping the program."""
import json
import signal
import subprocess
import threading
import time

from conftest import BINARY, MODEL, wait_for


def test_a_ht_9_a_port_in_use_is_an_error_before_loading(server):
    second = subprocess.run([BINARY, "serve", MODEL, "--port", str(server.port)], capture_output=True, text=True, timeout=20)
    assert second.returncode == 1
    assert f"127.0.0.1:{server.port}" in second.stderr and "Address already in use" in second.stderr


def test_a_ht_9_a_socket_in_a_missing_folder_is_an_error():
    failed = subprocess.run([BINARY, "serve", MODEL, "--host", "unix:/nonexistent-folder/s"], capture_output=True, text=True, timeout=20)
    assert failed.returncode == 1 and "No such file or directory" in failed.stderr


def test_a_ht_10_sigterm_when_idle_ends_with_0(start_server):
    one = start_server()
    assert one.stop(timeout=15) == 0  # half of --shutdown-timeout


def test_a_ht_10_sigterm_drains(start_server):
    one = start_server()
    results = {}

    def ask(i):
        results[i] = one.stream("/v1/completions", {"prompt": f"{i} river", "max_tokens": 48, "ignore_eos": True})

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    wait_for(lambda: one.metrics()["gapless_running_requests"] == 8, 20, "eight streams")
    one.process.send_signal(signal.SIGTERM)
    wait_for(lambda: one.process.poll() is not None or one.get("/ready")[0] == 503, 20, "not ready while draining")
    for thread in threads:
        thread.join()
    assert one.process.wait(30) == 0
    assert len(results) == 8 and all(events[-1] == "[DONE]" for events in results.values())


def test_a_ht_10_after_the_timeout_streams_get_an_error_and_the_program_ends(start_server):
    one = start_server("--shutdown-timeout", 1)
    connection = one.raw_post("/v1/completions", {"prompt": "a", "max_tokens": 100000, "ignore_eos": True, "stream": True})
    wait_for(lambda: one.metrics()["gapless_running_requests"] == 1, 20, "a stream")
    assert one.stop() == 0
    text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    if "[DONE]" not in text:  # it was not done within the second
        assert '"error"' in text


def test_a_ht_10_a_second_signal_stops_at_once(start_server):
    one = start_server("--shutdown-timeout", 600)
    connections = [one.raw_post("/v1/completions", {"prompt": f"{i}", "max_tokens": 100000, "ignore_eos": True, "stream": True}) for i in range(2)]
    wait_for(lambda: one.metrics()["gapless_running_requests"] == 2, 20, "two streams")
    one.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert one.stop(timeout=20) == 0
    for connection in connections:
        connection.close()


def test_a_hc_1_alive_before_ready(start_server):
    one = start_server(ready=False)
    assert one.get("/health")[0] == 200
    seen = set()
    wait_for(lambda: seen.add(one.get("/ready")[0]) or 200 in seen, 60, "a ready server")
    assert seen <= {200, 503}
    assert one.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
    assert one.stop() == 0


def test_a_hc_2_health_answers_during_long_prefills(server):
    connections = [server.raw_post("/v1/completions", {"prompt": f"{i} " + "river and sea " * 2000, "max_tokens": 1}) for i in range(10)]
    times = []
    for _ in range(20):
        began = time.monotonic()
        assert server.get("/health")[0] == 200
        times.append(time.monotonic() - began)
        time.sleep(0.05)
    assert sorted(times)[10] < 1, times
    for connection in connections:
        connection.close()
    server.wait_idle()


def test_a_ht_5_keys_and_cross_origin(start_server):
    one = start_server("--api-key", "secret", "--max-running-requests", 2)
    origin = {"Origin": "http://page.example"}
    status, headers, _ = one.request("OPTIONS", "/v1/chat/completions",
                                     headers={**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"})
    assert status == 204 and "authorization" in headers["Access-Control-Allow-Headers"].lower()
    status, headers, body = one.request("GET", "/v1/models", headers=origin)
    assert status == 401 and headers["Access-Control-Allow-Origin"] == "http://page.example"
    assert json.loads(body)["error"]["type"] == "authentication_error"
    assert one.request("GET", "/v1/models", headers={"Authorization": "Bearer secret"})[0] == 200
    assert one.get("/health")[0] == 200
    assert "secret" not in one.log()
    assert one.stop() == 0


def test_a_mx_1_metrics_are_valid_and_add_up(server):
    server.wait_idle()
    before = server.metrics()
    usage = [0, 0]
    for i in range(3):
        answer = server.post("/v1/completions", {"prompt": f"Number {i}", "max_tokens": 5 + i, "ignore_eos": True})[1]
        usage[0] += answer["usage"]["prompt_tokens"]
        usage[1] += answer["usage"]["completion_tokens"]
    server.wait_idle()
    after = server.metrics()
    assert after["gapless_prompt_tokens_total"] - before["gapless_prompt_tokens_total"] == usage[0]
    assert after["gapless_generation_tokens_total"] - before["gapless_generation_tokens_total"] == usage[1]
    for name in ("gapless_time_to_first_token_seconds_count", "gapless_e2e_request_latency_seconds_count"):
        assert after[name] - before.get(name, 0) == 3
    label = 'gapless_http_requests_total{endpoint="/v1/completions",status="200"}'
    assert after[label] - before.get(label, 0) == 3
    time.sleep(1)
    later = server.metrics()
    changed = {name for name in later if name.startswith("gapless_") and name.endswith("_total") and later[name] != after.get(name)}
    assert all("/metrics" in name for name in changed), "counters are flat when idle"


def test_one_line_per_request_and_no_prompt(server):
    status, headers, _ = server.request("POST", "/v1/completions", {"prompt": "xyzzy-secret-prompt", "max_tokens": 3, "ignore_eos": True},
                                        headers={"X-Request-Id": "my-id-1"})
    assert status == 200 and headers["X-Request-Id"] == "my-id-1"
    wait_for(lambda: "my-id-1" in server.log(), 20, "the request's line")
    lines = [line for line in server.log().splitlines() if "my-id-1" in line]
    assert len(lines) == 1
    for part in ("/v1/completions", " 200 ", "generated=3", "ttft=", "finish=length"):
        assert part in lines[0], lines[0]
    assert "xyzzy" not in server.log()
