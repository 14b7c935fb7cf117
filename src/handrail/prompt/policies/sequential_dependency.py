"""A policy that denies a tool until others have succeeded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from handrail.errors import PromptValidationError
from handrail.prompt.context import ToolContext
from handrail.prompt.policies.policy import PolicyDecision
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_result import ToolResult
from handrail.session import stored_as


@stored_as("handrail.tool_succeeded")
@dataclass(frozen=True, slots=True)
class ToolSucceeded:
    """A tool that others depend on has succeeded in this session. One for each such tool, in a STATE slice.

    Attributes:
        tool: its name.
    """

    tool: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequentialDependencyPolicy:
    """A tool runs only when the tools it depends on have succeeded in the session, each at least once.

    Its state is the slice of `ToolSucceeded`, so a success that is rolled back does not count. A success belongs to the
    session: all policies of this type share it.

    Attributes:
        dependencies: for each dependent tool, the names of the tools that must have succeeded before. All of them must
            be declared in the section with the policy, or below it.
        name: the name of the policy; give another one if two policies apply to one tool.

    Raises:
        PromptValidationError: the dependencies are not a mapping from names to sets of names, or are circular.
    """

    dependencies: Mapping[str, frozenset[str]]
    name: str = "sequential_dependency"

    def __post_init__(self) -> None:
        dependencies = {tool: _names(tool, needed) for tool, needed in self.dependencies.items()}
        # Refused here, because at run time each of these tools would be denied with a message that names the next one.
        circle = _circle(dependencies)
        if circle:
            raise PromptValidationError(
                f"policy {self.name}: these tools wait for each other, so none could ever run: {' -> '.join(circle)}."
            )
        object.__setattr__(self, "dependencies", MappingProxyType(dependencies))

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:  # noqa: ARG002 - the protocol's
        """Allow the tool if everything it depends on has succeeded; the reason of a refusal lists what has not."""
        needed = self.dependencies.get(tool.name)
        if not needed:
            return PolicyDecision.allow()
        # Sorted: the same state gives the same message in every process, whatever the order of its sets.
        missing = sorted(needed.difference(done.tool for done in context.session[ToolSucceeded].all()))
        if not missing:
            return PolicyDecision.allow()
        return PolicyDecision.deny(
            f"{tool.name} must wait until {_listed(missing)} {'has' if len(missing) == 1 else 'have'} succeeded. "
            f"Call {_listed(missing)} first, then {tool.name} again."
        )

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ARG002 - the protocol's
        """Record the success of a tool that others depend on."""
        if not any(tool.name in needed for needed in self.dependencies.values()):
            return
        succeeded = context.session[ToolSucceeded]
        # One item for each tool, so that the slice does not grow with the calls.
        if not succeeded.where(lambda done: done.tool == tool.name):
            succeeded.append(ToolSucceeded(tool.name))

    def scope_fault(self, tool_names: frozenset[str]) -> str | None:
        """The fault if the policy does not apply to all tools of the dependencies: it would not see their calls."""
        named = frozenset(self.dependencies).union(*self.dependencies.values())
        missing = sorted(named - tool_names)
        if not missing:
            return None
        return (
            f"its dependencies name {_listed(missing)}, but the section with the policy, and those below it, "
            f"declare {', '.join(sorted(tool_names)) or 'no tools'}. Put the policy on a section that contains them "
            "all."
        )


def _names(tool: str, needed: object) -> frozenset[str]:
    # A string is iterable: `"test"` would be four tools of one letter.
    if isinstance(needed, str) or not isinstance(needed, Iterable):
        raise PromptValidationError(
            f"the dependencies of {tool} are {needed!r}; write a set: {{{tool!r}: frozenset({{'test', 'build'}})}}."
        )
    return frozenset(cast("Iterable[str]", needed))


def _circle(dependencies: Mapping[str, frozenset[str]]) -> list[str]:
    """A cycle of tools that wait for each other, starting and ending with the same one; empty if there is none."""
    settled: set[str] = set()

    def follow(tool: str, way: list[str]) -> list[str]:
        if tool in way:
            return [*way[way.index(tool) :], tool]
        if tool not in settled:
            for needed in sorted(dependencies.get(tool, frozenset())):
                found = follow(needed, [*way, tool])
                if found:
                    return found
            # Nothing below this tool is circular. Without the record, tools that share dependencies would be followed
            # again on each path, which can be exponential.
            settled.add(tool)
        return []

    for tool in sorted(dependencies):
        found = follow(tool, [])
        if found:
            return found
    return []


def _listed(names: list[str]) -> str:
    """Names as a sentence lists them."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
