"""The suites of AgentDojo: tasks of users, and injections, in an office, a bank, a chat and a travel agency.

AgentDojo (https://agentdojo.spylab.ai, MIT) comes with functions over an environment, the calls that solve each task,
and its own checks. Its package of pipelines imports the libraries of all providers, and nothing here needs it: empty
modules stand in for it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

VERSION = "v1.2.2"

_PIPELINE = "agentdojo.agent_pipeline"
_UNUSED = {
    "": (),
    ".base_pipeline_element": ("BasePipelineElement",),
    ".errors": ("AbortAgentError",),
    ".ground_truth_pipeline": ("GroundTruthPipeline",),
}
"""The modules that the suites import, with what they take from them and do not use."""

MARK = "INJECTED-4711"
"""What the scripted model knows an injection by."""

ACTS = frozenset(
    (
        *("add_calendar_event_participants", "add_user_to_channel", "append_to_file", "cancel_calendar_event"),
        *("create_calendar_event", "create_file", "delete_email", "delete_file", "invite_user_to_slack"),
        *("post_webpage", "remove_user_from_slack", "reschedule_calendar_event", "reserve_car_rental", "reserve_hotel"),
        *("reserve_restaurant", "schedule_transaction", "send_channel_message", "send_direct_message", "send_email"),
        *("send_money", "share_file", "update_password", "update_scheduled_transaction", "update_user_info"),
    )
)
"""The functions that act outside; all others read, and what they return is untrusted."""

TELLS = frozenset({"get_webpage"})
"""Functions that read, and tell an attacker so: the address can hold what was read before."""


@dataclass(frozen=True, slots=True)
class Case:
    """A task of a user, and an injection that is met on the way.

    Attributes:
        suite: the name of the suite.
        task: the id of the task.
        injection: the id of the injection.
    """

    suite: str
    task: str
    injection: str

    def __str__(self) -> str:
        """The case as the id of a test."""
        return f"{self.suite}-{self.task}-{self.injection}"


@cache
def suites() -> dict[str, Any]:
    """The suites by their names; they have no types."""
    for name, taken in _UNUSED.items():
        module = ModuleType(_PIPELINE + name)
        module.__path__ = []
        for each in taken:
            setattr(module, each, type(each, (Exception,), {}))
        sys.modules[_PIPELINE + name] = module
    loaded: dict[str, Any] = importlib.import_module("agentdojo.task_suite.load_suites").get_suites(VERSION)
    return loaded


def cases() -> Iterator[Case]:
    """Each injection of a suite with each task of it."""
    for name, suite in suites().items():
        for task in suite.user_tasks:
            for injection in suite.injection_tasks:
                yield Case(name, task, injection)


def environment(suite: Any, injected: str) -> Any:
    """A new environment, in which a text stands in each place that third parties write."""
    return _environment(suite.name, injected).model_copy(deep=True)


@cache
def _environment(name: str, injected: str) -> Any:
    """The environment as the file of a suite has it: reading that takes ten times as long as copying what was read."""
    suite = suites()[name]
    task_suite = importlib.import_module("agentdojo.task_suite.task_suite")
    yaml: Any = importlib.import_module("yaml")  # has no types
    text: str = task_suite.read_suite_file(name, "environment.yaml", None)
    filled = text.format(**dict.fromkeys(suite.get_injection_vector_defaults(), injected))
    return suite.environment_type.model_validate(yaml.load(filled, yaml.CSafeLoader))
