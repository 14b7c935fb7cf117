r"""What ignore files hide from listings and searches: `.ignore`, `.gitignore`, and `.git/info/exclude`.

They hide, they do not protect: a hidden file can be read by its path. The first file with a pattern that matches
decides: the `.ignore` files, from the nearest folder to the root; the `.gitignore` files, in the same order; the
`info/exclude` of the repository. Everything in a hidden folder is hidden, whatever the patterns for it. In a folder
with a `.git` of its own, git files above it do not count.

`IgnoreRules` is the state of one folder. A walk goes from state to state, so each file is read once, and no path is
split twice. Files above the root, the user's git settings, and which files git tracks are not considered.

`IgnoreFile` is one file, read as git reads a `.gitignore`. The rules are git's, byte for byte, and tests hold them to
the `git` command. A line is a pattern; of those that match, the last one decides. `!` at the start shows again what an
earlier line hides, `/` at the end means folders only, and a slash elsewhere ties the pattern to the folder of the file;
without one it matches a name at any depth. `*`, `?` and brackets match within one part, and `**` as a whole part stands
for any number of folders. `\` escapes the next character. Trailing spaces are ignored unless escaped by a `\`. A line
that git cannot read, such as a bracket that is not closed, matches nothing.

Each part of a pattern is matched in one pass, so a file that a model has written cannot make a walk hang. pathspec does
not ensure that, and its rules are not exactly git's, so it is not used (decision 29).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from handrail.filesystem.path_filters import GIT_FOLDER
from handrail.filesystem.patterns import NOWHERE, PathMatcher, Places
from handrail.filesystem.root import to_bytes

_IGNORE_FILE: Final = ".ignore"
_GITIGNORE_FILE: Final = ".gitignore"
_EXCLUDE_FILE: Final = ".git/info/exclude"

RULE_NAMES: Final = frozenset({_IGNORE_FILE, _GITIGNORE_FILE, GIT_FOLDER})
"""The names of entries that give a folder rules of its own."""

MOST_RULE_BYTES: Final = 1 << 20
"""A larger ignore file is ignored."""

ReadRuleFile: TypeAlias = Callable[[str], bytes | None]
"""The content of an ignore file, by its path relative to the folder; `None` if there is none that counts."""

FitsName: TypeAlias = Callable[[bytes], object]
"""Whether a name matches one part of a pattern."""

_MOST_LINES = 10_000
"""How many patterns of one file count, from its start."""

# ASCII only, like the classes of git.
_CLASSES: Final = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"!-~",
    b"lower": rb"a-z",
    b"print": rb" -~",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t\n\r\f\v",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}

_SPECIAL = frozenset(b"*?[\\")

_STARS = object()


@dataclass(frozen=True, slots=True)
class _Source:
    """One ignore file, and the places that its patterns have reached in a folder."""

    file: IgnoreFile
    places: dict[int, Places]

    def entered(self, name: bytes) -> _Source:
        after = self.file.entered(name, self.places)
        # The same object if nothing has changed, so that a walk of a large tree makes few of them.
        return self if after == self.places else _Source(self.file, after)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules of the ignore files for one folder. A new one has no rules.

    Attributes:
        ignore: from the `.ignore` files, the nearest first.
        gitignore: from the `.gitignore` files, the nearest first.
        exclude: from `info/exclude`.
    """

    ignore: tuple[_Source, ...] = ()
    gitignore: tuple[_Source, ...] = ()
    exclude: tuple[_Source, ...] = ()

    def hides(self, name: str, *, is_folder: bool) -> bool:
        """Whether the entry `name` of this folder is hidden."""
        if not (self.ignore or self.gitignore or self.exclude):
            return False
        data = to_bytes(name)
        for source in (*self.ignore, *self.gitignore, *self.exclude):
            verdict = source.file.verdict(data, source.places, is_folder=is_folder)
            if verdict is not None:
                return verdict.hides
        return False

    def entered(self, name: str) -> IgnoreRules:
        """The rules of the files above for the folder `name` in this one."""
        if not (self.ignore or self.gitignore or self.exclude):
            return self
        data = to_bytes(name)
        return IgnoreRules(
            tuple(source.entered(data) for source in self.ignore),
            tuple(source.entered(data) for source in self.gitignore),
            tuple(source.entered(data) for source in self.exclude),
        )

    def with_files(self, present: Collection[str], read: ReadRuleFile) -> IgnoreRules:
        """These rules and those of the folder's own files.

        Args:
            present: which of `RULE_NAMES` the folder has.
            read: reads a file of the folder.
        """
        ignore, gitignore, exclude = self.ignore, self.gitignore, self.exclude
        if not present:
            return self
        if GIT_FOLDER in present:
            # The `.ignore` files above still count: they belong to no repository.
            gitignore, exclude = (), _read(_EXCLUDE_FILE, read)
        if _GITIGNORE_FILE in present:
            gitignore = (*_read(_GITIGNORE_FILE, read), *gitignore)
        if _IGNORE_FILE in present:
            ignore = (*_read(_IGNORE_FILE, read), *ignore)
        return IgnoreRules(ignore, gitignore, exclude)


def _read(name: str, read: ReadRuleFile) -> tuple[_Source, ...]:
    data = read(name)
    if data is None or len(data) > MOST_RULE_BYTES:
        return ()
    file = read_ignore_file(data)
    return (_Source(file, file.start),)


class _Unreadable(Exception):
    """The pattern matches nothing."""


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of an ignore file.

    Attributes:
        shows: whether it shows again what it matches.
        folders_only: whether it matches only folders.
        name: matches a name at any depth; `None` for a pattern that is tied to the folder of its file.
        path: matches a path from that folder; `None` for the other kind.
        literal: the one name that `name` matches, if it is one.
    """

    shows: bool
    folders_only: bool
    name: FitsName | None = None
    path: PathMatcher[bytes] | None = None
    literal: bytes | None = None


class IgnoreVerdict(NamedTuple):
    """The decision of the last pattern that matches.

    Attributes:
        hides: whether it hides.
    """

    hides: bool


class IgnoreFile:
    """The compiled patterns of one file."""

    __slots__ = ("_literal", "_others", "start")

    def __init__(self, patterns: Sequence[IgnorePattern]) -> None:
        """Take the patterns in the order of the file."""
        # Most patterns are one name. They are found by a look-up, however many there are; only the others are tried.
        self._literal: dict[bytes, list[tuple[int, IgnorePattern]]] = {}
        others: list[tuple[int, IgnorePattern]] = []
        for number, pattern in enumerate(patterns):
            if pattern.literal is None:
                others.append((number, pattern))
            else:
                self._literal.setdefault(pattern.literal, []).append((number, pattern))
        self._others = tuple(reversed(others))
        self.start: dict[int, Places] = {
            number: pattern.path.start for number, pattern in others if pattern.path is not None
        }
        """The start of each pattern that is tied to the folder of the file, by its number."""

    def verdict(self, name: bytes, places: dict[int, Places], *, is_folder: bool) -> IgnoreVerdict | None:
        """The file's decision about a name in a folder; `None` if no pattern matches.

        Args:
            name: the name.
            places: the places that its patterns have reached in that folder; see `entered`.
            is_folder: whether it is a folder.
        """
        best, found = -1, None
        for number, pattern in self._literal.get(name, ()):
            if is_folder or not pattern.folders_only:
                best, found = number, pattern
        for number, pattern in self._others:
            # From the last pattern to the first: the literal one comes later in the file than all that follow, so it
            # decides.
            if number < best:
                break
            if (is_folder or not pattern.folders_only) and _fits(pattern, name, places.get(number, NOWHERE)):
                found = pattern
                break
        return None if found is None else IgnoreVerdict(not found.shows)

    def entered(self, name: bytes, places: dict[int, Places]) -> dict[int, Places]:
        """The places of the patterns in the subfolder `name`, without patterns that can match nothing there."""
        if not places:
            return places
        after: dict[int, Places] = {}
        for number, pattern in self._others:
            if number in places and pattern.path is not None:
                reached = pattern.path.after(name, places[number])
                if reached:
                    after[number] = reached
        return after


def read_ignore_file(data: bytes) -> IgnoreFile:
    """The patterns in the content of an ignore file; a line that cannot be read matches nothing."""
    # Git splits at line feeds only, where `splitlines` also splits at a single carriage return.
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    found = (parse_ignore_pattern(line.removesuffix(b"\r")) for line in lines[:_MOST_LINES])
    return IgnoreFile([pattern for pattern in found if pattern is not None])


def parse_ignore_pattern(line: bytes) -> IgnorePattern | None:
    """The pattern in one line; `None` for a comment, a blank line, or one that matches nothing."""
    if line.startswith(b"#"):
        return None
    # The order is git's: spaces first, so that `/` at the end is found before spaces that do not count.
    pattern = _without_spaces_at_end(line)
    shows = pattern.startswith(b"!")
    if shows:
        pattern = pattern[1:]
    folders_only = pattern.endswith(b"/")
    if folders_only:
        pattern = pattern[:-1]
    if not pattern:
        return None
    try:
        if b"/" not in pattern:
            return _for_a_name(pattern, shows=shows, folders_only=folders_only)
        parts = [_part(tokens) for tokens in _split(pattern.removeprefix(b"/"))]
    except _Unreadable:
        return None
    if parts[-1] is None:
        parts.append(_anything)  # `**` at the end: everything below, but not the folder itself
    return IgnorePattern(shows, folders_only, path=PathMatcher(parts))


def _for_a_name(pattern: bytes, *, shows: bool, folders_only: bool) -> IgnorePattern:
    if _SPECIAL.isdisjoint(pattern):
        return IgnorePattern(shows, folders_only, literal=pattern)
    (tokens,) = _split(pattern)
    return IgnorePattern(shows, folders_only, name=_compiled(tokens))


def _fits(pattern: IgnorePattern, name: bytes, places: Places) -> bool:
    if pattern.path is not None:
        return bool(places) and pattern.path.end in pattern.path.after(name, places)
    return pattern.name is not None and bool(pattern.name(name))


def _without_spaces_at_end(line: bytes) -> bytes:
    kept = line.rstrip(b" ")
    if kept == line:
        return line
    # An even number of backslashes escape each other; an odd one escapes the first space, which stays.
    escapes = len(kept) - len(kept.rstrip(b"\\"))
    return line[: len(kept) + escapes % 2]


def _split(pattern: bytes) -> list[list[object]]:
    """The parts of a pattern, each as its characters: expressions, and `_STARS` for stars."""
    parts: list[list[object]] = [[]]
    at = 0
    while at < len(pattern):
        character = pattern[at : at + 1]
        at += 1
        if character == b"\\":
            character = pattern[at : at + 1]
            at += 1
            if not character:
                raise _Unreadable
            if character == b"/":
                parts.append([])
            else:
                parts[-1].append(re.escape(character))
        elif character == b"/":
            parts.append([])
        elif character == b"*":
            parts[-1].append(_STARS)
        elif character == b"?":
            parts[-1].append(b".")
        elif character == b"[":
            expression, at = _bracket(pattern, at)
            parts[-1].append(expression)
        else:
            parts[-1].append(re.escape(character))
    return parts


def _part(tokens: list[object]) -> FitsName | None:
    """The matcher of a name; `None` for any number of folders."""
    if not tokens:
        # `a//b`, for example.
        raise _Unreadable  # no name is empty
    if len(tokens) > 1 and all(token is _STARS for token in tokens):
        return None
    return _compiled(tokens)


def _compiled(tokens: Sequence[object]) -> FitsName:
    """One expression that does not backtrack: what lies between two stars is searched for once."""
    pieces = [b"".join(piece) for piece in _between_stars(tokens)]
    first, rest = pieces[0], pieces[1:]
    if not rest:
        # A name may hold a line feed: `.` must match it, and `$` would also match before one at the end.
        return re.compile(b"(?s:" + first + rb")\Z").match
    # The first occurrence of a piece leaves the most room for the pieces after it, so no other needs to be tried: an
    # atomic group gives up all others, and the time is bounded by the length of the name times that of the pattern.
    middle = b"".join(b"(?>.*?" + piece + b")" for piece in rest[:-1])
    return re.compile(b"(?s:" + first + middle + b".*" + rest[-1] + rb")\Z").match


def _between_stars(tokens: Sequence[object]) -> Iterator[list[bytes]]:
    piece: list[bytes] = []
    for token in tokens:
        if isinstance(token, bytes):
            piece.append(token)
        else:
            yield piece
            piece = []
    yield piece


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int]:
    """The expression of a bracket whose content begins at a position, and the position after it."""
    negated = pattern[at : at + 1] in {b"!", b"^"}
    at += negated
    inside: list[bytes] = []
    # A `]` right after the opening is a character like any other.
    first = True
    while first or pattern[at : at + 1] != b"]":
        first = False
        if pattern[at : at + 2] == b"[:":
            end = pattern.find(b"]", at + 2)
            if end < 0:
                raise _Unreadable
            # Without a colon before the `]`, the `[` is a character of the bracket.
            if pattern[end - 1 : end] == b":" and end - 1 >= at + 2:
                name = pattern[at + 2 : end - 1]
                if name not in _CLASSES:
                    raise _Unreadable
                inside.append(_CLASSES[name])
                at = end + 1
                continue
        low, at = _character(pattern, at)
        high = low
        if pattern[at : at + 1] == b"-" and pattern[at + 1 : at + 2] not in {b"]", b""}:
            high, at = _character(pattern, at + 1)
        high = max(low, high)  # a reversed range matches its first character only
        # As numbers, so that no character has a meaning in the expression.
        inside.append(b"\\x%02x-\\x%02x" % (low[0], high[0]))
    return b"[" + (b"^" if negated else b"") + b"".join(inside) + b"]", at + 1


def _character(pattern: bytes, at: int) -> tuple[bytes, int]:
    """One character of a bracket, and the position after it."""
    if pattern[at : at + 1] == b"\\":
        at += 1
    character = pattern[at : at + 1]
    if not character:
        raise _Unreadable
    return character, at + 1


def _anything(name: bytes) -> bool:
    return bool(name)
