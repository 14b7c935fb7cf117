"""Storage of results that are too long to be shown, so that the model can read the rest.

A tool whose result is cut makes a `KeptText` of it (`store_overflow`), which its value carries in the field `kept`.
When the call has succeeded, a reducer puts it into the session's slice of `KeptText`, as part of the call: a rollback
discards it, and it is stored with the session. So a tool that only reads can store something, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

from handrail.contrib.tools.vfs.files import FileExcerpt, ReadFile, path_in_line
from handrail.contrib.tools.vfs.text import VfsLimits, excerpt
from handrail.errors import FilesystemError, ToolValidationError
from handrail.filesystem import Filesystem
from handrail.prompt import ToolContext
from handrail.serde.formatting import shorten
from handrail.session import Append, Change, Replace, Session, SliceView, Unchanged, stored_as

_KEEPING = ("glob_files", "grep_files")
_READER = "read_kept"

_LONGEST_SHOWN = 100
"""Characters of an unknown key that an error repeats."""

_NOT_SHOWN = "[not shown: the file does not exist here, or the rules of this run leave it out]"

MAX_OVERFLOWS = 16
"""The most texts in a session; beyond that the older half is dropped."""


@dataclass(frozen=True, slots=True)
class ToolNames:
    """The prefix of one toolset's tool names. A run of an agent binds it where they have one.

    Attributes:
        prefix: precedes the name of each tool.
    """

    prefix: str


@stored_as("handrail.kept_text")
@dataclass(frozen=True, slots=True)
class KeptText:
    """The whole text of a result that was too long to be shown: an item of a STATE slice.

    Attributes:
        key: the start of its digest, so the same text of the same tool has the same key.
        tool: the tool whose result it is, with the prefix of its toolset.
        text: the text, each line with its line end.
        paths: the files and folders that it shows; each of its lines begins with one of them, as `path_in_line`.
    """

    key: str
    tool: str
    text: str
    paths: tuple[str, ...] = ()

    @property
    def reader(self) -> str:
        """The tool of the same toolset that shows it."""
        # The prefix of the tool is that of its reader: both are of one toolset.
        return f"{self.tool.removesuffix(_own_name(self.tool))}{_READER}"

    def reading_on(self, shown: int) -> str:
        """How to read what follows the first `shown` lines, as a sentence without its full stop."""
        return f"Continue with {self.reader}, key='{self.key}', offset={shown + 1}"


class CanOverflow(Protocol):
    """The value of a result that may be cut."""

    @property
    def kept(self) -> KeptText | None:
        """The whole text; `None` if all of it was shown."""
        ...


@stored_as("handrail.read_kept")
@dataclass(frozen=True, slots=True)
class ReadKept:
    """A request for a part of a stored text.

    Attributes:
        key: names the text.
        offset: the number of the first line to show, from 1.
        limit: how many lines to show at most; `None` for as many as the section allows.
        column: the first character of that line to show, from 1.
    """

    key: str = field(metadata={"description": "The key, as the cut result shows it, such as '3f9a0c12'."})
    offset: int = field(default=1, metadata={"ge": 1, "description": "The number of the first line to show."})
    limit: int | None = field(
        default=None, metadata={"ge": 1, "description": "How many lines at most; leave it out for as many as fit."}
    )
    column: int = field(
        default=1,
        metadata={"ge": 1, "description": "The first character of that line to show, to continue in a very long line."},
    )


@stored_as("handrail.kept_excerpt")
@dataclass(frozen=True, slots=True)
class OverflowExcerpt:
    """A stored text, or one part of it.

    Attributes:
        key: names the text.
        tool: the tool whose result it is.
        part: the part that is shown; its `path` says where it comes from.
    """

    key: str
    tool: str
    part: FileExcerpt

    def render(self) -> str:
        """A line that describes the part and how to continue; below it the text, exactly."""
        return self.part.render()


def store_overflow(tool: str, lines: Sequence[str], paths: Sequence[str], limits: VfsLimits) -> KeptText:
    """The stored part of a long result: its first lines, as many as the limit allows, but at least one.

    Args:
        tool: the tool whose result it is, as `name_of_tool` returns it.
        lines: the lines of the result; each begins with one of the paths, and none holds a line feed.
        paths: what the result shows.
        limits: how much may be stored.
    """
    ends = accumulate(len(line) + 1 for line in lines)
    fit = sum(1 for end in ends if end <= limits.kept_characters)
    # One line even if it is too long by itself, or the key would name an empty text.
    text = "".join(f"{line}\n" for line in lines[: max(fit, 1)])
    # Toolsets with a prefix have other files, so equal texts must not have the same key. Without a prefix, keys depend
    # on the text alone.
    named = text if _own_name(tool) == tool else f"{tool}\n{text}"
    # Eight digits distinguish the 16 texts of a session, and are short enough for a model to copy.
    return KeptText(hashlib.sha256(named.encode()).hexdigest()[:8], tool, text, tuple(paths))


def name_of_tool(name: str, context: ToolContext) -> str:
    """The name, with its prefix, of a tool of the toolset that a call belongs to."""
    names = context.resources.get(ToolNames, None)
    return name if names is None else f"{names.prefix}{name}"


def register_overflow(session: Session, value_type: type[CanOverflow]) -> None:
    """Register the reducer that stores what results of this type carry; idempotent."""
    # By the handlers, at each call: a call may run on a child session, which has no reducers yet.
    session[KeptText].register(value_type, _take_over)


def kept_text(session: Session, key: str, *, reader: str = _READER) -> KeptText:
    """The stored text of a key, for the tool of that name to read.

    Raises:
        ToolValidationError: there is no such text, or it is from another toolset, which may have other files.
    """
    # At most `MAX_OVERFLOWS` items, so a search in order is fast enough.
    kept = next((kept for kept in session[KeptText] if kept.key == key), None)
    if kept is None:
        asked = repr(shorten(key, _LONGEST_SHOWN))
        raise ToolValidationError(f"$.key: there is no kept text {asked}. {_those_kept(session)}")
    # A key of another toolset would show files that this one may not read.
    if kept.reader != reader:
        raise ToolValidationError(
            f"$.key: {key!r} is a result of {kept.tool}, whose files are those of another toolset. Read it with "
            f"{kept.reader}."
        )
    return kept


def read_overflow(
    kept: KeptText, asked: ReadKept, limits: VfsLimits, filesystem: Filesystem | None = None
) -> OverflowExcerpt:
    """The requested part of a stored text.

    A line about a file that searches of this filesystem do not find, because it no longer exists or a filter now hides
    it, is not shown.

    Raises:
        ToolValidationError: there is no such line in it.
    """
    lines = ReadFile(asked.key, asked.offset, asked.limit, asked.column)
    text = kept.text if filesystem is None else _what_is_found(kept, filesystem)
    part = excerpt(text, lines, limits, path=f"kept result of {kept.tool}")
    return OverflowExcerpt(kept.key, kept.tool, part)


def _what_is_found(kept: KeptText, filesystem: Filesystem) -> str:
    """The text without the lines about files that a search of this filesystem does not find."""
    content = _own_name(kept.tool) == "grep_files"
    hidden = [path for path in kept.paths if not _is_found(path, filesystem, content=content)]
    if not hidden:
        return kept.text
    # The marks are those that follow a path in a line of `grep_files` (`:` and `-`) or `glob_files` (`/` and space).
    starts = tuple(f"{path_in_line(path)}{mark}" for path in hidden for mark in ":-/ ")
    # Split only at the line ends of `store_overflow`: a line of a file may hold other characters that end lines.
    return "\n".join(_NOT_SHOWN if line.startswith(starts) else line for line in kept.text.split("\n"))


def _is_found(path: str, filesystem: Filesystem, *, content: bool) -> bool:
    """Whether a search finds a path; `content` for lines of the file, not only its existence."""
    try:
        is_link = filesystem.stat(path).kind == "symlink"
        # The name of a link is listed even if its target does not exist; its lines are those of the target.
        if is_link and not content:
            return True
        is_left_out = filesystem.unsearched(path, named=False) is not None
        return not is_left_out and (not is_link or filesystem.exists(filesystem.resolve(path)))
    except FilesystemError:
        return False


def _own_name(tool: str) -> str:
    """The name of a tool without the prefix of its toolset."""
    return next((name for name in _KEEPING if tool.endswith(name)), tool)


def _take_over(view: SliceView[KeptText], value: CanOverflow) -> Change[KeptText]:
    kept = value.kept
    if kept is None:
        return Unchanged()
    # The same text again moves to the end, as the newest.
    others = tuple(other for other in view if other.key != kept.key)
    if len(others) >= MAX_OVERFLOWS:
        # Half of them at once, so that the slice is not replaced as a whole by every further result.
        return Replace((*others[MAX_OVERFLOWS // 2 :], kept))
    return Append(kept) if len(others) == len(view) else Replace((*others, kept))


def _those_kept(session: Session) -> str:
    kept = ", ".join(f"{kept.key} (of {kept.tool})" for kept in session[KeptText])
    there = f"Kept are {kept}." if kept else "None is kept."
    return f"{there} Only the newest are kept; call the tool that found it again."
