"""What the model knows of files: what a result has shown of one, and what a session records of it.

A session records it in the STATE slice of `KnownFiles`. Each item has what one call has shown or written, so that a
call stores only its changes; the newest item that has a path is valid. When most entries of the items are outdated,
they are replaced by one item with the valid entries (`remember`), so that the slice has only a few entries for each
known file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from handrail.filesystem.paths import is_inside
from handrail.serde import codec
from handrail.session import Session, stored_as

Extent: TypeAlias = Literal["all", "part", "nothing"]
"""How much of a file has been shown: `"nothing"` for one that has only been described, `"all"` for an empty one."""

Position: TypeAlias = tuple[int, int]
"""A line of a file and a character in it, both from 1."""

PartSeen: TypeAlias = tuple[Position, Position]
"""A shown range, from one position up to, and excluding, another one."""

_START: Position = (1, 1)
# A model that reads lines at random would otherwise let the item of one file grow with every read.
_MOST_PARTS = 64
"""The limit on recorded parts of one file: those nearest to its start; parts beyond them do not count as shown."""
_FEWEST_COMPACTED = 64
"""A slice of fewer items is not compacted."""


@dataclass(frozen=True, slots=True)
class TextReplaced:
    """A piece of a file's text that an edit has replaced: an item of `FileShown.replaced`.

    The end of a text that does not end with a line end counts as one: it is the start of the line after the last.

    Attributes:
        start: the first character of the piece, in the text before the edit.
        end: the first character after it, in the text before the edit.
        new_end: the first character after the replacement, in the text after the edit.
    """

    start: Position
    end: Position
    new_end: Position


@dataclass(frozen=True, slots=True)
class FileShown:
    """How much of a file one result shows to the model, or has the model write: an entry of `ToolResult.files_shown`.

    Attributes:
        path: the file.
        identity: `Filesystem.identity` of the content that is shown; if empty, it is computed when the call has ended.
        shown: `"all"` for a whole file; `"part"` for some of its lines; `"nothing"` if only its kind is shown.
        first_line: for a part, the number of the first line that is shown, from 1.
        last_line: for a part, the number of the last line that is shown.
        total_lines: for a part, and for an edit, how many lines the file has. After an edit that does not say, a file
            of which only a part was shown stays known in part.
        column: the first character of the first line that is shown, from 1.
        next_column: the first character of the last line that is not shown; `None` if it is shown to its end.
        replaced: for an edit, the replaced pieces, in the order of the text and without overlaps: what the model wrote
            there counts as shown, and what was shown before and after it stays shown. It is iterated only when it is
            needed, and `shown` is ignored.

    Raises:
        ValueError: it is a part, and its lines are not lines of the file.
    """

    path: str
    identity: str = ""
    shown: Extent = "all"
    first_line: int = 1
    last_line: int = 0
    total_lines: int | None = None
    column: int = 1
    next_column: int | None = None
    replaced: Iterable[TextReplaced] | None = None

    def __post_init__(self) -> None:
        total = self.total_lines or 0
        # A range beyond the end would count as the whole file.
        if self.shown == "part" and not 1 <= self.first_line <= self.last_line <= total:
            raise ValueError(
                f"lines {self.first_line} to {self.last_line} of {total} are not part of {self.path}; give "
                "first_line, last_line and total_lines, counted from 1"
            )

    @property
    def is_whole(self) -> bool:
        """Whether it shows the whole file by itself."""
        return self.shown == "all" or (self.shown == "part" and _is_whole((self.part,), self.total_lines))

    @property
    def part(self) -> PartSeen:
        """The shown lines, as positions."""
        end = (self.last_line + 1, 1) if self.next_column is None else (self.last_line, self.next_column)
        return (self.first_line, self.column), end


@dataclass(frozen=True, slots=True)
class FileKnown:
    """What the model knows of one file.

    Attributes:
        identity: `Filesystem.identity` of the content that was shown or written.
        shown: how much of it.
        parts: for a part, what was shown, in order and without overlaps.
    """

    identity: str
    shown: Extent = "all"
    parts: tuple[PartSeen, ...] = ()

    @property
    def first_unseen_line(self) -> int:
        """For a part, the first line that has not been shown to its end."""
        return self.parts[0][1][0] if self.parts and self.parts[0][0] == _START else 1


@dataclass(frozen=True, slots=True)
class _Stored:
    """The JSON of an item, without empty fields."""

    digests: dict[str, str] = field(default_factory=dict[str, str])
    parts: dict[str, tuple[PartSeen, ...]] = field(default_factory=dict[str, tuple[PartSeen, ...]])
    unseen: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    moved: tuple[str, str] | None = None


class _Form:
    """How a `KnownFiles` is stored: one for each read; a file that is known whole is only its digest."""

    @staticmethod
    def dump(item: Any, /) -> bytes:  # noqa: ANN401 - a `KnownFiles`, which is declared with this class
        files: dict[str, FileKnown] = item.files
        said = {
            "digests": {path: known.identity for path, known in files.items()},
            "parts": {path: known.parts for path, known in files.items() if known.shown == "part"},
            "unseen": [path for path, known in files.items() if known.shown == "nothing"],
            "gone": item.gone,
            "moved": item.moved,
        }
        return json.dumps({name: each for name, each in said.items() if each}, separators=(",", ":")).encode()

    @staticmethod
    def load(data: dict[str, Any], /) -> Any:  # noqa: ANN401 - as above
        stored = codec(_Stored).parse(data)
        digests = stored.digests
        files = {path: FileKnown(identity) for path, identity in digests.items()}
        files |= {path: FileKnown(digests.get(path, ""), "part", parts) for path, parts in stored.parts.items()}
        files |= {path: FileKnown(digests.get(path, ""), "nothing") for path in stored.unseen}
        return KnownFiles(files, stored.gone, stored.moved)


@stored_as("handrail.files_known", form=_Form())
@dataclass(frozen=True, slots=True)
class KnownFiles:
    """What one call has shown the model of files: an item of a STATE slice, which overrides the items before.

    Attributes:
        files: the files that it has shown or written, by their paths.
        gone: files and folders that no longer exist; they and their content are no longer known.
        moved: the old and the new path of a file or folder that was moved: what is known of it moves with it.
    """

    files: dict[str, FileKnown] = field(default_factory=dict[str, FileKnown])
    gone: tuple[str, ...] = ()
    moved: tuple[str, str] | None = None


def known_after(known: FileKnown | None, shown: FileShown, identity: str) -> FileKnown:
    """What is known of a file once some of it has been shown.

    Args:
        known: what was known of it before.
        shown: what is shown.
        identity: the identity of its current content; what was known of other content does not count.
    """
    # Another identity is another content, whose lines need not be those that were shown.
    same = known if known is not None and known.identity == identity else None
    if shown.is_whole or (same is not None and same.shown == "all"):
        return FileKnown(identity)
    if shown.shown == "nothing" or (shown.shown == "part" and shown.part[0] >= shown.part[1]):
        return FileKnown(identity, "nothing") if same is None else same
    parts = _joined(sorted((*(() if same is None else same.parts), shown.part)))
    return _known_in_part(identity, parts, shown.total_lines)


def known_after_edit(known: FileKnown | None, shown: FileShown, identity: str) -> FileKnown:
    """What is known of a file once the model has changed some of its text.

    A file that was known whole still is. A file of which nothing was known did not exist: the model wrote all of it. Of
    any other, what was shown stays shown, and what the model wrote is shown too. If the tool does not report what it
    has replaced, no line counts as shown any more, because lines may have new numbers.

    Args:
        known: what was known of it before.
        shown: the edit, as reported by the tool.
        identity: the identity of its current content.
    """
    # `ReadBeforeWritePolicy` refuses an edit of an existing file of which nothing is known, so `None` means a new file.
    if known is None or known.shown == "all":
        return FileKnown(identity)
    # Not the old parts: the edit may have moved them, and text that was never shown may stand at their lines.
    if shown.replaced is None:
        return FileKnown(identity, "part")
    return _known_in_part(identity, _joined(_parts_after(known.parts, shown.replaced)), shown.total_lines)


def _known_in_part(identity: str, parts: tuple[PartSeen, ...], total_lines: int | None) -> FileKnown:
    """What is known of a file of which these parts have been shown; whole, if they are all of its lines."""
    return FileKnown(identity) if _is_whole(parts, total_lines) else FileKnown(identity, "part", parts)


def _is_whole(parts: tuple[PartSeen, ...], total_lines: int | None) -> bool:
    """Whether these joined parts are all lines of a file; not if it is unknown how many there are."""
    # A file that an edit has emptied has no lines that could be unseen.
    if not total_lines:
        return total_lines == 0
    return bool(parts) and parts[0][0] == _START and parts[0][1][0] > total_lines


def _parts_after(parts: Sequence[PartSeen], replaced: Iterable[TextReplaced]) -> Iterator[PartSeen]:
    """Where the shown parts of a text are after an edit, and what the edit has put there, in order."""
    # Reversed, because parts are taken from the beginning of the text, and a list gives its end in constant time.
    rest = list(reversed(parts))
    from_, to = _START, _START
    for each in replaced:
        yield from _between(rest, from_, each.start, to)
        yield _shifted(each.start, from_, to), each.new_end
        from_, to = each.end, each.new_end
    yield from _between(rest, from_, None, to)


def _between(rest: list[PartSeen], start: Position, end: Position | None, to: Position) -> Iterator[PartSeen]:
    """The shown parts of the text from `start` up to `end`, which now begins at `to`.

    Args:
        rest: what was shown, last part first; what ends before `end` is taken from it.
        start: where the text began.
        end: where it ended; `None` for the end of all of it.
        to: where it begins now.
    """
    while rest and (end is None or rest[-1][0] < end):
        first, last = rest[-1]
        first, stop = max(first, start), last if end is None else min(last, end)
        if first < stop:
            yield _shifted(first, start, to), _shifted(stop, start, to)
        # The rest of the part is behind `end`; the next call takes it up.
        if end is not None and last > end:
            return
        rest.pop()


def _shifted(position: Position, start: Position, to: Position) -> Position:
    """The new position of one that followed `start`, and now follows `to`."""
    lines = position[0] - start[0]
    return (to[0] + lines, position[1]) if lines else (to[0], to[1] + position[1] - start[1])


def known_of(items: Sequence[KnownFiles], path: str) -> FileKnown | None:
    """What is known of a file, from the items of a slice, oldest first; `None` for nothing.

    Args:
        items: the items.
        path: the path of the file, in shortest form.
    """
    # The newest first: the path is followed back to what the file was called when it was shown.
    for item in reversed(tuple(items)):
        # The order of the three tests is the reverse of the order in `all_known`: within one item, `files` overrides
        # `gone`, and `gone` overrides `moved`.
        found = item.files.get(path)
        if found is not None:
            return found
        if item.gone and any(_is_at(path, gone) for gone in item.gone):
            return None
        if item.moved is not None:
            old, new = item.moved
            if _is_at(path, new):
                path = old + path[len(new) :]
            # It was moved away, so that what is there now has not been shown.
            elif _is_at(path, old):
                return None
    return None


def all_known(items: Iterable[KnownFiles]) -> Mapping[str, FileKnown]:
    """What is known of every file, from the items of a slice, oldest first."""
    known: dict[str, FileKnown] = {}
    for item in items:
        if item.moved is not None:
            old, new = item.moved
            # What was at the new path has been replaced by the move.
            others = {path: each for path, each in known.items() if not _is_at(path, new)}
            known = {new + path[len(old) :] if _is_at(path, old) else path: each for path, each in others.items()}
        if item.gone:
            known = {path: each for path, each in known.items() if not any(_is_at(path, gone) for gone in item.gone)}
        known.update(item.files)
    return known


def remember(session: Session, item: KnownFiles) -> None:
    """Add what a call has shown to a session.

    When the number of items reaches a power of two, the slice is checked; if more than half of its entries are
    outdated, one item with the rest replaces it. So adding has constant amortized cost, and the slice has at most four
    entries for each known file.
    """
    known = session[KnownFiles]
    known.append(item)
    count = len(known)
    # `count & (count - 1)` is 0 for powers of two only.
    if count < _FEWEST_COMPACTED or count & (count - 1):
        return
    items = known.all()
    files = all_known(items)
    # Removed and moved paths count as entries of the items and are missing from `files`, so a slice of them is
    # compacted too.
    if sum(len(each.files) + len(each.gone) + (each.moved is not None) for each in items) > 2 * len(files):
        known.seed(KnownFiles(dict(files)))


def _joined(parts: Iterable[PartSeen]) -> tuple[PartSeen, ...]:
    """The first of some ordered parts; those that touch or overlap are merged, and empty ones are omitted."""
    joined: list[PartSeen] = []
    for start, end in parts:
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        # What is left out counts as not shown: the model is asked to read more, and never less, than it has to.
        elif len(joined) == _MOST_PARTS:
            break
        else:
            joined.append((start, end))
    return tuple(joined)


def _is_at(path: str, place: str) -> bool:
    return path == place or is_inside(path, place)
