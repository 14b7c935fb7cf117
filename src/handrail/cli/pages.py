"""`handrail docs`: the pages of the documentation, in the terminal.

A wheel has them in `handrail/docs`; a checkout has them beside `src`. In a pipe a page is as it is in its file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Annotated, cast

from cyclopts import Parameter
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, TableElement
from rich.table import Table
from rich.theme import Theme

import handrail
from handrail.cli.process_exit import FAILED
from handrail.cli.screen import Column, Debug, Screen

_ROW = re.compile(r"^\| \[([^\]]+)\]\(([\w/-]+)\.md\) \| (.*?) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_INDEX = "README.md"
_BESIDE = {
    "readme": ("README.md", "What Handrail is, what it promises, and how it is installed"),
    "changelog": ("CHANGELOG.md", "What has changed"),
    "security-policy": ("SECURITY.md", "How to report a vulnerability"),
}
"""The pages beside the folder, by their names: each with its file, and what it is about."""

_COLOURS = Theme({"markdown.code": "cyan"})  # without the black ground that rich gives it


class _WholeTable(TableElement):
    """A table whose cells continue on the next line, also within a long word; rich cuts such a word."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = cast("Table", next(iter(super().__rich_console__(console, options))))
        for column in table.columns:
            column.overflow = "fold"
        yield table


class _Page(Markdown):
    """A page as a terminal shows it."""

    elements = {**Markdown.elements, "table_open": _WholeTable}  # noqa: RUF012 - as it is declared there


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of a folder.

    Attributes:
        folder: where they are.
    """

    folder: Path

    def names(self) -> list[str]:
        """The names of all pages: `how-to/write-a-tool`; that of an index is its folder."""
        paths = [PurePosixPath(page.relative_to(self.folder).as_posix()) for page in self.folder.rglob("*.md")]
        named = (str(path.parent if path.name == _INDEX else path.with_suffix("")) for path in paths)
        return sorted((*named, *self._beside()))

    def listed(self) -> list[tuple[str, str]]:
        """The pages that the index lists, in its order, each with what it is about; then those beside the folder."""
        rows = _ROW.findall((self.folder / _INDEX).read_text(encoding="utf-8"))
        shown = [(path.removesuffix("/README"), _LINK.sub(r"\1", about).replace("`", "")) for _, path, about in rows]
        return [*shown, *((name, _BESIDE[name][1]) for name in self._beside())]

    def _beside(self) -> list[str]:
        return [name for name, (file, _) in _BESIDE.items() if (self.folder.parent / file).is_file()]

    def matches(self, wanted: str) -> list[str]:
        """The pages that a word names: by the path, else by the last part of it, else by how one of these begins."""
        word = wanted.strip("/").removesuffix(".md").lower()
        names = self.names()
        last = {name: name.rpartition("/")[2] for name in names}
        for fitting in (
            [name for name in names if name == word],
            [name for name in names if last[name] == word],
            [name for name in names if word and (last[name].startswith(word) or name.startswith(word))],
        ):
            if fitting:
                return fitting
        return []

    def near(self, wanted: str) -> list[str]:
        """The pages whose names are like a word."""
        last = {name.rpartition("/")[2]: name for name in self.names()}
        parts = {part: name for key, name in last.items() for part in (key, *key.split("-"))}
        found = get_close_matches(wanted.lower(), parts, n=3, cutoff=0.7)
        return sorted({parts[part] for part in found})

    def text(self, name: str) -> str:
        """The text of a page, in Markdown."""
        if name in _BESIDE:
            return (self.folder.parent / _BESIDE[name][0]).read_text(encoding="utf-8")
        page = self.folder / f"{name}.md"
        return (page if page.is_file() else self.folder / name / _INDEX).read_text(encoding="utf-8")


def installed_pages() -> Pages | None:
    """The pages of this installation; `None` if it has none."""
    package = Path(handrail.__file__).resolve().parent
    for folder in (package / "docs", package.parents[1] / "docs"):
        if (folder / _INDEX).is_file() and (folder.parent == package or package.parent.name == "src"):
            return Pages(folder)
    return None


def print_page(
    page: Annotated[str | None, Parameter(metavar="PAGE")] = None,
    /,
    *,
    debug: Debug = False,  # noqa: ARG001 - for the help; it is removed before parsing
) -> int:
    """Print a page of the documentation, or list all.

    The pages are those of this version. In a pipe a page is Markdown: `handrail docs limits | less`.

    Args:
        page: Its path, the last part of that, or how that begins; without it all are listed.
        debug: Whether to show tracebacks.
    """
    screen = Screen()
    pages = installed_pages()
    if pages is None:
        screen.fault("the pages are not a part of this installation; they are in the folder docs of the repository")
        return FAILED
    if page is None:
        screen.table((Column("page", itemgetter(0)), Column("about", itemgetter(1))), pages.listed())
        screen.raw("")
        screen.say(f"The pages are in {pages.folder}. handrail docs PAGE prints one.")
        return 0
    found = pages.matches(page)
    if len(found) != 1:
        screen.fault(_not_one(page, found, pages.near(page)))
        return FAILED
    text = pages.text(found[0])
    if screen.out.is_terminal:
        with screen.out.use_theme(_COLOURS):
            screen.out.print(_Page(text, code_theme="ansi_dark", hyperlinks=False))
    else:
        screen.raw(text, end="")
    return 0


def _not_one(wanted: str, found: list[str], near: list[str]) -> str:
    if found:
        return f"{wanted!r} is the beginning of several pages: {', '.join(found)}"
    nearest = f"the nearest: {', '.join(near)}; " if near else ""
    return f"there is no page {wanted!r}; {nearest}handrail docs lists all"
