"""Committed calls over files in memory are undone later, in the same process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from handrail import errors
from handrail.filesystem import Filesystem, InMemoryFilesystem, excluding
from handrail.transaction.undoing import MOST_UNDONE_CALLS, KeepsUndo
from tests.filesystem.kit import call, tree_of
from tests.kit import raises, refusal
from tests.wording import Wording


@pytest.fixture
def files() -> InMemoryFilesystem:
    """A few files and an empty folder."""
    files = InMemoryFilesystem({"notes/plan.md": "1. look\n", "notes/old/a.md": "a", "data.bin": b"\0\1"})
    files.make_folder("empty")
    return files


def run(files: InMemoryFilesystem, work: Callable[[], object]) -> str:
    """Do something in a call that is kept for undo; returns the id."""
    with call(files) as transaction:
        work()
        undo_id = files.keep_undo(next(iter(transaction.snapshots.values()))[1], "session/call")
        transaction.commit()
    assert undo_id is not None
    return undo_id


def several(files: Filesystem) -> None:
    """Changes of every kind, and some that meet at the same paths."""
    files.write_text("notes/plan.md", "2. think\n")
    files.remove("notes/old", recursive=True)
    files.write_text("notes/old", "a file where a folder was")
    files.remove("data.bin")
    files.write_text("data.bin/deep", "a folder where a file was")
    files.move("notes", "archive/notes")
    files.remove("empty")


def test_call_is_undone_and_its_undo_too(files: InMemoryFilesystem) -> None:
    """What is listed is what differs, and what is restored."""
    assert isinstance(files, KeepsUndo)
    before = tree_of(files)
    first = run(files, lambda: several(files))
    after = tree_of(files)
    changes = files.undo_changes(first) or ()
    assert [change.path for change in changes] == sorted(
        path for path in before | after if before.get(path, "nothing") != after.get(path, "nothing")
    )
    paths = [change.path for change in changes]
    assert list(files.present_images(paths).values()) == [change.after for change in changes]
    second = run(files, lambda: files.undo(first))
    assert tree_of(files) == before
    assert list(files.present_images(paths).values()) == [change.before for change in changes]
    run(files, lambda: files.undo(second))
    assert tree_of(files) == after


def test_what_was_changed_since_is_not_lost(files: InMemoryFilesystem, wording: Wording) -> None:
    """A path that is not as the call left it, or a folder that is in use where a file has to come back."""
    undo_id = run(files, lambda: several(files))
    for act in (
        partial(files.write_text, "archive/notes/plan.md", "other"),
        partial(files.write_text, "data.bin/other", "x"),
        partial(files.write_text, "notes", "a file where a folder is needed"),
    ):
        snapshot = files.snapshot()
        act()
        changed = tree_of(files)
        with call(files, commits=True), raises(errors.PathConflictError, wording):
            files.undo(undo_id)
        assert tree_of(files) == changed
        files.restore(snapshot)
    with call(files, writes=False), pytest.raises(errors.ReadOnlyViolation):
        files.undo(undo_id)


def test_everything_else_is_left_alone(files: InMemoryFilesystem) -> None:
    """What other calls have changed stays, also in a folder that the call has made; a folder that is gone is made."""
    made = run(files, lambda: files.write_text("made/a/b", "x"))
    removed = run(files, lambda: files.remove("notes/old/a.md"))
    files.write_text("made/a/other", "x")
    files.remove("notes/old")
    run(files, lambda: files.undo(made))
    run(files, lambda: files.undo(removed))
    assert (files.exists("made/a/b"), files.exists("made/a/other")) == (False, True)
    assert files.read_text("notes/old/a.md") == "a"


def test_views_share_what_is_kept(files: InMemoryFilesystem, wording: Wording) -> None:
    """A filter hides nothing from people who undo."""
    view = files.filtered(excluding(("data.bin",)))
    undo_id = run(files, lambda: files.write_text("data.bin", "text"))
    assert view.undo_changes(undo_id) == files.undo_changes(undo_id)
    assert view.describe_undo(undo_id, "data.bin").diff == wording


def test_call_that_changed_nothing_keeps_nothing(files: InMemoryFilesystem) -> None:
    """Also one that writes what is there already."""
    snapshot = files.snapshot()
    files.write_text("notes/plan.md", "1. look\n")
    assert files.keep_undo(snapshot, "call") is None


def test_newest_calls_are_kept_in_their_process(files: InMemoryFilesystem, wording: Wording) -> None:
    """Another process, which has made its files anew, knows none of them."""
    ids = [run(files, partial(files.write_text, "data.bin", str(number))) for number in range(MOST_UNDONE_CALLS + 1)]
    assert [files.undo_changes(undo_id) is None for undo_id in ids[:2]] == [True, False]
    assert InMemoryFilesystem().undo_changes(ids[-1]) is None
    with call(files, commits=True), raises(errors.SnapshotError, wording) as raised:
        files.undo("an id")
    refusal(type(raised.value), files.describe_undo, ids[0], "data.bin")
