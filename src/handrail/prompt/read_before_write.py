"""A policy that requires a file to be read before it is overwritten, and the parts of files that the model knows.

A session records what each call has shown of files in a STATE slice of `KnownFiles`; the newest item with a path is
valid. When most entries are outdated, one item with the valid ones replaces them (`remember`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any, ClassVar, NamedTuple, cast

from handrail.errors import FilesystemError, PathNotFoundError, PromptValidationError, UnboundResourceError
from handrail.filesystem import Filesystem
from handrail.filesystem.path_filters import PathFilter
from handrail.prompt.context import ToolContext
from handrail.prompt.policy import PolicyDecision
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_result import FILE_START, Extent, FileShown, Position, ToolResult
from handrail.session import Session, stored_as

_FEWEST_COMPACTED = 64  # a slice of fewer items is not compacted


@dataclass(frozen=True, slots=True)
class FileKnown:
    """The part of a file that the model knows.

    Attributes:
        identity: `Filesystem.identity` of the content that was shown or written.
        end: for a part, the first character that was not shown, from the start on. Lines behind it count when those
            before were shown.
    """

    identity: str
    shown: Extent = "all"
    end: Position = FILE_START


@stored_as("handrail.files_known")
@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files that one call has shown or written, by their paths; overrides the items before it."""

    survives_undo: ClassVar[bool] = True  # the model has read them; another content has to be read again

    files: dict[str, FileKnown]


_KnownItems = Sequence[KnownFiles]


def known_after(before: FileKnown | None, display: FileShown, identity: str) -> FileKnown:
    """The knowledge of a file after some of it has been shown; knowledge of another content does not count."""
    # Another identity is another content, whose lines need not be those that were shown.
    same = before if before is not None and before.identity == identity else None
    if display.shown == "all" or (same is not None and same.shown == "all"):
        return FileKnown(identity)
    start, end = display.part
    if display.shown == "nothing" or start >= end:
        return FileKnown(identity, "nothing") if same is None else same
    known_end = FILE_START if same is None else same.end
    known_end = max(known_end, end) if start <= known_end else known_end
    is_whole = known_end[0] > (display.total_lines or 0)
    return FileKnown(identity) if is_whole else FileKnown(identity, "part", known_end)


def known_after_edit(before: FileKnown | None, identity: str) -> FileKnown:
    """The knowledge of a file after the model has changed some of its text.

    A file that was known whole still is. A file of which nothing was known did not exist: the model wrote all of it. Of
    any other, no line counts as shown any more, because text that was never shown may stand there.
    """
    # `ReadBeforeWritePolicy` refuses an edit of an existing file of which nothing is known, so `None` means a new file.
    return FileKnown(identity, "all" if before is None or before.shown == "all" else "part")


def find_known(items: _KnownItems, path: str) -> FileKnown | None:
    """The knowledge of a file by its shortest path, from the items of a slice; `None` for nothing."""
    return next((item.files[path] for item in reversed(tuple(items)) if path in item.files), None)


def all_known(items: Iterable[KnownFiles]) -> Mapping[str, FileKnown]:
    """The knowledge of every file, from the items of a slice."""
    return {path: state for item in items for path, state in item.files.items()}


def remember(session: Session, item: KnownFiles) -> None:
    """Adds an item to the slice of a session.

    When the number of items reaches a power of two, and more than half of the entries are outdated, one item with the
    rest replaces them: constant amortized cost, and at most four entries for each known file.
    """
    items = session[KnownFiles]
    items.append(item)
    count = len(items)
    # `count & (count - 1)` is 0 for powers of two only.
    if count < _FEWEST_COMPACTED or count & (count - 1):
        return
    files = all_known(items)
    if sum(len(entry.files) for entry in items) > 2 * len(files):
        items.seed(KnownFiles(dict(files)))


AnyPath = str | PurePath
"""A path as the parameters have it."""

PathOf = Callable[[Any], AnyPath | Sequence[AnyPath] | None]
"""Returns the path or paths in the parameters of a call; `None` for none."""


def path_in(params: object) -> AnyPath | Sequence[AnyPath] | None:
    """The field `path`, or else `file_path`, of the parameters; else `None`."""
    # The parameters of a tool that declares a TypedDict are a dict.
    mapping = cast("Mapping[str, Any]", params) if isinstance(params, Mapping) else None
    field = partial(getattr, params) if mapping is None else mapping.get
    path: AnyPath | Sequence[AnyPath] | None = field("path", None)
    return field("file_path", None) if path is None else path


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadBeforeWritePolicy:
    """An existing file must have been shown before it is written to or removed, and again if it has changed since.

    | call | needs |
    |---|---|
    | one of `edit_tools` | any line of the file |
    | another of `write_tools` | the whole file, in one read or several; so never one that is not text or too large |
    | on a new file, or on a folder | nothing |

    What the model has written itself counts as shown, and so does a file that was moved, if its content was shown whole
    elsewhere. After an edit, a file that was shown whole is still known whole; one that was shown in part may be edited
    on. Removing a folder is not restricted: the tools require an explicit argument for it.

    A tool reports what a read has shown in `ToolResult.files_shown`. A tool that does not is assumed to show the whole
    of each file that `find_paths` finds in its parameters.

    `Filesystem.identity` detects changes of a file: by the digest of its content, or for a large file on disk by size,
    time and inode. The state is the slice of `KnownFiles`: a read or write that is rolled back does not count, and all
    policies of this type in a session share it.

    The `Filesystem` of the tools must be bound. If a provider returns none, the policy refuses all writes.

    Attributes:
        write_tools: names of the restricted tools, whose success makes a file known too.
        edit_tools: names of those of `write_tools` that change only the text that they name, as `edit_file` does.
        find_paths: returns the paths in the parameters of a call, as text or `pathlib.Path`; by default of the field
            `path`, or else `file_path`. A write without a path is refused.
        path_filter: which paths exist for the policy, as for the tools: no refusal mentions another one.

    Raises:
        PromptValidationError: a list of tools is not a sequence of names, or `read_tools` or `write_tools` is empty.
    """

    read_tools: Sequence[str] = ("read_file",)
    write_tools: Sequence[str] = ("write_file", "edit_file", "remove_file")
    edit_tools: Sequence[str] = ("edit_file",)
    find_paths: PathOf = path_in
    path_filter: PathFilter = field(default_factory=PathFilter)
    name: str = "read_before_write"

    def __post_init__(self) -> None:
        for what in ("read_tools", "write_tools", "edit_tools"):
            names: Sequence[str] = getattr(self, what)
            if isinstance(names, str) or (not names and what in {"read_tools", "write_tools"}):
                raise PromptValidationError(
                    f"policy {self.name}: {what} is {names!r}; write the names of one tool or more: ('read_file',)."
                )
            object.__setattr__(self, what, tuple(names))

    def may_block(self, tool: Tool[Any, Any], session: Session) -> bool:  # noqa: ARG002 - the protocol's
        """Returns whether the file may be read, which takes as long as hashing it."""
        return tool.name in self.read_tools or tool.name in self.write_tools

    def needs(self, tool: Tool[Any, Any]) -> Iterable[type[Any]]:
        """The `Filesystem`, for the tools that are restricted."""
        return (Filesystem,) if tool.name in self.write_tools else ()

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401 - the tool's
        """Allows the call if it writes only to files that are new or known; a refusal states what to read first.

        Raises:
            UnboundResourceError: no `Filesystem` is bound.
        """
        if tool.name not in self.write_tools:
            return PolicyDecision.allow()
        filesystem = self._filesystem(context)
        # Without a binding no call could ever be allowed, which is for the developer. A provider may return none for
        # one run.
        if filesystem is None and Filesystem not in context.resources:
            raise UnboundResourceError(Filesystem)
        if filesystem is None:
            return PolicyDecision.deny(f"{tool.name} cannot be judged, because there is no filesystem.")
        paths = self._paths(params)
        # A write whose path is not known cannot be compared with what was read, so it is refused.
        if not paths:
            return PolicyDecision.deny(f"{tool.name} cannot be judged, because its arguments name no path.")
        items = context.session[KnownFiles]
        is_edit = tool.name in self.edit_tools
        try:
            # All paths are judged before the answer, so that one message names everything to read.
            faults = [fault for path in paths if (fault := _fault(filesystem, path, items, is_edit=is_edit))]
        except FilesystemError as error:
            return PolicyDecision.deny(f"{str(error).rstrip('.')}.")
        return PolicyDecision.deny(self._refusal(tool, faults)) if faults else PolicyDecision.allow()

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ANN401 - the protocol's
        """Records the current content of files that were read or written."""
        filesystem = self._filesystem(context)
        if filesystem is None or tool.name not in {*self.read_tools, *self.write_tools}:
            return
        # `None` is a tool that reports nothing; an empty list reports that no file was shown.
        text = result.files_shown
        displays = [FileShown(path) for path in self._paths(params)] if text is None else text
        learned = _learned(filesystem, displays, context.session[KnownFiles], is_edit=tool.name in self.edit_tools)
        if learned.files:
            remember(context.session, learned)

    def scope_fault(self, tool_names: frozenset[str]) -> str | None:
        """The fault if write tools have no read tool: existing files could never be written."""
        held_back = sorted(tool_names.intersection(self.write_tools))
        if not held_back or not tool_names.isdisjoint(self.read_tools):
            return None
        return (
            f"it denies {', '.join(held_back)} until the file has been read, but there is no "
            f"{' or '.join(self.read_tools)} in the section with the policy or below it. Declare the read tool "
            "there too, or name it in read_tools=."
        )

    def _filesystem(self, context: ToolContext) -> Filesystem | None:
        filesystem = context.filesystem
        return None if filesystem is None else filesystem.filtered(self.path_filter)

    def _paths(self, params: object) -> tuple[str, ...]:
        paths = self.find_paths(params)
        several = [paths] if isinstance(paths, str | PurePath) else paths or ()
        return tuple(path.as_posix() if isinstance(path, PurePath) else path for path in several)

    def _refusal(self, tool: Tool[Any, Any], faults: Sequence[_Fault]) -> str:
        text = f"{'; '.join(f'{fault.path} {fault.why}' for fault in faults)}."
        # Reading more of such a file shows none of its lines, and a model that is asked to would repeat it.
        hopeless = " and ".join(fault.path for fault in faults if not fault.to_read)
        if hopeless:
            return f"{text} Leave {hopeless} as it is."
        to_read = " and ".join(fault.to_read for fault in faults)
        return f"{text} Call {' or '.join(self.read_tools)} on {to_read} first, then {tool.name} again."


class _Fault(NamedTuple):
    path: str
    why: str
    to_read: str


def _fault(filesystem: Filesystem, path: str, items: _KnownItems, *, is_edit: bool) -> _Fault | None:
    path = filesystem.shortest(path)
    state = find_known(items, path)
    # Without anything known only the existence of the file matters, and a digest would read all of it.
    now = _identity(filesystem, path, hashed=len(items) > 0)
    if now is None:
        return None
    if state is None:
        state = next((other for other in all_known(items).values() if other == FileKnown(now)), None)
    if state is None:
        return _Fault(path, "exists and has not been read yet", path)
    # Compared before the extent: what was shown of other content does not count, not even for an edit.
    if state.identity != now:
        return _Fault(path, "has changed since it was read", path)
    if state.shown == "nothing":
        return _Fault(path, "was not shown, because it is not text or too large", "")
    if state.shown == "part" and not is_edit:
        why = f"has been shown only in part (line {state.end[0]} has not)"
        return _Fault(path, why, f"the rest of {path}")
    return None


def _learned(files: Filesystem, displays: Iterable[FileShown], items: _KnownItems, *, is_edit: bool) -> KnownFiles:
    states: dict[str, FileKnown] = {}
    for display in displays:
        path = files.shortest(display.path)
        # The identity that the tool took with the text is preferred: the file may have changed since it was read.
        identity = display.identity or _identity(files, path, hashed=True)
        if identity is not None:
            # One result may show several parts of a file; the later ones add to the earlier.
            before = states.get(path) or find_known(items, path)
            states[path] = known_after_edit(before, identity) if is_edit else known_after(before, display, identity)
    return KnownFiles(states)


def _identity(filesystem: Filesystem, path: str, *, hashed: bool) -> str | None:
    try:
        if hashed:
            return filesystem.identity(path)
        filesystem.read_start(path, 0)
    except PathNotFoundError:
        return None
    except FilesystemError:
        # A file that cannot be read must not count as absent: the write would be allowed.
        if filesystem.stat(path).kind == "file":
            raise
        return None  # a folder, a special file, or a broken link: it has no content
    return ""
