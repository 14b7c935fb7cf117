"""Which part of a folder on disk is shown, and that nothing reaches the rest."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from handrail.errors import PathConflictError, PathEscapeError, PathNotFoundError
from handrail.filesystem import HostFilesystem
from handrail.filesystem.path_filters import ExcludedPaths, NotIncluded
from tests.filesystem.disks import picture
from tests.kit import raises
from tests.wording import Wording


@pytest.mark.parametrize(
    "include,exclude,path,shown",
    [
        (["*.md"], [], "a/b.md", True),
        (["*.md"], [], "a/b.txt", False),
        (["docs/**"], [], "docs/a", True),
        (["docs/**"], [], "other/a", False),
        (["docs"], [], "docs/a/b", True),
        (["docs/**", "src/*.py"], ["*.pyc"], "src/a.py", True),
        (["docs/**"], [], ".", True),
    ],
)
def test_path_is_shown_if_it_is_included_and_not_excluded(
    include: list[str], exclude: list[str], path: str, *, shown: bool
) -> None:
    """A pattern without a slash fits at any depth, and what lies in an excluded folder is excluded."""
    sets = (ExcludedPaths(exclude), NotIncluded(include))
    assert all(path == "." or each.why(path, is_folder=False) is None for each in sets) is shown


def test_folder_that_may_hold_something_shown_can_be_reached() -> None:
    """A folder on the way is shown, another is not."""
    hidden = NotIncluded(["docs/**/*.md"])
    assert hidden.why("docs", is_folder=True) is None
    assert hidden.why("docs/a/b", is_folder=True) is None
    assert hidden.why("src", is_folder=True) is not None


def test_pattern_that_leaves_the_root_is_refused(tmp_path: Path) -> None:
    """At once, and nothing is left open."""
    with pytest.raises(PathEscapeError):
        HostFilesystem(tmp_path, exclude=["../x"])


@pytest.fixture
def fs(tmp_path: Path) -> Generator[HostFilesystem]:
    """A folder of which a part is hidden."""
    root = tmp_path / "root"
    for path in ("docs/a.md", "docs/secret.key", ".git/config", "src/x.py", "kept/.git/config", "only/b.key"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    (root / "to key").symlink_to("docs/secret.key")
    with HostFilesystem(root, journal=tmp_path / "journal", exclude=[".git", "*.key"]) as filesystem:
        yield filesystem


def test_hidden_files_are_neither_listed_nor_read(fs: HostFilesystem, wording: Wording) -> None:
    """They are as if they were not there, also through a link."""
    assert [stat.path for stat in fs.list()] == ["docs", "kept", "only", "src", "to key"]
    assert not [stat.path for stat in fs.glob("**") if "key" in stat.path.partition("/")[2] or ".git" in stat.path]
    assert not fs.exists("docs/secret.key")
    for name in ("circle", "circle.key"):
        (fs.root / name).symlink_to(name)
    with pytest.raises(PathConflictError):
        fs.read_text("circle")
    for path in ("docs/secret.key", ".git/config", "to key", "circle.key"):
        with pytest.raises(PathNotFoundError):
            fs.read_text(path)
    with raises(PathNotFoundError, wording):
        fs.stat(".git/hooks/x")


HIDDEN: dict[str, Callable[[HostFilesystem], object]] = {
    "write anew": lambda fs: fs.write_text("src/new.key", "x"),
    "move there": lambda fs: fs.move("src/x.py", "src/x.key"),
    "remove what looks empty": lambda fs: fs.remove("only"),
    "move around": lambda fs: fs.move("kept", "elsewhere"),
}


@pytest.mark.parametrize("change", HIDDEN.values(), ids=HIDDEN)
def test_hidden_files_are_not_changed(
    fs: HostFilesystem, tmp_path: Path, change: Callable[[HostFilesystem], object], wording: Wording
) -> None:
    """The refusal names the pattern, and nothing changes."""
    before = picture(tmp_path / "root")
    with raises(PathConflictError, wording):
        change(fs)
    assert picture(tmp_path / "root") == before


def test_what_is_not_included_is_refused_with_the_patterns(tmp_path: Path, wording: Wording) -> None:
    """The message says where to write instead."""
    root = tmp_path / "root"
    root.mkdir()
    with HostFilesystem(root, journal=tmp_path / "journal", include=["docs/**"]) as fs:
        fs.write_text("docs/a.md", "x")
        with raises(PathConflictError, wording):
            fs.write_text("src/a.md", "x")
        assert [stat.path for stat in fs.glob("**")] == ["docs", "docs/a.md"]
