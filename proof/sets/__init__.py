"""Sets of gold actions: calls that solve the tasks of published sets, and the state that they change.

What they are made of is installed beside the programs, and imported when an entry is loaded: `requirements/gold.txt`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class GoldCall(NamedTuple):
    """A call of the list that solves a task.

    Attributes:
        function: the name of the function.
        arguments: its arguments.
    """

    function: str
    arguments: Mapping[str, Any]


class Environment(Protocol):
    """The state of an entry.

    Attributes:
        modules: what the names of the files have in common that the set's functions stand in.
    """

    modules: str

    def act(self, function: str, arguments: Mapping[str, Any], /) -> str:
        """Calls a function; its result as text."""
        ...

    def dump(self) -> dict[str, Any]:
        """The whole state, part by part."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A task, and the calls that solve it.

    Attributes:
        name: `SET/ID`, as `load_environment` takes it.
        calls: the calls.
    """

    name: str
    calls: Sequence[GoldCall]


SETS = ("bfcl", "agentdojo")


def load_environment(name: str) -> Environment:
    """The state with which an entry begins."""
    environment: Environment = _module(name).load(name.partition("/")[2])
    return environment


def entries(name: str) -> Sequence[Entry]:
    """The entries of a set."""
    listed: Sequence[Entry] = _module(name).entries()
    return listed


def _module(name: str) -> Any:
    return importlib.import_module(f"proof.sets.{name.partition('/')[0]}")
