"""What a function is to carry out in a session: for a worker, in a dry run, and when a plan is applied.

    async def desk(task: RunTask) -> object:
        files = task.filesystem("notes")
        with ToolExecutor([pay], session=task.session, resources={Filesystem: files}) as executor:
            ...

A dry run hands the function a copy of the session, and of each folder that it asks for; nothing else distinguishes the
two. A plan is applied with the real ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from handrail.filesystem import HostFilesystem
from handrail.runtime.environment import find_guard
from handrail.session import Session

if TYPE_CHECKING:
    import os

    from handrail.limits import Deadline


@dataclass(frozen=True, slots=True)
class RunTask:
    """What a function is to carry out in a session, which another process may have begun.

    Attributes:
        session: the session, open.
        input: what is to be done; the same in each attempt.
        deadline: the deadline of the run.
        request_limit: how many requests to a model the run may make, in all attempts together.
    """

    session: Session
    input: str | None
    deadline: Deadline | None = None
    request_limit: int | None = None

    def filesystem(self, folder: str | os.PathLike[str]) -> HostFilesystem:
        """The filesystem over a folder, or in a dry run over a copy of it; the function closes it.

        Raises:
            FilesystemError: as of `HostFilesystem`; or a dry run does not copy so much.
        """
        path, store, guard = Path(folder).resolve(), self.session.store, find_guard(self.session)
        place = (path, None) if guard is None else guard.workplace(path)
        decides: Any = store if hasattr(store, "is_committed") else None
        return HostFilesystem(place[0], store=decides, journal=place[1])

    async def reply(self, request: Mapping[str, Any], ask: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - decoded JSON
        """The reply of a model, for a loop of one's own; `HandrailCapability` does the same by itself.

        Args:
            request: what the model is asked, as JSON: its name, settings, tools and messages, under these names. A plan
                is applied only as long as the requests are the same.
            ask: asks the model; what it returns is JSON. It is not called when a plan is applied.
        """
        guard = find_guard(self.session)
        return await (ask() if guard is None else guard.reply(self.session, request, ask))


AgentFunction: TypeAlias = Callable[[RunTask], Awaitable[object]]
"""Carries out a run with any loop: a program's own, or one of PydanticAI with the capability.

It continues what the session has, and returns the answer. A question of the session that is open when it returns makes
the run wait for an answer, whatever it returns.
"""


def name_function(function: object) -> str:
    """The name of a function, or of what has a name."""
    name: str = getattr(function, "name", "") or getattr(function, "__name__", type(function).__name__)
    return name


def digest_module(function: Callable[..., object]) -> str:
    """A digest that changes with the module that a function is in; of one that was typed or made, the same always."""
    path = _module_path(function)
    return digest_paths([path] if path.is_file() else [])


def digest_package(function: Callable[..., object]) -> str:
    """As `digest_module`, with all modules of the outermost package, or those beside a module that is in none."""
    path = _module_path(function)
    packages = [*takewhile(_is_package, path.parents)]
    modules = packages[-1].rglob("*.py") if packages else path.parent.glob("*.py")
    return digest_paths(sorted(modules) if path.is_file() else [])


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _module_path(function: Callable[..., object]) -> Path:
    code = getattr(inspect.unwrap(function), "__code__", None)  # not of a `partial`
    return Path(getattr(code, "co_filename", ""))  # nor of one that was typed


def digest_paths(paths: list[Path]) -> str:
    """A digest of the names and contents of files."""
    digest = sha256()
    for path in paths:
        digest.update(b"%s\0%s\0" % (path.name.encode(), path.read_bytes()))
    return digest.hexdigest()
