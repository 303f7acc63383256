"""llama-server and llama-quantize, built from the source package of llama-cpp-python."""
import fcntl
import shutil
import sys
import tarfile

from fetch_model import sha256_of
from peer import Peer
from processes import Failure, run_step

VERSION = "0.3.36"
SOURCE = f"llama_cpp_python-{VERSION}.tar.gz"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
FLAGS = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_UI=OFF",
         "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF"]


def fetch_source(folder):
    """pip checks the hash, and so do we, for a file that an earlier run left."""
    archive = folder / SOURCE
    if archive.exists() and sha256_of(archive) == SHA256:
        return archive
    listing = folder / "requirement.txt"
    listing.write_text(f"llama-cpp-python=={VERSION} --hash=sha256:{SHA256}\n")
    run_step([sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--no-binary", "llama-cpp-python",
              "--require-hashes", "--dest", folder, "-r", listing], folder / "download.log", 600, "fetching the source of llama-server")
    if not archive.exists() or sha256_of(archive) != SHA256:
        raise Failure(f"{archive} is not what was asked for")
    return archive


def build(tools):
    """Returns the folder of the programs. Once; an interrupted build goes on where it stopped."""
    folder = tools.cache / f"llama.cpp-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    built, programs = folder / "ready", folder / "build" / "bin"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second run waits and then finds it
        if not built.exists():
            compile_source(folder)
            built.touch()
    return programs


def compile_source(folder):
    source = folder / f"llama_cpp_python-{VERSION}"
    if not (folder / "unpacked").exists():
        shutil.rmtree(source, ignore_errors=True)
        with tarfile.open(fetch_source(folder)) as archive:
            archive.extractall(folder)
        (folder / "unpacked").touch()
    run_step(["cmake", "-G", "Ninja", "-S", source / "vendor/llama.cpp", "-B", folder / "build", *FLAGS], folder / "cmake.log", 300,
             "configuring llama-server")
    run_step(["nice", "-n", "10", "cmake", "--build", folder / "build", "--target", "llama-server", "llama-quantize"], folder / "build.log", 5400,
             "building llama-server: 10 minutes on 2 idle cores")


def quantize(tools, path, kind):
    """`path` in another format, beside the other converted files. The file appears at its place when it is whole."""
    target = tools.cache / "models" / f"{path.stem}.{kind}.gguf"
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        partial = target.with_suffix(".partial")
        run_step([build(tools) / "llama-quantize", "--allow-requantize", path, partial, kind], target.with_suffix(".log"), 600,
                 f"requantising {path.name} to {kind}")
        partial.rename(target)
    return target


class LlamaServer(Peer):
    """kind: None for the same file, or what llama-quantize calls the format."""

    def __init__(self, kind=None):
        super().__init__("llama-server", kind or "same file")
        self.kind, self.threads, self.program = kind, 2, None
        self.version = f"llama-cpp-python {VERSION}, built here: {' '.join(FLAGS)}"

    def prepare(self, tools, model, path):
        self.program = build(tools) / "llama-server"
        self.threads = tools.threads
        self.path = quantize(tools, path, self.kind) if self.kind else path

    def command(self, cell, port):
        places = cell.streams
        return [self.program, "-m", self.path, "-t", self.threads, "-tb", self.threads, "-fa", "on", "-np", places, "-c", places * cell.tokens,
                "--port", port]
