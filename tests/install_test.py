#!/usr/bin/env python3
"""What `cmake --install` copies is enough to build examples/ elsewhere: python3 tests/install_test.py BUILD_FOLDER"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(sys.argv.pop()).resolve() if len(sys.argv) > 1 else ROOT / "build" / "release"
SIMULATED = "sim:h100-llama3.2-1b"


def run(*command, check=True, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **more)
    if check and done.returncode != 0:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        run("cmake", "--install", BUILD, "--prefix", folder / "first")
        cls.prefix = (folder / "first").rename(folder / "moved")  # nothing in it may remember where it was
        shutil.copytree(ROOT / "examples", folder / "examples")
        cls.built = folder / "built"
        run("cmake", "-S", folder / "examples", "-B", cls.built, f"-DCMAKE_PREFIX_PATH={cls.prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        run("cmake", "--build", cls.built)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def chat(self, model, lines):
        return run(self.built / "gapless_chat", model, check=False, input=lines)

    def test_one_header_two_archives_the_program_and_the_licences(self):
        names = {re.sub(r"^lib/[^/]*-linux-gnu/", "lib/", p.relative_to(self.prefix).as_posix()) for p in self.prefix.rglob("*") if p.is_file()}
        package = {n for n in names if n.startswith("lib/cmake/gapless/")}
        self.assertEqual(names - package, {"bin/gapless", "include/gapless/engine.h", "lib/libgapless.a", "lib/libgapless_text.a",
                                           "share/doc/gapless/LICENSE", "share/doc/gapless/NOTICE"})
        self.assertIn("lib/cmake/gapless/gaplessConfig.cmake", package)
        for name in package:
            text = next(self.prefix.rglob(pathlib.Path(name).name)).read_text()
            self.assertNotIn(str(ROOT), text, name)

    def test_the_example_answers(self):
        done = self.chat(SIMULATED, "hello\nand again\n")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertGreaterEqual(done.stdout.count("\n"), 2)
        self.assertGreater(len(done.stdout), 20)

    def test_the_example_says_what_is_wrong(self):
        done = self.chat("/nowhere/model.gguf", "")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/model.gguf", done.stderr)

    def test_the_program_runs(self):
        self.assertIn("gapless", run(self.prefix / "bin" / "gapless", "--version").stdout)

    def test_the_example_is_short(self):
        self.assertLessEqual((ROOT / "examples" / "chat.cc").read_text().count("\n"), 40)


if __name__ == "__main__":
    unittest.main()
