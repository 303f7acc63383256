#!/usr/bin/env python3
"""The layers of src/ may only look downwards: includes, header cycles and CMake's links are read and compared with the list below.

Run it alone (python3 tests/layers_test.py), through ctest or ./dev test.
"""
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Lowest first. Layers of one row do not see each other. The list of docs/internals.md.
LAYERS = [["base"], ["device"], ["kernels"], ["model", "cache", "sampling"], ["worker"], ["scheduler"], ["engine"], ["server", "library"], ["apps"]]
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
TEXT_LIBRARY = "gapless_text_ffi"  # the Rust library: only this layer and those above may name it
TEXT_LAYER = "engine"

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
LAYER_CALL = re.compile(r"gapless_layer\(\s*(\w+)(.*?)\)", re.DOTALL)
LINK_CALL = re.compile(r"target_link_libraries\(\s*gapless_(\w+)(.*?)\)", re.DOTALL)
COMMENT = re.compile(r"#.*")


def may_see(layer, other):
    return layer == other or RANK[other] < RANK[layer]


def sources(root):
    return sorted(p for p in (root / "src").rglob("*") if p.suffix in (".h", ".cc"))


def include_errors(root):
    errors = []
    for path in sources(root):
        name = path.relative_to(root / "src")
        layer = name.parts[0]
        if layer not in RANK:
            errors.append(f"{name}: '{layer}' is not a layer")
            continue
        for include in INCLUDE.findall(path.read_text()):
            target = include.split("/")[0]
            if "/" not in include and (root / "rust" / "include" / include).exists():
                if not may_see(layer, TEXT_LAYER):
                    errors.append(f"{name}: {layer} may not include {include} ({TEXT_LAYER} and above)")
            elif not (root / "src" / include).exists():
                errors.append(f'{name}: "{include}" is not a path from src/')
            elif not may_see(layer, target):
                errors.append(f"{name}: {layer} may not include {include}")
    return errors


def header_graph(root):
    src = root / "src"
    headers = [p for p in sources(root) if p.suffix == ".h"]
    return {str(p.relative_to(src)): [i for i in INCLUDE.findall(p.read_text()) if (src / i).exists()] for p in headers}


def cycle_errors(root):
    graph, done, stack, errors = header_graph(root), set(), [], []

    def visit(header):
        if header in stack:
            errors.append("include cycle: " + " -> ".join(stack[stack.index(header):] + [header]))
        elif header not in done:
            stack.append(header)
            for other in graph.get(header, []):
                visit(other)
            stack.pop()
            done.add(header)

    for header in graph:
        visit(header)
    return errors


def link_graph(root):
    """Layer -> targets it links, from gapless_layer(... DEPS ...) and target_link_libraries(gapless_x ...)."""
    links = {}
    for path in sorted((root / "src").rglob("CMakeLists.txt")):
        text = COMMENT.sub("", path.read_text())
        for name, body in LAYER_CALL.findall(text):
            words = body.split()
            deps = words[words.index("DEPS") + 1:] if "DEPS" in words else []
            stop = next((i for i, word in enumerate(deps) if word in ("SRCS", "TESTS", "TEST_DEPS")), len(deps))
            links.setdefault(name, set()).update(deps[:stop])
        for name, body in LINK_CALL.findall(text):
            links.setdefault(name, set()).update(body.split())
    return links


def link_errors(root):
    errors = []
    for layer, targets in link_graph(root).items():
        if layer not in RANK:
            continue
        for target in sorted(targets):
            other = target.removeprefix("gapless_")
            if target == TEXT_LIBRARY and not may_see(layer, TEXT_LAYER):
                errors.append(f"{layer} may not link {target}")
            elif target.startswith("gapless_") and other in RANK and not may_see(layer, other):
                errors.append(f"{layer} may not link {target}")
    return errors


def reachable(layer, links):
    seen, todo = set(), [layer]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += [t.removeprefix("gapless_") for t in links.get(name, ()) if t.startswith("gapless_")]
    return seen


def unlinked_errors(root):
    """A layer that includes another one must link it, directly or through others."""
    links, errors = link_graph(root), []
    for path in sources(root):
        name = path.relative_to(root / "src")
        layer = name.parts[0]
        if layer in links:
            for include in INCLUDE.findall(path.read_text()):
                target = include.split("/")[0]
                if "/" in include and target in RANK and target not in reachable(layer, links):
                    errors.append(f"{name}: includes {include} but gapless_{layer} does not link gapless_{target}")
    return errors


class Layers(unittest.TestCase):
    def check(self, errors):
        self.assertFalse(errors, "\n" + "\n".join(errors))

    def test_source_is_there(self):
        self.assertGreater(len(sources(ROOT)), 50)
        self.assertEqual(set(RANK) - set(link_graph(ROOT)) - {"apps"}, set(), "every layer is a link target")

    def test_includes_look_downwards(self):
        self.check(include_errors(ROOT))

    def test_headers_have_no_cycle(self):
        self.check(cycle_errors(ROOT))

    def test_links_look_downwards(self):
        self.check(link_errors(ROOT))

    def test_what_is_included_is_linked(self):
        self.check(unlinked_errors(ROOT))


class TheTestItself(unittest.TestCase):
    """Each rule is broken once in a small tree, and has to be noticed."""

    def tree(self, files):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    def test_a_clean_tree_passes(self):
        root = self.tree({"src/base/check.h": "", "src/device/a.cc": '#include "base/check.h"\n',
                          "src/device/CMakeLists.txt": "gapless_layer(device SRCS a.cc DEPS gapless_base)"})
        for rule in (include_errors, cycle_errors, link_errors, unlinked_errors):
            self.assertEqual(rule(root), [])

    def test_an_upward_include_is_refused(self):
        root = self.tree({"src/engine/engine.h": "", "src/base/check.h": '#include "engine/engine.h"\n'})
        self.assertEqual(include_errors(root), ["base/check.h: base may not include engine/engine.h"])

    def test_a_sideways_include_is_refused(self):
        root = self.tree({"src/cache/kv_pool.h": "", "src/model/llama.cc": '  #  include "cache/kv_pool.h"\n'})
        self.assertEqual(include_errors(root), ["model/llama.cc: model may not include cache/kv_pool.h"])

    def test_a_relative_include_and_an_unknown_folder_are_refused(self):
        root = self.tree({"src/base/b.h": "", "src/base/a.cc": '#include "b.h"\n', "src/misc/c.cc": ""})
        self.assertEqual(include_errors(root), ['base/a.cc: "b.h" is not a path from src/', "misc/c.cc: 'misc' is not a layer"])

    def test_the_text_library_is_for_the_engine(self):
        root = self.tree({"rust/include/text.h": "", "src/scheduler/req.cc": '#include "text.h"\n', "src/engine/t.cc": '#include "text.h"\n',
                          "src/worker/CMakeLists.txt": "gapless_layer(worker SRCS a.cc DEPS gapless_text_ffi)"})
        self.assertEqual(include_errors(root), ["scheduler/req.cc: scheduler may not include text.h (engine and above)"])
        self.assertEqual(link_errors(root), ["worker may not link gapless_text_ffi"])

    def test_a_cycle_is_refused(self):
        root = self.tree({"src/base/a.h": '#include "base/b.h"\n', "src/base/b.h": '#include "base/a.h"\n'})
        self.assertEqual(cycle_errors(root), ["include cycle: base/a.h -> base/b.h -> base/a.h"])

    def test_an_upward_link_is_refused(self):
        root = self.tree({"src/device/CMakeLists.txt": "gapless_layer(device\n  SRCS a.cc\n  DEPS gapless_base gapless_worker TEST_DEPS x)\n"
                          "target_link_libraries(gapless_device PUBLIC gapless_server) # gapless_apps"})
        self.assertEqual(link_errors(root), ["device may not link gapless_server", "device may not link gapless_worker"])

    def test_an_include_without_a_link_is_refused(self):
        root = self.tree({"src/worker/CMakeLists.txt": "gapless_layer(worker SRCS a.cc DEPS gapless_base)",
                          "src/worker/a.cc": '#include "cache/kv_pool.h"\n'})
        self.assertEqual(unlinked_errors(root), ["worker/a.cc: includes cache/kv_pool.h but gapless_worker does not link gapless_cache"])


if __name__ == "__main__":
    unittest.main()
