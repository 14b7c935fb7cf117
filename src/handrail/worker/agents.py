"""What workers carry out: agents of files, and functions; and the digests by which a change of them is seen."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from handrail.adapters.tool_executor import PendingAnswers
from handrail.errors import AgentError
from handrail.limits import Deadline
from handrail.operations.runs import RunData
from handrail.runtime.execution import ASYNC
from handrail.serde.json_schema import is_array
from handrail.session import Session

if TYPE_CHECKING:
    from handrail.agents import LoadedAgent, RunOptions


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


AgentFunction: TypeAlias = Callable[[RunTask], Awaitable[object]]
"""Carries out a run with any loop: a program's own, or one of PydanticAI with the capability.

It continues what the session has, and returns the answer. A question of the session that is open when it returns makes
the run wait for an answer, whatever it returns.
"""

Runnable: TypeAlias = "LoadedAgent | AgentFunction"
"""What a worker can carry out."""

_PROJECT_FILE: Final = "pyproject.toml"


def name_agent(agent: Runnable) -> str:
    """The name under which runs of it are submitted."""
    name: str = getattr(agent, "name", "") or getattr(agent, "__name__", type(agent).__name__)
    return name


def digest_agent(agent: Runnable) -> str:
    """A digest that changes with the files of an agent.

    Those are the agent files, modules and settings of its project; of a function the module that it is in.
    """
    if callable(agent):
        code = getattr(inspect.unwrap(agent), "__code__", None)  # not of a `partial`
        paths = [*filter(Path.is_file, [Path(getattr(code, "co_filename", ""))])]  # nor of one that was typed
    else:
        from handrail.agents.project import matching_files  # noqa: PLC0415 - needs an extra

        folder, config = agent.project.folder, agent.project.config
        sources = (folder / path for path in matching_files(folder, (*config.agents, *config.python)))
        paths = [*sources, *filter(Path.is_file, [folder / _PROJECT_FILE])]
    digest = sha256()
    for path in paths:
        digest.update(b"%s\0%s\0" % (path.name.encode(), path.read_bytes()))
    return digest.hexdigest()[:12]  # people read it


def is_pending(answer: object) -> bool:
    """Returns whether an agent has returned its questions in place of an answer."""
    # That of PydanticAI needs an extra.
    return isinstance(answer, PendingAnswers) or type(answer).__name__ == "DeferredToolRequests"


async def ask_agent(
    agent: LoadedAgent, session: Session, data: RunData, deadline: Deadline | None, options: RunOptions | None
) -> object:
    """The answer of the agent of a file, as text; empty if it waits.

    Raises:
        BaseException: as of `LoadedAgent.run_async`.
    """
    from pydantic_ai import ModelResponse  # noqa: PLC0415 - needs an extra

    from handrail.adapters.pydantic_ai.conversation import StoredHistory  # noqa: PLC0415 - as above
    from handrail.agents import Answer, RunOptions  # noqa: PLC0415 - as above

    load = partial(StoredHistory, session, agent.name, is_held=True)
    history = await ASYNC.write_to(session.store, load)
    if history.history and not history.unfinished:
        return history.answer
    requests = sum(isinstance(message, ModelResponse) for message in history.history)
    limit = None if data.request_limit is None else data.request_limit - requests
    if limit is not None and limit < 1:
        raise AgentError(
            f"the run has made {requests} requests, and may make {data.request_limit}; allow more with "
            "handrail runs retry --request-limit"
        )

    def leave_open(_: object) -> Answer:
        return Answer("later")

    options = options or RunOptions(stream=False)
    options = replace(options, session=session, asker=leave_open, deadline=deadline, request_limit=limit)
    result = await agent.run_async(None if history.unfinished else data.input, options)
    return result.output


def load_agents(names: Iterable[str]) -> Mapping[str, Runnable]:
    """The agents that some agent files have, and those of `AGENTS` in some modules, by their names.

    Raises:
        AgentError: one cannot be loaded, is something else, or has the name of another one.
        ImportError: there is no such module.
    """
    agents: dict[str, Runnable] = {}
    for name in names:
        for agent in _load(name):
            if (own := name_agent(agent)) in agents:
                raise AgentError(f"two agents are called {own}; the second is in {name}")
            agents[own] = agent
    return agents


def _load(name: str) -> Iterable[Runnable]:
    if Path(name).suffix == ".py":
        raise AgentError(f"{name} is a file of Python: name the module, without .py, as python -m does")
    if Path(name).suffix == ".agent" or Path(name).is_file():
        from handrail.agents import load_agent  # noqa: PLC0415 - needs an extra

        return (load_agent(name),)
    agents: object = getattr(import_module(name), "AGENTS", None)
    expected = "async functions that take a RunTask, and of what load_agent returns"
    if not is_array(agents):
        raise AgentError(f"the module {name} has no list AGENTS of {expected}")
    for agent in agents:
        if not (inspect.iscoroutinefunction(agent) and hasattr(agent, "__name__")) and not hasattr(agent, "project"):
            raise AgentError(f"AGENTS of the module {name} has {agent!r:.80}; it is a list of {expected}")
    return cast("Iterable[Runnable]", agents)
