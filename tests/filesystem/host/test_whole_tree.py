"""Calls that start programs: the whole tree is kept before, and comes back, whatever else the calls have changed."""

from __future__ import annotations

import errno
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
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
from tests.filesystem.kit import (
    PROGRAMS,
    CallOverProgram,
    Decisions,
    FromNth,
    Nth,
    WatchedDisk,
    call,
    damage,
    fail,
    picture,
    plant,
    quiet,
)
from tests.filesystem.shadow_trees import git
from tests.kit import raises
from tests.wording import Wording

each_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree that a program may work on."""
    plant(tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture
def fs(root: Path) -> Generator[HostFilesystem]:
    """The tree, opened."""
    with opened(root) as filesystem:
        yield filesystem


def opened(root: Path, **options: Any) -> HostFilesystem:
    """The tree, opened; with the same journal each time."""
    return HostFilesystem(root, journal=root.with_name("journal"), **options)


def names_in(journal: Path) -> set[str]:
    """What is in the journal's folder beside what always is."""
    return {each.name for each in journal.iterdir()} - {"lock", "root", "tree.git"}


@each_program
def test_what_a_program_did_is_undone_with_the_call(
    fs: HostFilesystem, root: Path, program: CallOverProgram, caplog: pytest.LogCaptureFixture
) -> None:
    """Also what the call itself has changed before and after it; and nothing is taken for somebody else's."""
    before = picture(root)
    with call(fs):
        program(fs, root)
        assert picture(root) != before
    assert picture(root) == before
    fs.close()
    assert not names_in(root.with_name("journal"))
    assert not caplog.records


@each_program
def test_what_a_program_did_is_kept_with_the_call(fs: HostFilesystem, root: Path, program: CallOverProgram) -> None:
    """It is there when the call has been committed, and when the tree is opened again."""
    with call(fs) as transaction:
        program(fs, root)
        done = picture(root)
        transaction.commit()
    fs.close()
    opened(root).close()
    assert picture(root) == done
    assert not names_in(root.with_name("journal"))


@pytest.mark.parametrize("lost", ["before", "after"])
@each_program
def test_store_decides_about_what_a_program_did(
    root: Path, program: CallOverProgram, lost: str, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """When it was lost in the moment of the commit, the next opening asks it."""
    store, before = Decisions(), picture(root)
    done = before
    with opened(root, store=store) as fs:
        store.lost = lost
        with pytest.raises(CommitInDoubtError), call(fs) as transaction:  # noqa: PT012 - leaving it raises
            program(fs, root)
            done = picture(root)
            transaction.commit()
        store.lost = None
    with caplog.at_level(logging.INFO):
        opened(root, store=store).close()
    assert picture(root) == (before if lost == "before" else done)
    assert caplog.messages == wording
    assert "another process" not in caplog.text
    assert not names_in(root.with_name("journal"))


@pytest.mark.parametrize("kept_before", [False, True])
def test_nested_call_is_undone_to_its_own_beginning(
    fs: HostFilesystem, root: Path, caplog: pytest.LogCaptureFixture, *, kept_before: bool
) -> None:
    """Its own tree is put back and not that of the outer call, whose changes stay until it is undone itself."""
    before = picture(root)
    with call(fs) as outer:
        fs.write_text("notes/plan.md", "outer")
        if kept_before:
            fs.keep_tree()
            damage(root)
        fs.write_text("notes/outer", "x")
        between = picture(root)
        with call(fs, inside=outer):
            fs.write_text("notes/plan.md", "inner")
            fs.keep_tree()
            damage(root, "2")
            fs.write_text("notes/outer", "inner")
        assert picture(root) == between
        with call(fs, inside=outer) as inner:
            fs.keep_tree()
            damage(root, "4")
            fs.write_text("notes/run.sh", "inner")
            inner.commit()
    assert picture(root) == before
    assert not caplog.records


def test_restoring_over_a_tree_in_a_call_is_undone_with_it(fs: HostFilesystem, root: Path) -> None:
    """It changes everything, so the tree is kept before it."""
    oldest = fs.snapshot()
    with call(fs) as transaction:
        fs.keep_tree()
        damage(root)
        transaction.commit()
    after = picture(root)
    with call(fs):
        fs.write_text("notes/plan.md", "x")
        fs.restore(oldest)
        assert picture(root) != after
    assert picture(root) == after


def test_restoring_over_a_tree_that_fails_changes_nothing(root: Path, wording: Wording) -> None:
    """Whatever has been put back until then is put back in its turn."""
    disk = WatchedDisk()
    with opened(root, disk=disk) as fs:
        oldest = fs.snapshot()
        with call(fs) as transaction:
            fs.remove("notes/plan.md")
            fs.keep_tree()
            damage(root)
            transaction.commit()
        after = picture(root)
        disk.before = Nth(1, fail(errno.EIO), among=frozenset({"rename"}))
        with raises(FilesystemError, wording):
            fs.restore(oldest)
        disk.before = quiet
        assert picture(root) == after


def test_snapshot_taken_in_what_is_undone_leads_nowhere(fs: HostFilesystem, root: Path, wording: Wording) -> None:
    """A rollback keeps no tree for it; an older snapshot is not harmed."""
    before, oldest = picture(root), fs.snapshot()
    lost: list[Snapshot[Any]] = []
    with call(fs):
        fs.keep_tree()
        damage(root)
        lost.append(fs.snapshot())
    assert picture(root) == before
    with raises(SnapshotError, wording):
        fs.restore(lost[0])
    fs.write_text("notes/plan.md", "x")
    fs.restore(oldest)
    assert picture(root) == before


def test_program_that_writes_into_a_file_does_not_reach_its_image(root: Path, wording: Wording) -> None:
    """An operation that failed leaves a file in the tree that the journal holds too; it becomes a copy in time."""
    disk = WatchedDisk()
    with opened(root, disk=disk) as fs:
        before = picture(root)
        with call(fs):
            disk.before = Nth(1, fail(errno.ENOSPC), among=frozenset({"make_file"}))
            with raises(FilesystemError, wording):
                fs.write_text("notes/run.sh", "x")
            disk.before = FromNth(2, fail(errno.ENOSPC), among=frozenset({"rename", "make_file"}))
            with raises(FilesystemError, wording):
                fs.keep_tree()
            disk.before = quiet
            fs.keep_tree()
            damage(root)
        assert picture(root) == before
    assert not names_in(root.with_name("journal"))


def test_only_a_call_keeps_the_tree(fs: HostFilesystem, wording: Wording) -> None:
    """Nothing would undo it; and a call that only reads starts no program that changes something."""
    with raises(FilesystemError, wording):
        fs.keep_tree()
    with call(fs, writes=False), pytest.raises(ReadOnlyViolation):
        fs.keep_tree()
    fs.close()
    with raises(FilesystemError, wording):
        fs.keep_tree()


def test_tree_that_cannot_be_kept_is_told_before_anything_happens(root: Path, wording: Wording) -> None:
    """Without git, and with files that are too large; the call goes on as it likes, and is undone without a tree."""
    before = picture(root)
    with opened(root, git="no-such-git") as fs, call(fs):
        fs.write_text("new", "x")
        with raises(FilesystemError, wording):
            fs.keep_tree()
    with opened(root, max_untracked_bytes=2000) as fs, call(fs):
        with raises(FilesystemError, wording):
            fs.keep_tree()
        fs.write_text("new", "x")
    assert picture(root) == before


def test_tree_that_cannot_be_put_back_waits_for_the_next_opening(root: Path, wording: Wording) -> None:
    """The rollback and the opening say what is in the way; when that has been mended, the opening does it."""
    before = picture(root)
    git_dir, away = root.with_name("journal") / "tree.git", root.with_name("away")
    with opened(root) as fs, pytest.raises(RollbackError), call(fs):  # noqa: PT012 - leaving it raises
        fs.write_text("notes/plan.md", "x")
        fs.keep_tree()
        damage(root)
        git_dir.rename(away)
    with pytest.raises(JournalError) as raised:
        opened(root)
    assert re.sub("[0-9a-f]{32}", "<journal>", str(raised.value)) == wording
    shutil.rmtree(git_dir)
    away.rename(git_dir)
    opened(root).close()
    assert picture(root) == before


def test_tree_is_noted_before_a_program_can_run(root: Path, wording: Wording) -> None:
    """A fault of the disk comes from `keep_tree`, and leaves the call as it was."""
    before, disk = picture(root), WatchedDisk()
    with opened(root, disk=disk) as fs, call(fs):
        disk.before = FromNth(1, fail(errno.ENOSPC), among=frozenset({"write"}))
        with raises(FilesystemError, wording):
            fs.keep_tree()
        disk.before = quiet
        fs.write_text("new", "x")
    assert picture(root) == before


@pytest.mark.parametrize("durability,most", [("full", 2), ("normal", 0)])
def test_programs_are_synced_as_the_durability_says(root: Path, durability: str, most: int) -> None:
    """When a tree is kept that is not yet, and at the end of the call; `"normal"` waits for nothing."""
    synced = Nth(0, lambda: None, among=frozenset({"sync_all"}))
    with opened(root, disk=WatchedDisk(synced), durability=durability) as fs:
        with call(fs) as transaction:
            fs.keep_tree()
            fs.keep_tree()
            transaction.commit()
        with call(fs) as transaction:
            fs.write_text("new", "x")
            transaction.commit()
    assert synced.seen == most


def test_folders_that_a_program_has_locked_are_put_back(fs: HostFilesystem, root: Path) -> None:
    """Whoever undoes makes them accessible first."""
    before = picture(root)
    with call(fs):
        fs.write_text("notes/plan.md", "x")
        fs.keep_tree()
        (root / "notes" / "old").chmod(0)
        (root / "notes").chmod(0)
        root.chmod(0)
    assert picture(root) == before


@pytest.fixture
def clone(root: Path) -> Path:
    """The tree as a repository with a folder that it ignores."""
    (root / ".venv").mkdir()
    (root / ".venv/large.so").write_bytes(bytes(50_000))
    (root / ".gitignore").write_text(".venv\n*.log\n")
    (root / "kept.log").write_text("as it was")
    git(root, "init", "--initial-branch=main")
    git(root, "commit", "--allow-empty", "--message", "first")
    return root


def test_what_a_program_changes_in_git_and_in_ignored_files_stays(
    clone: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All else is restored."""
    before = picture(clone)
    with opened(clone, max_untracked_bytes=40_000) as fs, call(fs):
        fs.keep_tree()
        (clone / "kept.log").write_text("damage")
        (clone / "other.log").touch()
        (clone / "notes/plan.md").unlink()
        (clone / ".git/HEAD").write_text("ref: refs/heads/topic\n")
    assert (clone / "kept.log").read_text() == "damage"
    assert (clone / ".git/HEAD").read_text() == "ref: refs/heads/topic\n"
    (clone / "kept.log").write_text("as it was")
    (clone / ".git/HEAD").write_text("ref: refs/heads/main\n")
    assert picture(clone) == before
    assert not caplog.records


@pytest.mark.parametrize("rules", [".venv\n*.log\n", ""])
def test_what_the_filesystem_writes_where_trees_do_not_reach_is_undone(clone: Path, rules: str) -> None:
    """Before-images are taken there, also when a program has changed what is ignored, and between two trees."""
    with opened(clone) as fs:
        before = picture(clone)
        with call(fs):
            fs.write_text(".venv/before", "x")
            fs.keep_tree()
            (clone / ".gitignore").write_text(rules)
            fs.write_text(".venv/after", "x")
            fs.write_text(".venv/large.so", "small")
            snapshot = fs.snapshot()
            between = picture(clone)
            fs.keep_tree()
            fs.remove(".venv/large.so")
            fs.write_text("kept.log", "x")
            fs.restore(snapshot)
            assert picture(clone) == between
            fs.move(".venv/after", ".venv/moved")
            fs.remove(".venv/before")
        assert picture(clone) == before


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
    clone: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """And what the filesystem has written elsewhere; what a program has changed there stays."""
    before = picture(clone)
    subprocess.run([sys.executable, "-c", _DYING, clone], check=True)
    with caplog.at_level(logging.INFO):
        opened(clone).close()
    assert "\n".join(record.getMessage() for record in caplog.records) == wording
    assert (clone / "kept.log").read_text() == "damage"
    (clone / "kept.log").write_text("as it was")
    assert picture(clone) == before


def test_tree_whose_root_was_removed_is_restored_into_an_empty_folder(root: Path, wording: Wording) -> None:
    """A program may remove the folder that it runs in; what was saved before is not lost with it."""
    before = picture(root)
    with opened(root) as fs:

        def fail() -> None:
            with call(fs):
                fs.keep_tree()
                root.rename(
                    root.with_name("elsewhere")
                )  # a folder that is made later may have the inode of a removed one

        with pytest.raises(RollbackError) as caught:
            fail()
        ((who, error),) = caught.value.failures
        assert who is fs
        assert isinstance(error, RootMissingError)
        assert str(error) == wording
    root.mkdir()
    (root / "of another").touch()
    with pytest.raises(JournalError):
        opened(root)
    (root / "of another").unlink()
    opened(root).close()
    assert picture(root) == before
