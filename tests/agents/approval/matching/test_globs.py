"""What globs fit, and that no text and no glob takes long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from handrail.agents.approval.matching import Glob, glob


@pytest.mark.parametrize(
    "pattern,fitting,others",
    [
        ("", [""], ["a"]),
        ("a", ["a"], ["", "A", "ab", "ba"]),
        ("*", ["", "a", "a b\n"], ["a/b", "/"]),
        ("a*c", ["ac", "abc", "acc"], ["a/c", "acd", "ca"]),
        ("**", ["", "a", "a/b", "/"], []),
        ("***", ["", "a/b"], []),
        ("a**c", ["ac", "a/b/c"], ["a/b"]),
        ("?", ["a", "\n", "é"], ["", "ab", "/"]),
        ("a/*", ["a/", "a/b"], ["a", "a/b/c"]),
        ("a/**", ["a/", "a/b", "a/b/c"], ["a", "ab/c"]),
        ("**/b", ["b", "a/b", "a/a/b", "/b"], ["ab", "a/ab", "b/a"]),
        ("**/*", ["", "b", "a/b"], []),
        ("**/**/b", ["b", "a/b"], ["ab"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
        ("a**/b", ["a/b", "a/x/b", "aa/b"], ["b"]),
        ("**a/b", ["a/b", "x/a/b", "xa/b"], ["b"]),
        ("**/a/**/b", ["a/b", "x/a/y/b"], ["b", "a"]),
        ("[ab]", ["a", "b"], ["c", "ab", ""]),
        ("[a-c]x", ["ax", "cx"], ["dx", "-x"]),
        ("[c-a]", [], ["a", "b", "c", "-"]),
        ("[-a]", ["-", "a"], ["b"]),
        ("[a-]", ["-", "a"], ["b"]),
        ("[!a]", ["b", "!"], ["a", "", "/"]),
        ("[^a]", ["b"], ["a", "/"]),
        ("[]]", ["]"], ["["]),
        ("[!]]", ["a"], ["]"]),
        ("[*]", ["*"], ["a"]),
        ("[?]", ["?"], ["a"]),
        ("[/]", [], ["/"]),
        ("[a", ["[a"], ["a"]),
        ("[]", ["[]"], [""]),
        ("[!]", ["[!]"], ["a"]),
        ("=a", ["=a"], ["a"]),
        ("*" * 3 + "/b", ["b", "a/b"], ["ab"]),
    ],
)
def test_a_glob_read_narrowly_stays_between_slashes(pattern: str, fitting: list[str], others: list[str]) -> None:
    """The whole text must fit, letter for letter; only `**` and slashes themselves fit slashes."""
    assert [text for text in fitting if not Glob(pattern).fits(text)] == []
    assert [text for text in others if Glob(pattern).fits(text)] == []


@pytest.mark.parametrize(
    "pattern,fitting,others",
    [
        ("*", ["", "a/b"], []),
        ("rm *", ["rm -r /srv"], ["rm", "farm "]),
        ("a?b", ["a/b"], ["ab"]),
        ("a[!x]b", ["a/b"], ["axb"]),
        ("**/b", ["b", "a/b"], ["ab"]),
        ("*/b", ["a/b", "a/x/b", "/b"], ["b"]),
    ],
)
def test_a_glob_read_widely_goes_across_slashes(pattern: str, fitting: list[str], others: list[str]) -> None:
    """Stars, question marks and brackets fit slashes too; `**/` still begins at the start of a part."""
    assert [text for text in fitting if not glob(pattern, "wide").fits(text)] == []
    assert [text for text in others if glob(pattern, "wide").fits(text)] == []


def plainly_fits(pattern: str, text: str, *, narrow: bool) -> bool:
    """What the module says of globs without brackets, tried out in every way."""

    @cache
    def fits(at: int, to: int) -> bool:
        if at == len(pattern):
            return to == len(text)
        rest = pattern[at:]
        if rest.startswith("**/") and pattern[:at][-1:] in {"", "/"}:
            return fits(at + 3, to) or any(text[end] == "/" and fits(at + 3, end + 1) for end in range(to, len(text)))
        crosses = rest.startswith("**")
        if rest[0] == "*":
            after = at + 1 + crosses
            ends = range(to, len(text) + 1)
            return any((crosses or not narrow or "/" not in text[to:end]) and fits(after, end) for end in ends)
        if to == len(text):
            return False
        fitting = text[to] != "/" or not narrow if rest[0] == "?" else text[to] == rest[0]
        return fitting and fits(at + 1, to + 1)

    return fits(0, 0)


@given(
    st.lists(st.sampled_from(["a", "b", "/", "?", "*", "**", "**/", "/**/"]), max_size=7).map("".join),
    st.text("ab/", max_size=9),
    st.booleans(),
)
def test_a_glob_fits_what_trying_every_way_fits(pattern: str, text: str, narrow: bool) -> None:
    """Moving all places together gives the same as going each way on its own."""
    pattern = re.sub(
        r"\*{3,}", "**", pattern
    )  # more than two stars mean what two do, which the other way does not know
    assert glob(pattern, "narrow" if narrow else "wide").fits(text) == plainly_fits(pattern, text, narrow=narrow)


@given(
    st.lists(st.sampled_from(["a", "b", "/", "?", "*", "**", "**/", "/**/"]), max_size=7).map("".join),
    st.text("ab/", max_size=9),
)
def test_path_fits_with_the_folders_that_it_lies_in(pattern: str, path: str) -> None:
    """Found in one go."""
    above = [path[:at] for at, character in enumerate(path) if character == "/"]
    one = Glob(pattern, "wide")
    assert one.fits_at_or_above(path) == any(one.fits(each) for each in (path, *above))


@given(
    st.lists(st.sampled_from(["a", "b", "/", "?", "*", "**", "**/", "/**/", "[ab]", "[!a]"]), max_size=7).map("".join),
    st.text("ab/", max_size=9),
    st.booleans(),
)
def test_every_text_that_fits_holds_the_longest_run(pattern: str, text: str, narrow: bool) -> None:
    """So a text without it need not be looked at; without it, the glob would say the same."""
    one = Glob(pattern, "narrow" if narrow else "wide")
    ways = (one.fits, one.fits_at_or_above)
    found = [way(text) for way in ways]
    run, one.run = one.run, ""
    assert [way(text) for way in ways] == found
    assert run in text or not any(found)


class Counted(str):
    """Text that counts how often one of its characters is looked at."""

    __slots__ = ("looks",)

    @override
    def __iter__(self) -> Iterator[str]:
        self.looks = 0
        for character in str.__iter__(self):
            self.looks += 1
            yield character


@pytest.mark.parametrize(
    "pattern", ["*a" * 50 + "b", "**/" + "a*/**/" * 30 + "b", "?" * 40 + "**a**a**a", "[!b]*" * 40]
)
def test_hostile_text_is_looked_at_once(pattern: str) -> None:
    """However many stars, each character is looked at once, and the places are as many as the glob is long."""
    for text in (Counted("a" * 20_000), Counted("a/" * 10_000)):
        text.looks = 0
        found = Glob(pattern).fits(text)
        assert found in {True, False}
        assert text.looks <= len(text)


@given(st.text(alphabet="ab*?[]!^-/\\.\n{}é\ud800", max_size=12), st.text(max_size=12))
def test_every_text_is_a_glob(pattern: str, text: str) -> None:
    """Brackets that do not close are characters like others, and nothing raises."""
    assert Glob(pattern).fits(text) <= Glob("**").fits(text)
    assert Glob(pattern, "wide").fits(text) >= Glob(pattern).fits(text)
