"""What the model knows of a file that it edits: what was shown stays shown, and what it writes it knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.contrib.tools import VfsLimits, VfsToolsSection
from handrail.filesystem import InMemoryFilesystem
from handrail.prompt.known_files import KnownFiles, known_of
from tests.contrib.suites import SuiteRun
from tests.extent import examples
from tests.wording import Wording

SEVEN_HUNDRED_LINES = "".join(f"line {number}\n" for number in range(700))
TEN_LINES = "".join(f"line {number}\n" for number in range(1, 11))


def run_over(text: str, limits: VfsLimits | None = None) -> SuiteRun:
    """Calls of the file tools on one file, `a.md`."""
    section = VfsToolsSection(InMemoryFilesystem({"a.md": text}), limits=limits or VfsLimits())
    return SuiteRun(section)


def test_lines_before_and_after_an_edit_stay_shown(wording: Wording) -> None:
    """The first 500 lines are read, one of them is edited, and the others are read."""
    run = run_over(SEVEN_HUNDRED_LINES)
    run.told("read_file", path="a.md")
    run.told("edit_file", path="a.md", old="line 3\n", new="LINE 3\nand more\n")
    assert run.refused("write_file", path="a.md", content="") == wording
    run.told("read_file", path="a.md", offset=502)
    run.told("write_file", path="a.md", content="")


@pytest.mark.parametrize("ends", ["\r\n", "\n"])
def test_line_ends_are_no_difference(ends: str, wording: Wording) -> None:
    """Lines are counted as the model sees them."""
    run = run_over(TEN_LINES.replace("\n", ends))
    run.told("read_file", path="a.md", limit=5)
    run.told("edit_file", path="a.md", old="line 2\nline 3\n", new="two\nthree\nand\nmore\n")
    assert run.refused("write_file", path="a.md", content="") == wording
    run.told("read_file", path="a.md", offset=8)
    run.told("write_file", path="a.md", content="")


@dataclass
class Page:
    """The plain model: the characters of a text, each shown or not.

    A text that does not end with a line end has one all the same, which is shown with its last line.
    """

    text: str
    shown: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        self.shown = [False] * len(self.ended)

    @property
    def ended(self) -> str:
        """The text, with a line end at its end."""
        return self.text if self.text.endswith("\n") or not self.text else f"{self.text}\n"

    def read(self, offset: int, limit: int) -> None:
        """Show some lines."""
        lines = self.ended.splitlines(keepends=True)
        start = sum(map(len, lines[: offset - 1]))
        end = sum(map(len, lines[: offset - 1 + limit]))
        self.shown[start:end] = [True] * (end - start)

    def edit(self, old: str, new: str) -> None:
        """Replace a piece wherever it is."""
        pieces = self.text.split(old)
        was_ended, rest = self.text.endswith("\n"), self.shown
        self.text, shown = new.join(pieces), list[bool]()
        for piece in pieces[:-1]:
            shown += [*rest[: len(piece)], *[True] * len(new)]
            rest = rest[len(piece) + len(old) :]
        self.shown = shown + rest
        if self.text and was_ended and not self.text.endswith("\n"):
            self.shown.append(True)  # the model has removed the last line end
        del self.shown[len(self.ended) :]

    @property
    def first_unseen_line(self) -> int | None:
        """The first line with a character that was not shown; `None` if there is none."""
        return None if all(self.shown) else self.ended.count("\n", 0, self.shown.index(False)) + 1


TEXTS = st.text(st.sampled_from("ab\n"), min_size=1, max_size=30)


def a_read(data: st.DataObject, page: Page, run: SuiteRun) -> None:
    """A read of some lines, in the model and by the tool."""
    offset = data.draw(st.integers(1, max(1, page.ended.count("\n"))))
    limit = data.draw(st.integers(1, 3))
    run.told("read_file", path="a.md", offset=offset, limit=limit)
    page.read(offset, limit)


def an_edit(data: st.DataObject, page: Page, run: SuiteRun) -> None:
    """An edit, in the model and by the tool."""
    start = data.draw(st.integers(0, len(page.text) - 1))
    old = page.text[start : start + data.draw(st.integers(1, 6))]
    new = data.draw(st.text(st.sampled_from("ab\n"), max_size=5).filter(lambda text: text != old))
    run.told("edit_file", path="a.md", old=old, new=new, replace_all=True)
    page.edit(old, new)


@settings(max_examples=examples(150))
@given(st.data())
def test_reads_and_edits_show_what_a_plain_model_says(data: st.DataObject) -> None:
    """A list of characters, each shown or not, agrees with what the policy stores, after each of some random calls."""
    page = Page(data.draw(TEXTS))
    run = run_over(page.text)
    a_read(data, page, run)
    for _ in range(data.draw(st.integers(1, 6))):
        step: Any = data.draw(st.sampled_from([a_read, an_edit])) if page.text else a_read
        step(data, page, run)
        known = known_of(run.session[KnownFiles], "a.md")
        assert known is not None
        unseen = None if known.shown == "all" else known.first_unseen_line
        assert unseen == page.first_unseen_line
    assert run.call("remove_file", path="a.md").success is (page.first_unseen_line is None)
