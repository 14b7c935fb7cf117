"""What workers carry out: agents of files, and functions; and the digests by which a change of them is seen."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from handrail.adapters.run_task import AgentFunction, digest_package, name_function
from handrail.adapters.tool_executor import PendingAnswers
from handrail.errors import AgentError
from handrail.serde.json_schema import is_array

if TYPE_CHECKING:
    from handrail.agents import LoadedAgent


Runnable: TypeAlias = "LoadedAgent | AgentFunction"
"""What a worker can carry out."""


def digest_agent(agent: Runnable) -> str:
    """A digest that changes with the files of an agent.

    Those are the agent files, modules and settings of its project; of a function all modules of the package that it is
    in, or those beside its module.
    """
    digest = digest_package(agent) if callable(agent) else agent.task().digest_files()
    return digest[:12]  # people read it


def is_pending(answer: object) -> bool:
    """Returns whether an agent has returned its questions in place of an answer."""
    # That of PydanticAI needs an extra.
    return isinstance(answer, PendingAnswers) or type(answer).__name__ == "DeferredToolRequests"


def load_agents(names: Iterable[str]) -> Mapping[str, Runnable]:
    """The agents that some agent files have, and those of `AGENTS` in some modules, by their names.

    Raises:
        AgentError: one cannot be loaded, is something else, or has the name of another one.
        ImportError: there is no such module.
    """
    agents: dict[str, Runnable] = {}
    for name in names:
        for agent in _load(name):
            if (own := name_function(agent)) in agents:
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
