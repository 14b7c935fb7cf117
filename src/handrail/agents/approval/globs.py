"""Globs, taken apart once and matched in time that grows with the text and with nothing else.

| in a glob | fits |
|---|---|
| `*` | any characters, or none |
| `**` | the same, slashes among them; `**/` at the start of a part may also stand for nothing |
| `?` | one character |
| `[a-z]`, `[!a]`, `[^a]` | one character that is, or is not, among these; `[*]` is a star |
| anything else | itself |

Read narrowly, `*`, `?` and brackets stay between two slashes; read widely, they fit slashes too.

All places in the glob that the text can have reached are the bits of one number, and each character moves them
together. So no character is looked at twice, however many stars there are. Most texts need no such look:
one that does not hold the longest run of plain characters in the glob (`Glob.run`) does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

Reading = Literal["narrow", "wide"]
"""Whether `*`, `?` and brackets stay between two slashes."""

_SLASH: Final = "/"
_BRACKETS: Final = re.compile(r"\[([!^]?)(\]?[^\]]*)\]", re.DOTALL)
_RANGE: Final = re.compile(r"(.)-(.)|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Star:
    """Any characters; with slashes among them if it crosses."""

    crosses: bool


@dataclass(frozen=True, slots=True)
class _Folders:
    """`**/` at the start of a part: any folders, none included."""


@dataclass(frozen=True, slots=True)
class _OneOf:
    """One character: in one of the ranges, or in none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def fits(self, character: str) -> bool:
        return any(low <= character <= high for low, high in self.ranges) is not self.negated


_Token = _Star | _Folders | _OneOf | str
_ANY: Final = _OneOf((), negated=True)


class Glob:
    """One glob in one reading.

    Attributes:
        run: the longest run of characters that stand for themselves; a text without it does not fit.
    """

    __slots__ = ("_crossing", "_end", "_gates", "_literal", "_loops", "_narrow", "_sets", "run")

    def __init__(self, text: str, reading: Reading = "narrow") -> None:
        """Take a glob apart; every text is one, because brackets that do not close are characters like others."""
        self._narrow = reading == "narrow"
        self._literal: dict[str, int] = {}
        self._sets: list[tuple[int, _OneOf]] = []
        self._crossing = self._gates = self._loops = 0
        self._end = 1
        run = self.run = ""
        for token in _tokens(text):
            self._end <<= self._add(token, self._end)
            run = run + token if isinstance(token, str) else ""
            self.run = max(self.run, run, key=len)

    def fits(self, text: str) -> bool:
        """Whether the whole text fits."""
        return self._fits(text, ends_at_slash=False)

    def fits_at_or_above(self, path: str) -> bool:
        """Whether the path fits, or a folder that it lies in: all that stands before one of its slashes."""
        return self._fits(path, ends_at_slash=True)

    def _fits(self, text: str, *, ends_at_slash: bool) -> bool:
        if self.run not in text:
            return False
        known: dict[str, int] = {}
        at = self._reached(1)
        for character in text:
            if ends_at_slash and character == _SLASH and at & self._end:
                return True
            takes = known.get(character)
            if takes is None:
                takes = known[character] = self._takes(character)
            loops = self._crossing if self._narrow and character == _SLASH else self._loops
            at = self._reached((at & loops) | ((at & takes) << 1))
            if not at:
                return False
        return bool(at & self._end)

    def _add(self, token: _Token, bit: int) -> int:
        """Enter a token at its place; returns how many places it takes."""
        if isinstance(token, _Folders):
            # A gate, which leads to the star behind it, or past that and its slash. It is a place of its own: from the
            # star itself, one could leave in the middle of a part.
            self._gates |= bit
            self._loops |= bit << 1
            self._crossing |= bit << 1
            self._literal[_SLASH] = self._literal.get(_SLASH, 0) | bit << 2
            return 3
        if isinstance(token, _Star):
            self._loops |= bit
            self._crossing |= bit if token.crosses else 0
        elif isinstance(token, _OneOf):
            self._sets.append((bit, token))
        else:
            self._literal[token] = self._literal.get(token, 0) | bit
        return 1

    def _takes(self, character: str) -> int:
        """The places that a character leads on from."""
        takes = self._literal.get(character, 0)
        if not (self._narrow and character == _SLASH):
            takes |= sum(bit for bit, one_of in self._sets if one_of.fits(character))
        return takes

    def _reached(self, places: int) -> int:
        """The places, and those that follow on what can stand for nothing; two such never follow each other."""
        gates = places & self._gates
        places |= gates << 1 | gates << 3
        return places | (places & self._loops) << 1


def _tokens(text: str) -> Iterator[_Token]:
    at, last = 0, None
    while at < len(text):
        token, end = _token(text, at)
        if not isinstance(token, _Folders) or last != token:
            yield token
        at, last = end, token


def _token(text: str, at: int) -> tuple[_Token, int]:
    """The token that begins at a place, and where it ends."""
    if text[at] == "*":
        end = at + 1
        while text[end : end + 1] == "*":
            end += 1
        crosses = end > at + 1
        if crosses and text[end : end + 1] == _SLASH and text[at - 1 : at] in {"", _SLASH}:
            return _Folders(), end + 1
        return _Star(crosses), end
    brackets = _BRACKETS.match(text, at)
    if brackets is not None and brackets[2]:
        return _OneOf(_ranges(brackets[2]), negated=bool(brackets[1])), brackets.end()
    return (_ANY if text[at] == "?" else text[at]), at + 1


def _ranges(body: str) -> tuple[tuple[str, str], ...]:
    """What stands between brackets: `a-z` is a range, and a dash at either end stands for itself."""
    return tuple((found[1], found[2]) if found[2] else (found[0], found[0]) for found in _RANGE.finditer(body))


@lru_cache(maxsize=4096)
def glob(text: str, reading: Reading) -> Glob:
    """A glob, taken apart once."""
    return Glob(text, reading)
