"""A policy that lets nobody overwrite a file unseen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from handrail.errors import FilesystemError, PathNotFoundError, PromptValidationError
from handrail.filesystem import Filesystem
from handrail.filesystem.paths import normalise
from handrail.prompt.context import ToolContext
from handrail.prompt.policy import PolicyDecision
from handrail.prompt.tool import Tool
from handrail.prompt.tool_result import ToolResult
from handrail.session import Session

PathOf = Callable[[Any], str | Sequence[str] | None]
"""From the parameters of a call to the path, or paths, that it is about; `None` for none."""


@dataclass(frozen=True, slots=True)
class FilesKnown:
    """What the model knows of the files, in a STATE slice. A new value takes the place of the old one.

    Attributes:
        digests: the SHA-256 of each file's content when it was last read or written through a tool, by its path.
    """

    digests: dict[str, str]


def path_in(params: object) -> str | Sequence[str] | None:
    """The field `path`, or else `file_path`, of the parameters; `None` if they have neither."""
    found: str | Sequence[str] | None = getattr(params, "path", None)
    return getattr(params, "file_path", None) if found is None else found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadBeforeWritePolicy:
    """An existing file must have been read before it is written to, and read again if its content has changed since.

    New files are free. What the model has written itself, it knows. A read counts whatever part of the file it showed.
    Contents are compared by their digest. The memory is the slice of `FilesKnown`: a read or write that is rolled back
    does not count, and all policies of this kind in a session share it.

    It needs the `Filesystem` that the tools work on among the resources, and refuses all writes without one.

    Attributes:
        read_tools: names of the tools whose success makes a file known.
        write_tools: names of the tools that are held back, and whose success makes a file known too.
        path_of: from a call's parameters to the path, or paths, that it is about. A write without one is refused.
        name: names the policy; give another one where two stand in reach of one tool.

    Raises:
        PromptValidationError: `read_tools` or `write_tools` is no sequence of names.
    """

    read_tools: Sequence[str] = ("read_file",)
    write_tools: Sequence[str] = ("write_file", "edit_file")
    path_of: PathOf = path_in
    name: str = "read_before_write"

    def __post_init__(self) -> None:
        for what, names in (("read_tools", self.read_tools), ("write_tools", self.write_tools)):
            if isinstance(names, str) or not names:
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
            return PolicyDecision.deny(f"{error}.")
        if not faults:
            return PolicyDecision.allow()
        told = "; ".join(f"{path} {why}" for path, why in faults)
        first = f"Call {' or '.join(self.read_tools)} on {' and '.join(path for path, _ in faults)} first"
        return PolicyDecision.deny(f"{told}. {first}, then {tool.name} again.")

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ANN401, ARG002 - the protocol's
        """Remember what the files that were read or written hold now."""
        filesystem = context.filesystem
        if filesystem is None or (tool.name not in self.read_tools and tool.name not in self.write_tools):
            return
        known = _known(context.session)
        digests = dict(known)
        for path in self._paths(params):
            shortest, digest = _content(filesystem, path)
            if digest is None:
                digests.pop(shortest, None)
            else:
                digests[shortest] = digest
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


def _fault(filesystem: Filesystem, path: str, known: dict[str, str]) -> tuple[str, str] | None:
    """The shortest form of a path that must not be written to yet, and why; folders are not this policy's affair."""
    shortest, digest = _content(filesystem, path)
    if digest is None or known.get(shortest) == digest:
        return None
    return shortest, "has changed since it was read" if shortest in known else "exists and has not been read yet"


def _content(filesystem: Filesystem, path: str) -> tuple[str, str | None]:
    """The shortest form of a path, and the digest of the file there; `None` if there is none."""
    shortest = normalise(path)
    try:
        if filesystem.stat(shortest).kind == "folder":
            return shortest, None
        return shortest, filesystem.digest(shortest)
    except PathNotFoundError:
        return shortest, None
