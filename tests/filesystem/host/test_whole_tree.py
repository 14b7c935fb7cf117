"""Calls that start programs: the whole tree is kept before, and comes back, whatever else the calls have changed."""

from __future__ import annotations

import errno
import logging
import re
from typing import Any

import pytest

from handrail import errors
from handrail.filesystem import HostFilesystem
from handrail.filesystem.undo_journal import Snapshot
from tests.filesystem import kit
from tests.filesystem.shadow_trees import git
from tests.kit import raises
from tests.wording import Wording

each_program = pytest.mark.parametrize("program", kit.PROGRAMS.values(), ids=kit.PROGRAMS)


@each_program
@pytest.mark.parametrize("commits", [False, True])
def test_what_a_program_did_stays_or_goes_with_its_call(
    tree: kit.PlantedTree, program: kit.CallOverProgram, caplog: pytest.LogCaptureFixture, *, commits: bool
) -> None:
    """With what the call itself has changed before and after it; and nothing is taken for somebody else's."""
    with tree.open() as fs:
        with kit.call(fs) as transaction:
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
    tree: kit.PlantedTree, program: kit.CallOverProgram, lost: str, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """When it was lost in the moment of the commit, the next opening asks it."""
    store, done = kit.Decisions(), tree.before
    with tree.open(store=store) as fs:
        store.lost = lost
        with pytest.raises(errors.CommitInDoubtError), kit.call(fs, commits=True):  # noqa: PT012 - leaving it raises
            program(fs, tree.root)
            done = tree.now
        store.lost = None
    with caplog.at_level(logging.INFO):
        tree.reopen(store=store)
    assert tree.now == (tree.before if lost == "before" else done)
    assert caplog.messages == wording
    assert "another process" not in caplog.text
    assert tree.leftovers == []


@pytest.mark.parametrize("kept_before", [False, True])
def test_nested_call_is_undone(
    fs: HostFilesystem, tree: kit.PlantedTree, caplog: pytest.LogCaptureFixture, *, kept_before: bool
) -> None:
    """Its own tree is put back and not that of the outer call, whose changes stay until it is undone itself."""
    with kit.call(fs) as outer:
        fs.write_text("notes/plan.md", "outer")
        if kept_before:
            fs.keep_tree()
            kit.damage(tree.root)
        fs.write_text("notes/outer", "x")
        between = tree.now
        with kit.call(fs, inside=outer):
            fs.write_text("notes/plan.md", "inner")
            fs.keep_tree()
            kit.damage(tree.root, "2")
            fs.write_text("notes/outer", "inner")
        assert tree.now == between
        with kit.call(fs, inside=outer) as inner:
            fs.keep_tree()
            kit.damage(tree.root, "4")
            fs.write_text("notes/run.sh", "inner")
            inner.commit()
    assert tree.now == tree.before
    assert not caplog.records


def test_restoring_over_a_tree_is_whole_or_undone(fs: HostFilesystem, tree: kit.PlantedTree, wording: Wording) -> None:
    """It changes everything, so the tree is kept before it."""
    oldest = fs.snapshot()
    with kit.call(fs, commits=True):
        fs.remove("notes/plan.md")
        fs.keep_tree()
        kit.damage(tree.root)
    after = tree.now
    tree.disk.fail(errno.EIO, "rename")
    with raises(errors.FilesystemError, wording):
        fs.restore(oldest)
    tree.disk.heal()
    assert tree.now == after
    with kit.call(fs):
        fs.write_text("notes/plan.md", "x")
        fs.restore(oldest)
        assert tree.now != after
    assert tree.now == after


def test_snapshot_of_what_is_undone_leads_nowhere(fs: HostFilesystem, tree: kit.PlantedTree, wording: Wording) -> None:
    """A rollback keeps no tree for it; an older snapshot is not harmed."""
    oldest = fs.snapshot()
    lost: list[Snapshot[Any]] = []
    with kit.call(fs):
        fs.keep_tree()
        kit.damage(tree.root)
        lost.append(fs.snapshot())
    assert tree.now == tree.before
    with raises(errors.SnapshotError, wording):
        fs.restore(lost[0])
    fs.write_text("notes/plan.md", "x")
    fs.restore(oldest)
    assert tree.now == tree.before


def test_program_that_writes_into_a_file_does_not_reach_its_image(tree: kit.PlantedTree, wording: Wording) -> None:
    """An operation that failed leaves a file in the tree that the journal holds too; it becomes a copy in time."""
    with tree.open() as fs, kit.call(fs):
        tree.disk.fail(errno.ENOSPC, "make_file")
        with raises(errors.FilesystemError, wording):
            fs.write_text("notes/run.sh", "x")
        tree.disk.fail(errno.ENOSPC, "rename", "make_file", at=2, on=True)
        with raises(errors.FilesystemError, wording):
            fs.keep_tree()
        tree.disk.heal()
        fs.keep_tree()
        kit.damage(tree.root)
    assert tree.now == tree.before
    assert tree.leftovers == []


def test_only_a_call_keeps_the_tree(fs: HostFilesystem, wording: Wording) -> None:
    """Nothing would undo it; and a call that only reads starts no program that changes something."""
    with raises(errors.FilesystemError, wording):
        fs.keep_tree()
    with kit.call(fs, writes=False), pytest.raises(errors.ReadOnlyViolation):
        fs.keep_tree()
    fs.close()
    with raises(errors.FilesystemError, wording):
        fs.keep_tree()


def test_tree_that_cannot_be_kept_is_told_before_anything_happens(tree: kit.PlantedTree, wording: Wording) -> None:
    """With files that are too large, on a full disk; the call goes on, and is undone without a tree."""
    rows: tuple[dict[str, Any], ...] = ({"max_untracked_bytes": 2000}, {})
    for options in rows:
        with tree.open(**options) as fs, kit.call(fs):
            if not options:
                tree.disk.fail(errno.ENOSPC, "write", on=True)
            with raises(errors.FilesystemError, wording):
                fs.keep_tree()
            tree.disk.heal()
            fs.write_text("new", "x")
    assert tree.now == tree.before


def test_tree_that_cannot_be_put_back_waits_for_the_next_opening(tree: kit.PlantedTree, wording: Wording) -> None:
    """The rollback and the opening say what is in the way; when that has been fixed, the opening does it."""
    git_dir, away = tree.journal / "tree.git", tree.root.with_name("away")
    with tree.open() as fs, pytest.raises(errors.RollbackError), kit.call(fs):  # noqa: PT012 - leaving it raises
        fs.write_text("notes/plan.md", "x")
        fs.keep_tree()
        kit.damage(tree.root)
        git_dir.rename(away)
    with pytest.raises(errors.JournalError) as raised:
        tree.open()
    assert re.sub("[0-9a-f]{32}", "<journal>", str(raised.value)) == wording
    away.rename(git_dir)
    tree.reopen()
    assert tree.now == tree.before


@pytest.mark.parametrize("durability,most", [("full", 2), ("normal", 0)])
def test_programs_are_synced_as_the_durability_says(tree: kit.PlantedTree, durability: str, most: int) -> None:
    """When a tree is kept that is not yet, and at the end of the call; `"normal"` waits for nothing."""
    syncs = kit.Nth(0, lambda: None, among=frozenset({"sync_all"}))
    with tree.open(disk=kit.WatchedDisk(syncs), durability=durability) as fs:
        with kit.call(fs, commits=True):
            fs.keep_tree()
            fs.keep_tree()
        with kit.call(fs, commits=True):
            fs.write_text("new", "x")
    assert syncs.seen == most


@pytest.fixture
def clone(tree: kit.PlantedTree) -> kit.PlantedTree:
    """The tree as a repository with a folder that it ignores."""
    (tree.root / ".venv").mkdir()
    (tree.root / ".venv/large.so").write_bytes(bytes(50_000))
    (tree.root / ".gitignore").write_text(".venv\n*.log\n")
    (tree.root / "kept.log").write_text("as it was")
    git(tree.root, "init", "--initial-branch=main")
    git(tree.root, "commit", "--allow-empty", "--message", "first")
    tree.before = tree.now
    return tree


@pytest.mark.parametrize("rules", [".venv\n*.log\n", ""])
def test_what_the_filesystem_writes_where_trees_do_not_reach_is_undone(clone: kit.PlantedTree, rules: str) -> None:
    """Before-images are taken there, also when a program has changed what is ignored, and between two trees."""
    with clone.open() as fs, kit.call(fs):
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


def test_a_killed_process_is_undone(clone: kit.PlantedTree, caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """And what the filesystem has written elsewhere; what a program has changed there stays."""
    work = "fs.keep_tree()", "fs.write_text('.venv/new', 'x')", "fs.write_text('.venv/large.so', 'small')"
    kit.die_in_a_call(
        clone.root, *work, "(root / 'kept.log').write_text('damage')", "(root / 'notes/plan.md').unlink()"
    )
    with caplog.at_level(logging.INFO):
        clone.reopen()
    assert caplog.messages == wording
    assert (clone.root / "kept.log").read_text() == "damage"
    (clone.root / "kept.log").write_text("as it was")
    assert clone.now == clone.before


def test_tree_whose_root_was_removed_is_restored_into_an_empty_folder(tree: kit.PlantedTree, wording: Wording) -> None:
    """A program may remove the folder that it runs in; what was saved before is not lost with it."""
    with tree.open() as fs:
        with pytest.raises(errors.RollbackError) as caught, kit.call(fs):  # noqa: PT012 - leaving it raises
            fs.keep_tree()
            # Not removed: a folder that is made later may have the inode of a removed one.
            tree.root.rename(tree.root.with_name("elsewhere"))
        ((participant, error),) = caught.value.failures
        assert participant is fs
        assert isinstance(error, errors.RootMissingError)
        assert str(error) == wording
    tree.root.mkdir()
    (tree.root / "of another").touch()
    with pytest.raises(errors.JournalError):
        tree.open()
    (tree.root / "of another").unlink()
    tree.reopen()
    assert tree.now == tree.before
