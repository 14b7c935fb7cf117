"""Paths, the spelling of names on disk, and patterns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import PathEscapeError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.filesystem.paths import (
    folders_above,
    is_inside,
    join,
    normalise,
    normalise_on_disk,
    parent_folder,
    to_bytes,
    to_text,
)
from tests.kit import raises
from tests.wording import Wording

PARTS = st.sampled_from(["a", "b.md", ".hidden", "...", "..x", "ä ö", "-", "a:b", "C", "~", "*"])


SHORTEST: dict[str | None, list[str]] = {
    ".": [".", "./", "a/.."],
    "notes/a.md": ["notes/a.md", "./notes//a.md/"],
    "a/c": ["a/./b/../c"],
    None: ["a/../../b/.."],
    **{path: [path] for path in (".env", "...", "a b/ü.md", "x" * 255, "ab:c")},
}


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


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("", id="empty"),
        pytest.param("/", id="root"),
        pytest.param("/notes/a.md", id="absolute"),
        pytest.param("C:/notes/a.md", id="drive"),
        pytest.param("c:\\notes\\a.md", id="drive with backslashes"),
        pytest.param("notes\\a.md", id="backslash"),
        pytest.param("../a.md", id="above"),
        pytest.param("a/../../b", id="above in the middle"),
        pytest.param("..", id="parent"),
        pytest.param("a\0.md", id="NUL"),
        pytest.param("a\ud800.md", id="surrogate"),
        pytest.param("x" * 256, id="long name"),
        pytest.param("ä" * 128, id="long name in bytes"),
        pytest.param("/".join(["x"] * 2049), id="long path"),
        pytest.param("/".join(["ä" * 100] * 30), id="long path in bytes"),
    ],
)
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


def test_path_lies_in_its_folders_and_in_nothing_else() -> None:
    """The root lies in no folder, and names that begin alike are others."""
    assert list(folders_above("a/b/c")) == ["a/b", "a", "."]
    assert list(folders_above(".")) == []
    assert parent_folder("a") == "."
    assert join(".", "a") == "a"
    assert join("a", "b") == "a/b"
    assert is_inside("a/b/c", "a")
    assert is_inside("a", ".")
    assert not is_inside("ab", "a")
    assert not is_inside("a", "a")


NAMES = st.binary(min_size=1, max_size=40).filter(lambda name: not {0, 47} & {*name} and name not in {b".", b".."})


@given(NAMES | st.text("aä␛\\E9:", min_size=1).map(str.encode))
def test_any_name_on_disk_has_a_path_and_is_found_by_it(name: bytes) -> None:
    """The spelling is text that can be encoded, is one part of a path, stays as it is, and leads back to the name."""
    text = to_text(name)
    assert to_bytes(text) == name
    assert normalise_on_disk(text) == text
    assert text.encode().decode() == text


@pytest.mark.parametrize(
    "name,text",
    [
        (b"plan.md", "plan.md"),
        ("plän.md".encode(), "plän.md"),
        (b"caf\xe9", "caf␛E9"),
        ("␛".encode(), "␛E2␛90␛9B"),
        (b"a\\b", "a␛5Cb"),
        (b"C:", "C␛3A"),
        (b"%41", "%41"),
    ],
)
def test_only_what_is_no_part_of_a_path_is_spelled(name: bytes, text: str) -> None:
    """Names in UTF-8 are their own text."""
    assert to_text(name) == text


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


def test_what_is_no_text_is_no_path_on_disk(wording: Wording) -> None:
    """The refusal is the one of every filesystem."""
    with raises(PathEscapeError, wording):
        normalise_on_disk(cast("Any", b"a"))


FILES = {"a.md": "", "b.txt": "", ".env": "", "src/a.py": "", "src/x/b.py": "", "src/x/y/c.py": "", "docs/a.md": ""}


FITTING = {
    "*": ".env a.md b.txt docs src",
    **dict.fromkeys(["*.md", "./*.md"], "a.md"),
    **dict.fromkeys(["?.txt", "[!a].*", "[^a].*"], "b.txt"),
    "[a-b].*": "a.md b.txt",
    "**/*.md": "a.md docs/a.md",
    **dict.fromkeys(["**/*.py", "src/**/*.py"], "src/a.py src/x/b.py src/x/y/c.py"),
    "src/**": "src/a.py src/x src/x/b.py src/x/y src/x/y/c.py",
    **dict.fromkeys(["**/y/**", "**/**/c.py"], "src/x/y/c.py"),
    "src/*/*": "src/x/b.py src/x/y",
    "src/a.py": "src/a.py",
    **dict.fromkeys(["src/a.py/**", "A.md", "absent/**", "."], ""),
}
"""Patterns, and the paths that they find."""


@pytest.mark.parametrize("pattern,paths", FITTING.items())
def test_pattern_finds_what_fits_sorted(make: Callable[..., Filesystem], pattern: str, paths: str) -> None:
    """`*`, `?` and brackets stay inside one part, `**` stands for any number of folders, and case matters."""
    assert [stat.path for stat in make(FILES).glob(pattern)] == paths.split()


def test_pattern_of_two_stars_finds_everything(make: Callable[..., Filesystem]) -> None:
    """Files and folders alike, each as `stat` describes it."""
    fs = make(FILES)
    found = fs.glob("**")
    assert len(found) == len(FILES) + 4
    assert all(fs.stat(stat.path) == stat for stat in found)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("../*", id="above"),
        pytest.param("/etc/*", id="absolute"),
        pytest.param("", id="empty"),
        pytest.param("a\\*", id="backslash"),
        pytest.param("*" * 300, id="long name"),
        pytest.param("*/" * 3_000, id="long"),
        pytest.param("*/" * 200, id="many names"),
        pytest.param("a\0", id="NUL"),
        pytest.param("a\ud800", id="surrogate"),
    ],
)
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
