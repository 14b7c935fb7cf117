"""The run that is under way here: factories, sections and agents used as tools are made for it.

PydanticAI hands a factory its run context, whose `deps` belong to the program. Handrail's part of the run stands beside
it, in a context variable that is set during the run, so that concurrent runs each see their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai.toolsets import AbstractToolset

from handrail.agents.agent_file import AgentFile
from handrail.contrib.tools import READING, ShellRule
from handrail.errors import AgentError
from handrail.filesystem import HostFilesystem, PathFilter
from handrail.prompt import Section, Tool
from handrail.session import Session
from handrail.session.views import bound_session
from handrail.transaction import Transaction, current, view_for_call
from handrail.waiting import in_context


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellConfig:
    """How the programs of a project's runs are run.

    Attributes:
        allow: the programs that the toolset `shell` may run.
        path: where programs are searched for first, as absolute paths.
        timeout: how long one may take.
    """

    allow: tuple[ShellRule, ...] = READING
    path: tuple[str, ...] = ()
    timeout: timedelta = timedelta(seconds=60)


class CurrentRun(ABC):
    """One run of one agent, as the toolsets made for it see it: an `AgentRun`, or its view for one of its calls.

    `path` are the agents that called each other, this one last; `path_filter` is beside the filters of each toolset.
    """

    session: Session
    path: tuple[str, ...]
    root: Path
    project_folder: Path
    shell: ShellConfig
    file: AgentFile
    path_filter: PathFilter

    @property
    @abstractmethod
    def agents(self) -> Mapping[str, AgentFile]:
        """The agents of the project and the dynamic agents of this run, by name."""

    @abstractmethod
    def filesystem(self, folder: Path) -> HostFilesystem:
        """The one filesystem over a folder that all runs of this tree share; closed when the outermost run ends.

        Raises:
            FilesystemError: the folder cannot be opened, or another process works on it.
        """

    @abstractmethod
    async def open_filesystem(self, folder: Path) -> HostFilesystem:
        """`filesystem` for an `async` factory: opening restores the changes of a killed process, which may take long.

        Raises:
            FilesystemError: as for `filesystem`.
        """

    @abstractmethod
    def section_toolset(self, section: Section[Any], *, id: str, prefix: str = "") -> AbstractToolset[Any]:
        """A section as a toolset of this run: its tools, its guidance and its policies, on the run's session.

        `prefix` is what the caller puts before the names of its tools, so that approval rules on paths that name them
        so hold for its files, whatever reaches them; see `handrail.agents.approval.path_rules`.
        """

    @abstractmethod
    def tool_toolset(self, tool: Tool[Any, Any], *, id: str) -> AbstractToolset[Any]:
        """One of Handrail's tools as a toolset of this run, without any guidance."""

    @abstractmethod
    async def call_agent(self, name: str, input: str, ctx: RunContext[Any]) -> str:
        """Runs another agent on behalf of a call of this run, and returns its answer.

        In a stored session the calls of the agent commit on their own, as in a `concurrent` tool: they stay if the call
        fails, and are refused resources and folders that the call holds. A call that is resumed calls its agents in the
        same order as before; those that have answered are not run again.

        Raises:
            AgentDepthError: it would be too deep.
            AgentError: there is no such agent; or a resumed call asked something else at this place before.
            CallPostponed: one of its calls waits for an approval.
            Exception: the error that ends the other agent's run.
        """


_RUN: ContextVar[tuple[CurrentRun | None, Transaction | None]] = ContextVar("handrail_run", default=(None, None))


def current_run() -> CurrentRun:
    """The run that is under way in this context. In a tool its session and filesystems are views bound to the call.

    Raises:
        AgentError: no run is active.
    """
    run, around = _RUN.get()
    if run is None:
        raise AgentError(
            "no agent is running here; a section or a built-in toolset is used by the run of an agent file"
        )
    call = current()
    # A run of an agent that is called has the call of its caller around it, which is not one of its own calls.
    return run if call is None or call is around else cast("CurrentRun", _RunOfCall(run, call))


class _RunOfCall:
    __slots__ = ("_call", "_run")

    def __init__(self, run: CurrentRun, call: Transaction) -> None:
        self._run = run
        self._call = call

    @property
    def session(self) -> Session:
        return bound_session(self._run.session, self._call)

    def filesystem(self, folder: Path) -> HostFilesystem:
        return view_for_call(self._run.filesystem(folder), self._call)

    async def open_filesystem(self, folder: Path) -> HostFilesystem:
        return view_for_call(await self._run.open_filesystem(folder), self._call)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a run
        return getattr(self._run, name)


def as_current_run(run: CurrentRun) -> AbstractContextManager[None]:
    """Makes a run the current one in this block; then the run of its caller is the current one again."""
    return in_context(_RUN, (run, current()))
