"""What a path filter keeps back does not exist, in every filesystem and for every operation."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from handrail.errors import PathConflictError, PathEscapeError, PathNotFoundError
from handrail.filesystem import Filesystem, HostFilesystem, PathFilter, excluding
from handrail.filesystem.disk import Disk
from handrail.filesystem.path_filters import ExcludedPaths
from tests.extent import some
from tests.filesystem.kit import LOOKS, READS, STORES, WRITES, Operate, call, tree_of, unchanged
from tests.kit import raises
from tests.wording import Wording

SECRETS = {".env": "hunter1", "deep/er/.env": "hunter2", "secrets/a.txt": "hunter3", ".git/config": "hunter4"}
PLAIN = {"plan.md": "buy milk", "deep/b.md": "b", "docs/c.md": "c"}
FILTER = excluding((".env", "secrets/**"))
B = (ExcludedPaths(("b.md",)),)
"""The set of one path, `deep/b.md`."""


class Place(NamedTuple):
    """A filesystem, and the same files behind a filter."""

    whole: Filesystem
    seen: Filesystem


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest) -> Generator[Place]:
    """Each filesystem in turn, with secrets, and behind the filter."""
    with STORES[request.param]({**SECRETS, **PLAIN}) as whole:
        yield Place(whole, whole.filtered(FILTER))


READING = {**READS, **{name: LOOKS[name] for name in ("stat", "remove", "move")}}
"""What needs something to be there."""

SPELLINGS = ["deep//er/../er/.env", ".ENV", "SECRETS/A.TXT", ".GIT"]
EXCLUDED = [".env", "deep/er/.env", "secrets", "secrets/a.txt", *SPELLINGS]
"""Paths that are excluded, there or not, however they are spelled."""


@pytest.mark.parametrize("reading, path", some([*product(READING, EXCLUDED)], 22))  # each of both at least once
def test_what_is_excluded_is_not_there(place: Place, reading: str, path: str) -> None:
    """The error is that of a path at which there is nothing, and nothing changes."""
    with unchanged(tree_of, place.whole), pytest.raises(PathNotFoundError) as caught:
        READING[reading](place.seen, path)
    assert "hunter" not in str(caught.value)
    assert not place.seen.exists(path)


@pytest.mark.parametrize("operate", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("path", [*EXCLUDED, "docs/.env", ".git/hooks/pre-commit", ".g\u200cit/x", "secrets/new/x"])
def test_nothing_is_made_where_paths_are_excluded(place: Place, operate: Operate, path: str, wording: Wording) -> None:
    """The refusal names the pattern, and is the same whether anything is there or not."""
    before = tree_of(place.whole)
    with raises(PathConflictError, wording):
        operate(place.seen, path)
    with raises(PathConflictError, wording):
        place.seen.move("plan.md", path)
    assert tree_of(place.whole) == before


def test_what_stays_is_neither_removed_nor_moved_but_may_be_written(place: Place, wording: Wording) -> None:
    """Alone or with its folder; the files beside it may go."""
    staying = place.whole.filtered(PathFilter(removing=B))
    staying.write_text("deep/b.md", "new")
    after = tree_of(place.whole)
    for path in ("deep/b.md", "deep"):
        with raises(PathConflictError, wording):
            staying.remove(path, recursive=True)
        with raises(PathConflictError, wording):
            staying.move(path, "elsewhere")
    assert tree_of(place.whole) == after
    staying.remove("deep/er", recursive=True)
    assert staying.read_text("deep/b.md") == "new"


ALONG: dict[str, Callable[[Filesystem], object]] = {
    "remove": lambda fs: fs.remove("deep", recursive=True),
    "move": lambda fs: fs.move("deep", "elsewhere"),
    "move onto": lambda fs: fs.move("new", "docs/new"),
}


@pytest.mark.parametrize("pattern, name", [("b.md", "b.md"), ("deep/er/**", "er")])
def test_what_is_held_stays_unless_it_is_named(place: Place, pattern: str, name: str, wording: Wording) -> None:
    """With a folder that is not in the set, it is neither moved, moved onto nor removed; by itself it is."""
    held = ExcludedPaths((pattern,))
    assert len({held, ExcludedPaths((pattern,)), ExcludedPaths(("other",))}) == 2
    seen = place.whole.filtered(PathFilter(holding=(held,)))
    place.whole.write_text("new/b.md", "b")
    with unchanged(tree_of, place.whole):
        for what, operate in ALONG.items():
            if what != "move onto" or name == "b.md":
                with raises(PathConflictError, wording):
                    operate(seen)
    seen.move(f"deep/{name}", name)
    assert seen.remove(name, recursive=True) == (name == "er")
    assert seen.remove("deep", recursive=True) == (1 if name == "er" else 2)


def test_what_no_search_shows_is_left_out_of_lists_and_said_to_be(place: Place) -> None:
    """It exists, and may be read and written; what lists leave out may be searched by its name."""
    why = "the exclude pattern 'b.md'"
    for path_filter, by_name in ((PathFilter(searching=B), why), (PathFilter(listing=B), None)):
        seen = place.whole.filtered(path_filter)
        assert "deep/b.md" not in {stat.path for stat in seen.glob("**")}
        assert [stat.path for stat in seen.list("deep")] == ["deep/er"]
        assert seen.scan("deep", "*").unlisted == 1
        assert seen.read_text("deep/b.md") == "b"
        assert [seen.unsearched("deep/b.md", by_name=named) for named in (True, False)] == [by_name, why]
        assert seen.unsearched("none") is None


def test_what_is_changed_behind_a_filter_is_undone_with_the_call(place: Place) -> None:
    """The two are one participant, with one turn, and a snapshot of one is one of the other."""
    before, snapshot = tree_of(place.whole), place.whole.snapshot()
    with call(place.seen):
        place.seen.write_text("plan.md", "x")
        place.whole.write_text(".env", "y")
    assert tree_of(place.whole) == before
    place.seen.write_text("plan.md", "x")
    place.seen.restore(snapshot)
    assert tree_of(place.whole) == before
    assert place.seen.turn is place.whole.turn


def test_filters_add_up(place: Place) -> None:
    """One on the other keeps back what either does, and the same one again changes nothing."""
    twice = place.seen.filtered(excluding(("plan.md",)))
    assert not twice.exists("plan.md")
    assert not twice.exists(".env")
    assert tree_of(twice.filtered(excluding(("plan.md",)))) == tree_of(twice)


def test_a_path_may_be_kept_from_reading_alone(place: Place, wording: Wording) -> None:
    """It can be written unseen; its folder is not moved, since it could be read where it went."""
    seen = place.whole.filtered(PathFilter(reading=B))
    assert not seen.exists("deep/b.md")
    seen.write_text("deep/b.md", "new")
    assert place.whole.read_text("deep/b.md") == "new"
    with raises(PathConflictError, wording):
        seen.move("deep", "x")


@pytest.mark.parametrize(
    "operation, path", [("write_text", "deep/b.md"), *product(("remove", "move"), ("deep/b.md", "deep"))]
)
def test_a_path_may_be_kept_from_writing_alone(place: Place, operation: str, path: str, wording: Wording) -> None:
    """It is read and listed, and neither written, moved nor removed."""
    seen = place.whole.filtered(PathFilter(writing=B))
    with raises(PathConflictError, wording):
        {**READING, **WRITES}[operation](seen, path)
    assert seen.read_text("deep/b.md") == "b"


FITTING = [
    *(("*.key", "a/b.KEY"), ("*.key", "b.key/inside"), ("secrets/", "a/secrets/x"), ("./secrets", "secrets/x")),
    *(("**/a/*.key", "c/a/b.key"), ("caf\u00e9", "cafe\u0301"), ("stra\u00dfe", "STRASSE")),
    *((".git", ".g\u200dit/config"), ("a/**/b", "a/b"), ("a/**/b", "a/x/y/b/z"), ("*.{key,pem}", "d/a.key")),
    *(("*.{key,pem}", "b.pem"), ("src/{a,b}.py", "src/b.py")),
]
OTHERS = [("a/*.key", "c/a/b.key"), (".git", ".g\u200bit"), ("*.{key,pem}", "a.txt"), ("src/{a,b}.py", "src/c.py")]


@pytest.mark.parametrize(
    "pattern, path, fits", [(*fits, True) for fits in FITTING] + [(*not_, False) for not_ in OTHERS]
)
def test_patterns_fit_every_spelling_that_some_disk_takes_for_the_name(pattern: str, path: str, *, fits: bool) -> None:
    """Upper and lower case, composed and decomposed letters, characters that count for nothing; and braces."""
    assert (excluding((pattern,), show_git=True).unreadable(path) is not None) is fits


@pytest.mark.parametrize("pattern", ["", "/etc/passwd", "../x", "a/../../x", "a\\b", "a\0b", "/".join("x" * 129)])
def test_pattern_that_no_path_fits_is_refused(pattern: str) -> None:
    """A slip would protect nothing."""
    with pytest.raises(PathEscapeError):
        excluding((pattern,))


@contextmanager
def on_disk_with_secrets(tmp_path: Path, disk: Disk) -> Generator[HostFilesystem]:
    """A folder on disk with what is excluded."""
    root = tmp_path / "root"
    for path, text in {**SECRETS, **PLAIN}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    with HostFilesystem(root, journal=root.parent / "journal", disk=disk) as fs:
        yield fs


class Folding(Disk):
    """A disk that says that it ignores case."""

    def folds_case(self, folder: Path) -> bool:
        return True


@pytest.mark.parametrize("path", [".ENV", ".Env"])
def test_a_disk_that_folds_case_does_not_tell_the_name_of_what_is_excluded(tmp_path: Path, path: str) -> None:
    """It is not found, in any spelling."""
    with on_disk_with_secrets(tmp_path, Folding()) as whole:
        (whole.root / ".ENV").write_text("the same file, on such a disk")
        with pytest.raises(PathNotFoundError):
            whole.filtered(FILTER).read_text(path)
