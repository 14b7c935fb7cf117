"""What a path filter keeps back does not exist, in every filesystem and for every operation."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from handrail.errors import FilesystemError, PathConflictError, PathEscapeError, PathNotFoundError
from handrail.filesystem import Filesystem, HostFilesystem, PathFilter, excluding
from handrail.filesystem.disk import Disk
from handrail.filesystem.path_filters import ExcludedPaths
from tests.extent import some
from tests.filesystem.kit import STORES, call, tree_of
from tests.kit import raises
from tests.wording import Wording

SECRETS = {".env": "hunter1", "deep/er/.env": "hunter2", "secrets/a.txt": "hunter3", ".git/config": "hunter4"}
PLAIN = {"plan.md": "buy milk", "deep/b.md": "b", "docs/c.md": "c"}
FILTER = excluding((".env", "secrets/**"))


@dataclass(frozen=True)
class Place:
    """A filesystem, and the same files behind a filter."""

    whole: Filesystem
    seen: Filesystem


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest) -> Generator[Place]:
    """Each filesystem in turn, with secrets, and behind the filter."""
    with STORES[request.param]({**SECRETS, **PLAIN}) as whole:
        yield Place(whole, whole.filtered(FILTER))


READING: dict[str, Callable[[Filesystem, str], object]] = {
    "read_text": lambda fs, path: fs.read_text(path),
    "read_bytes": lambda fs, path: fs.read_bytes(path),
    "identity": lambda fs, path: fs.identity(path),
    "read_start": lambda fs, path: fs.read_start(path, 3),
    "stat": lambda fs, path: fs.stat(path),
    "remove": lambda fs, path: fs.remove(path, recursive=True),
    "move": lambda fs, path: fs.move(path, f"{path}.moved.md"),
}
"""What needs something to be there."""

WRITING: dict[str, Callable[[Filesystem, str], object]] = {
    "write_text": lambda fs, path: fs.write_text(path, "x"),
    "write_bytes": lambda fs, path: fs.write_bytes(path, b"x"),
    "make_folder": lambda fs, path: fs.make_folder(path),
}
"""What makes something."""

EXCLUDED = [
    ".env",
    "deep/er/.env",
    "secrets",
    "secrets/a.txt",
    "deep//er/../er/.env",
    ".ENV",
    "SECRETS/A.TXT",
    ".GIT",
]
"""Paths that are excluded, there or not, however they are spelled."""


@pytest.mark.parametrize("reading, path", some([*product(READING, EXCLUDED)], 22))  # each of both at least once
def test_what_is_excluded_is_not_there(place: Place, reading: str, path: str) -> None:
    """The error is that of a path at which there is nothing, and nothing changes."""
    before = tree_of(place.whole)
    with pytest.raises(PathNotFoundError) as caught:
        READING[reading](place.seen, path)
    assert "hunter" not in str(caught.value)
    assert tree_of(place.whole) == before
    assert not place.seen.exists(path)


@pytest.mark.parametrize("operate", WRITING.values(), ids=WRITING)
@pytest.mark.parametrize("path", [*EXCLUDED, "docs/.env", ".git/hooks/pre-commit", ".g\u200cit/x", "secrets/new/x"])
def test_nothing_is_made_where_paths_are_excluded(
    place: Place, operate: Callable[[Filesystem, str], object], path: str, wording: Wording
) -> None:
    """The refusal names the pattern, and is the same whether anything is there or not."""
    before = tree_of(place.whole)
    with raises(PathConflictError, wording):
        operate(place.seen, path)
    with raises(PathConflictError, wording):
        place.seen.move("plan.md", path)
    assert tree_of(place.whole) == before


def test_what_stays_is_neither_removed_nor_moved_but_may_be_written(place: Place, wording: Wording) -> None:
    """Alone or with its folder; the files beside it may go."""
    staying = place.whole.filtered(PathFilter(removing=(ExcludedPaths(("b.md",)),)))
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


def test_what_is_held_stays_where_it_is_unless_it_is_named(place: Place, wording: Wording) -> None:
    """With a folder that is not in the set, it is neither moved, moved onto nor removed; by itself it is."""
    patterns = ("b.md", "deep/er/**")
    held = ExcludedPaths(patterns)
    assert len({held, ExcludedPaths(patterns), ExcludedPaths(("b.md",))}) == 2
    seen = place.whole.filtered(PathFilter(holding=(held,)))
    seen.write_text("new/b.md", "b")
    before = tree_of(place.whole)
    operations: tuple[Callable[[], object], ...] = (
        lambda: seen.remove("deep", recursive=True),
        lambda: seen.move("deep", "elsewhere"),
        lambda: seen.move("new", "docs/new"),
    )
    for operate in operations:
        with pytest.raises(PathConflictError) as caught:
            operate()
        said = str(caught.value)
        for pattern in patterns:  # which of them is met first depends on the disk
            said = said.replace(repr(pattern), "<pattern>")
        assert said == wording
    assert tree_of(place.whole) == before
    assert seen.remove("new/b.md") == 0
    seen.move("deep/b.md", "b.md")
    seen.move("deep/er", "er")
    assert seen.remove("er", recursive=True) == 1
    assert seen.remove("deep") == 0


def test_what_no_search_shows_is_left_out_of_lists_and_said_to_be(place: Place) -> None:
    """It exists, and may be read and written."""
    seen = place.whole.filtered(PathFilter(searching=(ExcludedPaths(("b.md",)),)))
    assert "deep/b.md" not in {stat.path for stat in seen.glob("**")}
    assert [stat.path for stat in seen.list("deep")] == ["deep/er"]
    assert seen.scan("deep", "*").unlisted == 1
    assert seen.read_text("deep/b.md") == "b"
    why = "the exclude pattern 'b.md'"
    assert [seen.unsearched("deep/b.md", by_name=by_name) for by_name in (True, False)] == [why, why]
    listed = place.whole.filtered(PathFilter(listing=(ExcludedPaths(("b.md",)),)))
    assert [listed.unsearched("deep/b.md", by_name=by_name) for by_name in (True, False)] == [None, why]
    assert listed.unsearched("none") is None


@pytest.mark.parametrize("folder", ["deep", "deep/er"])
def test_folder_that_holds_what_is_excluded_stays(place: Place, folder: str, wording: Wording) -> None:
    """It is neither removed nor moved, empty as it may look: what is excluded would go with it."""
    before = tree_of(place.whole)
    operations: tuple[Callable[[], object], ...] = (
        lambda: place.seen.remove(folder, recursive=True),
        lambda: place.seen.move(folder, "elsewhere"),
    )
    for operate in operations:
        with raises(PathConflictError, wording):
            operate()
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
    before = tree_of(place.whole)
    moment = place.whole.snapshot()
    with call(place.seen):
        place.seen.write_text("plan.md", "x")
        place.whole.write_text(".env", "y")
    assert tree_of(place.whole) == before
    place.seen.write_text("plan.md", "x")
    place.seen.restore(moment)
    assert tree_of(place.whole) == before
    assert place.seen.turn is place.whole.turn


def test_filters_add_up(place: Place) -> None:
    """One on the other keeps back what either does, and the same one again changes nothing."""
    twice = place.seen.filtered(excluding(("plan.md",)))
    assert not twice.exists("plan.md")
    assert not twice.exists(".env")
    assert tree_of(twice.filtered(excluding(("plan.md",)))) == tree_of(twice)


B = (ExcludedPaths(("deep/b.md",)),)
"""The set of one path."""


def test_a_path_may_be_kept_from_reading_alone(place: Place, wording: Wording) -> None:
    """It can be written unseen; its folder is not moved, since it could be read where it went."""
    seen = place.whole.filtered(PathFilter(reading=B))
    assert not seen.exists("deep/b.md")
    seen.write_text("deep/b.md", "new")
    assert place.whole.read_text("deep/b.md") == "new"
    with raises(PathConflictError, wording):
        seen.move("deep", "x")


def test_a_path_may_be_kept_from_writing_alone(place: Place, wording: Wording) -> None:
    """It is read and listed, and neither written, moved nor removed."""
    seen = place.whole.filtered(PathFilter(writing=B))
    assert seen.read_text("deep/b.md") == "b"
    path = "deep/b.md"
    changes: tuple[Callable[[], object], ...] = (
        lambda: seen.write_text(path, "x"),
        lambda: seen.remove(path),
        lambda: seen.move(path, "x"),
        lambda: seen.remove("deep", recursive=True),
    )
    for change in changes:
        with raises(PathConflictError, wording):
            change()
    assert place.whole.read_text(path) == "b"


def test_a_path_may_be_kept_out_of_lists_alone(place: Place) -> None:
    """It can be read by its path; a search says how many it left out."""
    seen = place.whole.filtered(PathFilter(listing=B))
    assert seen.read_text("deep/b.md") == "b"
    assert "deep/b.md" not in [stat.path for stat in seen.list("deep")]
    found = seen.scan(".", "**/*.md")
    assert [stat.path for stat in found.entries] == ["docs/c.md", "plan.md"]
    assert found.unlisted == 1


@pytest.mark.parametrize(
    "pattern,path,excluded",
    [
        ("*.key", "a/b.KEY", True),
        ("*.key", "b.key/inside", True),
        ("secrets/", "a/secrets/x", True),
        ("./secrets", "secrets/x", True),
        ("a/*.key", "c/a/b.key", False),
        ("**/a/*.key", "c/a/b.key", True),
        ("caf\u00e9", "cafe\u0301", True),
        ("stra\u00dfe", "STRASSE", True),
        (".git", ".g\u200bit", False),
        (".git", ".g\u200dit/config", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b/z", True),
    ],
)
def test_patterns_fit_every_spelling_that_some_disk_takes_for_the_name(
    pattern: str, path: str, *, excluded: bool
) -> None:
    """Upper and lower case, composed and decomposed letters, and characters that count for nothing."""
    assert (ExcludedPaths((pattern,)).why(path, is_folder=False) is not None) is excluded


@pytest.mark.parametrize("pattern", ["", "/etc/passwd", "../x", "a/../../x", "a\\b", "a\0b", "/".join("x" * 129)])
def test_pattern_that_no_path_fits_is_refused(pattern: str) -> None:
    """A slip would protect nothing."""
    with pytest.raises(PathEscapeError):
        excluding((pattern,))


def test_one_string_is_not_taken_for_patterns(wording: Wording) -> None:
    """Each of its letters would be one."""
    with raises(TypeError, wording):
        excluding(".env")
    with raises(TypeError, wording):
        excluding((3,))  # type: ignore[arg-type]


def test_git_is_excluded_unless_it_is_asked_for() -> None:
    """A repository's own files, at any depth; the files beside it are others."""
    for path in (".git", ".git/hooks/pre-commit", "sub/.git/config", ".GIT/config"):
        assert excluding(()).unreadable(path)
        assert excluding(()).unwritable(path)
        assert not excluding((), show_git=True)
    assert excluding(()).unreadable(".gitignore") is None


@contextmanager
def linked(tmp_path: Path) -> Generator[HostFilesystem]:
    """A folder on disk with links to what is excluded."""
    root = tmp_path / "root"
    for path, text in {**SECRETS, **PLAIN}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "to file").symlink_to(".env")
    (root / "to folder").symlink_to("secrets")
    (root / "to link").symlink_to("to folder/a.txt")
    (root / "to above").symlink_to("deep")
    (root / "to new").symlink_to("docs/.env")
    (root / "absolute").symlink_to(root / "secrets")
    with HostFilesystem(root, journal=root.parent / "journal") as fs:
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
        writes: tuple[Callable[[], object], ...] = (
            lambda: fs.write_text(path, "x"),
            lambda: fs.write_bytes(path, b"x"),
        )
        for write in writes:
            with raises(PathConflictError, wording):
                write()
        assert tree_of(whole) == before


def test_listing_through_a_link_is_listing_what_it_leads_to(tmp_path: Path) -> None:
    """The pattern is about where a file lies, not about how one came there."""
    with linked(tmp_path) as whole:
        fs = whole.filtered(excluding(("docs/c.md", "secrets/a.txt")))
        (whole.root / "d").symlink_to("docs")
        assert fs.list("d") == ()
        assert fs.scan("d", "**").entries == ()
        assert fs.list("to folder") == ()
        with pytest.raises(PathNotFoundError):
            whole.filtered(FILTER).list("to folder")


def test_a_disk_that_folds_case_does_not_tell_the_name_of_what_is_excluded(tmp_path: Path) -> None:
    """Neither by its own path nor by a link to another spelling of it."""

    class Folding(Disk):
        def folds_case(self, folder: Path) -> bool:
            return True

    root = tmp_path / "root"
    root.mkdir()
    (root / ".env").write_text("SECRET")
    (root / ".ENV").write_text("the same file, on such a disk")
    (root / "link").symlink_to(".ENV")
    with HostFilesystem(root, journal=root.parent / "journal", disk=Folding()) as whole:
        fs = whole.filtered(FILTER)
        for path in (".ENV", "link", ".Env"):
            with pytest.raises(PathNotFoundError):
                fs.read_text(path)


def test_every_method_of_the_protocol_is_tried_here(place: Place) -> None:
    """A method that is added to the protocol must be added above."""
    methods = {name for name in vars(Filesystem) if not name.startswith("_")}
    tried = {*READING, *WRITING, "exists", "list", "glob", "scan", "filtered", "resolve", "unsearched", "shortest"}
    assert methods - {"parameters"} == tried
    assert isinstance(place.seen, Filesystem)
    assert issubclass(PathNotFoundError, FilesystemError)


def test_exclude_patterns_know_braces() -> None:
    """A pattern that excluded nothing would not be noticed."""
    hidden = excluding(("*.{key,pem}", "src/{a,b}.py"))
    assert [path for path in ("d/a.key", "b.pem", "src/b.py", "src/c.py", "a.txt") if hidden.unreadable(path)] == [
        "d/a.key",
        "b.pem",
        "src/b.py",
    ]
