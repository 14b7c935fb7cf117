r"""What ignore files hide from listings and searches: `.ignore`, `.gitignore`, and `.git/info/exclude`.

They hide, they do not protect: a hidden file can be read by its path. The first file with a pattern that matches
decides: the `.ignore` files, from the nearest folder to the root; the `.gitignore` files, in the same order; the
`info/exclude` of the repository. Everything in a hidden folder is hidden, whatever the patterns for it. In a folder
with a `.git` of its own, git files above it do not count.

`IgnoreRules` is the state of one folder. A walk goes from state to state, so each file is read once, and no path is
split twice. Files above the root, the user's git settings, and which files git tracks are not considered.

`IgnoreFile` is one file, read as git reads a `.gitignore`, byte for byte; tests hold it to the `git` command. A line is
a pattern; of those that match, the last one decides. `!` at the start shows again what an earlier line hides, `/` at
the end means folders only, and a slash elsewhere ties the pattern to the folder of the file; without one it matches a
name at any depth. `*`, `?` and brackets match within one part, and `**` as a whole part stands for any number of
folders. `\` escapes the next character. Trailing spaces are ignored unless escaped by a `\`. A line that cannot be read
matches nothing: one with a bracket that is not closed, or with a bracket that holds a `\`, a class such as `[:alpha:]`,
a range backwards or two `-` in a row.

Each part of a pattern is matched in one pass, so a file that a model has written cannot make a walk hang. pathspec does
not ensure that, and its rules are not exactly git's, so it is not used (decision 29).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from handrail.filesystem.path_filters import GIT_FOLDER, NOWHERE, PathMatcher, Places
from handrail.filesystem.root import to_bytes

_FILES: Final = ((".ignore", ".ignore"), (".gitignore", ".gitignore"), (GIT_FOLDER, ".git/info/exclude"))
"""The entries of a folder that give it rules, and the files that hold them; an earlier one decides before a later."""

RULE_NAMES: Final = frozenset(name for name, _ in _FILES)
"""The names of entries that give a folder rules of its own."""

MOST_RULE_BYTES: Final = 1 << 20
"""A larger ignore file is ignored."""

ReadRuleFile: TypeAlias = Callable[[str], bytes | None]
"""The content of an ignore file, by its path relative to the folder; `None` if there is none that counts."""

FitsName: TypeAlias = Callable[[bytes], object]
"""Whether a name matches one part of a pattern."""

_MOST_LINES = 10_000
"""How many patterns of one file count, from its start."""

_TOKEN = re.compile(rb"(?s)\\(?P<escaped>.)|\[(?P<negation>[!^]?)(?P<inside>\]?[^\]]*)\]|(?P<plain>[^\\\[])")
_UNREAD_INSIDE = re.compile(rb"\\|\[:|--")
_SPECIAL = frozenset(b"*?[\\")


@dataclass(frozen=True, slots=True)
class _Source:
    """One ignore file, and the places that its patterns have reached in a folder; `rank` is its place in `_FILES`."""

    rank: int
    file: IgnoreFile
    places: dict[int, Places]

    def entered(self, name: bytes) -> _Source:
        after = self.file.entered(name, self.places)
        # The same object if nothing has changed, so that a walk of a large tree makes few of them.
        return self if after == self.places else _Source(self.rank, self.file, after)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules of the ignore files for one folder. A new one has no rules.

    Attributes:
        sources: the ignore files, in the order in which they are asked.
    """

    sources: tuple[_Source, ...] = ()

    def hides(self, name: str, *, is_folder: bool) -> bool:
        """Whether the entry `name` of this folder is hidden."""
        data = to_bytes(name) if self.sources else b""
        for source in self.sources:
            verdict = source.file.hides(data, source.places, is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False

    def entered(self, name: str) -> IgnoreRules:
        """The rules of the files above for the folder `name` in this one."""
        if not self.sources:
            return self
        data = to_bytes(name)
        return IgnoreRules(tuple(source.entered(data) for source in self.sources))

    def with_files(self, present: Collection[str], read: ReadRuleFile) -> IgnoreRules:
        """These rules and those of the folder's own files.

        Args:
            present: which of `RULE_NAMES` the folder has.
            read: reads a file of the folder.
        """
        if not present:
            return self
        # In a repository the `.ignore` files above still count: they belong to none.
        above = [source for source in self.sources if not source.rank or GIT_FOLDER not in present]
        own: list[_Source] = []
        for rank, (name, path) in enumerate(_FILES):
            data = read(path) if name in present else None
            if data is not None and len(data) <= MOST_RULE_BYTES:
                file = read_ignore_file(data)
                own.append(_Source(rank, file, file.start))
        # Sorting keeps the order of equal ranks: the nearest first.
        return IgnoreRules(tuple(sorted((*own, *above), key=lambda source: source.rank)))


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of an ignore file.

    Attributes:
        hides: whether it hides what it matches, or shows it again.
        folders_only: whether it matches only folders.
        name: matches a name at any depth; `None` for a pattern that is tied to the folder of its file.
        path: matches a path from that folder; `None` for the other kind.
        literal: the one name that it matches, if it is one.
    """

    hides: bool
    folders_only: bool
    name: FitsName | None = None
    path: PathMatcher[bytes] | None = None
    literal: bytes | None = None

    def fits(self, name: bytes, places: Places, *, is_folder: bool) -> bool:
        """Whether it matches an entry of a folder in which it has reached these places."""
        if self.folders_only and not is_folder:
            return False
        if self.path is not None:
            return bool(places) and self.path.end in self.path.after(name, places)
        return name == self.literal or (self.name is not None and bool(self.name(name)))


class IgnoreFile:
    """The compiled patterns of one file."""

    __slots__ = ("_literal", "_others", "start")

    def __init__(self, patterns: Sequence[IgnorePattern]) -> None:
        """Take the patterns in the order of the file."""
        # Most patterns are one name. They are found by a look-up, however many there are; only the others are tried.
        self._literal: dict[bytes, list[tuple[int, IgnorePattern]]] = {}
        self._others = [item for item in enumerate(patterns) if item[1].literal is None]
        for number, pattern in enumerate(patterns):
            if pattern.literal is not None:
                self._literal.setdefault(pattern.literal, []).append((number, pattern))
        self.start: dict[int, Places] = {
            number: pattern.path.start for number, pattern in self._others if pattern.path is not None
        }
        """The start of each pattern that is tied to the folder of the file, by its number."""

    def hides(self, name: bytes, places: dict[int, Places], *, is_folder: bool) -> bool | None:
        """The file's decision about a name in a folder: that of its last pattern that matches; `None` if none does.

        Args:
            name: the name.
            places: the places that its patterns have reached in that folder; see `entered`.
            is_folder: whether it is a folder.
        """
        tried = (*self._others, *self._literal[name]) if name in self._literal else self._others
        matching = (
            (number, pattern.hides)
            for number, pattern in tried
            if pattern.fits(name, places.get(number, NOWHERE), is_folder=is_folder)
        )
        return max(matching, default=(0, None))[1]

    def entered(self, name: bytes, places: dict[int, Places]) -> dict[int, Places]:
        """The places of the patterns in the subfolder `name`, without patterns that can match nothing there."""
        after: dict[int, Places] = {}
        for number, pattern in self._others if places else ():
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
    # The order is git's: spaces first, so that `/` at the end is found before spaces that do not count.
    line = b"" if line.startswith(b"#") else _without_spaces_at_end(line)
    pattern = line.removeprefix(b"!")
    hides, folders_only = pattern == line, pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    if not pattern:
        return None
    if _SPECIAL.isdisjoint(pattern) and b"/" not in pattern:
        return IgnorePattern(hides, folders_only, literal=pattern)
    try:
        parts = [_compiled(tokens) for tokens in _split(pattern.removeprefix(b"/"))]
    except re.error:
        return None
    if b"/" not in pattern:
        return IgnorePattern(hides, folders_only, name=parts[0] or bool)
    if parts[-1] is None:
        parts.append(bool)  # `**` at the end: everything below, but not the folder itself
    return IgnorePattern(hides, folders_only, path=PathMatcher(parts))


def _without_spaces_at_end(line: bytes) -> bytes:
    kept = line.rstrip(b" ")
    # An even number of backslashes escape each other; an odd one escapes the first space, which stays.
    escapes = len(kept) - len(kept.rstrip(b"\\"))
    return line[: len(kept) + escapes % 2]


def _split(pattern: bytes) -> list[list[bytes]]:
    """The parts of a pattern, each as the expressions of its characters; that of a star is empty."""
    parts: list[list[bytes]] = [[]]
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise re.error("a bracket that is not closed, or a backslash at the end")
        at = token.end()
        plain, character = token["plain"], token["plain"] or token["escaped"]
        if character == b"/":
            parts.append([])
        elif plain in {b"*", b"?"}:
            parts[-1].append(b"" if plain == b"*" else b".")
        else:
            parts[-1].append(re.escape(character) if character else _bracket(token["negation"], token["inside"]))
    return parts


def _bracket(negation: bytes, inside: bytes) -> bytes:
    if _UNREAD_INSIDE.search(inside):
        raise re.error("a bracket with a class, an escape or a range that is not read")
    return b"[" + (b"^" if negation else b"") + re.sub(rb"[\[\]^&|~]", rb"\\\g<0>", inside) + b"]"


def _compiled(tokens: list[bytes]) -> FitsName | None:
    """The matcher of a name; `None` for any number of folders.

    It is one expression that does not backtrack: what lies between two stars is searched for once.
    """
    if not tokens:
        raise re.error("two slashes in a row")  # no name is empty
    if len(tokens) > 1 and not any(tokens):
        return None
    pieces: list[bytes] = [b""]
    for token in tokens:
        pieces = [*pieces[:-1], pieces[-1] + token] if token else [*pieces, b""]
    first, rest = pieces[0], pieces[1:]
    # The first occurrence of a piece leaves the most room for the pieces after it, so no other needs to be tried: an
    # atomic group gives up all others, and the time is bounded by the length of the name times that of the pattern.
    middle = b"".join(b"(?>.*?" + piece + b")" for piece in rest[:-1])
    last = b".*" + rest[-1] if rest else b""
    # A name may hold a line feed: `.` must match it, and `$` would also match before one at the end.
    return re.compile(b"(?s:" + first + middle + last + rb")\Z").match
