"""Commands that a page shows as typed into a terminal, the links of pages, and their tables."""

from __future__ import annotations

import ast
import io
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from handrail.cli import main
from tests.architecture.sources import ROOT

DOCS = ROOT / "docs"
SKILL = ROOT / "src" / "handrail" / ".agents" / "skills" / "using-handrail" / "SKILL.md"
"""What programs that write programs read; it is in the wheel."""

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


_SPAN = re.compile(r"\d+ (s|min|h|d) ago")


_SECONDS = re.compile(r"\d+\.\d s\b")


_BYTES = re.compile(r'"bytes": \d{3,}')  # records of calls hold how long these took


_ASKED = re.compile(r"^(asked +)\d{4}-\d\d-\d\d [\d:]{8} UTC", re.MULTILINE)


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


_SAID_AT = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC(?=  )", re.MULTILINE)  # the heading of a message


_PROCESS = re.compile(r"process \d+ on [\w.-]+")


_CONTINUED = re.compile(r"\n {4}(?=\S)")


def read_commands(page: Path) -> Iterator[tuple[str, str]]:
    """Each command of a page, with what is shown below it."""
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, shown = command.partition("\n")
            yield line, shown


def unwrapped(shown: str) -> str:
    """An output without the line breaks of its page, which continues a long line on the next one, after four blanks."""
    return _CONTINUED.sub(" ", shown)


def typed(line: str) -> tuple[int, str]:
    """The exit code of a command line, and what it prints on both streams, as a terminal shows them."""
    name, *argv = shlex.split(line)
    assert name == "handrail"
    screen = io.StringIO()
    with redirect_stdout(screen), redirect_stderr(screen):
        code = main(argv)
    return code, screen.getvalue()


def comparable(text: str) -> str:
    """A text without what time, place and chance make of it: how long ago something was, its process, random names."""
    text = _UUID.sub("UUID", _ASKED.sub(r"\1WHEN", text))
    text = _SAID_AT.sub("TIME", text)
    text = _BYTES.sub('"bytes": N', _SECONDS.sub("N s", _SPAN.sub("N ago", text)))
    return re.sub(" {2,}", "  ", _PROCESS.sub("process N", text))


_LINK = re.compile(r"(!?)\[((?:[^\[\]`]|`[^`]*`)+)\]\(([^()\s]+)\)")


_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


_ELSEWHERE = ("http://", "https://", "mailto:")


_CODE = re.compile(r"`([^`]+)`")


_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Link:
    """A link to something in the repository.

    Attributes:
        page: the page that it stands in.
        text: what is linked.
        path: where it leads, from the page; empty for the page itself.
        anchor: the heading that it leads to; empty for none.
    """

    page: Path
    text: str
    path: str
    anchor: str

    @property
    def target(self) -> Path:
        """The file or folder that it leads to."""
        return (self.page.parent / self.path).resolve() if self.path else self.page

    @property
    def names(self) -> tuple[str, ...]:
        """The names of code that it names: `Transaction`, `ToolResult.render`."""
        return tuple(span for span in _CODE.findall(self.text) if _NAME.fullmatch(span) and not span.endswith(".py"))


def read_links(page: Path) -> Iterator[Link]:
    """The links and images of a page that lead into the repository."""
    return links_in(page.read_text(encoding="utf-8"), page)


def links_in(text: str, page: Path) -> Iterator[Link]:
    """The links and images of a part of a page that lead into the repository."""
    for match in _LINK.finditer(_FENCE.sub("", text)):
        if not match[3].startswith(_ELSEWHERE):
            yield _link(page, match)


def with_targets(page: Path, target_of: Callable[[Link], str]) -> str:
    """The text of a page, with other targets of the links and images that lead into the repository."""

    def replaced(match: re.Match[str]) -> str:
        target = match[3] if match[3].startswith(_ELSEWHERE) else target_of(_link(page, match))
        return f"{match[1]}[{match[2]}]({target})"

    parts = _FENCE.split(page.read_text(encoding="utf-8"))
    return "".join(part if part.startswith("```") else _LINK.sub(replaced, part) for part in parts)


def _link(page: Path, match: re.Match[str]) -> Link:
    path, _, anchor = match[3].partition("#")
    return Link(page, match[2], path, anchor)


@cache
def read_anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings: lower case, words joined by hyphens, nothing but letters, digits and `_`."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@cache
def names_in(module: Path) -> frozenset[str]:
    """What a module defines: functions, classes, values, and what is in its classes as `Class.name`."""
    return frozenset(_defined(ast.parse(module.read_text(encoding="utf-8")), ""))


def _defined(holder: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for node in holder.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{prefix}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _defined(node, f"{prefix}{node.name}.")
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (f"{prefix}{target.id}" for target in targets if isinstance(target, ast.Name))


def read_table(page: str, first_column: str) -> list[list[str]]:
    """The rows of the table of a page whose heading begins with a word."""
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = text.partition(f"\n| {first_column} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def named_in(cells: list[str]) -> list[str]:
    """What the first cell of a row names as code."""
    return re.findall(r'`"?(\w+)"?`', cells[0])
