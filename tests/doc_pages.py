"""Reads README.md, CONTRIBUTING.md and docs/*.md for the tests that keep them true: their blocks, their code spans, which are commands."""
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]

SHELLS = {"bash", "sh"}
# Languages of fenced blocks that are no commands.
OTHER_LANGUAGES = {"", "python", "json", "cpp", "cmake", "ini", "yaml", "nginx", "text"}
# How a line begins that somebody may copy into a terminal.
COMMAND = re.compile(r"(\./dev|curl|cmake|pip|python3?|g\+\+|timeout|nice|lm_eval|install|docker|systemctl|journalctl|(build/release/)?gapless|\$G|G=\S+;|scripts/\S+|for|until)\s")


@dataclasses.dataclass
class Code:
    page: str
    line: int
    language: str  # of a fenced block; "" of an indented one, "span" of `code` within a line
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}: {self.text.splitlines()[0]}"

    def is_command(self):
        return self.language in SHELLS or (self.language in ("", "span") and COMMAND.match(self.text) is not None)


def blocks(name, text):
    """The fenced and the indented blocks of a page, in their order, and the text with empty lines in their place."""
    found, rest, block, language, begin = [], [], None, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            if block is None:
                block, language, begin = [], line.strip("` "), number + 1
            else:
                found.append(Code(name, begin, language, "\n".join(block)))
                block = None
            line = ""
        elif block is not None:
            block.append(line)
            line = ""
        rest.append(line)
    indented, after_blank = None, True
    for number, line in enumerate([*rest, "."], 1):
        inside = line.startswith("    ") and (indented is not None or after_blank) and not re.match(r" +[-*] |\s+\d+\. ", line)
        if inside:
            indented = indented or Code(name, number, "", "")
            rest[number - 1] = ""
        if indented is not None and (inside or not line.strip()):
            indented.text += line[4:] + "\n"
        elif indented is not None:
            indented.text = indented.text.strip()
            found.append(indented)
            indented = None
        after_blank = not line.strip()
    return sorted(found, key=lambda code: code.line), "\n".join(rest)


def spans(name, prose):
    """`code` within lines."""
    for match in re.finditer(r"(`+)(.+?)\1(?!`)", prose, re.S):
        yield Code(name, prose.count("\n", 0, match.start()) + 1, "span", " ".join(match.group(2).replace("\\|", "|").split()))


def read(path):
    """(blocks, prose, spans) of a page."""
    name = path.relative_to(ROOT).as_posix()
    found, prose = blocks(name, path.read_text())
    return found, prose, list(spans(name, prose))
