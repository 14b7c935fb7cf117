"""Path filters: which paths exist for a call, as one value that every operation of every filesystem checks.

Filesystems follow no links, so none bypasses a filter. Its answers have the same effect in every filesystem:

==================================  ==================================================================================
a path in `reading`                 does not exist: reading raises `PathNotFoundError`; listings and searches pass it by
a path in `writing`                 is not written, made, moved, moved onto or removed: `PathConflictError`
a path in `removing`                is neither moved nor removed, but may be written
a folder that holds one of these    is neither moved nor removed, since what it holds would be too
a path in `holding`                 is neither moved, moved onto nor removed with a folder that is not in the same set
a path in `listing`                 exists, but is left out of listings and searches, which count what they left out
a path in `searching`               is the same, and is not searched by its name either (`Filesystem.unsearched`)
==================================  ==================================================================================

A rollback ignores filters: it restores everything that a call changed.

Patterns, as `Filesystem.glob` accepts them, are matched part by part while folders are walked: so only folders that can
hold a match are listed, and no pattern takes longer than the walk times its own length. The places in a pattern that a
path can have reached are numbers of parts; a path matches when it has reached the end.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from handrail.errors import PathEscapeError
from handrail.filesystem.paths import GIT_FOLDER, ROOT, composed, hidden, holds_asked_about, holds_hidden, normalise

_IGNORABLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that macOS disks ignore in names: there `.g<U+200C>it` is `.git`."""

_ANY_FOLDERS: Final = "**"

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")

_MOST_ALTERNATIVES = 100
"""How many texts the braces in one part of a pattern may stand for."""

Places: TypeAlias = frozenset[int]
"""The places in a pattern that a path has reached."""

NOWHERE: Final[Places] = frozenset()
"""The path does not match, and nothing below it does."""


class PathSet(Protocol):
    """A set of paths. What lies in a folder of the set belongs to it too. An empty set is false."""

    def why(self, path: str, *, is_folder: bool) -> str | None:
        """The reason why a path belongs to the set, to complete "because of ..."; `None` if it does not.

        Args:
            path: the path in its shortest form; never the root.
            is_folder: whether it is, or may be, a folder.
        """
        ...


@dataclass(frozen=True, slots=True)
class PathFilter:
    """Which paths exist for a call, and which may be changed. A new one restricts nothing.

    Attributes:
        reading: paths that do not exist for reading, listing and searching.
        writing: paths that are not changed.
        removing: paths that are neither moved nor removed.
        listing: paths that are left out of listings and searches, and counted there.
        searching: the same, and no search by name shows them either.
        holding: paths that are neither moved nor removed together with a folder, unless the folder is in the set, too.
    """

    reading: tuple[PathSet, ...] = ()
    writing: tuple[PathSet, ...] = ()
    removing: tuple[PathSet, ...] = ()
    listing: tuple[PathSet, ...] = ()
    searching: tuple[PathSet, ...] = ()
    holding: tuple[PathSet, ...] = ()

    def __bool__(self) -> bool:
        """Returns whether it restricts anything."""
        if not (self.reading or self.writing or self.removing or self.listing or self.searching or self.holding):
            return False  # the usual case, checked by every operation
        # An empty set is false, and restricts nothing.
        return any(map(any, self._sets))

    def unreadable(self, path: str, *, is_folder: bool = True) -> str | None:
        """The reason why a path cannot be read; `None` if it can, here and below."""
        return _why(self.reading, path, is_folder=is_folder)

    def refuse_change(self, path: str, *, is_folder: bool = True) -> None:
        """Raises `PathConflictError` if a path may not be changed."""
        if (by := _why(self.writing, path, is_folder=is_folder)) is not None:
            raise hidden(path, by=by)

    def refuse_with(self, path: str, folder: str, *, spelling: str, is_folder: bool = True) -> None:
        """Raises `PathConflictError` if a path may not be moved or removed with a folder above it."""
        for path_set in self.holding:
            by = path_set.why(path, is_folder=is_folder)
            # A folder in the set is named by the call itself, so the call was judged for it and all that it holds.
            if by is not None and path_set.why(folder, is_folder=True) is None:
                raise holds_asked_about(spelling, by=by)

    def refuse_moving(self, entries: Iterable[tuple[str, bool]], folder: str) -> None:
        """Raises `PathConflictError` if any entry of a folder may not be moved or removed with it."""
        # Also `reading`: moving a hidden path would show it under the new one.
        path_sets = (*self.writing, *self.removing, *self.reading)
        for path, is_folder in entries:
            if (by := _why(path_sets, path, is_folder=is_folder)) is not None:
                raise hidden(folder, by=by) if path == folder else holds_hidden(folder, by=by)
            self.refuse_with(path, folder, spelling=folder, is_folder=is_folder)

    def keeps(self, path: str, *, changes: bool) -> str | None:
        """The reason why a program may not read or list a path, or, with `changes`, not change it; `None` if it may.

        Paths in `holding` are among them: only a call that was judged for one may change it.
        """
        sets = (*self.reading, *self.listing, *self.searching)
        changing = (*self.writing, *self.removing, *self.holding)
        return _why((*sets, *changing) if changes else sets, path, is_folder=True)

    def is_partial(self, *, changes: bool) -> bool:
        """Returns whether it restricts reading and listing, or, with `changes`, changes."""
        looks = (*self.reading, *self.listing, *self.searching)
        return any((*looks, *self.writing, *self.removing) if changes else looks)

    def unlisted(self, path: str, *, is_folder: bool) -> bool:
        """Returns whether a path that may be read is left out of listings and searches."""
        if not self.listing and not self.searching:  # a walk calls this for each file
            return False
        return self.unsearched(path, by_name=False, is_folder=is_folder) is not None

    def unsearched(self, path: str, *, by_name: bool = True, is_folder: bool = False) -> str | None:
        """The reason why searches leave out a readable path, or with `by_name` why searches for it do."""
        return _why(self.searching if by_name else (*self.listing, *self.searching), path, is_folder=is_folder)

    def shows(self, path: str, kind: str) -> bool:
        """Returns whether a listing shows what is at a path."""
        is_folder = kind == "folder"
        if not (self.reading or self.listing or self.searching):
            return True
        return self.unreadable(path, is_folder=is_folder) is None and not self.unlisted(path, is_folder=is_folder)

    def plus(self, other: PathFilter) -> PathFilter:
        """The filter that restricts what either of the two does."""
        pairs = zip(self._sets, other._sets, strict=True)
        return PathFilter(*((*sets, *(added for added in others if added not in sets)) for sets, others in pairs))

    def minus(self, other: PathFilter) -> PathFilter:
        """The filter without the sets of another one."""
        pairs = zip(self._sets, other._sets, strict=True)
        return PathFilter(*(tuple(path_set for path_set in sets if path_set not in others) for sets, others in pairs))

    @property
    def _sets(self) -> tuple[tuple[PathSet, ...], ...]:
        return self.reading, self.writing, self.removing, self.listing, self.searching, self.holding


NOTHING_FILTERED = PathFilter()
"""Every path exists."""


def excluding(patterns: Iterable[str], *, show_git: bool = False) -> PathFilter:
    """The filter for which paths that match a pattern do not exist; nor does `.git`, unless `show_git`.

    Raises:
        PathEscapeError: a pattern is not one inside the root.
        TypeError: the patterns are one string.
    """
    excluded_patterns = exclude_patterns(patterns)
    if not show_git and GIT_FOLDER not in excluded_patterns:
        excluded_patterns = (GIT_FOLDER, *excluded_patterns)
    if not excluded_patterns:
        return PathFilter()
    excluded = (ExcludedPaths(excluded_patterns),)
    # Also for writing: a call could otherwise replace what it is not shown.
    return PathFilter(reading=excluded, writing=excluded)


def showing(include: Iterable[str], exclude: Iterable[str]) -> PathFilter:
    """The filter that shows what is included and not excluded; it raises as `excluding` does."""
    included, excluded = tuple(include), exclude_patterns(exclude)
    sets = (*((ExcludedPaths(excluded),) if excluded else ()), *(() if "**" in included else (NotIncluded(included),)))
    return PathFilter(reading=sets, writing=sets)


def exclude_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """Exclude patterns as a tuple; `TypeError` for one string, each character of which would be a pattern."""
    if isinstance(patterns, str):
        raise TypeError(f"exclude is a sequence of patterns, not one string; write exclude=({patterns!r},)")
    return tuple(patterns)


class ExcludedPaths:
    """The paths that match a pattern, or lie in a folder that matches one. Two of the same patterns are equal.

    A pattern is one of `Filesystem.glob`; one without a slash matches a name in any folder, and `folder/**` includes
    the folder too. Case, and Unicode forms that are equivalent, do not matter, as on some disks: `.ENV` is excluded
    with `.env` on every disk.

    Raises:
        PathEscapeError: a pattern is not one inside the root.
    """

    __slots__ = ("_name", "_names", "_patterns", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns: tuple[str, ...] = tuple(patterns)
        names: list[tuple[str, str]] = []
        others: list[tuple[str, Pattern]] = []
        for pattern in self.patterns:
            # Patterns are folded like paths, so that every spelling of a name that some disk treats as equal is
            # excluded.
            shortest = _shortest(folded(pattern))
            name = shortest.removeprefix("**/")
            at_any_depth = name != shortest or "/" not in pattern.rstrip("/")
            if at_any_depth and "/" not in name and name != "**":
                # A name is matched without `Pattern`, which is needed only for its errors.
                Pattern(name)  # raises what is wrong with it
                names.append((pattern, name))
            else:
                others.append((pattern, Pattern(shortest)))
        self._names = tuple(pattern for pattern, _ in names)
        # One expression for all names, a group for each: a walk asks for every path, and most match none.
        self._name = re.compile("|".join(f"({name_expression(name)})" for _, name in names)).match if names else None
        self._patterns = tuple(others)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExcludedPaths) and other.patterns == self.patterns

    def __hash__(self) -> int:
        return hash(self.patterns)

    def why(self, path: str, *, is_folder: bool) -> str | None:  # noqa: ARG002 - folders and files alike
        """The pattern that matches a path; see `PathSet.why`."""
        parts = folded(path).split("/")
        if self._name is not None:
            for part in parts:
                # Any part: what lies in an excluded folder is excluded too.
                if match := self._name(part):
                    return f"the exclude pattern {self._names[(match.lastindex or 1) - 1]!r}"
        for text, matcher in self._patterns:
            if matcher.fits_at_or_above(parts):
                return f"the exclude pattern {text!r}"
        return None


class NotIncluded:
    """The paths that match no include pattern and lie in no folder that does, except folders on the way to a match.

    The patterns are as in `ExcludedPaths`, but upper and lower case differ.

    Raises:
        PathEscapeError: a pattern is not one inside the root.
    """

    __slots__ = ("_include",)

    def __init__(self, include: Iterable[str]) -> None:
        self._include = tuple((text, Pattern(_anywhere(text))) for text in include)

    def why(self, path: str, *, is_folder: bool) -> str | None:
        """The patterns, if a path matches none of them; see `PathSet.why`."""
        parts = path.split("/")
        for _, matcher in self._include:
            # A folder on the way to a match must be shown, or a walk would never reach the match.
            if matcher.fits_at_or_above(parts) or (is_folder and matcher.leads_through(path)):
                return None
        return f"the include patterns {', '.join(repr(text) for text, _ in self._include)}, which do not match it"


def folded(path: str) -> str:
    """A path, or pattern, in a spelling that is the same for all spellings that some disk treats as equal."""
    if path.isascii():
        return path.lower()
    # Decomposed first, as Unicode defines caseless matching: some equivalent spellings differ after folding alone.
    # Composed again, so that `?` stands for one character as it is read.
    decomposed = unicodedata.normalize("NFD", _IGNORABLE.sub("", path)).casefold()
    return unicodedata.normalize("NFC", decomposed)


def _why(sets: tuple[PathSet, ...], path: str, *, is_folder: bool) -> str | None:
    if not sets or path == ROOT:
        return None
    for path_set in sets:
        if (why := path_set.why(path, is_folder=is_folder)) is not None:
            return why
    return None


def _shortest(pattern: str) -> str:
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if pattern.startswith(("/", "../")) or ".." in parts or not parts:
        return pattern  # not inside the root, which `Pattern` reports
    while len(parts) > 1 and parts[-1] == "**":
        parts.pop()
    return "/".join(parts)


def _anywhere(pattern: str) -> str:
    return pattern if "/" in pattern.rstrip("/") or pattern == "**" else f"**/{pattern}"


class PathMatcher:
    """Decides part by part whether a path matches, from the places `start` to the place `end`."""

    __slots__ = ("_fits", "end", "start")

    def __init__(self, fits: Sequence[Callable[[str], object] | None]) -> None:
        self._fits: tuple[Callable[[str], object] | None, ...] = tuple(fits)
        self.end: int = len(self._fits)
        self.start: Places = self._reached({0})

    def after(self, name: str, places: Places) -> Places:
        """The places that a path has reached when its next part is `name`."""
        # All places at once: a path may have reached several. Trying one after the other would take longer with each
        # `**` by a factor of the depth.
        following: set[int] = set()
        for place in places:
            if place == self.end:
                continue
            fits = self._fits[place]
            if fits is None:
                # A `None` takes this part, and may take the next one too.
                following.add(place)
            elif fits(name):
                following.add(place + 1)
        return self._reached(following) if following else NOWHERE

    def leads_on(self, places: Places) -> bool:
        """Returns whether something below may match."""
        return min(places, default=self.end) < self.end

    def _reached(self, places: set[int]) -> Places:
        # `sorted` copies, because places are added meanwhile.
        for place in sorted(places):
            skipped = place
            while skipped < self.end and self._fits[skipped] is None:
                skipped += 1
                places.add(skipped)
        return frozenset(places)


class Pattern(PathMatcher):
    """One pattern of `Filesystem.glob`; `PathEscapeError` if it is not one inside the root."""

    __slots__ = ()

    def __init__(self, pattern: str) -> None:
        parts = normalise(pattern, noun="pattern").split("/")
        if parts[-1] == _ANY_FOLDERS:
            parts.append("*")  # at the end: everything below, but not the folder itself
        if "," in pattern and any(part.count("{") != part.count("}") for part in parts):
            msg = "braces in a pattern close before a slash; write '{src,tests}/*.{ts,tsx}', or each path by itself"
            raise PathEscapeError(msg, path=pattern)
        super().__init__([None if part == _ANY_FOLDERS else fits_name(part) for part in parts])

    def fits_at_or_above(self, parts: Iterable[str]) -> bool:
        """Returns whether the pattern matches the parts of a path, or a folder that it lies in."""
        places = self.start
        for name in parts:
            places = self.after(name, places)
            if self.end in places:
                return True
            if not places:
                return False
        return False

    def leads_through(self, folder: str) -> bool:
        """Returns whether the pattern may match something in a folder."""
        return self.leads_on(self._places(folder))

    def _places(self, path: str) -> Places:
        places = self.start
        for name in path.split("/"):
            places = self.after(name, places)
        return places


def _alternatives(part: str) -> list[str]:
    texts = [part]
    for text in texts:  # grows while it is walked
        if (braces := _BRACES.search(text)) is not None:
            texts += [
                f"{text[: braces.start()]}{alternative}{text[braces.end() :]}" for alternative in braces[1].split(",")
            ]
        if len(texts) > _MOST_ALTERNATIVES:
            msg = f"the braces of the pattern stand for more than {_MOST_ALTERNATIVES} texts; give fewer of them"
            raise PathEscapeError(msg, path=part)
    return texts


def name_expression(part: str) -> str:
    """The regular expression of the names that match one part of a pattern, with `*`, `?`, brackets and braces.

    `[^a]` is `[!a]`, as in rules. A bracket stands for itself, too: `[id].ts` matches the file of that name.
    """
    parts = _alternatives(composed(part))
    texts = [
        spelling for text in parts for spelling in dict.fromkeys((text.replace("[^", "[!"), text.replace("[", "[[]")))
    ]
    # The expressions of `translate` do not backtrack over stars, so a pattern that a model has written cannot make a
    # walk hang.
    return "|".join(map(fnmatch.translate, texts))


def fits_name(part: str) -> Callable[[str], object]:
    """The test of whether a name matches one part of a pattern."""
    # Not `fnmatch.fnmatch`, which ignores case on Windows.
    match = re.compile(name_expression(part)).match
    return lambda name: match(composed(name))
