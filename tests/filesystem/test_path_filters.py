"""What a path filter keeps back does not exist, in every filesystem and for every operation."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from handrail.errors import FilesystemError, PathConflictError, PathEscapeError, PathNotFoundError
from handrail.filesystem import Filesystem, HostFilesystem, PathFilter, excluding
from handrail.filesystem.disk import Disk
from handrail.filesystem.path_filters import ExcludedPaths
from tests.extent import some
from tests.filesystem.kit import STORES, call, tree_of, unchanged
from tests.kit import raises
from tests.wording import Wording

SECRETS = {".env": "hunter1", "deep/er/.env": "hunter2", "secrets/a.txt": "hunter3", ".git/config": "hunter4"}
PLAIN = {"plan.md": "buy milk", "deep/b.md": "b", "docs/c.md": "c"}
FILTER = excluding((".env", "secrets/**"))
B = (ExcludedPaths(("b.md",)),)
"""The set of one path, `deep/b.md`."""

Operate = Callable[[Filesystem, str], object]


class Place(NamedTuple):
    """A filesystem, and the same files behind a filter."""

    whole: Filesystem
    seen: Filesystem


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest) -> Generator[Place]:
    """Each filesystem in turn, with secrets, and behind the filter."""
    with STORES[request.param]({**SECRETS, **PLAIN}) as whole:
        yield Place(whole, whole.filtered(FILTER))


READING: dict[str, Operate] = {
    "read_text": lambda fs, path: fs.read_text(path),
    "read_bytes": lambda fs, path: fs.read_bytes(path),
    "identity": lambda fs, path: fs.identity(path),
    "read_start": lambda fs, path: fs.read_start(path, 3),
    "stat": lambda fs, path: fs.stat(path),
    "remove": lambda fs, path: fs.remove(path, recursive=True),
    "move": lambda fs, path: fs.move(path, f"{path}.moved.md"),
}
"""What needs something to be there."""

WRITING: dict[str, Operate] = {
    "write_text": lambda fs, path: fs.write_text(path, "x"),
    "write_bytes": lambda fs, path: fs.write_bytes(path, b"x"),
    "make_folder": lambda fs, path: fs.make_folder(path),
}
"""What makes something."""

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


@pytest.mark.parametrize("operate", WRITING.values(), ids=WRITING)
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
def test_what_is_held_stays_where_it_is_unless_it_is_named(
    place: Place, pattern: str, name: str, wording: Wording
) -> None:
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


@pytest.mark.parametrize("folder", ["deep", "deep/er"])
def test_folder_that_holds_what_is_excluded_stays(place: Place, folder: str, wording: Wording) -> None:
    """It is neither removed nor moved, empty as it may look: what is excluded would go with it."""
    before = tree_of(place.whole)
    with raises(PathConflictError, wording):
        place.seen.remove(folder, recursive=True)
    with raises(PathConflictError, wording):
        place.seen.move(folder, "elsewhere")
    with suppress(PathConflictError):
        place.seen.remove(folder)
    assert tree_of(place.whole) == before


def test_lists_and_searches_pass_it_by(place: Place) -> None:
    """In the folder and at any depth."""
    found = [stat.path for stat in place.seen.glob("**")]
    assert found == ["deep", "deep/b.md", "deep/er", "docs", "docs/c.md", "plan.md"]
    assert [stat.path for stat in place.seen.list("deep/er")] == []
    assert [stat.path for stat in place.seen.list(".")] == ["deep", "docs", "plan.md"]
    assert place.seen.scan(".", "**/.env").entries == ()


def test_what_is_not_excluded_works_as_without_a_filter(place: Place, wording: Wording) -> None:
    """Reading, writing, moving and removing."""
    place.seen.write_text("deep/new/a.md", "a")
    place.seen.move("deep/new", "new")
    assert place.whole.read_text("new/a.md") == "a"
    place.seen.remove("new", recursive=True)
    assert not place.whole.exists("new")
    with raises(PathConflictError, wording):
        place.seen.remove("deep")


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
        {**READING, **WRITING}[operation](seen, path)
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


@pytest.mark.parametrize("patterns", [".env", (3,)])
def test_one_string_is_not_taken_for_patterns(patterns: tuple[str], wording: Wording) -> None:
    """Each of its letters would be one."""
    with raises(TypeError, wording):
        excluding(patterns)


def test_git_is_excluded_unless_it_is_asked_for() -> None:
    """A repository's own files, at any depth; the files beside it are others."""
    for path in (".git", ".git/hooks/pre-commit", "sub/.git/config", ".GIT/config"):
        assert excluding(()).unreadable(path)
        assert excluding(()).unwritable(path)
    assert not excluding((), show_git=True)
    assert excluding(()).unreadable(".gitignore") is None


@contextmanager
def linked(tmp_path: Path, disk: Disk | None = None) -> Generator[HostFilesystem]:
    """A folder on disk with links to what is excluded."""
    root = tmp_path / "root"
    for path, text in {**SECRETS, **PLAIN}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    links = {"to file": ".env", "to folder": "secrets", "to link": "to folder/a.txt", "to above": "deep"}
    for name, target in {**links, "to new": "docs/.env", "absolute": f"{root}/secrets", "to case": ".ENV"}.items():
        (root / name).symlink_to(target)
    with HostFilesystem(root, journal=root.parent / "journal", disk=disk) as fs:
        yield fs


LINKS = ["to file", "to folder/a.txt", "to link", "to above/er/.env", "to new", "absolute/a.txt"]


@pytest.mark.parametrize("path", LINKS)
def test_no_link_leads_to_what_is_excluded(tmp_path: Path, path: str, wording: Wording) -> None:
    """Reading finds nothing, and writing is refused."""
    with linked(tmp_path) as whole:
        fs, before = whole.filtered(FILTER), tree_of(whole)
        for read in (fs.read_text, fs.read_bytes, fs.identity):
            with pytest.raises(PathNotFoundError):
                read(path)
        for write in ("write_text", "write_bytes"):
            with raises(PathConflictError, wording):
                WRITING[write](fs, path)
        assert tree_of(whole) == before


def test_listing_through_a_link_is_listing_what_it_leads_to(tmp_path: Path) -> None:
    """The pattern is about where a file lies, not about how one came there."""
    with linked(tmp_path) as whole:
        fs = whole.filtered(excluding(("docs/c.md", "secrets/a.txt")))
        (whole.root / "d").symlink_to("docs")
        assert (fs.list("d"), fs.scan("d", "**").entries, fs.list("to folder")) == ((), (), ())
        with pytest.raises(PathNotFoundError):
            whole.filtered(FILTER).list("to folder")


class Folding(Disk):
    """A disk that says that it ignores case."""

    def folds_case(self, folder: Path) -> bool:
        return True


@pytest.mark.parametrize("path", [".ENV", "to case", ".Env"])
def test_a_disk_that_folds_case_does_not_tell_the_name_of_what_is_excluded(tmp_path: Path, path: str) -> None:
    """Neither by its own path nor by a link to another spelling of it."""
    with linked(tmp_path, Folding()) as whole:
        (whole.root / ".ENV").write_text("the same file, on such a disk")
        with pytest.raises(PathNotFoundError):
            whole.filtered(FILTER).read_text(path)


def test_every_method_of_the_protocol_is_tried_here(place: Place) -> None:
    """A method that is added to the protocol must be added above."""
    methods = {name for name in vars(Filesystem) if not name.startswith("_")}
    others = {"exists", "list", "glob", "scan", "filtered", "resolve", "unsearched", "shortest"}
    assert methods - {"parameters"} == {*READING, *WRITING, *others}
    assert isinstance(place.seen, Filesystem)
    assert issubclass(PathNotFoundError, FilesystemError)
