"""What the model knows of a file that it edits."""

from __future__ import annotations

from handrail.contrib.tools import VfsToolsSection
from handrail.filesystem import InMemoryFilesystem
from tests.contrib.suites import SuiteRun
from tests.wording import Wording

SEVEN_HUNDRED_LINES = "".join(f"line {number}\n" for number in range(700))


def run_over(text: str) -> SuiteRun:
    """Calls of the file tools on one file, `a.md`."""
    return SuiteRun(VfsToolsSection(InMemoryFilesystem({"a.md": text})))


def test_a_file_that_was_shown_in_part_is_edited_on_and_read_anew_to_be_replaced(wording: Wording) -> None:
    """The first 500 lines are read, and one of them is edited twice."""
    run = run_over(SEVEN_HUNDRED_LINES)
    run.told("read_file", path="a.md")
    run.told("edit_file", path="a.md", old="line 3\n", new="LINE 3\nand more\n")
    run.told("edit_file", path="a.md", old="and more\n", new="and less\n")
    run.told("read_file", path="a.md", offset=501)
    assert run.refused("write_file", path="a.md", content="") == wording
    run.told("read_file", path="a.md")
    run.told("read_file", path="a.md", offset=501)
    run.told("write_file", path="a.md", content="")


def test_a_file_that_was_shown_whole_stays_known_whole() -> None:
    """The model knows what it has written."""
    run = run_over("one\ntwo\n")
    run.told("read_file", path="a.md")
    run.told("edit_file", path="a.md", old="one\n", new="ONE\nand more\n")
    run.told("write_file", path="a.md", content="")
