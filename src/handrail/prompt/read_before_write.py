"""A policy that lets nobody overwrite a file unseen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from handrail.errors import FilesystemError, PathNotFoundError, PromptValidationError
from handrail.filesystem import Filesystem
from handrail.filesystem.paths import is_inside, normalise
from handrail.prompt.context import ToolContext
from handrail.prompt.policy import PolicyDecision
from handrail.prompt.tool import Tool
from handrail.prompt.tool_result import ToolResult
from handrail.session import Session, stored_as

PathOf = Callable[[Any], str | Sequence[str] | None]
"""From the parameters of a call to the path, or paths, that it is about; `None` for none."""


_OLD_AND_NEW = 2
"""A move is about so many paths."""


@stored_as("handrail.files_known")
@dataclass(frozen=True, slots=True)
class FilesKnown:
    """What the model knows of the files, in a STATE slice. A new value takes the place of the old one.

    Attributes:
        digests: the SHA-256 of each file's content when it was last read or written through a tool, by its path.
    """

    digests: dict[str, str]


def path_in(params: object) -> str | Sequence[str] | None:
    """The field `path`, or else `file_path`, of the parameters, and `new_path` if they have that, too; else `None`."""
    found: str | Sequence[str] | None = getattr(params, "path", None)
    if found is None:
        found = getattr(params, "file_path", None)
    new_path: str | None = getattr(params, "new_path", None)
    return (found, new_path) if isinstance(found, str) and new_path is not None else found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadBeforeWritePolicy:
    """An existing file must have been read before it is written to or removed, and again if it has changed since.

    New files are free. What the model has written itself, it knows. A read counts whatever part of the file it showed.
    What is known of a file goes with it when it is moved; moving is not held back, because it replaces nothing. Nor is
    removing a folder, for which the tools want to be told that it is meant with all it holds.
    Contents are compared by their digest. The memory is the slice of `FilesKnown`: a read or write that is rolled back
    does not count, and all policies of this kind in a session share it.

    It needs the `Filesystem` that the tools work on among the resources, and refuses all writes without one.

    Attributes:
        read_tools: names of the tools whose success makes a file known.
        write_tools: names of the tools that are held back, and whose success makes a file known too.
        move_tools: names of the tools that give a file or folder another path.
        path_of: from a call's parameters to the path, or paths, that it is about; for a move to the old one and the new
            one. A write without a path is refused.
        name: names the policy; give another one where two stand in reach of one tool.

    Raises:
        PromptValidationError: `read_tools`, `write_tools` or `move_tools` is no sequence of names; the first two must
            name a tool at least.
    """

    read_tools: Sequence[str] = ("read_file",)
    write_tools: Sequence[str] = ("write_file", "edit_file", "remove_file")
    move_tools: Sequence[str] = ("move_file",)
    path_of: PathOf = path_in
    name: str = "read_before_write"

    def __post_init__(self) -> None:
        given = {"read_tools": self.read_tools, "write_tools": self.write_tools, "move_tools": self.move_tools}
        for what, names in given.items():
            if isinstance(names, str) or (not names and what != "move_tools"):
                raise PromptValidationError(
                    f"policy {self.name}: {what} is {names!r}; write the names of one tool or more: ('read_file',)."
                )
            object.__setattr__(self, what, tuple(names))

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401 - the tool's
        """Allow the call if it writes only to files that are new or known; a refusal says what to read first."""
        if tool.name not in self.write_tools:
            return PolicyDecision.allow()
        filesystem = context.filesystem
        if filesystem is None:
            return PolicyDecision.deny(f"{tool.name} cannot be judged, because no Filesystem is bound to the prompt.")
        paths = self._paths(params)
        if not paths:
            return PolicyDecision.deny(f"{tool.name} cannot be judged, because its arguments name no path.")
        known = _known(context.session)
        try:
            faults = [fault for path in paths if (fault := _fault(filesystem, path, known))]
        except FilesystemError as error:
            return PolicyDecision.deny(f"{str(error).rstrip('.')}.")
        if not faults:
            return PolicyDecision.allow()
        told = "; ".join(f"{path} {why}" for path, why in faults)
        first = f"Call {' or '.join(self.read_tools)} on {' and '.join(path for path, _ in faults)} first"
        return PolicyDecision.deny(f"{told}. {first}, then {tool.name} again.")

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ANN401, ARG002 - the protocol's
        """Remember what the files that were read or written hold now, and where those that were moved are."""
        filesystem = context.filesystem
        if filesystem is None:
            return
        known = _known(context.session)
        if tool.name in self.read_tools or tool.name in self.write_tools:
            digests = _looked_at(filesystem, self._paths(params), known)
        elif tool.name in self.move_tools:
            digests = _moved(known, self._paths(params))
        else:
            return
        if digests != known:
            context.session[FilesKnown].seed(FilesKnown(digests))

    def fault_of_reach(self, tool_names: frozenset[str]) -> str | None:
        """What is wrong if tools are held back with none to read by: existing files could never be written."""
        held_back = sorted(tool_names.intersection(self.write_tools))
        if not held_back or not tool_names.isdisjoint(self.read_tools):
            return None
        return (
            f"it holds back {', '.join(held_back)} until the file has been read, but there is no "
            f"{' or '.join(self.read_tools)} in the section that carries the policy, nor below it. Declare the reading "
            "tool there too, or give its name by read_tools=."
        )

    def _paths(self, params: object) -> tuple[str, ...]:
        paths = self.path_of(params)
        if paths is None:
            return ()
        return (paths,) if isinstance(paths, str) else tuple(paths)


def _known(session: Session) -> dict[str, str]:
    latest = session[FilesKnown].latest()
    return {} if latest is None else latest.digests


def _looked_at(filesystem: Filesystem, paths: Sequence[str], known: dict[str, str]) -> dict[str, str]:
    """What is known once these files have been looked at; nothing is known of what is not there."""
    digests = dict(known)
    for path in paths:
        shortest, digest = _content(filesystem, path)
        if digest is not None:
            digests[shortest] = digest
        elif not filesystem.exists(shortest):
            digests = {other: held for other, held in digests.items() if not _is_at(other, shortest)}
    return digests


def _moved(known: dict[str, str], paths: Sequence[str]) -> dict[str, str]:
    """What is known once the first of two paths is called by the second, where nothing was before."""
    if len(paths) != _OLD_AND_NEW:
        return known
    old, new = map(normalise, paths)
    others = {path: digest for path, digest in known.items() if not _is_at(path, new)}
    return {new + path[len(old) :] if _is_at(path, old) else path: digest for path, digest in others.items()}


def _is_at(path: str, place: str) -> bool:
    return path == place or is_inside(path, place)


def _fault(filesystem: Filesystem, path: str, known: dict[str, str]) -> tuple[str, str] | None:
    """The shortest form of a path that must not be written to yet, and why; folders are not this policy's affair."""
    shortest, digest = _content(filesystem, path)
    if digest is None or known.get(shortest) == digest:
        return None
    return shortest, "has changed since it was read" if shortest in known else "exists and has not been read yet"


def _content(filesystem: Filesystem, path: str) -> tuple[str, str | None]:
    """The shortest form of a path, and the digest of the file there; `None` if there is none."""
    shortest = normalise(path)
    kind = "file"
    try:
        kind = filesystem.stat(shortest).kind
        return shortest, None if kind == "folder" else filesystem.digest(shortest)
    except PathNotFoundError:
        return shortest, None
    except FilesystemError:
        if kind != "file":  # a link that leads to no file in the filesystem, say: there is nothing to be known
            return shortest, None
        raise
