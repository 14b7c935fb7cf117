"""What snapshots leave out: files that git ignores; what becomes of them, and of all the rest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from handrail.filesystem.shadow.repository import ShadowRepository
from tests.filesystem.shadow_trees import Picture, SavedTree, git, picture

IGNORED = frozenset({".venv", "web/node_modules", "src/__pycache__", "src/run.log"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clone with a virtual environment, dependencies, a cache and a log, all of them ignored."""
    root = tmp_path / "tree"
    for path in (".venv/lib/deep/large.so", "web/node_modules/index.js", "src/__pycache__/main.pyc", "src/run.log"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("made by a tool")
    (root / ".venv/lib/link").symlink_to("deep")
    (root / "web/page.html").write_text("page")
    (root / "src/main.py").write_text("main")
    (root / "empty").mkdir()
    (root / ".gitignore").write_text(".venv/\nnode_modules\n__pycache__/\n*.log\n")
    return root


@pytest.fixture
def shadow(root: Path, tmp_path: Path) -> ShadowRepository:
    """A shadow of it."""
    return ShadowRepository(root, tmp_path / "shadow.git", max_untracked_bytes=10_000)


def without(found: Picture, *paths: str) -> Picture:
    """What is outside of some paths."""
    out = [path.encode() for path in paths]
    return {
        path: what
        for path, what in found.items()
        if not any(path == each or path.startswith(each + b"/") for each in out)
    }


def test_what_git_ignores_is_left_alone_and_all_else_restored(root: Path, shadow: ShadowRepository) -> None:
    """What a program has changed, added or removed there stays so; a new file elsewhere is removed, ignored or not."""
    before, taken = picture(root), shadow.snapshot()
    assert taken.left_out == IGNORED
    assert shadow.snapshot() == taken
    for path in (".venv/lib/deep/large.so", "web/node_modules/index.js", "src/run.log", "src/main.py"):
        (root / path).write_text("damage")
    shutil.rmtree(root / "src/__pycache__")
    (root / "empty").rmdir()
    (root / ".venv/new").touch()
    (root / "other.log").touch()
    (root / "web/.gitignore").write_text("*")
    (root / "build").mkdir()
    (root / "src").chmod(0o700)
    damaged = picture(root)
    shadow.restore(taken.id)
    found = picture(root)
    assert without(found, *IGNORED) == without(before, *IGNORED)
    assert found.items() - without(found, *IGNORED).items() == damaged.items() - without(damaged, *IGNORED).items()
    assert shadow.snapshot().left_out == IGNORED - {"src/__pycache__"}


def test_rules_of_later_decide_nothing_about_a_snapshot(root: Path, shadow: ShadowRepository, tmp_path: Path) -> None:
    """The snapshot says what it leaves out; a program that ignores more takes nothing from the rollback."""
    saved = SavedTree(root, shadow)
    (root / ".gitignore").unlink()
    saved.restore()
    for repository in (shadow, ShadowRepository(root, tmp_path / "shadow.git")):
        (root / ".gitignore").write_text("*")
        (root / "src/main.py").unlink()
        repository.restore(saved.snapshot)
        assert picture(root) == saved.before


def test_a_folder_above_comes_back_without_what_was_left_out(root: Path, shadow: ShadowRepository) -> None:
    """Nobody has saved that."""
    saved = SavedTree(root, shadow)
    shutil.rmtree(root / "web")
    (root / "web").write_text("a file where a folder was")
    shadow.restore(saved.snapshot)
    assert picture(root) == without(saved.before, "web/node_modules")


def test_what_a_repository_excludes_counts_as_ignored(root: Path, shadow: ShadowRepository) -> None:
    """Rules above a repository end at it, and its `.git` is never ignored."""
    for folder in (root, root / "inner"):
        folder.mkdir(exist_ok=True)
        git(folder, "init")
        (folder / "inside.log").touch()
    (root / ".git/info/exclude").write_text("main.py\n.git\n")
    (root / "inner/.git/info/exclude").write_text("secret\n")
    (root / "inner/secret").touch()
    (root / "src/.gitignore").write_text("!*.log\n")
    found = shadow.snapshot().left_out
    assert found == IGNORED - {"src/run.log"} | {"src/main.py", "inside.log", "inner/secret"}


def test_a_pipe_in_place_of_an_ignore_file_has_no_rules(root: Path, tmp_path: Path) -> None:
    """Nor does a file that is too large, or a link."""
    (root / ".gitignore").unlink()
    os.mkfifo(root / ".gitignore")
    (root / "src/.gitignore").symlink_to("../web/page.html")
    (root / "web/.gitignore").write_bytes(b"*\n" * 600_000)
    assert ShadowRepository(root, tmp_path / "shadow.git").snapshot().left_out == frozenset()
