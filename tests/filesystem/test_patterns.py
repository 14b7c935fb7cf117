"""Which files and folders a pattern finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import PathEscapeError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from tests.kit import raises
from tests.wording import Wording

FILES = {"a.md": "", "b.txt": "", ".env": "", "src/a.py": "", "src/x/b.py": "", "src/x/y/c.py": "", "docs/a.md": ""}


@pytest.mark.parametrize(
    "pattern,paths",
    [
        ("*", [".env", "a.md", "b.txt", "docs", "src"]),
        ("*.md", ["a.md"]),
        ("./*.md", ["a.md"]),
        ("?.txt", ["b.txt"]),
        ("[a-b].*", ["a.md", "b.txt"]),
        ("[!a].*", ["b.txt"]),
        ("[^a].*", ["b.txt"]),
        ("**/*.md", ["a.md", "docs/a.md"]),
        ("**/*.py", ["src/a.py", "src/x/b.py", "src/x/y/c.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/b.py", "src/x/y/c.py"]),
        ("src/**", ["src/a.py", "src/x", "src/x/b.py", "src/x/y", "src/x/y/c.py"]),
        ("**/y/**", ["src/x/y/c.py"]),
        ("**/**/c.py", ["src/x/y/c.py"]),
        ("src/*/*", ["src/x/b.py", "src/x/y"]),
        ("src/a.py", ["src/a.py"]),
        ("src/a.py/**", []),
        ("A.md", []),
        ("absent/**", []),
        (".", []),
    ],
)
def test_pattern_finds_what_fits_sorted(make: Callable[..., Filesystem], pattern: str, paths: list[str]) -> None:
    """`*`, `?` and brackets stay inside one part, `**` stands for any number of folders, and case matters."""
    assert [stat.path for stat in make(FILES).glob(pattern)] == paths


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
