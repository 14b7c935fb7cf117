"""The entries of git's index, as `git ls-files` has them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from handrail.filesystem.own_git.index import IndexEntry, index_entries
from tests.filesystem.shadow_trees import git


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with paths of every kind staged."""
    git(tmp_path, "init", "--initial-branch=main")
    for name in ("a", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg", "hhhhhhhh", "x" * 200):
        (tmp_path / name).write_text(name)
    (tmp_path / os.fsdecode(b"caf\xe9")).touch()
    (tmp_path / "run").touch()
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "link").symlink_to("a")
    deep = tmp_path.joinpath(*["y" * 200] * 4)
    deep.mkdir(parents=True)
    (deep / "inside").touch()
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--message", "first")
    return tmp_path


def entries(root: Path) -> dict[tuple[str, int], IndexEntry] | None:
    """What the index stages."""
    return index_entries((root / ".git/index").read_bytes())


def listed(root: Path) -> dict[tuple[str, int], IndexEntry]:
    """What git says that it stages."""
    output = subprocess.run(["git", "ls-files", "-s", "-z"], cwd=root, capture_output=True, check=True).stdout
    found: dict[tuple[str, int], IndexEntry] = {}
    for line in output.split(b"\0")[:-1]:
        about, _, path = line.partition(b"\t")
        mode, object_id, stage = about.decode().split()
        found[os.fsdecode(path), int(stage)] = IndexEntry(int(mode, 8), object_id)
    return found


def test_entries_are_those_of_git(root: Path) -> None:
    """Of every length of name, and with what later versions add."""
    assert entries(root) == listed(root)
    (root / "new").touch()
    git(root, "add", "--intent-to-add", "new")  # makes it version 3
    git(root, "update-index", "--skip-worktree", "a")
    assert entries(root) == listed(root)


def test_conflicts_have_stages(root: Path) -> None:
    """Each side of a merge is an entry of its own."""
    git(root, "checkout", "-b", "topic")
    (root / "a").write_text("one")
    git(root, "commit", "--all", "--message", "one")
    git(root, "checkout", "main")
    (root / "a").write_text("two")
    git(root, "commit", "--all", "--message", "two")
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "merge", "topic")
    found = entries(root)
    assert found is not None
    assert found == listed(root)
    assert {stage for path, stage in found if path == "a"} == {1, 2, 3}


def test_other_indexes_are_not_read(root: Path) -> None:
    """Version 4, a split one, a damaged one; a missing one stages nothing."""
    content = (root / ".git/index").read_bytes()
    assert index_entries(b"") == {}
    assert index_entries(content[:-1]) is None
    assert index_entries(b"short") is None
    assert index_entries(content[:40] + b"\xff" + content[41:]) is None
    cut = content[:100]
    assert index_entries(cut + hashlib.sha1(cut, usedforsecurity=False).digest()) is None
    git(root, "update-index", "--split-index")
    assert entries(root) is None
    git(root, "update-index", "--no-split-index", "--index-version", "4")
    assert entries(root) is None
