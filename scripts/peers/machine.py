"""What the machine is, and what else it did during a measurement."""
import dataclasses
import os
import pathlib
import platform
import subprocess

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def one_cpu_per_core():
    """Of each core that this process may use one CPU: the hyperthreads beside it are left out."""
    first = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            core = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
        except OSError:
            core = cpu
        first.setdefault(core, cpu)
    return list(first.values())


def physical_cores():
    return len(one_cpu_per_core())


def measured_lines(gapless, model):
    """What `gapless bench` prints of the machine above its table: bandwidth, peaks, barrier."""
    out = subprocess.run([gapless, "bench", model, "--batch-sizes", "1", "--prompt-lengths", "16", "--decode-tokens", "1"],
                         capture_output=True, text=True, timeout=120)
    lines = []
    for line in out.stdout.splitlines():
        if line.split()[:1] == ["batch"]:
            break
        if line.strip():
            lines.append(line.strip())
    return lines or [f"gapless bench: exit {out.returncode}"]


@dataclasses.dataclass
class Clock:
    """CPU seconds of the whole machine since it started."""
    busy: float
    steal: float


def read_clock(stat="/proc/stat"):
    fields = [int(field) / TICKS for field in pathlib.Path(stat).read_text().splitlines()[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = fields[:8]
    return Clock(user + nice + system + irq + softirq, steal)


def describe():
    memory = next(int(line.split()[1]) for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return f"{cpu_model()}, {physical_cores()} cores, {memory / 1048576:.0f} GiB, Linux {platform.release()}"
