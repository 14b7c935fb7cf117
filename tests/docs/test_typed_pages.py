"""Pages with programs to save and commands to type work as typed, and print what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail import store
from handrail.runtime import Session
from tests.architecture.sources import ROOT
from tests.docs.typed_pages import DOCS, File, Terminal, follow, settled, steps_of, typed_pages
from tests.extent import FULL

PAGES = typed_pages()
SLOW = DOCS / "how-to" / "test-tools.md"
"""It starts pytest, which starts processes: the full form alone follows it."""


@pytest.mark.parametrize(
    "page", [page for page in PAGES if FULL or page != SLOW], ids=lambda page: str(page.relative_to(ROOT))
)
@pytest.mark.short(2)
@pytest.mark.timeout(120)  # a page has up to a dozen commands
def test_a_page_works_as_it_is_typed(page: Path, at: Terminal, tmp_path: Path) -> None:
    """In an empty folder, from top to bottom."""
    follow(page, tmp_path, at.type)


def test_every_page_of_the_tutorial_is_typed() -> None:
    """Each has a program, and a command that starts it or an agent."""
    pages = sorted((DOCS / "tutorial").glob("*.md"))
    assert pages
    assert {*pages} <= {*PAGES}


def test_every_program_of_a_typed_page_is_saved() -> None:
    """A block of Python without a name would not run."""
    for page in PAGES:
        files = sum(isinstance(step, File) and step.name.endswith(".py") for step in steps_of(page))
        assert page.read_text(encoding="utf-8").count("\n```python\n") == files, page


def test_what_differs_from_run_to_run_is_not_compared(tmp_path: Path) -> None:
    """Times and folders; a word that differs is seen."""
    shown = "1 passed in 0.12s\ncreated 2026-01-05 20:00:00, 3 s ago, in /srv/desk.db\n"
    found = f"1 passed in 3.40s\ncreated 2027-02-06 21:01:01, 4 s ago, in {tmp_path}/desk.db"
    assert settled(shown, tmp_path) == settled(found, tmp_path)
    assert settled(shown, tmp_path) != settled(found.replace("passed", "failed"), tmp_path)


def test_a_killed_program_is_shown_as_a_shell_shows_it(at: Terminal, tmp_path: Path) -> None:
    """What it has printed stays, and standard error goes where the line says."""
    source = "import os, sys\nprint('a')\nprint('b', file=sys.stderr)\nos.kill(os.getpid(), 9)\n"
    (tmp_path / "program.py").write_text(source, encoding="utf-8")
    assert at.type("python program.py 2> log.txt", tmp_path) == "a\nKilled\n"
    assert (tmp_path / "log.txt").read_text(encoding="utf-8") == "b\n"


def test_a_backup_is_taken_while_a_program_has_the_store_open(at: Terminal, tmp_path: Path) -> None:
    """By the program of the page on operation; the copy has what was committed before it was taken."""
    (program,) = (
        step.text
        for step in steps_of(DOCS / "how-to" / "operate-a-store.md")
        if isinstance(step, File) and step.name == "backup.py"
    )
    (tmp_path / "backup.py").write_text(program, encoding="utf-8")
    with store.open(f"sqlite:///{tmp_path}/desk.db") as opened, Session.open(opened, "monday") as session:
        session.conversation.append({"role": "user", "content": "before"})
        assert at.type("python backup.py desk.db copy.db", tmp_path) == "copy.db ok\n"
        session.conversation.append({"role": "user", "content": "after"})
    with store.open(f"sqlite:///{tmp_path}/copy.db") as opened, Session.open(opened, "monday") as session:
        assert [message["content"] for message in session.conversation.messages] == ["before"]
