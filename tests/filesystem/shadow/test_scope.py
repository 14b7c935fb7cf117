"""What snapshots leave out: large files that git ignores; what becomes of them, and of all the rest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handrail.errors import FilesystemError, InvalidArgumentError
from handrail.filesystem import HostFilesystem, ShadowRepository
from handrail.filesystem.shadow.scope import SnapshotLimits, names_by_folder
from handrail.filesystem.shadow.tree import LEAST_WEIGHT, Folder, IgnoredEntry, TreeFile, weigh
from tests.filesystem.shadow_trees import Picture, git, picture

Opened = Callable[..., ShadowRepository]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clone with a virtual environment, dependencies, a cache and a log, all of them ignored."""
    root = tmp_path / "tree"
    (root / ".venv/lib/deep").mkdir(parents=True)
    (root / ".venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    (root / ".venv/lib/deep/large.so").write_bytes(bytes(300_000))
    (root / ".venv/lib/link").symlink_to("deep")
    (root / "web/node_modules/left-pad").mkdir(parents=True)
    (root / "web/node_modules/left-pad/index.js").write_bytes(bytes(200_000))
    (root / "web/page.html").write_text("page")
    (root / "src/__pycache__").mkdir(parents=True)
    (root / "src/__pycache__/main.pyc").write_bytes(bytes(1000))
    (root / "src/main.py").write_text("main")
    (root / "src/run.log").write_text("log")
    (root / "empty").mkdir()
    (root / ".gitignore").write_text(".venv/\nnode_modules\n__pycache__/\n*.log\n")
    return root


@pytest.fixture
def opened(root: Path, tmp_path: Path) -> Opened:
    """Makes a repository of it, as another process does."""

    def opened(**options: Any) -> ShadowRepository:
        given: dict[str, Any] = {"max_tree_bytes": 100_000} | options
        return ShadowRepository(root, tmp_path / "shadow.git", **given)

    return opened


def without(found: Picture, *paths: str) -> Picture:
    """What is outside of some paths."""
    out = [path.encode() for path in paths]
    return {
        path: what
        for path, what in found.items()
        if not any(path == each or path.startswith(each + b"/") for each in out)
    }


def damage(root: Path) -> None:
    """Change something inside of what is ignored, and outside of it."""
    for path in (".venv/lib/deep/large.so", "web/node_modules/left-pad/index.js", "src/run.log", "src/main.py"):
        (root / path).write_text("damage")
    shutil.rmtree(root / "src/__pycache__")
    (root / "empty").rmdir()
    (root / ".venv/new").touch()
    (root / "other.log").touch()
    (root / "build").mkdir()
    (root / "src").chmod(0o700)


def test_what_fits_is_restored_and_the_rest_is_left_alone(root: Path, opened: Opened) -> None:
    """The smallest entries fit first; what a program has added to the rest stays too."""
    before, shadow = picture(root), opened()
    taken = shadow.take()
    assert taken.left_out == {".venv", "web/node_modules"}
    damage(root)
    damaged = picture(root)
    shadow.restore(taken.id)
    large = (".venv", "web/node_modules")
    found = picture(root)
    assert without(found, *large) == without(before, *large)
    assert found.items() - without(found, *large).items() == damaged.items() - without(damaged, *large).items()
    assert shadow.snapshot() == taken.id


@pytest.mark.parametrize("limit", [None, 10_000_000])
def test_everything_is_saved_if_it_fits(limit: int | None, root: Path, opened: Opened) -> None:
    """Or if there is no limit."""
    before, shadow = picture(root), opened(max_tree_bytes=limit)
    snapshot = shadow.snapshot()
    damage(root)
    shadow.restore(snapshot)
    assert picture(root) == before


def test_ignored_files_can_be_left_out_altogether(root: Path, opened: Opened) -> None:
    """They are not looked at, nor is what appears in them; a new one is removed with all else that is new."""
    before, shadow = picture(root), opened(snapshot_tree="tracked")
    taken = shadow.take()
    ignored = (".venv", "web/node_modules", "src/__pycache__", "src/run.log")
    assert taken.left_out == set(ignored)
    assert shadow.take().id == taken.id
    damage(root)
    shadow.restore(taken.id)
    assert without(picture(root), *ignored) == without(before, *ignored)
    assert (root / "src/run.log").read_text() == "damage"
    assert not (root / "src/__pycache__").exists()
    assert opened(snapshot_tree="tracked").snapshot() != taken.id, "what is gone is not left out any more"


def test_a_large_file_in_an_ignored_folder_is_no_reason_to_refuse(root: Path, opened: Opened) -> None:
    """The folder is left out as a whole, however much else would fit; one that is not ignored is refused."""
    shadow = opened(max_untracked_bytes=250_000, max_tree_bytes=None)
    assert shadow.take().left_out == {".venv"}
    (root / "data.bin").write_bytes(bytes(300_000))
    with pytest.raises(FilesystemError, match=r"data\.bin"):
        shadow.snapshot()
    (root / ".gitignore").write_text(".venv/\nnode_modules\n*.bin\n")
    assert shadow.take().left_out == {".venv", "data.bin"}


def test_rules_that_a_program_changes_do_not_remove_what_was_left_out(root: Path, opened: Opened) -> None:
    """The snapshot says what it leaves out, and not the rules of later."""
    before, shadow = picture(root), opened()
    snapshot = shadow.snapshot()
    (root / ".gitignore").unlink()
    shadow.restore(snapshot)
    assert picture(root) == before
    for repository in (shadow, opened()):
        (root / ".gitignore").write_text("")
        repository.restore(snapshot)
        assert picture(root) == before


def test_a_folder_above_comes_back_without_what_was_left_out(root: Path, opened: Opened) -> None:
    """Nobody has saved that."""
    before, shadow = picture(root), opened()
    snapshot = shadow.snapshot()
    shutil.rmtree(root / "web")
    (root / "web").write_text("a file where a folder was")
    shadow.restore(snapshot)
    assert picture(root) == without(before, "web/node_modules")


def test_a_later_snapshot_leaves_out_what_has_grown(root: Path, opened: Opened) -> None:
    """An earlier one restores it all the same; and what was left out once stays so in this process."""
    shadow = opened()
    before = picture(root)
    small = shadow.snapshot()
    (root / "src/run.log").write_bytes(bytes(100_000))
    assert shadow.take().left_out == {".venv", "web/node_modules", "src/run.log"}
    shadow.restore(small)
    assert picture(root) == before
    assert shadow.take().left_out == {".venv", "web/node_modules", "src/run.log"}
    assert opened().take().left_out == {".venv", "web/node_modules"}


def test_the_next_process_saves_what_fits_by_then(root: Path, opened: Opened) -> None:
    """What has become smaller, and what is not ignored any more."""
    shadow = opened()
    shadow.take()
    shadow.save_index(synced=False, always=True)
    (root / "web/node_modules/left-pad/index.js").write_text("small")
    (root / ".gitignore").write_text("node_modules\n__pycache__/\n*.log\n")
    (root / ".venv/pyvenv.cfg").unlink()
    before, later = picture(root), opened()
    taken = later.take()
    assert taken.left_out == frozenset()
    shutil.rmtree(root / ".venv")
    shutil.rmtree(root / "web")
    later.restore(taken.id)
    assert picture(root) == before


def test_what_tools_mark_as_theirs_counts_as_ignored(root: Path, opened: Opened) -> None:
    """A virtual environment, a cache, and a folder whose own `.gitignore` hides all of it, but no other."""
    (root / ".gitignore").unlink()
    for name, file, text in (
        ("cache", "CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n"),
        ("hidden", ".gitignore", "# made by a tool\n*\n"),
        ("shown", ".gitignore", "*\n!shown\n"),
        ("odd", "CACHEDIR.TAG", "no signature"),
    ):
        (root / name).mkdir()
        (root / name / file).write_text(text)
    taken = opened(snapshot_tree="tracked").take()
    assert taken.left_out == {".venv", "cache", "hidden", "shown/.gitignore"}


def test_what_the_repository_excludes_counts_as_ignored(root: Path, opened: Opened) -> None:
    """A change of that file is noticed, as one of `.gitignore` is; the rules above a repository end at it."""
    shadow = opened(snapshot_tree="tracked")
    git(root, "init")
    (root / "inner").mkdir()
    git(root / "inner", "init")
    (root / "inner/inside.log").touch()
    (root / "inner/.git/info/exclude").write_text("*.log")
    assert "src/main.py" not in shadow.take().left_out
    (root / ".git/info/exclude").write_text("main.py\n")
    found = shadow.take().left_out
    assert "src/main.py" in found
    assert "inner/inside.log" not in found
    (root / "src/.gitignore").write_text("!*.log\n")
    assert "src/run.log" not in opened(snapshot_tree="tracked").take().left_out


def test_a_name_that_changes_its_kind_is_decided_about_again(root: Path, opened: Opened) -> None:
    """A pattern may be for folders only."""
    shadow = opened(snapshot_tree="tracked")
    assert "src/__pycache__" in shadow.take().left_out
    shutil.rmtree(root / "src/__pycache__")
    (root / "src/__pycache__").write_text("a file")
    other = opened(snapshot_tree="tracked")
    assert "src/__pycache__" not in other.take().left_out
    (root / "src/__pycache__").unlink()
    (root / "src/__pycache__").mkdir()
    assert "src/__pycache__" in other.take().left_out


def test_names_that_are_not_utf_8_are_left_out_too(root: Path, opened: Opened) -> None:
    """The rules see the same bytes as git."""
    (root / os.fsdecode(b"caf\xe9.log")).write_bytes(bytes(200_000))
    shadow = opened()
    before, taken = picture(root), shadow.take()
    assert os.fsdecode(b"caf\xe9.log") in taken.left_out
    (root / "src/main.py").unlink()
    shadow.restore(taken.id)
    assert picture(root) == before


def test_limits_choose_the_largest_entries() -> None:
    """Small files count as a block, so that many of them are not saved either."""
    many = Folder(0, {str(number): TreeFile(0, "", (1, 0, 0, number)) for number in range(10)})
    assert weigh(many) == weigh(many) == (11 * LEAST_WEIGHT, 1)
    ignored = [IgnoredEntry("many", many), IgnoredEntry("one", TreeFile(0, "", (30_000, 0, 0, 1)))]
    limits = SnapshotLimits(max_tree_bytes=40_000, max_untracked_bytes=None)
    assert limits.leave_out(ignored, frozenset()) == {"many"}
    assert limits.leave_out(ignored, frozenset({"one"})) == {"one", "many"}
    assert not SnapshotLimits(max_tree_bytes=None, max_untracked_bytes=None).leave_out(ignored, frozenset())
    assert names_by_folder(["a", "b/c", "b/d"]) == {".": {"a"}, "b": {"c", "d"}}


def test_what_is_gone_stays_left_out_in_this_process(root: Path, opened: Opened) -> None:
    """One call that starts two programs has snapshots that leave out the same."""
    shadow = opened()
    assert set(shadow.take().entries) == {".venv", "web/node_modules"}
    shutil.rmtree(root / ".venv")
    taken = shadow.take()
    assert taken.left_out == {".venv", "web/node_modules"}
    assert set(taken.entries) == {"web/node_modules"}
    (root / ".venv").write_text("a file by then")
    shadow.restore(taken.id)
    assert (root / ".venv").read_text() == "a file by then"


def test_a_pipe_in_place_of_an_ignore_file_has_no_rules(root: Path, opened: Opened) -> None:
    """Nor does a file that is too large, or a link."""
    (root / ".gitignore").unlink()
    os.mkfifo(root / ".gitignore")
    (root / "src/.gitignore").symlink_to("../web/page.html")
    (root / "web/.gitignore").write_bytes(b"*\n" * 600_000)
    assert opened(snapshot_tree="tracked").take().left_out == {".venv"}


@pytest.mark.parametrize(
    "argument, given",
    [("snapshot_tree", "trakced"), ("max_tree_bytes", "1 GB"), ("max_untracked_bytes", -1), ("max_tree_bytes", True)],
)
@pytest.mark.parametrize("kind", [HostFilesystem, ShadowRepository])
def test_limits_that_are_none_are_refused(kind: Any, argument: str, given: object, root: Path, tmp_path: Path) -> None:
    """Before anything is opened."""
    where = (tmp_path / "git",) if kind is ShadowRepository else ()
    with pytest.raises(InvalidArgumentError) as raised:
        kind(root, *where, **{argument: given})
    assert (raised.value.function, raised.value.argument) == (kind.__name__, argument)
