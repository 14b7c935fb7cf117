"""Paths, the spelling of names on disk, patterns, and walks: how far they go, and what they cost."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import PathConflictError, PathEscapeError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem, WalkRequest
from handrail.filesystem.paths import MAX_DEPTH, normalise, normalise_on_disk, to_bytes, to_text
from tests.filesystem.kit import WatchedDisk
from tests.kit import raises
from tests.wording import Wording

PARTS = st.sampled_from(["a", "b.md", ".hidden", "...", "..x", "ä ö", "-", "a:b", "C", "~", "*"])


SHORTEST: dict[str | None, list[str]] = {
    ".": [".", "./", "a/.."], "notes/a.md": ["notes/a.md", "./notes//a.md/"], "a/c": ["a/./b/../c"],
    None: ["a/../../b/.."], **{path: [path] for path in (".env", "...", "a b/ü.md", "x" * 255, "ab:c")},
}  # fmt: skip


@pytest.mark.parametrize("path,shortest", [(path, shortest) for shortest, paths in SHORTEST.items() for path in paths])
def test_path_has_one_shortest_form(path: str, shortest: str | None) -> None:
    """Spellings that mean the same come to the same, and a way out of the root is no path, wherever it then leads."""
    with pytest.raises(PathEscapeError) if shortest is None else nullcontext():
        assert normalise(path) == shortest


@given(st.lists(PARTS, min_size=1, max_size=5).map("/".join))
def test_shortest_form_stays_as_it_is(path: str) -> None:
    """Normalising twice is once."""
    assert normalise(normalise(path)) == normalise(path)


@given(st.text(max_size=20))
def test_any_text_is_a_path_inside_the_root_or_refused(path: str) -> None:
    """What comes out has no part that could lead anywhere else."""
    try:
        shortest = normalise(path)
    except PathEscapeError:
        return
    assert shortest == "." or not {"", ".", ".."} & {*shortest.split("/")}
    assert "\0" not in shortest
    assert "\\" not in shortest


@pytest.mark.parametrize("path", [
    pytest.param("", id="empty"), pytest.param("/", id="root"), pytest.param("/notes/a.md", id="absolute"),
    pytest.param("C:/notes/a.md", id="drive"), pytest.param("c:\\notes\\a.md", id="drive with backslashes"),
    pytest.param("notes\\a.md", id="backslash"), pytest.param("../a.md", id="above"),
    pytest.param("a/../../b", id="above in the middle"), pytest.param("..", id="parent"),
    pytest.param("a\0.md", id="NUL"), pytest.param("a\ud800.md", id="surrogate"),
    pytest.param("x" * 256, id="long name"), pytest.param("ä" * 128, id="long name in bytes"),
    pytest.param("/".join(["x"] * 2049), id="long path"),
    pytest.param("/".join(["ä" * 100] * 30), id="long path in bytes"),
])  # fmt: skip
def test_refusal_says_what_to_give_instead(path: str, wording: Wording) -> None:
    """A model that reads the message can mend the path, and never reads one outside of the root."""
    with raises(PathEscapeError, wording) as caught:
        normalise(path)
    assert caught.value.path == path
    assert len(str(caught.value)) < 200
    assert "/notes" not in str(caught.value)


@pytest.mark.parametrize("path", [None, 5, b"a.md"])
def test_only_text_is_a_path(path: object, wording: Wording) -> None:
    """The message names the type that was given."""
    with raises(PathEscapeError, wording):
        normalise(cast("Any", path))


NAMES = st.binary(min_size=1, max_size=40).filter(lambda name: not {0, 47} & {*name} and name not in {b".", b".."})


@given(NAMES | st.text("aä␛\\E9:", min_size=1).map(str.encode))
def test_any_name_on_disk_has_a_path_and_is_found_by_it(name: bytes) -> None:
    """The spelling is text that can be encoded, is one part of a path, stays as it is, and leads back to the name."""
    text = to_text(name)
    assert to_bytes(text) == name
    assert normalise_on_disk(text) == text
    assert text.encode().decode() == text


@pytest.mark.parametrize("path", ["a␛", "␛41", "␛C3␛A4", "a/␛2F", "␛00", "␛2E", "␛2E␛2E", "␛e9", "␛E2␛90␛9Bx␛"])
def test_name_has_one_spelling_only(path: str, wording: Wording) -> None:
    """Another spelling of the same bytes, or of what is no name, is refused."""
    with raises(PathEscapeError, wording):
        normalise_on_disk(path)


def test_long_names_are_measured_in_the_bytes_that_they_have_on_disk(wording: Wording) -> None:
    """A spelling takes five bytes for one, and that is not counted."""
    assert normalise_on_disk("␛E9" * 255) == "␛E9" * 255
    with raises(PathEscapeError, wording):
        normalise_on_disk("␛E9" * 256)


FILES = {"a.md": "", "b.txt": "", ".env": "", "src/a.py": "", "src/x/b.py": "", "src/x/y/c.py": "", "docs/a.md": ""}


FITTING = {
    "*": ".env a.md b.txt docs src", **dict.fromkeys(["*.md", "./*.md"], "a.md"),
    **dict.fromkeys(["?.txt", "[!a].*", "[^a].*"], "b.txt"), "[a-b].*": "a.md b.txt", "**/*.md": "a.md docs/a.md",
    **dict.fromkeys(["**/*.py", "src/**/*.py"], "src/a.py src/x/b.py src/x/y/c.py"),
    "src/**": "src/a.py src/x src/x/b.py src/x/y src/x/y/c.py",
    **dict.fromkeys(["**/y/**", "**/**/c.py"], "src/x/y/c.py"), "src/*/*": "src/x/b.py src/x/y", "src/a.py": "src/a.py",
    **dict.fromkeys(["src/a.py/**", "A.md", "absent/**", "."], ""),
}  # fmt: skip
"""Patterns, and the paths that they find."""


@pytest.mark.parametrize("pattern,paths", FITTING.items())
def test_pattern_finds_what_fits_sorted(make: Callable[..., Filesystem], pattern: str, paths: str) -> None:
    """`*`, `?` and brackets stay inside one part, `**` stands for any number of folders, and case matters."""
    assert [stat.path for stat in make(FILES).glob(pattern)] == paths.split()


@pytest.mark.parametrize("pattern", [
    pytest.param("../*", id="above"), pytest.param("/etc/*", id="absolute"), pytest.param("", id="empty"),
    pytest.param("a\\*", id="backslash"), pytest.param("*" * 300, id="long name"),
    pytest.param("*/" * 3_000, id="long"), pytest.param("*/" * 200, id="many names"), pytest.param("a\0", id="NUL"),
    pytest.param("a\ud800", id="surrogate"),
])  # fmt: skip
def test_pattern_does_not_leave_the_root(make: Callable[..., Filesystem], pattern: str, wording: Wording) -> None:
    """A pattern is held to what paths are held to, and the refusal calls it a pattern."""
    with raises(PathEscapeError, wording):
        make(FILES).glob(pattern)


@given(st.text(alphabet="ab*?[]!-^&~|.\n", min_size=1, max_size=8).filter(lambda text: ".." not in text))
def test_any_pattern_is_answered(pattern: str) -> None:
    """No pattern is a fault in itself: brackets that do not close are characters like others."""
    InMemoryFilesystem({"a": "", "b[": "", "a\nb": ""}).glob(pattern)


def test_many_stars_do_not_take_long() -> None:
    """A pattern is matched part by part, each part in one pass, so no pattern is a trap."""
    fs = InMemoryFilesystem({f"{'a' * 200}/{'a' * 200}": ""})
    assert fs.glob("/".join(["**", "*a" * 60 + "b"] * 10)) == ()


DEEPEST = "/".join(["d"] * MAX_DEPTH)


def dig(root: Path, depth: int) -> None:
    """Folders in each other, deeper than a path can name."""
    at = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)


@contextmanager
def counted(root: Path) -> Generator[tuple[HostFilesystem, Counter[str]]]:
    """A folder as a filesystem, and how often each call to the disk is made."""
    calls, disk = Counter[str](), WatchedDisk()
    with HostFilesystem(root, journal=root.with_name("journal"), disk=disk) as fs:

        def count(name: str) -> None:
            calls[name] += 1

        disk.before = count
        yield fs, calls


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty folder."""
    (root := tmp_path / "root").mkdir()
    return root


def test_a_walk_lists_each_folder_once_and_stops_at_the_greatest_depth(root: Path, wording: Wording) -> None:
    """What lies deeper is neither removed nor moved, since it could not be put back; finding out costs a walk."""
    dig(root, 400)
    with counted(root) as (fs, calls):
        scan = fs.scan(".", "**")
        assert (len(scan.entries), scan.too_deep) == (MAX_DEPTH, 1)
        assert calls["names"] <= MAX_DEPTH + 1
        assert calls["open_folder"] <= 2 * MAX_DEPTH + 2
        assert calls["look"] <= MAX_DEPTH + 1
        calls.clear()
        for change in (partial(fs.remove, "d", recursive=True), partial(fs.move, "d", "e")):
            with raises(PathConflictError, wording):
                change()
        assert calls["names"] <= 2 * MAX_DEPTH + 2
    shutil.rmtree(root)


def test_the_deepest_path_is_a_path_and_the_next_is_none(make: Callable[..., Filesystem], wording: Wording) -> None:
    """Every operation refuses what is deeper, and says how deep it is."""
    fs = make()
    fs.make_folder(DEEPEST)
    assert [stat.path for stat in fs.glob(DEEPEST)] == [DEEPEST]
    assert fs.scan(".", "**").too_deep == 1
    changes = (fs.make_folder, fs.remove, partial(fs.write_text, text="x"), partial(fs.move, "d"))
    for operate in (fs.read_text, fs.exists, fs.list, fs.glob, *changes):
        with raises(PathEscapeError, wording):
            operate(f"{DEEPEST}/x")
    fs.make_folder("a/b")
    with raises(PathEscapeError, wording):
        fs.move("d", "a/d")
    fs.remove("d", recursive=True)
    assert not fs.exists("d")


def test_a_walk_ends_when_it_has_looked_at_enough(make: Callable[..., Filesystem]) -> None:
    """It says so, and what it has found counts."""
    fs = make({f"a/{number}": "" for number in range(10)})
    found = fs.scan(".", "**", WalkRequest(most=4))
    assert (found.looked_at, found.stop_reason, len(found.entries)) == (4, "number", 4)
    assert fs.scan(".", "**", WalkRequest(most=11)).stop_reason is None


def test_a_walk_ends_when_its_time_is_over(make: Callable[..., Filesystem]) -> None:
    """The time is asked for before each folder is listed."""
    fs = make({"a/b/c": "", "x": ""})
    answers = iter((False, True))
    found = fs.scan(".", "**", WalkRequest(is_over=lambda: next(answers)))
    assert ([stat.path for stat in found.entries], found.stop_reason) == (["a", "x"], "time")
