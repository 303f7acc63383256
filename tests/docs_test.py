#!/usr/bin/env python3
"""What README.md and docs/*.md say of this repository is true: links, files, flags, defaults, names of metrics and of sources, JSON.
Their commands are run by tests/api/test_docs.py; docs/cli.md is compared with --help by apps_test, docs/api.md with the routes by server_test."""
import json
import re
import unittest

import doc_pages

ROOT = doc_pages.ROOT
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*")

# Program -> its flags that the pages name.
FOREIGN_FLAGS = {
    "curl": {"--fail-with-body"},
    "docker": {"--name", "--stop-timeout", "--memory", "--log-opt"},
    "systemctl": {"--now"},
    "llama-gguf-split": {"--merge"},
    "cmake": {"--build", "--install", "--preset", "--prefix"},
    "sglang-router": {"--worker-urls", "--policy", "--health-check-endpoint", "--balance-abs-threshold", "--balance-rel-threshold",
                      "--retry-max-retries", "--cb-failure-threshold"},
    "lm_eval": {"--model_args", "--tasks"},
    "nobody, it shows the error": {"--prot"},
}
# Paths in `code` that are not in the repository -> where they are.
ELSEWHERE = {
    "clients/": "in the cache folder",
    "lib/libgapless.a": "installed", "lib/libgapless_text.a": "installed", "lib/cmake/gapless/": "installed", "bin/gapless": "installed",
    "share/doc/gapless": "installed", "lib/x86_64-linux-gnu": "installed",
    "text/event-stream": "a media type", "text/html": "a media type", "application/json": "a media type",
}
# Names in `code` on the pages about the sources that other programs' sources have.
FOREIGN_NAMES = {"num_output_placeholders", "DUMMY_FIRST"}
SOURCE_PAGES = {"docs/internals.md", "docs/overlap.md", "docs/adding.md"}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*|\.[A-Za-z_][A-Za-z0-9_]*)*(\(\))?")


def anchors(text):
    """The ids of a page's headings, as GitHub makes them."""
    found, fenced = set(), False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if (heading := re.match(r"#+ (.*)", line)) and not fenced:
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
            found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def link_errors(path, prose):
    for match in re.finditer(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", prose):
        link = match.group(1) or match.group(2)
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (path.parent / target).resolve() if target else path
        if not file.exists():
            yield f"no file {target}"
        elif anchor and anchor not in anchors(file.read_text()):
            yield f"no heading for {link}"


def is_path(span):
    return re.fullmatch(r"[\w.-]+(/[\w.<>*+-]+)*/[\w.<>*+-]*", span) is not None


def exists(path):
    pattern = re.sub(r"<[^>]*>", "*", path).rstrip("/")
    return any(any((ROOT / folder).glob(pattern)) for folder in (".", "src")) or path.startswith("build/")


def documented_flags():
    """Flag -> the defaults it has in docs/cli.md, which is what --help says."""
    flags = {}
    for row in re.finditer(r"^\| `([^`]+)` \| ([^|]*) \|", (ROOT / "docs/cli.md").read_text(), re.M):
        for flag in FLAG.findall(row.group(1)):
            flags.setdefault(flag, set()).add(row.group(2).strip())
    return flags


def known_flags():
    scripts = [ROOT / "dev", *(ROOT / "scripts").rglob("*.sh"), *(ROOT / "scripts").rglob("*.py"), *(ROOT / "tests").glob("*.py")]
    ours = {flag for file in scripts if file.name != "docs_test.py" for flag in FLAG.findall(file.read_text())}
    return set(documented_flags()) | ours | {"--model"} | set().union(*FOREIGN_FLAGS.values())


def default_errors(prose):
    """Of `--flag` (default X), and of `--flag`, default X."""
    flags = documented_flags()
    for match in re.finditer(r"`(--[a-z-]+)[^`]*`(?: \(|, )default:? `?((?:[^`),;]|,(?=\d))+)", prose):
        flag, said = match.group(1), re.sub(r"(?<=\d),(?=\d)", "", " ".join(match.group(2).split()))
        if flag in flags and said not in flags[flag]:
            yield f"{flag} has the default {' or '.join(sorted(flags[flag]))}, not {said}"


def source_words():
    files = [path for folder in ("src", "include", "tests", "rust/src") for path in (ROOT / folder).rglob("*")
             if path.suffix in {".h", ".cc", ".py", ".rs", ".txt"} and path.name != "docs_test.py"]
    text = "\n".join(path.read_text() for path in files)
    layers_tests = {folder.name + "_test" for folder in (ROOT / "src").iterdir()}
    return set(re.findall(r"\w+", text)) | {path.stem for path in files} | layers_tests


def name_errors(found, words):
    """Names that look like a source's, because they have an underscore or capitals within, are in the sources."""
    for span in found:
        if NAME.fullmatch(span.text):
            for word in re.findall(r"\w+", span.text):
                looks_like_one = "_" in word or re.search(r"[a-z][A-Z]", word)
                if looks_like_one and word not in words and word not in FOREIGN_NAMES:
                    yield f"{span.page}:{span.line}: nothing is called {word}"


def json_errors(found):
    for block in found:
        if block.language == "json" or (block.language == "" and block.text.lstrip().startswith(("{", "["))):
            try:
                json.loads(block.text)
            except ValueError as error:
                yield f"{block}: {error}"


def version_errors(text, pinned):
    """Of the table of docs/clients.md: each version is the one that is installed."""
    rows = re.findall(r"^\| `([\w-]+)`[^|]*\| ([\d.]+) \|", text, re.M)
    yield from (f"{name} {version} is pinned nowhere" for name, version in rows if f"{name.replace('_', '-')}=={version}" not in pinned)


def pinned_versions():
    pinned = {line.split(" ")[0] for path in (ROOT / "scripts").glob("requirements-*.txt") for line in path.read_text().splitlines()}
    packages = json.loads((ROOT / "tests/clients/openai/package.json").read_text())["dependencies"]
    return pinned | {f"{name}=={version}" for name, version in packages.items()}


class Docs(unittest.TestCase):
    def setUp(self):
        self.pages = {path: doc_pages.read(path) for path in doc_pages.PAGES}

    def expect_none(self, errors):
        errors = list(errors)
        self.assertFalse(errors, "\n" + "\n".join(errors))

    def test_links(self):
        self.expect_none(f"{path.name}: {error}" for path, (_, prose, _) in self.pages.items() for error in link_errors(path, prose))

    def test_every_page_is_reached_from_the_readme(self):
        reached, waiting = set(), list(ROOT.glob("*.md"))
        while waiting:
            path = waiting.pop()
            if path in reached or path not in self.pages:
                continue
            reached.add(path)
            waiting += [(path.parent / target).resolve() for target in re.findall(r"\]\(([^)#\s]+\.md)", self.pages[path][1])]
        self.expect_none(f"no link leads to {path.name}" for path in self.pages if path not in reached)

    def test_files(self):
        self.expect_none(f"{span}: no such file" for _, _, found in self.pages.values() for span in found
                         if is_path(span.text) and span.text not in ELSEWHERE and not exists(span.text))

    def test_flags(self):
        known = known_flags()
        self.expect_none(f"{path.name}: nothing has a flag {flag}" for path in self.pages
                         for flag in sorted(set(FLAG.findall(path.read_text())) - known))

    def test_defaults(self):
        self.expect_none(f"{path.name}: {error}" for path, (_, prose, _) in self.pages.items() for error in default_errors(prose))

    def test_metrics(self):
        words = source_words()
        names = {(path.name, name) for path in self.pages for name in re.findall(r"\bgapless_[a-z_]+\b(?!\.)", path.read_text())}
        known = words | {"gapless_" + word for word in words}
        self.expect_none(f"{page}: nothing is called {name}" for page, name in sorted(names)
                         if name not in known and re.sub(r"_(bucket|sum|count)$", "", name) not in known)

    def test_names_of_sources(self):
        words = source_words()
        self.expect_none(error for path, (_, _, found) in self.pages.items() if path.relative_to(ROOT).as_posix() in SOURCE_PAGES
                         for error in name_errors(found, words))

    def test_commands_can_be_found(self):
        known = doc_pages.SHELLS | doc_pages.OTHER_LANGUAGES
        self.expect_none(f"{block}: a block in {block.language}: commands are in bash" for found, _, _ in self.pages.values() for block in found
                         if block.language not in known)

    def test_versions(self):
        self.expect_none(version_errors((ROOT / "docs/clients.md").read_text(), pinned_versions()))

    def test_json(self):
        self.expect_none(error for found, _, _ in self.pages.values() for error in json_errors(found))


class EachRuleIsNoticed(unittest.TestCase):
    def test_pages_are_read(self):
        text = "# A page\n\nRun `./dev test`\nor:\n\n    curl x\n      -d y\n\n- a list\n\n      gapless serve\n\n```json\n{}\n```\n"
        found, prose = doc_pages.blocks("p.md", text)
        self.assertEqual([(code.line, code.language, code.text) for code in found],
                         [(6, "", "curl x\n  -d y"), (11, "", "gapless serve"), (14, "json", "{}")])
        self.assertEqual([code.is_command() for code in found], [True, True, False])
        self.assertEqual([(span.line, span.text) for span in doc_pages.spans("p.md", prose)], [(3, "./dev test")])

    def test_links(self):
        page = ROOT / "docs/cli.md"
        bad = '[a](nowhere.md) [b](api.md#no-such-heading) [c](#nor-this) <img src="no.png">'
        self.assertEqual(len(list(link_errors(page, bad))), 4)
        self.assertEqual(list(link_errors(page, "[a](api.md#errors) [b](#gapless-serve) [c](https://example.com/x#y)")), [])

    def test_anchors(self):
        self.assertEqual(anchors("# The `x` of *two*, as [linked](y.md)\n```\n# not this\n```\n## a_b-c: D/E"), {"the-x-of-two-as-linked", "a_b-c-de"})

    def test_files(self):
        self.assertEqual([is_path(text) for text in ("src/a.cc", "base/", "/v1/models", "a / b", "`", "vec_<name>.h", "a")],
                         [True, True, False, False, False, False, False])
        self.assertEqual([exists(path) for path in ("src/base/log.h", "base/log.h", "base/", "src/kernels/cpu/vec_<name>.h", "base/nothing.h")],
                         [True, True, True, True, False])

    def test_defaults(self):
        errors = list(default_errors("`--port N` (default 80), `--page-size` (default 16), `--max-queued-requests`, default 2,048;"))
        self.assertEqual(errors, ["--port has the default 8080, not 80"])

    def test_flags(self):
        self.assertEqual(FLAG.findall("`--a-b C`, x--y, -- , ---z, (--no-mixed-chunk)"), ["--a-b", "--no-mixed-chunk"])
        self.assertNotIn("--no-such-" "flag", known_flags())

    def test_names(self):
        found = [doc_pages.Code("p", 1, "span", text) for text in ("Scheduler::no_such_thing", "ModelRunner::launch", "plain", "a b_c", "NoSuchType")]
        self.assertEqual(len(list(name_errors(found, source_words()))), 2)

    def test_versions(self):
        table = "| `a_b` (Python) | 1.2 | x |\n| `c` | 3 | y |\n"
        self.assertEqual(list(version_errors(table, {"a-b==1.2", "c==2"})), ["c 3 is pinned nowhere"])

    def test_json(self):
        blocks = [doc_pages.Code("p", 1, language, text) for language, text in (("json", "{]"), ("", "[1]"), ("", "x"))]
        self.assertEqual(len(list(json_errors(blocks))), 1)


if __name__ == "__main__":
    unittest.main()
