#!/usr/bin/env python3
"""What a file of this repository may be: small, finished, and free of hosts that belong to a machine's own configuration."""
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

MAX_BYTES = 1_000_000
MAX_LINES = 400
MAX_TEST_LINES = 600  # a list of cases is read one at a time
SOURCE = {".h", ".cc", ".rs", ".py", ".sh", ".html", ".css", ".js", ".mjs"}
# File -> why it is longer.
LONG_FILES = {}
# Packages come from wherever the machine's own tools are set up to look, so no registry is named. Written in pieces: this file is read too.
REGISTRY_HOSTS = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("crates", "io"), ("npmjs", "org"), ("npmjs", "com"),
                                                ("proxy", "golang", "org"), ("deb", "debian", "org"), ("maven", "org"))]
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
SKIPPED = {"build", ".git", "__pycache__", ".pytest_cache", ".cache", "target"}


def files(root):
    """What git tracks or would track; in an exported tree, every file outside build folders."""
    if (root / ".git").exists():
        out = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, check=True).stdout.decode()
        names = [root / name for name in out.split("\0") if name]
    else:
        names = [p for p in root.rglob("*") if not SKIPPED & set(p.relative_to(root).parts)]
    return sorted(p for p in names if p.is_file())


def max_lines(name):
    return MAX_TEST_LINES if name.startswith("tests/") or "_test." in name else MAX_LINES


def text_of(path):
    data = path.read_bytes()
    return None if b"\0" in data[:8000] else data.decode("utf-8", "replace")


def errors_of(root, long_files):
    errors = []
    for path in files(root):
        name = path.relative_to(root).as_posix()
        if path.stat().st_size > MAX_BYTES:
            errors.append(f"{name}: {path.stat().st_size} bytes, at most {MAX_BYTES}")
            continue
        text = text_of(path)
        if text is None:
            continue
        lines = text.count("\n")
        if path.suffix in SOURCE and lines > max_lines(name) and name not in long_files:
            errors.append(f"{name}: {lines} lines, at most {max_lines(name)} (or a reason in LONG_FILES)")
        errors += [f"{name}: names the registry host {host}" for host in REGISTRY_HOSTS if host in text and path.name != "Cargo.lock"]
        if path.suffix in SOURCE:
            errors += [f"{name}:{number}: unfinished: {line.strip()}" for number, line in enumerate(text.splitlines(), 1)
                       if UNFINISHED.search(line)]
    return errors


class Hygiene(unittest.TestCase):
    def test_every_file(self):
        errors = errors_of(ROOT, LONG_FILES)
        self.assertFalse(errors, "\n" + "\n".join(errors))

    def test_reasons_are_still_needed(self):
        for name in LONG_FILES:
            path = ROOT / name
            self.assertTrue(path.exists() and path.read_text().count("\n") > max_lines(name), f"{name} needs no exception any more")

    def test_each_rule_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "big.bin").write_bytes(b"\0" * (MAX_BYTES + 1))
            (root / "long.cc").write_text("\n" * (MAX_LINES + 1))
            (root / "long_test.cc").write_text("\n" * (MAX_LINES + 1))
            (root / "longer_test.cc").write_text("\n" * (MAX_TEST_LINES + 1))
            (root / "host.txt").write_text("https://" + REGISTRY_HOSTS[0] + "/simple\n")
            (root / "later.h").write_text("// TO" + "DO: finish\n")
            (root / "build").mkdir()
            (root / "build" / "ignored.cc").write_text("// TO" + "DO\n")
            found = errors_of(root, {})
        self.assertEqual([line.split(":")[0] for line in found], ["big.bin", "host.txt", "later.h", "long.cc", "longer_test.cc"])


if __name__ == "__main__":
    unittest.main()
