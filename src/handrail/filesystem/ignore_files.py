r"""What ignore files hide from listings and searches: `.ignore`, `.gitignore`, and `.git/info/exclude`.

They hide, they do not protect: what they name can be read by its path. Which file decides, the first that says
something: the `.ignore` files, from the nearest folder to the root; the `.gitignore` files, in the same order; the
`info/exclude` of the repository. What lies in a hidden folder is hidden, whatever is said of it. In a folder with a
`.git` of its own, what git files above it say does not count.

`IgnoreRules` is the state of one folder. A walk goes from state to state, so each file is read once, and no path is
taken apart twice. Files above the root, git's settings of the user, and what git has been told to track are not looked
at.

`IgnoreFile` is one file, read as git reads a `.gitignore`. The rules are git's, byte for byte, and tests hold them to
the `git` command. A line is a pattern; of those that fit, the last one decides. `!` at the start shows again what an
earlier line hides, `/` at the end means folders only, and a slash elsewhere ties the pattern to the folder of the file;
without one it fits a name at any depth. `*`, `?` and brackets stay inside one part, and `**` as a whole part stands for
any number of folders. `\` takes away what the next character means. Spaces at the end do not count, unless a `\` stands
before them. A line that git cannot read, such as a bracket that is not closed, fits nothing.

Each part of a pattern is matched in one pass, so a file that a model has written cannot make a walk hang. That, and
that its rules are not quite git's, is why pathspec is not used (decision 29).
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
"""Where the patterns stand, relative to a folder."""

RULE_NAMES: Final = frozenset({_IGNORE_FILE, _GITIGNORE_FILE, GIT_FOLDER})
"""The names by which a folder shows that it has rules of its own."""

MOST_RULE_BYTES: Final = 1 << 20
"""An ignore file that is larger says nothing."""

ReadRuleFile: TypeAlias = Callable[[str], bytes | None]
"""The content of an ignore file, by its path relative to the folder; `None` if there is none that counts."""

FitsName: TypeAlias = Callable[[bytes], object]
"""Whether a name fits one part of a pattern."""

_MOST_LINES = 10_000
"""So many patterns of one file count, from its start."""

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

_NOTHING: Final = rb"(?!)"

_STARS = object()


@dataclass(frozen=True, slots=True)
class _Source:
    """One ignore file, and where its patterns stand in a folder."""

    file: IgnoreFile
    places: dict[int, Places]

    def entered(self, name: bytes) -> _Source:
        after = self.file.entered(name, self.places)
        return self if after == self.places else _Source(self.file, after)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """What the ignore files say in one folder. A new one says nothing.

    Attributes:
        ignore: from the `.ignore` files, the nearest first.
        gitignore: from the `.gitignore` files, the nearest first.
        exclude: from `info/exclude`.
    """

    ignore: tuple[_Source, ...] = ()
    gitignore: tuple[_Source, ...] = ()
    exclude: tuple[_Source, ...] = ()

    def hides(self, name: str, *, is_folder: bool) -> bool:
        """Whether what is called `name` in this folder is hidden."""
        if not (self.ignore or self.gitignore or self.exclude):
            return False
        data = to_bytes(name)
        for source in (*self.ignore, *self.gitignore, *self.exclude):
            verdict = source.file.verdict(data, source.places, is_folder=is_folder)
            if verdict is not None:
                return verdict.hides
        return False

    def entered(self, name: str) -> IgnoreRules:
        """What the files above say in the folder `name` of this one."""
        if not (self.ignore or self.gitignore or self.exclude):
            return self
        data = to_bytes(name)
        return IgnoreRules(
            tuple(source.entered(data) for source in self.ignore),
            tuple(source.entered(data) for source in self.gitignore),
            tuple(source.entered(data) for source in self.exclude),
        )

    def with_files(self, present: Collection[str], read: ReadRuleFile) -> IgnoreRules:
        """What is said once the folder's own files are read, too.

        Args:
            present: which of `RULE_NAMES` the folder has.
            read: reads a file of the folder.
        """
        ignore, gitignore, exclude = self.ignore, self.gitignore, self.exclude
        if not present:
            return self
        if GIT_FOLDER in present:
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
    """The pattern fits nothing."""


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of an ignore file.

    Attributes:
        shows: whether what fits is shown again.
        folders_only: whether it fits folders alone.
        name: what a name at any depth must fit; `None` for a pattern that is tied to the folder of its file.
        path: what a path from that folder must fit; `None` for the other kind.
        literal: the one name that `name` fits, if it is one.
    """

    shows: bool
    folders_only: bool
    name: FitsName | None = None
    path: PathMatcher[bytes] | None = None
    literal: bytes | None = None


class IgnoreVerdict(NamedTuple):
    """What the last pattern that fits says.

    Attributes:
        hides: whether it hides.
    """

    hides: bool


class IgnoreFile:
    """The patterns of one file, ready to be asked."""

    __slots__ = ("_literal", "_others", "start")

    def __init__(self, patterns: Sequence[IgnorePattern]) -> None:
        """Take the patterns in the order of the file."""
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
        """Where each pattern that is tied to the folder of the file stands there, by its number."""

    def verdict(self, name: bytes, places: dict[int, Places], *, is_folder: bool) -> IgnoreVerdict | None:
        """What the file says of a name in a folder; `None` if no pattern fits.

        Args:
            name: the name.
            places: where its patterns stand in that folder; see `entered`.
            is_folder: whether it is a folder.
        """
        best, found = -1, None
        for number, pattern in self._literal.get(name, ()):
            if is_folder or not pattern.folders_only:
                best, found = number, pattern
        for number, pattern in self._others:
            if number < best:
                break
            if (is_folder or not pattern.folders_only) and _fits(pattern, name, places.get(number, NOWHERE)):
                found = pattern
                break
        return None if found is None else IgnoreVerdict(not found.shows)

    def entered(self, name: bytes, places: dict[int, Places]) -> dict[int, Places]:
        """Where the patterns stand in the folder `name` of a folder; those that fit nothing there are left out."""
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
    """The patterns in the content of an ignore file; what cannot be read in it fits nothing."""
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    found = (parse_ignore_pattern(line.removesuffix(b"\r")) for line in lines[:_MOST_LINES])
    return IgnoreFile([pattern for pattern in found if pattern is not None])


def parse_ignore_pattern(line: bytes) -> IgnorePattern | None:
    """The pattern in one line; `None` for a comment, a blank line, or one that fits nothing."""
    if line.startswith(b"#"):
        return None
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
        parts.append(_anything)  # `**` at the end: everything below, but not what it is below of
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
    escapes = len(kept) - len(kept.rstrip(b"\\"))
    return line[: len(kept) + escapes % 2]


def _split(pattern: bytes) -> list[list[object]]:
    """The parts of a pattern, each as what stands for its characters: expressions, and `_STARS` for stars."""
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
    """What a name must fit; `None` for any number of folders."""
    if not tokens:
        raise _Unreadable  # no name is empty
    if len(tokens) > 1 and all(token is _STARS for token in tokens):
        return None
    return _compiled(tokens)


def _compiled(tokens: Sequence[object]) -> FitsName:
    """One expression; what lies between two stars is looked for once, and not again when what follows does not fit."""
    pieces = [b"".join(piece) for piece in _between_stars(tokens)]
    first, rest = pieces[0], pieces[1:]
    if not rest:
        return re.compile(b"(?s:" + first + rb")\Z").match
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
    first = True
    while first or pattern[at : at + 1] != b"]":
        first = False
        if pattern[at : at + 2] == b"[:":
            end = pattern.find(b"]", at + 2)
            if end < 0:
                raise _Unreadable
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
        high = max(low, high)  # a range the other way round takes in its first character only
        inside.append(b"\\x%02x-\\x%02x" % (low[0], high[0]))
    if not inside:
        return (b"." if negated else _NOTHING), at + 1
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
