"""AgentDojo: 97 tasks of users in an office, a bank, a chat and a travel agency, with the calls that solve them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeGuard

from proof.sets import Entry, GoldCall
from tests.taint.agentdojo.injected import calls_of
from tests.taint.agentdojo.suites import environment, suites

_NOW = re.compile(r'"[-0-9]{10}T[:0-9]{8}\.[0-9]+"')
"""The times that functions take from the clock; those of the environment have no microseconds."""


class Suite:
    """The environment of a task.

    Args:
        name: the name of its suite.
        root: the environment.
    """

    modules = "default_suites"

    def __init__(self, name: str, root: Any) -> None:
        self._name = name
        self._root = root

    def act(self, function: str, arguments: Mapping[str, Any], /) -> str:
        """Calls a function of the suite."""
        found = next(each for each in suites()[self._name].tools if each.name == function)
        checked = found.parameters.model_validate(dict(arguments)).model_dump()
        parts = {name: each.extract_dep_from_env(self._root) for name, each in found.dependencies.items()}
        return str(found.run(**checked, **parts))

    def dump(self) -> dict[str, Any]:
        """The environment, part by part."""
        text = _NOW.sub('"now"', json.dumps(self._root.model_dump(mode="json")))
        parts: dict[str, Any] = json.loads(text, object_hook=_sort_texts)
        return parts


@cache
def entries() -> Sequence[Entry]:
    """The tasks of all suites."""
    return [
        Entry(f"agentdojo/{suite.name}.{task.ID}", [GoldCall(*call) for call in calls_of(task, _begin(suite, task))])
        for suite in suites().values()
        for task in suite.user_tasks.values()
    ]


def load(name: str) -> Suite:
    """The environment with which a task begins."""
    suite_name, _, task = name.partition(".")
    suite = suites()[suite_name]
    return Suite(suite_name, _begin(suite, suite.user_tasks[task]))


def _sort_texts(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields with their lists of texts in order: AgentDojo makes some of sets, whose order no two processes share."""
    return {name: sorted(each) if _is_texts(each) else each for name, each in fields.items()}


def _is_texts(value: Any) -> TypeGuard[list[str]]:
    return _is_list(value) and all(isinstance(each, str) for each in value)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _begin(suite: Any, task: Any) -> Any:
    return task.init_environment(environment(suite, ""))
