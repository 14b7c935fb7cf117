"""Links of Markdown pages: where they lead, and what they name."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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


def links_of(page: Path) -> Iterator[Link]:
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
def anchors_of(page: Path) -> frozenset[str]:
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
