"""What the record of a call has of its changes: diffs of files, and what was undone."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from handrail import store as stores
from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import Tool, ToolContext
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.session import stored_as
from handrail.store import Store
from handrail.transaction.changes import MOST_CHANGES, MOST_CHARACTERS, MOST_COMPARED_BYTES, CallChange, file_change

BEFORE = {"a.txt": "one\ntwo\nthree\n", "old.txt": "gone\n"}


@stored_as("tests.changes_note")
@dataclass(frozen=True)
class Note:
    """What a handler writes to the session."""

    text: str


@pytest.fixture
def store(tmp_path: Path) -> Generator[Store]:
    """A store in a file."""
    with stores.open(f"sqlite:///{tmp_path / 'desk.db'}") as opened:
        yield opened


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path, store: Store) -> Generator[Filesystem]:
    """Two files, in memory and on disk."""
    if request.param == "memory":
        yield InMemoryFilesystem(BEFORE)
        return
    (tmp_path / "tree").mkdir()
    for name, text in BEFORE.items():
        (tmp_path / "tree" / name).write_text(text, encoding="utf-8")
    with HostFilesystem(tmp_path / "tree", store=store) as disk:
        yield disk


def editor(files: Filesystem, *, is_async: bool = False) -> Tool[Any, Any]:
    """A tool that changes files and a slice, and may fail."""

    def change(context: ToolContext, *, fails: bool) -> str:
        context.session[Note].append(Note("hello"))
        files.write_text("a.txt", "one\n2\nthree\n")
        files.write_text("new/b.txt", "new")
        files.remove("old.txt")
        if fails:
            raise ValueError("no")
        return "changed"

    async def change_async(context: ToolContext, *, fails: bool) -> str:
        return await asyncio.to_thread(change, context, fails=fails)

    return tool(name="change", description="Changes files.")(change_async if is_async else change)


def recorded(session: Session) -> tuple[CallChange, ...] | None:
    """The changes in the newest record."""
    return session[ToolInvoked][-1].changes


FILES = (
    CallChange("file", "a.txt", "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"),
    CallChange("file", "new", "+a folder"),
    CallChange("file", "new/b.txt", "@@ -0,0 +1 @@\n+new\n\\ No newline at end of file"),
    CallChange("file", "old.txt", "@@ -1 +0,0 @@\n-gone"),
)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("fails", [False, True], ids=["committed", "rolled back"])
def test_record_has_the_files_that_a_call_has_changed_and_of_a_failed_one_all_that_was_undone(
    store: Store, files: Filesystem, is_async: bool, fails: bool
) -> None:
    """It is read back from the store as it was written; entries say what a committed call has changed in slices."""
    with store.session("desk") as session:
        executor, call = (
            ToolExecutor([editor(files, is_async=is_async)], session=session),
            ToolCall("c", "change", {"fails": fails}),
        )
        message = asyncio.run(executor.execute_async(call)) if is_async else executor.execute(call)
        assert message.success is not fails
    with store.session("desk") as session:
        found = recorded(session)
    assert found is not None
    assert {*found} == {*FILES, *([CallChange("slice", "tests.changes_note", '+{"text": "hello"}')] if fails else [])}


def test_session_that_does_not_record_changes_has_none(store: Store, files: Filesystem) -> None:
    """The option is of the session."""
    with store.session("desk", record_changes=False) as session:
        ToolExecutor([editor(files)], session=session).execute(ToolCall("c", "change", {"fails": True}))
        assert recorded(session) is None


def test_session_in_memory_has_none(files: Filesystem) -> None:
    """Nobody looks at it later."""
    session = Session()
    ToolExecutor([editor(files)], session=session).execute(ToolCall("c", "change", {"fails": False}))
    assert recorded(session) is None


def test_secrets_of_a_call_are_masked_in_its_changes(store: Store) -> None:
    """As in its message."""
    files = InMemoryFilesystem()

    @tool
    def save(password: SecretStr) -> str:
        """Save a password."""
        files.write_text(f"{password.get_secret_value()}.txt", f"{password.get_secret_value()}\n")
        return "saved"

    with store.session("desk") as session:
        ToolExecutor([save], session=session).execute(ToolCall("c", "save", {"password": "hunter2-canary"}))
        assert recorded(session) == (CallChange("file", "**********.txt", "@@ -0,0 +1 @@\n+**********"),)


def test_what_cannot_be_described_fails_no_call(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged."""

    class Broken(InMemoryFilesystem):
        def describe_changes(self, snapshot: object, /, *, committed: bool) -> Iterator[CallChange]:
            raise ValueError("broken")

    with store.session("desk") as session:
        executor = ToolExecutor([editor(Broken(BEFORE))], session=session)
        assert executor.execute(ToolCall("c", "change", {"fails": False})).success
        assert recorded(session) is None
    assert "broken" in caplog.text


def test_many_changes_are_bounded(store: Store) -> None:
    """A last one says that there are more."""
    files = InMemoryFilesystem()

    @tool
    def write_many() -> str:
        """Write many files."""
        for number in range(MOST_CHANGES + 9):
            files.write_text(f"{number:03}.txt", "x\n")
        return "written"

    with store.session("desk") as session:
        ToolExecutor([write_many], session=session).execute(ToolCall("c", "write_many", {}))
        changes = recorded(session) or ()
        assert len(changes) == MOST_CHANGES + 1
        assert changes[-1] == CallChange("file", "…", f"@@ more than {MOST_CHANGES} changes @@")


LONG = "".join(f"line {number}\n" for number in range(900)).encode()


@pytest.mark.parametrize(
    "before, after, diff",
    [
        (None, b"", "@@ it is empty @@"),
        (b"\xff\x00", b"a\n", "-2 bytes\n+2 bytes"),
        (None, b"x" * (MOST_COMPARED_BYTES + 1), "+65,537 bytes"),
        ("a folder", None, "-a folder"),
        ("a link to x", b"a\n", "-a link to x\n+2 bytes"),
        (b"a\r\n", b"a\n", "@@ -1 +1 @@\n-a\r\n+a"),
    ],
)
def test_diff_of_a_file_describes_what_is_not_text(before: Any, after: Any, diff: str) -> None:
    """And what is too long to compare."""
    assert file_change("a", before, after) == CallChange("file", "a", diff)


def test_long_diff_counts_what_it_leaves_out() -> None:
    """In its last line."""
    diff = file_change("a", None, LONG).diff
    assert len(diff) < MOST_CHARACTERS + 30
    kept = diff.splitlines()
    assert kept[-1] == f"@@ {900 + 1 - len(kept) + 1} more lines @@"
