"""./dev bench peers without any peer: what it makes of figures, of peers that cannot be had, and of programs that hang."""
import importlib.util
import json
import pathlib
import struct
import sys
import time

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "scripts/peers"


@pytest.fixture(scope="module")
def peers():
    """The modules by name; they import each other as a program's own folder."""
    sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]
    spec = importlib.util.spec_from_file_location("peers_main", FOLDER / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    yield main
    for folder in (FOLDER, FOLDER.parent):
        sys.path.remove(str(folder))


def results_of(peers, *names):
    import cells
    import peer
    made = [peer.Peer(name, "same file") for name in names]
    return peers.table.Results("a model", made, cells.make_cells([1, 8], quick=True))


def figures(rate, **more):
    return {"output_tok_s": rate, "ttft_ms": {"p50": 1e4 / rate, "p99": 1e4 / rate}, "itl_ms": {"p50": 1, "p99": 2}, "peak_bytes": 1e9, "wall_s": 2,
            "server_cpu_s": 3, "load_cpu_s": 0.1, "other_cores": 0, "steal_cores": 0, "run_delay_share": 0, "prompt_tokens": 256, **more}


def test_the_table_has_medians_and_ratios_of_each_round(peers):
    results = results_of(peers, "Gapless", "other")
    ours, other = results.peers
    cell = results.cells[0]
    results.figures[ours, cell] = [figures(200), figures(90), figures(400)]
    results.figures[other, cell] = [figures(100), figures(30), figures(160)]
    text = peers.table.report(results)
    assert "| Gapless | same file | 200 |" in text
    assert "| other | same file | 100 (2.50x) |" in text, "the median of 2, 3 and 2.5, not 200 / 100"
    assert "busy" not in text
    results.figures[other, cell][0]["other_cores"] = 0.9
    assert "other programs used more than 0.15 of a core in 1 of 6 measurements, 0.90 at most" in peers.table.report(results)


def test_the_table_has_the_memory_of_many_long_requests(peers):
    results = results_of(peers, "Gapless", "other")
    ours, other = results.peers
    cell, = (cell for cell in results.cells if cell.shown == "memory")
    assert (cell.streams, cell.requests, cell.tokens) == (32, 32, 512) and cell.prompt + cell.output > 500
    results.figures[ours, cell] = [figures(200, peak_bytes=0.3e9)]
    results.figures[other, cell] = [figures(100, peak_bytes=0.6e9)]
    text = peers.table.report(results)
    assert "| peak RSS, 32 streams of 512 tokens |" in text
    assert "| Gapless | same file | – | – | – | 0.30 GB |" in text
    assert "| other | same file | – | – | – | 0.60 GB (0.50x) |" in text, "its rate is not shown there"


def test_a_peer_that_cannot_be_had_is_left_out_with_the_reason(peers, capsys):
    results = results_of(peers, "Gapless", "broken", "fine")
    ours, broken, fine = results.peers
    ours.prepare = fine.prepare = lambda *_: None

    def fail(*_):
        raise peers.Failure("no such package")
    broken.prepare = fail
    peers.prepare(results, None, "a model", None)
    assert results.reasons == {broken: "no such package"}
    for peer in (ours, fine):
        results.figures[peer, results.cells[0]] = [figures(100)]
    assert "- Not measured: broken, same file: no such package" in peers.table.report(results)


def test_a_measurement_that_fails_is_said_and_the_others_go_on(peers, tmp_path, monkeypatch):
    results = results_of(peers, "Gapless")
    peer, (first, second, *_) = results.peers[0], results.cells
    entries = [figures(100), peers.Failure("load: not done within 1 s")]

    def next_entry(*_):
        entry = entries.pop(0)
        if isinstance(entry, Exception):
            raise entry
        return entry
    monkeypatch.setattr(peers, "measure", next_entry)
    for cell in (first, second):
        peers.measure_one(results, None, peer, cell, 0, 1, tmp_path)
    assert results.figures[peer, second] == [None] and not results.reasons
    assert "- Failed: Gapless, same file, 8 streams, round 1: load: not done within 1 s" in peers.table.report(results)


def test_a_program_that_hangs_is_ended_with_its_children(peers, tmp_path):
    import processes
    code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); print('error: stuck', flush=True); time.sleep(60)"
    begin = time.monotonic()
    with pytest.raises(processes.Failure, match="load: not done within 1 s"):
        with processes.Group([sys.executable, "-c", code], tmp_path / "log") as group:
            while not group.log.read_text():
                time.sleep(0.02)
            group.wait(1, "load")
    assert processes.group_of(group.pid) == [] and time.monotonic() - begin < 20
    assert group.last_line() == "error: stuck"


def test_figures_with_too_few_tokens_do_not_count(peers):
    import measure
    cell = results_of(peers, "Gapless").cells[0]
    assert measure.checked({"completion_tokens": cell.requests * cell.output}, cell)
    with pytest.raises(measure.Failure, match="tokens came"):
        measure.checked({"completion_tokens": 7}, cell)


def test_weights_become_safetensors(peers, tmp_path):
    import export
    heads, rows, columns = 2, 8, 3
    values = [float(row * 16 + column) for row in range(rows) for column in range(columns)]
    data = struct.pack(f"<{len(values)}f", *values)

    class Tensor:
        kind, shape = 0, [rows, columns]
    Tensor.data = data
    weights = export.weights_of({"llama.attention.head_count": heads}, {"blk.1.attn_q.weight": Tensor, "blk.1.ffn_up.weight": Tensor})
    export.write_safetensors(tmp_path / "model.safetensors", weights)
    raw = (tmp_path / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])

    def read(name):
        begin, end = header[name]["data_offsets"]
        words = struct.unpack(f"<{(end - begin) // 2}H", raw[8 + length + begin:8 + length + end])
        return [struct.unpack("<f", struct.pack("<I", word << 16))[0] for word in words]
    assert header["model.layers.1.mlp.up_proj.weight"] == {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [48, 96]}
    assert read("model.layers.1.mlp.up_proj.weight") == values
    # A head's rows 0, 1, 2, 3 are pairs (0, 1), (2, 3): first halves first.
    assert [row // 16 for row in read("model.layers.1.self_attn.q_proj.weight")[::columns]] == [0, 2, 1, 3, 4, 6, 5, 7]


def test_the_command_line_says_what_there_is(peers, capsys):
    with pytest.raises(SystemExit):
        peers.parse(["--cache", "x", "--peers", "llama,nobody"])
    assert "'nobody' is none of llama" in capsys.readouterr().err


def test_a_peer_in_process_counts_as_the_load_generator_does(peers):
    import in_process
    answers = [in_process.Answer(1.0, [1.5, 1.6, 1.8], 10, 3), in_process.Answer(2.0, [2.1, 2.2, 3.0], 12, 3)]
    got = in_process.figures(answers, 1.0)
    assert got["completion_tokens"] == 6 and got["prompt_tokens"] == 22 and got["seconds"] == 2.0 and got["output_tok_s"] == 3.0
    assert got["ttft_ms"] == {"mean": 300.0, "p50": 500.0, "p99": 500.0}
    assert got["itl_ms"]["p99"] == 800.0


def test_a_disturbed_measurement_is_made_again(peers, tmp_path, monkeypatch):
    import measure
    entries = [figures(100, other_cores=0.9), figures(110, other_cores=0.2), figures(120, steal_cores=0.1), figures(130)]
    monkeypatch.setattr(measure, "measure_server", lambda *_: entries.pop(0))
    peer, cell = results_of(peers, "Gapless").peers[0], results_of(peers, "Gapless").cells[0]
    assert measure.measure(peer, cell, None, tmp_path, tries=2)["output_tok_s"] == 110, "the less disturbed of two"
    assert measure.measure(peer, cell, None, tmp_path, tries=9)["output_tok_s"] == 120, "no further than the first quiet one"


def gguf_bytes(pairs, tensors):
    """A GGUF file. pairs: (key, kind, packed value); tensors: (name, shape with the innermost first, float32 values)."""
    def string(text):
        return struct.pack("<Q", len(text.encode())) + text.encode()
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    out += b"".join(string(key) + struct.pack("<I", kind) + value for key, kind, value in pairs)
    data = b""
    for name, shape, values in tensors:
        out += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += struct.pack(f"<{len(values)}f", *values).ljust(-(-4 * len(values) // 32) * 32, b"\0")
    return out.ljust(-(-len(out) // 32) * 32, b"\0") + data


def tiny_model():
    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def texts(values):
        return struct.pack("<IQ", 8, len(values)) + b"".join(map(text, values))
    numbers = {"llama.embedding_length": 4, "llama.feed_forward_length": 8, "llama.block_count": 1, "llama.attention.head_count": 2,
               "llama.context_length": 64, "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 0}
    pairs = [(key, 4, struct.pack("<I", value)) for key, value in numbers.items()]
    pairs += [("general.architecture", 8, text("llama")), ("tokenizer.ggml.model", 8, text("gpt2")), ("tokenizer.ggml.pre", 8, text("smollm")),
              ("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 0.5)), ("tokenizer.ggml.tokens", 9, texts(["<end>", "a", "b", "ab"])),
              ("tokenizer.ggml.token_type", 9, struct.pack("<IQ4i", 5, 4, 3, 1, 1, 1)), ("tokenizer.ggml.merges", 9, texts(["a b"]))]
    return gguf_bytes(pairs, [("token_embd.weight", [4, 4], [float(i) for i in range(16)]), ("output_norm.weight", [4], [1.0, 1.00390625, -2.0, 0.5])])


def test_a_gguf_file_becomes_a_folder_of_its_weights(peers, tmp_path):
    import export
    (tmp_path / "tiny.gguf").write_bytes(tiny_model())
    export.write_folder(tmp_path / "tiny.gguf", tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert (config["vocab_size"], config["head_dim"], config["num_key_value_heads"], config["rms_norm_eps"]) == (4, 2, 2, 0.5)
    assert config["tie_word_embeddings"] is True
    tokenizer = json.loads((tmp_path / "out/tokenizer.json").read_text())
    assert tokenizer["model"]["vocab"] == {"<end>": 0, "a": 1, "b": 2, "ab": 3} and tokenizer["model"]["merges"] == ["a b"]
    assert [token["content"] for token in tokenizer["added_tokens"]] == ["<end>"]
    raw = (tmp_path / "out/model.safetensors").read_bytes()
    header = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
    assert header["model.embed_tokens.weight"]["shape"] == [4, 4] and header["model.norm.weight"]["data_offsets"] == [32, 40]
    assert struct.unpack("<4H", raw[-8:]) == (0x3F80, 0x3F80, 0xC000, 0x3F00), "to the nearest bfloat16, a tie to even"
    (tmp_path / "not.gguf").write_bytes(b"GGML" + b"\0" * 60)
    with pytest.raises(ValueError, match="no GGUF file"):
        export.write_folder(tmp_path / "not.gguf", tmp_path / "other")
