"""Calls that start programs: the whole tree is kept before, and comes back, whatever else the calls have changed."""

from __future__ import annotations

import errno
import logging
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest

from handrail.errors import (
    CommitInDoubtError,
    FilesystemError,
    JournalError,
    ReadOnlyViolation,
    RollbackError,
    RootMissingError,
    SnapshotError,
)
from handrail.filesystem import HostFilesystem
from handrail.filesystem.undo_journal import Snapshot
from tests.filesystem.kit import PROGRAMS, CallOverProgram, Decisions, Nth, PlantedTree, WatchedDisk, call, damage
from tests.filesystem.shadow_trees import git
from tests.kit import raises
from tests.wording import Wording

each_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@each_program
@pytest.mark.parametrize("commits", [False, True])
def test_what_a_program_did_stays_or_goes_with_its_call(
    tree: PlantedTree, program: CallOverProgram, caplog: pytest.LogCaptureFixture, *, commits: bool
) -> None:
    """With what the call itself has changed before and after it; and nothing is taken for somebody else's."""
    with tree.open() as fs:
        with call(fs) as transaction:
            program(fs, tree.root)
            done = tree.now
            assert done != tree.before
            if commits:
                transaction.commit()
        assert tree.now == (done if commits else tree.before)
    tree.reopen()
    assert tree.now == (done if commits else tree.before)
    assert tree.leftovers == []
    assert not caplog.records


@pytest.mark.parametrize("lost", ["before", "after"])
@each_program
def test_store_decides_about_what_a_program_did(
    tree: PlantedTree, program: CallOverProgram, lost: str, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """When it was lost in the moment of the commit, the next opening asks it."""
    store, done = Decisions(), tree.before
    with tree.open(store=store) as fs:
        store.lost = lost
        with pytest.raises(CommitInDoubtError), call(fs) as transaction:  # noqa: PT012 - leaving it raises
            program(fs, tree.root)
            done = tree.now
            transaction.commit()
        store.lost = None
    with caplog.at_level(logging.INFO):
        tree.reopen(store=store)
    assert tree.now == (tree.before if lost == "before" else done)
    assert caplog.messages == wording
    assert "another process" not in caplog.text
    assert tree.leftovers == []


@pytest.mark.parametrize("kept_before", [False, True])
def test_nested_call_is_undone_to_its_own_beginning(
    fs: HostFilesystem, tree: PlantedTree, caplog: pytest.LogCaptureFixture, *, kept_before: bool
) -> None:
    """Its own tree is put back and not that of the outer call, whose changes stay until it is undone itself."""
    with call(fs) as outer:
        fs.write_text("notes/plan.md", "outer")
        if kept_before:
            fs.keep_tree()
            damage(tree.root)
        fs.write_text("notes/outer", "x")
        between = tree.now
        with call(fs, inside=outer):
            fs.write_text("notes/plan.md", "inner")
            fs.keep_tree()
            damage(tree.root, "2")
            fs.write_text("notes/outer", "inner")
        assert tree.now == between
        with call(fs, inside=outer) as inner:
            fs.keep_tree()
            damage(tree.root, "4")
            fs.write_text("notes/run.sh", "inner")
            inner.commit()
    assert tree.now == tree.before
    assert not caplog.records


def test_restoring_over_a_tree_is_undone_with_its_call_and_changes_nothing_if_it_fails(
    fs: HostFilesystem, tree: PlantedTree, wording: Wording
) -> None:
    """It changes everything, so the tree is kept before it."""
    oldest = fs.snapshot()
    with call(fs) as transaction:
        fs.remove("notes/plan.md")
        fs.keep_tree()
        damage(tree.root)
        transaction.commit()
    after = tree.now
    tree.disk.fail(errno.EIO, "rename")
    with raises(FilesystemError, wording):
        fs.restore(oldest)
    tree.disk.heal()
    assert tree.now == after
    with call(fs):
        fs.write_text("notes/plan.md", "x")
        fs.restore(oldest)
        assert tree.now != after
    assert tree.now == after


def test_snapshot_taken_in_what_is_undone_leads_nowhere(
    fs: HostFilesystem, tree: PlantedTree, wording: Wording
) -> None:
    """A rollback keeps no tree for it; an older snapshot is not harmed."""
    oldest = fs.snapshot()
    lost: list[Snapshot[Any]] = []
    with call(fs):
        fs.keep_tree()
        damage(tree.root)
        lost.append(fs.snapshot())
    assert tree.now == tree.before
    with raises(SnapshotError, wording):
        fs.restore(lost[0])
    fs.write_text("notes/plan.md", "x")
    fs.restore(oldest)
    assert tree.now == tree.before


def test_program_that_writes_into_a_file_does_not_reach_its_image(tree: PlantedTree, wording: Wording) -> None:
    """An operation that failed leaves a file in the tree that the journal holds too; it becomes a copy in time."""
    with tree.open() as fs, call(fs):
        tree.disk.fail(errno.ENOSPC, "make_file")
        with raises(FilesystemError, wording):
            fs.write_text("notes/run.sh", "x")
        tree.disk.fail(errno.ENOSPC, "rename", "make_file", at=2, on=True)
        with raises(FilesystemError, wording):
            fs.keep_tree()
        tree.disk.heal()
        fs.keep_tree()
        damage(tree.root)
    assert tree.now == tree.before
    assert tree.leftovers == []


def test_only_a_call_keeps_the_tree(fs: HostFilesystem, wording: Wording) -> None:
    """Nothing would undo it; and a call that only reads starts no program that changes something."""
    with raises(FilesystemError, wording):
        fs.keep_tree()
    with call(fs, writes=False), pytest.raises(ReadOnlyViolation):
        fs.keep_tree()
    fs.close()
    with raises(FilesystemError, wording):
        fs.keep_tree()


def test_tree_that_cannot_be_kept_is_told_before_anything_happens(tree: PlantedTree, wording: Wording) -> None:
    """Without git, with files that are too large, on a full disk; the call goes on, and is undone without a tree."""
    rows: tuple[dict[str, Any], ...] = ({"git": "no-such-git"}, {"max_untracked_bytes": 2000}, {})
    for options in rows:
        with tree.open(**options) as fs, call(fs):
            if not options:
                tree.disk.fail(errno.ENOSPC, "write", on=True)
            with raises(FilesystemError, wording):
                fs.keep_tree()
            tree.disk.heal()
            fs.write_text("new", "x")
    assert tree.now == tree.before


def test_tree_that_cannot_be_put_back_waits_for_the_next_opening(tree: PlantedTree, wording: Wording) -> None:
    """The rollback and the opening say what is in the way; when that has been fixed, the opening does it."""
    git_dir, away = tree.journal / "tree.git", tree.root.with_name("away")
    with tree.open() as fs, pytest.raises(RollbackError), call(fs):  # noqa: PT012 - leaving it raises
        fs.write_text("notes/plan.md", "x")
        fs.keep_tree()
        damage(tree.root)
        git_dir.rename(away)
    with pytest.raises(JournalError) as raised:
        tree.open()
    assert re.sub("[0-9a-f]{32}", "<journal>", str(raised.value)) == wording
    shutil.rmtree(git_dir)
    away.rename(git_dir)
    tree.reopen()
    assert tree.now == tree.before


@pytest.mark.parametrize("durability,most", [("full", 2), ("normal", 0)])
def test_programs_are_synced_as_the_durability_says(tree: PlantedTree, durability: str, most: int) -> None:
    """When a tree is kept that is not yet, and at the end of the call; `"normal"` waits for nothing."""
    syncs = Nth(0, lambda: None, among=frozenset({"sync_all"}))
    with tree.open(disk=WatchedDisk(syncs), durability=durability) as fs:
        with call(fs) as transaction:
            fs.keep_tree()
            fs.keep_tree()
            transaction.commit()
        with call(fs) as transaction:
            fs.write_text("new", "x")
            transaction.commit()
    assert syncs.seen == most


def test_folders_that_a_program_has_locked_are_put_back(fs: HostFilesystem, tree: PlantedTree) -> None:
    """Whoever undoes makes them accessible first."""
    with call(fs):
        fs.write_text("notes/plan.md", "x")
        fs.keep_tree()
        for folder in ("notes/old", "notes", "."):
            (tree.root / folder).chmod(0)
    assert tree.now == tree.before


@pytest.fixture
def clone(tree: PlantedTree) -> PlantedTree:
    """The tree as a repository with a folder that it ignores."""
    (tree.root / ".venv").mkdir()
    (tree.root / ".venv/large.so").write_bytes(bytes(50_000))
    (tree.root / ".gitignore").write_text(".venv\n*.log\n")
    (tree.root / "kept.log").write_text("as it was")
    git(tree.root, "init", "--initial-branch=main")
    git(tree.root, "commit", "--allow-empty", "--message", "first")
    tree.before = tree.now
    return tree


def test_what_a_program_changes_in_git_and_in_ignored_files_stays(
    clone: PlantedTree, caplog: pytest.LogCaptureFixture
) -> None:
    """All else is restored."""
    log, branch = clone.root / "kept.log", clone.root / ".git/HEAD"
    with clone.open(max_untracked_bytes=40_000) as fs, call(fs):
        fs.keep_tree()
        log.write_text("damage")
        (clone.root / "other.log").touch()
        (clone.root / "notes/plan.md").unlink()
        branch.write_text("ref: refs/heads/topic\n")
    assert (log.read_text(), branch.read_text()) == ("damage", "ref: refs/heads/topic\n")
    log.write_text("as it was")
    branch.write_text("ref: refs/heads/main\n")
    assert clone.now == clone.before
    assert not caplog.records


@pytest.mark.parametrize("rules", [".venv\n*.log\n", ""])
def test_what_the_filesystem_writes_where_trees_do_not_reach_is_undone(clone: PlantedTree, rules: str) -> None:
    """Before-images are taken there, also when a program has changed what is ignored, and between two trees."""
    with clone.open() as fs, call(fs):
        fs.write_text(".venv/before", "x")
        fs.keep_tree()
        (clone.root / ".gitignore").write_text(rules)
        fs.write_text(".venv/after", "x")
        fs.write_text(".venv/large.so", "small")
        snapshot, between = fs.snapshot(), clone.now
        fs.keep_tree()
        fs.remove(".venv/large.so")
        fs.write_text("kept.log", "x")
        fs.restore(snapshot)
        assert clone.now == between
        fs.move(".venv/after", ".venv/moved")
        fs.remove(".venv/before")
    assert clone.now == clone.before


_DYING = """
import os, sys
from pathlib import Path
from handrail.filesystem import HostFilesystem
from handrail.transaction import Transaction
from handrail.turns import draw_ticket

root = Path(sys.argv[1])
fs = HostFilesystem(root, journal=root.with_name("journal"))
with Transaction("tool", ticket=draw_ticket((fs.turn,), exclusive=True), writes=True):
    fs.keep_tree()
    fs.write_text(".venv/new", "x")
    fs.write_text(".venv/large.so", "small")
    (root / "kept.log").write_text("damage")
    (root / "notes/plan.md").unlink()
    os._exit(0)
"""


def test_a_killed_process_is_undone_where_its_tree_reaches(
    clone: PlantedTree, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """And what the filesystem has written elsewhere; what a program has changed there stays."""
    subprocess.run([sys.executable, "-c", _DYING, str(clone.root)], check=True)
    with caplog.at_level(logging.INFO):
        clone.reopen()
    assert caplog.messages == wording
    assert (clone.root / "kept.log").read_text() == "damage"
    (clone.root / "kept.log").write_text("as it was")
    assert clone.now == clone.before


def test_tree_whose_root_was_removed_is_restored_into_an_empty_folder(tree: PlantedTree, wording: Wording) -> None:
    """A program may remove the folder that it runs in; what was saved before is not lost with it."""
    with tree.open() as fs:
        with pytest.raises(RollbackError) as caught, call(fs):  # noqa: PT012 - leaving it raises
            fs.keep_tree()
            # Not removed: a folder that is made later may have the inode of a removed one.
            tree.root.rename(tree.root.with_name("elsewhere"))
        ((participant, error),) = caught.value.failures
        assert participant is fs
        assert isinstance(error, RootMissingError)
        assert str(error) == wording
    tree.root.mkdir()
    (tree.root / "of another").touch()
    with pytest.raises(JournalError):
        tree.open()
    (tree.root / "of another").unlink()
    tree.reopen()
    assert tree.now == tree.before
