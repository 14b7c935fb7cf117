"""What a path is, and what is said to what is none."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import PathEscapeError
from handrail.filesystem.paths import folders_above, is_inside, join, normalise, parent_folder
from tests.kit import raises
from tests.wording import Wording

PARTS = st.sampled_from(["a", "b.md", ".hidden", "...", "..x", "ä ö", "-", "a:b", "C", "~", "*"])


@pytest.mark.parametrize(
    "given_path,shortest",
    [
        (".", "."),
        ("./", "."),
        ("a/..", "."),
        ("notes/a.md", "notes/a.md"),
        ("./notes//a.md/", "notes/a.md"),
        ("a/./b/../c", "a/c"),
        ("a/../../b/..", None),
        (".env", ".env"),
        ("...", "..."),
        ("a b/ü.md", "a b/ü.md"),
        ("x" * 255, "x" * 255),
        ("ab:c", "ab:c"),
    ],
)
def test_path_has_one_shortest_form(given_path: str, shortest: str | None) -> None:
    """Spellings that mean the same come to the same, and a way out of the root is no path, wherever it then leads."""
    if shortest is None:
        with pytest.raises(PathEscapeError):
            normalise(given_path)
    else:
        assert normalise(given_path) == shortest


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
