"""Committed calls over files on disk are undone later: exactly, by any process, and only what they have changed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from handrail import errors
from handrail.filesystem import HostFilesystem
from handrail.filesystem.paths import is_inside, to_bytes
from handrail.testing import FakeClock
from handrail.transaction.undoing import MOST_UNDONE_CALLS, UNDO_LASTS, KeepsUndo, UndoChange, UndoImage
from tests.extent import step
from tests.filesystem import killing, kit
from tests.kit import raises, refusal
from tests.wording import Wording

WORK: dict[str, kit.CallOverProgram] = {
    **{name: killing.without_program(change) for name, change in kit.CHANGES.items()},
    **kit.PROGRAMS,
}
each_work = pytest.mark.parametrize("work", WORK.values(), ids=WORK)


def run(fs: HostFilesystem, work: Callable[[], object]) -> str:
    """Do something in a call that is kept for undo, and committed; returns the id."""
    with kit.call(fs) as transaction:
        work()
        undo_id = fs.keep_undo(next(iter(transaction.snapshots.values()))[1], "session/call")
        transaction.commit()
    assert undo_id is not None
    return undo_id


def put(path: Path, text: str) -> None:
    """Make a file, as a program does, in place of whatever is there."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def undo(fs: HostFilesystem, undo_id: str) -> str:
    """Undo a call in another one; returns the id of that."""
    return run(fs, lambda: fs.undo(undo_id))


@each_work
def test_call_is_undone_and_its_undo_too(tree: kit.PlantedTree, work: kit.CallOverProgram) -> None:
    """Contents, modes, links, empty folders, removals and moves; each of them by another opening."""
    store = kit.Decisions()
    with tree.open(store=store) as fs:
        first = run(fs, lambda: work(fs, tree.root))
    done = tree.now
    with tree.open(store=store) as fs:
        second = undo(fs, first)
    assert tree.now == tree.before
    with tree.open(store=store) as fs:
        undo(fs, second)
    assert tree.now == done
    assert store.committed == set()


@each_work
def test_changes_are_what_differs(tree: kit.PlantedTree, work: kit.CallOverProgram) -> None:
    """Every path that differs is listed, with what was there and what the call left, and no other one."""
    with tree.open() as fs:
        assert isinstance(fs, KeepsUndo)
        paths = ["."]

        def images() -> dict[str, UndoImage]:
            return dict(fs.present_images({*paths, *(stat.path for stat in fs.glob("**"))}))

        paths += images()
        before = images()
        undo_id = run(fs, lambda: work(fs, tree.root))
        after = images()
        changes = fs.undo_changes(undo_id)
        nothing = UndoImage("nothing")
        differing = {path for path in after if after[path] != before.get(path, nothing)}
        assert changes == [UndoChange(path, before.get(path, nothing), after[path]) for path in sorted(differing)]
        undo(fs, undo_id)
        assert {path: image for path, image in images().items() if image != nothing} == before


@each_work
def test_what_was_changed_since_is_not_lost(tree: kit.PlantedTree, work: kit.CallOverProgram) -> None:
    """A path that is not as the call left it refuses the whole undo, whoever has changed it."""
    with tree.open() as fs:
        undo_id = run(fs, lambda: work(fs, tree.root))
        change = list(fs.undo_changes(undo_id) or ())[-1]
        place = Path(os.fsdecode(os.fsencode(tree.root) + b"/" + to_bytes(change.path)))
        put(place, "by another program")
        changed = tree.now
        assert fs.present_images([change.path])[change.path] != change.after
        with kit.call(fs, commits=True):
            conflict = refusal(errors.PathConflictError, fs.undo, undo_id)
        assert is_inside(change.path, conflict.path) or conflict.path == change.path
        assert tree.now == changed


@pytest.mark.parametrize("program", [False, True])
def test_everything_else_is_left_alone(tree: kit.PlantedTree, *, program: bool) -> None:
    """What other calls and programs have changed at other paths stays, also in a folder that the call has made."""
    with tree.open() as fs:

        def work() -> None:
            if program:
                fs.keep_tree()
            for path in ("notes/plan.md", "made/a/b", "made/c"):
                if program:
                    put(tree.root / path, "x")
                else:
                    fs.write_text(path, "x")

        undo_id = run(fs, work)
        run(fs, lambda: fs.write_text("data.bin", "by another call"))
        run(fs, lambda: fs.write_text("made/a/other", "by another call"))
        put(tree.root / "by a program", "x")
        shutil.rmtree(tree.root / "notes/old")
        undo(fs, undo_id)
    now = tree.now
    assert {path for path in now if path.startswith("made")} == {"made", "made/a", "made/a/other"}
    assert now["notes/plan.md"] == tree.before["notes/plan.md"]
    assert (now["data.bin"][2], now["by a program"][2]) == (b"by another call", b"x")
    assert "notes/old" not in now


@dataclass(frozen=True)
class Done:
    """A call that has changed something of everything, its id, and what it left."""

    tree: kit.PlantedTree
    undo_id: str
    after: kit.Picture


@pytest.fixture
def done(tree: kit.PlantedTree) -> Done:
    """A call over a tree."""
    with tree.open() as fs:
        undo_id = run(fs, lambda: kit.between_changes(fs, tree.root))
    return Done(tree, undo_id, tree.now)


@pytest.mark.parametrize("catches", [False, True])
def test_undo_that_fails_changes_nothing(done: Done, *, catches: bool) -> None:
    """Whichever call to the disk fails: all is as it was at once, or with its call where the handler raises."""
    tree, number = done.tree, 1
    while tree.now == done.after:
        with tree.open() as fs, suppress(errors.HandrailError), kit.call(fs) as transaction:
            tree.disk.fail(errno.EIO, at=number)
            try:
                fs.undo(done.undo_id)
            except errors.FilesystemError:
                tree.disk.heal()
                if not catches:
                    raise
            tree.disk.heal()
            transaction.commit()
        tree.reopen()
        number += step(13)
    assert tree.now == tree.before
    assert number > 100


def test_what_undo_needs_may_be_lost(done: Done, wording: Wording) -> None:
    """A content that is missing or was changed, a tree, or the journal: it is said, and nothing is changed."""
    tree = done.tree
    content = next(tree.journal.glob("image-*"))
    content.write_bytes(content.read_bytes() + b"x")
    with tree.open() as fs:
        lost_tree = run(fs, lambda: kit.program(fs, tree.root))
        damaged = run(fs, lambda: fs.write_text("new", "x"))
        journal = tree.journal / f"undo-{damaged}"
        journal.write_bytes(journal.read_bytes()[5:])
    shutil.rmtree(tree.journal / "tree.git")
    now = tree.now
    with tree.open() as fs:
        for undo_id in (done.undo_id, lost_tree, damaged, "../root"):
            assert fs.undo_changes(undo_id) is None
            with kit.call(fs, commits=True):
                refusal(errors.SnapshotError, fs.undo, undo_id)
            refusal(errors.SnapshotError, fs.describe_undo, undo_id, "data.bin")
        with raises(errors.SnapshotError, wording):
            fs.describe_undo("an id", "data.bin")
    assert tree.now == now


def test_content_that_is_kept_is_never_a_file_of_the_tree(tree: kit.PlantedTree) -> None:
    """An editor that writes in place does not reach it; a full disk has the undo fail in place of sharing a file."""
    with tree.open() as fs:
        undo_id = run(fs, lambda: fs.write_text("notes/run.sh", "other"))
        done = tree.now
        with pytest.raises(errors.FilesystemError), kit.call(fs):  # noqa: PT012 - leaving it raises
            tree.disk.fail(errno.ENOSPC, "write", at=2, on=True)  # the first one is of the journal
            try:
                fs.undo(undo_id)
            finally:
                tree.disk.heal()
        assert tree.now == done
        for _ in range(2):
            undo_id = undo(fs, undo(fs, undo_id))
            for text in ("in place", "other"):
                (tree.root / "notes/run.sh").write_text(text)
        undo(fs, undo_id)
    assert tree.now == tree.before


def test_call_that_was_rolled_back_keeps_nothing(tree: kit.PlantedTree) -> None:
    """Also where it was prepared, and the store was down, or had not committed it when it was asked later."""
    store, ids = kit.Decisions(), list[str | None]()
    with tree.open(store=store) as fs:
        for down, lost in ((False, None), (True, None), (False, "before")):
            with suppress(errors.StoreUnavailableError, errors.CommitInDoubtError), kit.call(fs) as transaction:
                fs.write_text("data.bin", "x")
                ids.append(fs.keep_undo(None, "call"))
                store.down, store.lost = down, lost
                if down or lost is not None:
                    transaction.commit()
            store.down, store.lost = False, None
    with tree.open(store=store) as fs:
        assert len(set(ids)) == 3
        assert [fs.undo_changes(str(undo_id)) for undo_id in ids] == [None] * 3
    assert (tree.now, tree.leftovers) == (tree.before, [])


def test_call_that_changed_nothing_keeps_nothing(tree: kit.PlantedTree) -> None:
    """One that only reads, one that writes what is lost again, and a program that changes nothing."""
    with tree.open() as fs, kit.call(fs, commits=True):
        assert fs.keep_undo(fs.snapshot(), "call") is None
        tree.disk.fail(errno.ENOSPC, "make_file")
        refusal(errors.FilesystemError, fs.write_text, "data.bin", "x")
        tree.disk.heal()
        assert fs.keep_undo(fs.snapshot(), "call") is None
    with tree.open() as fs, kit.call(fs, commits=True):
        fs.keep_tree()
        assert fs.keep_undo(fs.snapshot(), "call") is None
    assert tree.leftovers == []


def test_calls_are_not_kept_where_undo_is_off(tree: kit.PlantedTree) -> None:
    """The record of a call that has changed something says who keeps nothing; what was kept before stays."""
    with tree.open() as fs:
        undo_id = run(fs, lambda: fs.write_text("data.bin", "x"))
    with tree.open(undo=False) as fs:
        assert run(fs, lambda: fs.write_text("data.bin", "y")) == "-HostFilesystem"
        assert fs.undo_changes(undo_id) is not None
    assert tree.leftovers == ["image", "undo"]


def test_oldest_calls_are_removed(tree: kit.PlantedTree) -> None:
    """More than so many, while working; and after a week, at the next opening or call."""
    clock = FakeClock(datetime.now(UTC))
    with tree.open(clock=clock, durability="normal") as fs:
        ids = [run(fs, partial(fs.write_text, "data.bin", str(number))) for number in range(MOST_UNDONE_CALLS + 2)]
        assert [fs.undo_changes(undo_id) is None for undo_id in ids[:3]] == [True, True, False]
        assert len([*tree.journal.glob("image-*")]) == len([*tree.journal.glob("undo-*")]) == MOST_UNDONE_CALLS
        clock.advance(UNDO_LASTS + timedelta(minutes=1))
        last = run(fs, lambda: fs.write_text("data.bin", "last"))
        assert len([*tree.journal.glob("image-*")]) == len([*tree.journal.glob("undo-*")]) == 1
        assert (fs.undo_changes(ids[-1]), len(fs.undo_changes(last) or ())) == (None, 1)
    clock.advance(UNDO_LASTS + timedelta(minutes=1))
    tree.reopen(clock=clock)
    assert tree.leftovers == []


def test_damaged_journal_is_removed_with_its_contents(tree: kit.PlantedTree) -> None:
    """At the opening after the one that removes it."""
    with tree.open() as fs:
        run(fs, lambda: fs.write_text("data.bin", "x"))
    journal = next(tree.journal.glob("undo-*"))
    journal.write_bytes(journal.read_bytes()[5:])
    clock = FakeClock(datetime.now(UTC) + 2 * UNDO_LASTS)
    tree.reopen(clock=clock)
    tree.reopen(clock=clock)
    assert tree.leftovers == []


def test_what_git_ignores_is_not_covered(tree: kit.PlantedTree) -> None:
    """Neither what a program changes there, nor what it has begun to ignore; but what a call without programs does."""
    (tree.root / ".gitignore").write_text("*.log\n")
    (tree.root / "a.log").write_text("a")
    (tree.root / "b.txt").write_text("b")

    def work() -> None:
        fs.keep_tree()
        put(tree.root / "a.log", "changed")
        put(tree.root / "b.txt", "changed")
        put(tree.root / ".gitignore", "*.log\n*.txt\n")
        put(tree.root / "c.txt", "new")

    with tree.open() as fs:
        undo_id = run(fs, work)
        assert [change.path for change in fs.undo_changes(undo_id) or ()] == [".gitignore"]
        undo(fs, undo_id)
        assert (tree.root / ".gitignore").read_text() == "*.log\n"
        assert [fs.read_text(name) for name in ("a.log", "b.txt", "c.txt")] == ["changed", "changed", "new"]
        undo(fs, run(fs, lambda: fs.write_text("a.log", "by the filesystem")))
        assert fs.read_text("a.log") == "changed"


def test_sockets_and_fifos_are_removed_and_not_made(tree: kit.PlantedTree) -> None:
    """They are of use only to the processes that have opened them."""
    os.mkfifo(tree.root / "old")

    def work() -> None:
        fs.keep_tree()
        (tree.root / "old").unlink()
        os.mkfifo(tree.root / "new")

    with tree.open() as fs:
        undo_id = run(fs, work)
        kinds = [(path, before.kind, after.kind) for path, before, after in fs.undo_changes(undo_id) or ()]
        assert kinds == [("new", "nothing", "special"), ("old", "special", "nothing")]
        undo(fs, undo_id)
    assert tree.now == {path: entry for path, entry in tree.before.items() if path != "old"}


def test_undo_is_described_for_people(done: Done, wording: Wording) -> None:
    """Each change as a diff from what is there now, of a text, and of what cannot be shown."""
    with done.tree.open() as fs:
        for path in ("notes/plan.md", "notes/old", "built", "dangling", "data.bin", "built/2/out"):
            assert fs.describe_undo(done.undo_id, path).diff == wording

        def program() -> None:
            fs.keep_tree()
            for path in ("data.bin", "old/a.md", "dangling", "built"):
                put(done.tree.root / path, "x" * 70_000)

        undo_id = run(fs, program)
        for path in ("data.bin", "old/a.md", "dangling", "built"):
            assert fs.describe_undo(undo_id, path).diff == wording
        second = undo(fs, undo_id)
        assert fs.describe_undo(second, "built").diff == wording


@pytest.mark.timeout(600)  # in the full form a hundred processes, each over a tree of its own
@pytest.mark.parametrize("what,distance", [("several", 19), ("a program between changes", 90)])
@pytest.mark.parametrize("kept", ["call", "undo"])
@pytest.mark.short(2)
def test_killed_calls_are_kept_or_undone(tmp_path: Path, what: str, distance: int, kept: str) -> None:
    """Killed at each crash point and call to the disk, a call that is committed can be undone, and so can its undo."""
    line = [sys.executable, killing.__file__, what, str(tmp_path), str(step(distance)), kept]
    outcome = subprocess.run(line, env=killing.environment(), capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    for reached, faults in json.loads(outcome.stdout):
        assert faults == []
        assert reached >= 5
