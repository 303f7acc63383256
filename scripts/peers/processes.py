"""Programs in process groups of their own: what they use is read from /proc, and nothing of them is left when they are stopped."""
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

TICKS = os.sysconf("SC_CLK_TCK")


class Failure(Exception):
    """Why a peer has no figure: shown in the table."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def group_of(leader):
    """Process ids of the group that `leader` founded."""
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = pathlib.Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[2]) == leader and fields[0] != "Z":
                members.append(int(entry))
    return members


@dataclasses.dataclass
class Usage:
    """Of a process group, since its begin. Processes that have ended do not count."""
    cpu_s: float = 0
    run_delay_s: float = 0  # threads that could run and had to wait for a core
    peak_bytes: int = 0     # the sum of each process's largest resident size


def read_usage(leader):
    usage = Usage()
    for pid in group_of(leader):
        try:
            folder = pathlib.Path(f"/proc/{pid}")
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            usage.cpu_s += (int(fields[11]) + int(fields[12])) / TICKS
            for line in (folder / "status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    usage.peak_bytes += int(line.split()[1]) * 1024
            for task in (folder / "task").iterdir():
                usage.run_delay_s += int((task / "schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):  # it has ended in between, or this kernel keeps no schedstat
            continue
    return usage


class Group:
    """A started program. As a context manager: it and all its children are gone at the end."""

    def __init__(self, command, log, environment=None):
        self.log = pathlib.Path(log)
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                            env={**os.environ, **(environment or {})}, process_group=0)
        self.pid = self.process.pid
        self.exit_code = None
        self.cpu_s = 0.0  # of the program itself and the children it waited for, once it has ended

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def ended(self):
        if self.exit_code is None:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.exit_code = self.process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s = used.ru_utime + used.ru_stime
        return self.exit_code is not None

    def wait(self, seconds, what, look=None, pause=0.1):
        """Until it has ended; `look` is called every `pause` seconds. Raises when that takes too long or it ends with an error."""
        end = time.monotonic() + seconds
        while not self.ended():
            if time.monotonic() > end:
                raise Failure(f"{what}: not done within {seconds:.0f} s")
            if look:
                look()
            time.sleep(pause)
        if self.exit_code:
            raise Failure(f"{what}: exit {self.exit_code}: {self.last_line()}")

    def last_line(self):
        """What the program said last, on one line of a table."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").replace("\r", "\n").splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r"(?i)error: \S", line)]
        return (errors or lines or ["it said nothing"])[-1][:200].replace("|", "/")

    def stop(self, grace=10):
        """Asks, then kills; waits until the whole group is gone."""
        for sig, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 10)):
            end = time.monotonic() + seconds
            try:
                os.killpg(self.pid, sig)
            except ProcessLookupError:
                pass
            while time.monotonic() < end:
                if self.ended() and not group_of(self.pid):
                    return
                time.sleep(0.02)


def run_step(command, log, seconds, what, environment=None, every=15):
    """A step of the preparation, with signs of life: the last line of its output every `every` seconds."""
    say(f"{what} (log: {log})")
    begin = shown = time.monotonic()
    with Group(command, log, environment) as group:
        def look():
            nonlocal shown
            if time.monotonic() - shown > every:
                shown = time.monotonic()
                say(f"  {shown - begin:.0f} s: {tail_of(group.log)}")
        group.wait(seconds, what, look, pause=0.2)


def tail_of(log):
    with open(log, "rb") as source:
        source.seek(max(0, os.path.getsize(log) - 2000))
        lines = source.read().decode(errors="replace").replace("\r", "\n").split("\n")
    return next((line.strip()[:120] for line in reversed(lines) if line.strip()), "")
