"""A command makes no `.git` where there was none, and replaces no link that was there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from handrail.contrib.tools.sandbox.git_guard import GitGuard
from tests.wording import Wording


def a_folder(git: Path) -> None:
    """With a program that git would run."""
    (git / "hooks").mkdir(parents=True)
    (git / "hooks" / "pre-commit").write_text("evil")


def a_file(git: Path) -> None:
    """As a worktree has it."""
    git.write_text("gitdir: elsewhere")


def a_link(git: Path) -> None:
    """To a folder elsewhere."""
    git.symlink_to("evil")


@pytest.mark.parametrize("make", [a_folder, a_file, a_link])
@pytest.mark.parametrize("target", [None, "elsewhere"])
def test_what_was_made_is_removed(
    tmp_path: Path, make: Callable[[Path], None], target: str | None, wording: Wording
) -> None:
    """A link that was there is there again."""
    git = tmp_path / ".git"
    if target is not None:
        git.symlink_to(target)
    guard = GitGuard(tmp_path)
    assert guard.fault() is None
    git.unlink(missing_ok=True)
    make(git)
    assert guard.fault() == wording
    assert [path.name for path in tmp_path.iterdir()] == ([] if target is None else [".git"])
    assert target is None or str(git.readlink()) == target


def test_link_that_was_removed_is_there_again(tmp_path: Path) -> None:
    """Else a later command could put something in its place."""
    (tmp_path / ".git").symlink_to("elsewhere")
    guard = GitGuard(tmp_path)
    (tmp_path / ".git").unlink()
    assert guard.fault() is not None
    assert (tmp_path / ".git").is_symlink()


def test_folder_that_was_there_is_left_alone(tmp_path: Path) -> None:
    """It is read-only inside, and what changes it is another program."""
    a_folder(tmp_path / ".git")
    guard = GitGuard(tmp_path)
    shutil.rmtree(tmp_path / ".git")
    assert guard.fault() is None


def test_what_cannot_be_removed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """As too many folders below each other."""
    guard = GitGuard(tmp_path)
    a_folder(tmp_path / ".git")

    def fails(_path: Path) -> None:
        raise RecursionError

    monkeypatch.setattr(shutil, "rmtree", fails)
    assert guard.fault() == wording
