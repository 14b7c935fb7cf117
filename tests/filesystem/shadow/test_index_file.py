"""The index of a shadow: the next process knows what was found, and believes nothing that may be wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.filesystem import ShadowRepository
from handrail.filesystem.shadow.index_file import (
    INDEX_FILE,
    IndexHead,
    TreeIndex,
    boot_id,
    read_index,
    write_index,
)
from handrail.filesystem.shadow.tree import UNSETTLED, Folder, TreeFile, running_id
from handrail.testing import FakeClock
from tests.filesystem.shadow_trees import fill, git, picture

Change = Callable[[Path, Path], object]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with one of everything."""
    (tmp_path / "tree").mkdir()
    return fill(tmp_path / "tree")


@pytest.fixture
def git_dir(tmp_path: Path) -> Path:
    """Where its snapshots are."""
    return tmp_path / "shadow.git"


def opened(root: Path, git_dir: Path) -> ShadowRepository:
    """A repository, as another process has it, an hour after the files were made."""
    return ShadowRepository(root, git_dir, clock=FakeClock(datetime.now(UTC) + timedelta(hours=1)))


def kept(root: Path, git_dir: Path) -> str:
    """Take a snapshot, and write the index."""
    shadow = opened(root, git_dir)
    snapshot = shadow.snapshot()
    shadow.save_index(synced=True, always=True)
    return snapshot


names = st.sampled_from(["a", "b", "é", os.fsdecode(b"\xff"), "x y"])
ids = st.binary(min_size=20, max_size=20).map(bytes.hex)
numbers = st.integers(-1, 2**63 - 1)
files = st.builds(TreeFile, st.integers(0, 0o177777), ids, st.tuples(numbers, numbers, numbers, numbers))


def folder_of(
    mode: int, leaves: dict[str, TreeFile], folders: dict[str, Folder], more: dict[str, TreeFile | Folder], id: str
) -> Folder:
    """A folder in which each name is once."""
    own = {name: inner for name, inner in folders.items() if name not in leaves}
    apart = {name: entry for name, entry in more.items() if name not in leaves and name not in own}
    ignored = frozenset([*list(apart), *list(leaves)[:1], *list(own)[:1]])
    return Folder(mode, leaves, own, id, apart, ignored)


folders = st.recursive(
    st.builds(Folder, st.integers(0, 0o177777), id=ids),
    lambda inner: st.builds(
        folder_of,
        st.integers(0, 0o177777),
        st.dictionaries(names, files),
        st.dictionaries(names, inner),
        st.dictionaries(names, files | inner),
        ids,
    ),
    max_leaves=8,
)


def plain(folder: Folder) -> object:
    """A folder as a value, since folders are compared by identity."""
    apart = {name: plain(entry) if isinstance(entry, Folder) else entry for name, entry in folder.apart.items()}
    inner = {name: plain(each) for name, each in folder.folders.items()}
    return (folder.mode, folder.id, folder.leaves, inner, apart, folder.ignored)


@given(folder=folders)
def test_an_index_is_read_as_it_was_written(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every name, status and id."""
    place = tmp_path_factory.mktemp("git")
    index = TreeIndex(IndexHead((1, 2), True, "digest", "boot"), "0" * 40, folder)
    write_index(place, index)
    found = read_index(place)
    assert found is not None
    assert (found.head, found.newest) == (index.head, index.newest)
    assert plain(found.folder) == plain(folder)


def test_another_process_reads_only_what_has_changed(root: Path, git_dir: Path) -> None:
    """Its first snapshot stores nothing that git has; it is the same, and so is a restore."""
    before = picture(root)
    snapshot = kept(root, git_dir)
    blob = object_of(root / "src" / "main.py", git_dir)
    blob.rename(git_dir / "away")  # a scan without an index would store it again
    assert opened(root, git_dir).snapshot() == snapshot
    assert not blob.exists()
    (git_dir / "away").rename(blob)
    (root / "empty" / "new").write_text("new")
    (root / "src" / "deep" / "deeper").chmod(0o700)
    opened(root, git_dir).restore(snapshot)
    assert picture(root) == before


def object_of(path: Path, git_dir: Path) -> Path:
    """The file in which git has the content of a file."""
    blob_id = running_id(b"blob", path.stat().st_size, path.read_bytes()).hexdigest()
    return git_dir / "objects" / blob_id[:2] / blob_id[2:]


def edited_index(git_dir: Path, edit: Callable[[TreeIndex], TreeIndex]) -> None:
    """Replace the index by another one that is whole."""
    found = read_index(git_dir)
    assert found is not None
    write_index(git_dir, edit(found))


def head_with(git_dir: Path, **fields: Any) -> None:
    """An index of something else."""
    edited_index(git_dir, lambda index: replace(index, head=replace(index.head, **fields)))


def flipped(path: Path, at: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def replaced_by_folder(path: Path) -> None:
    """Make a folder where a file was."""
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Change] = {
    "missing": lambda _, git_dir: (git_dir / INDEX_FILE).unlink(),
    "empty": lambda _, git_dir: (git_dir / INDEX_FILE).write_bytes(b""),
    "a folder": lambda _, git_dir: replaced_by_folder(git_dir / INDEX_FILE),
    "cut off": lambda _, git_dir: os.truncate(git_dir / INDEX_FILE, 200),
    "another version": lambda _, git_dir: flipped(git_dir / INDEX_FILE, 15),
    "a bit of its digest": lambda _, git_dir: flipped(git_dir / INDEX_FILE, 20),
    "a bit of its content": lambda _, git_dir: flipped(git_dir / INDEX_FILE, -1),
    "of another root": lambda _, git_dir: head_with(git_dir, root=(0, 0)),
    "of another scope": lambda _, git_dir: head_with(git_dir, watched=False),
    "before a start of the machine": lambda _, git_dir: head_with(git_dir, boot="another"),
    "of a lost snapshot": lambda _, git_dir: edited_index(git_dir, lambda index: replace(index, newest="1" * 40)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_an_index_that_may_be_wrong_is_made_anew(damage: Change, root: Path, git_dir: Path) -> None:
    """Nothing is believed of it: contents that git has lost are found to be missing, and are stored again."""
    before = picture(root)
    snapshot = kept(root, git_dir)
    object_of(root / "src" / "main.py", git_dir).unlink()
    damage(root, git_dir)
    shadow = opened(root, git_dir)
    assert shadow.snapshot() == snapshot
    shutil.rmtree(root / "src")
    shadow.restore(snapshot)
    assert picture(root) == before


def test_an_index_that_is_not_synced_holds_until_the_machine_is_started(root: Path, git_dir: Path) -> None:
    """Its objects may be lost then."""
    shadow = opened(root, git_dir)
    shadow.snapshot()
    shadow.save_index(synced=False, always=True)
    index = read_index(git_dir)
    assert index is not None
    assert index.head.boot == boot_id() != ""
    shadow.save_index(synced=True, always=True)
    again = read_index(git_dir)
    assert again is not None
    assert again.head == index.head, "nothing has changed since"
    (root / "new").touch()
    shadow.snapshot()
    shadow.save_index(synced=True, always=True)
    index = read_index(git_dir)
    assert index is not None
    assert index.head.boot == ""


def test_an_index_is_written_when_much_was_read(root: Path, git_dir: Path) -> None:
    """And not after each small change, nor in vain; a disk without space is no failure."""
    shadow = opened(root, git_dir)
    shadow.snapshot()
    assert read_index(git_dir) is None
    for number in range(1000):
        (root / f"{number}.txt").touch()
    shadow.snapshot()
    first = read_index(git_dir)
    assert first is not None
    (root / "new").touch()
    newest = shadow.snapshot()
    again = read_index(git_dir)
    assert again is not None
    assert again.newest == first.newest
    (git_dir / f"{INDEX_FILE}.lock").mkdir()
    shadow.save_index(synced=True, always=True)
    again = read_index(git_dir)
    assert again is not None
    assert again.newest == first.newest
    (git_dir / f"{INDEX_FILE}.lock").rmdir()
    shadow.save_index(synced=True, always=True)
    again = read_index(git_dir)
    assert again is not None
    assert again.newest == newest


def set_back(path: Path) -> None:
    """Edit a file so that neither its size nor its time of modification shows it."""
    status = path.stat()
    path.write_text("S3CRET")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced(path: Path) -> None:
    """Put another file in its place, with the same size and time."""
    other = path.with_name("other")
    other.write_text("S3CRET")
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


EDITS: dict[str, Callable[[Path], object]] = {
    "an edit of equal size with the time set back": set_back,
    "another inode": replaced,
    "a mode": lambda path: path.chmod(0o604),
    "a folder": replaced_by_folder,
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_what_has_changed_between_two_processes_is_seen(
    edit: Callable[[Path], object], root: Path, git_dir: Path
) -> None:
    """Time of change and inode show it."""
    first, before = kept(root, git_dir), picture(root)
    edit(root / "secret")
    changed = picture(root)
    second = kept(root, git_dir)
    assert second != first
    opened(root, git_dir).restore(first)
    assert picture(root) == before
    opened(root, git_dir).restore(second)
    assert picture(root) == changed


def test_a_file_that_was_changed_a_moment_before_is_read_again(root: Path, git_dir: Path) -> None:
    """Another edit in the same moment could look the same, so no status of it is stored."""
    shadow = ShadowRepository(root, git_dir)
    shadow.snapshot()
    shadow.save_index(synced=True, always=True)
    index = read_index(git_dir)
    assert index is not None
    assert {leaf.signature for leaf in index.folder.leaves.values()} == {UNSETTLED}


def test_rules_changed_between_two_processes_are_seen(root: Path, git_dir: Path) -> None:
    """The index has the digest of what is outside of the tree."""
    (root / ".gitignore").unlink()
    git(root, "init")
    shadow = ShadowRepository(root, git_dir, snapshot_tree="tracked")
    assert not shadow.take().left_out
    shadow.save_index(synced=True, always=True)
    (root / ".git/info/exclude").write_text("secret\n")
    assert ShadowRepository(root, git_dir, snapshot_tree="tracked").take().left_out == {"secret"}
