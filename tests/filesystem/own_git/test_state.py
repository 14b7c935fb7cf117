"""Where the state of a git dir is read from, and what is not read."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from handrail.filesystem.own_git.changes import git_changes
from handrail.filesystem.own_git.state import git_dir_state
from tests.filesystem.shadow_trees import git
from tests.wording import Wording


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a commit."""
    root = tmp_path / "root"
    root.mkdir()
    git(root, "init", "--initial-branch=main")
    git(root, "commit", "--allow-empty", "--message", "first")
    return root


def test_a_linked_worktree_has_head_and_index_of_its_own(root: Path, tmp_path: Path, wording: Wording) -> None:
    """References are those of the repository that it belongs to."""
    linked = tmp_path / "linked"
    git(root, "worktree", "add", "-b", "topic", str(linked))
    before = git_dir_state(linked)
    assert before is not None
    assert before.head == b"ref: refs/heads/topic\n"
    assert set(before.references) == {"refs/heads/main", "refs/heads/topic"}
    git(root, "tag", "v1")
    git(linked, "checkout", "--detach")
    git(linked, "bisect", "start")
    (before.git_dir / "index.lock").touch()
    changes = git_changes(before, before.again())
    assert [re.sub("[0-9a-f]{10}", "<commit>", change.text) for change in changes] == wording
    assert changes[1].command == 'rm "$(git rev-parse --git-dir)/index.lock"'


def test_references_of_one_worktree_are_read(root: Path, tmp_path: Path) -> None:
    """They are in its own git dir."""
    linked = tmp_path / "linked"
    git(root, "worktree", "add", "--detach", str(linked))
    git(linked, "update-ref", "refs/worktree/mine", "HEAD")
    found = git_dir_state(linked)
    assert found is not None
    assert "refs/worktree/mine" in found.references
    other = git_dir_state(root)
    assert other is not None
    assert "refs/worktree/mine" not in other.references


@pytest.mark.parametrize("content", [b"", b"not a git dir", b"gitdir: nowhere\n", b"gitdir: a\0b\n", bytes(10)])
def test_a_git_file_that_names_no_git_dir_is_none(tmp_path: Path, content: bytes) -> None:
    """So is a folder without HEAD."""
    (tmp_path / ".git").write_bytes(content)
    assert git_dir_state(tmp_path) is None
    (tmp_path / ".git").unlink()
    (tmp_path / ".git").mkdir()
    assert git_dir_state(tmp_path) is None


def test_a_common_dir_that_cannot_be_has_no_configuration(root: Path) -> None:
    """What is in the git dir itself is read all the same."""
    (root / ".git/commondir").write_bytes(b"a\0b\n")
    found = git_dir_state(root)
    assert found is not None
    assert not found.config
    assert found.head == b"ref: refs/heads/main\n"


def test_neither_pipes_nor_links_are_read(root: Path) -> None:
    """A pipe would never answer; a link may lead out."""
    (root / ".git/packed-refs").unlink(missing_ok=True)
    os.mkfifo(root / ".git/packed-refs")
    (root / ".git/refs/heads/link").symlink_to("main")
    (root / ".git/refs/heads/topic.lock").touch()
    (root / ".git/refs/heads/empty").touch()
    found = git_dir_state(root)
    assert found is not None
    assert found.packed == b""
    assert set(found.references) == {"refs/heads/main"}


def test_references_are_read_to_a_depth(root: Path) -> None:
    """A program that nests folders without end does not stop the next call."""
    deep = root / ".git/refs/heads"
    for _ in range(60):
        deep /= "x"
        deep.mkdir()
    (deep / "far").write_text("0" * 40)
    found = git_dir_state(root)
    assert found is not None
    assert set(found.references) == {"refs/heads/main"}


def test_a_huge_file_is_compared_by_size_and_time(root: Path) -> None:
    """It is not read."""
    with (root / ".git/packed-refs").open("wb") as file:
        file.truncate(1 << 27)
    before = git_dir_state(root)
    assert before is not None
    assert len(before.packed) < 100
    os.utime(root / ".git/packed-refs", ns=(1, 1))
    again = before.again()
    assert again is not None
    assert again.packed != before.packed


def test_a_git_dir_that_is_gone_has_no_state(root: Path) -> None:
    """It is not looked for elsewhere."""
    before = git_dir_state(root)
    assert before is not None
    (root / ".git").rename(root / "moved")
    assert before.again() is None
