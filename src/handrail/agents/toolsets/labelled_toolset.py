"""All toolsets of one agent, each with the name that people know it by.

PydanticAI's `CombinedToolset` does the combining. What is added:

- at every step, names that several toolsets have are told all together, each with the entries that they come from;
- members are asked one after the other, in the order of the agent file: when a run begins, at each step, and for their
  tools. An agent has a toolset for each of its tools, and a task for each of these at every step costs more than the
  asking; entering, where connections are opened, is one after the other in PydanticAI too;
- factories that made no toolset are told all together;
- the error of a member that cannot be entered reaches the caller, even if a member before it would swallow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from pydantic_ai import RunContext, ToolsetTool
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, WrapperToolset
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.errors import AgentError, FactoryError, ToolConflictError

Reserved = Callable[[], Mapping[str, str]]
"""Gives names that no tool of a toolset may have, each with what has it, in words."""


@dataclass(frozen=True, slots=True)
class Source:
    """A toolset, and what people know it by.

    Attributes:
        label: the entry of the registry, in words: `Entry.label`.
        toolset: the toolset.
        instructs: whether it may have instructions. The toolset of a single tool has none, and is not asked for them at
            every step.
    """

    label: str
    toolset: AbstractToolset[Any]
    instructs: bool = True


Tell = Callable[[Sequence[tuple[Source, Mapping[str, ToolsetTool[Any]]]]], None]
"""Is told the toolsets of a step, each with its tools by name."""


def _tell_nobody(_listed: Sequence[tuple[Source, Mapping[str, ToolsetTool[Any]]]]) -> None:
    """Whoever does not ask is not told."""


class SourcedToolset(CombinedToolset[Any]):
    """All toolsets of one agent as one, which knows where each tool comes from.

    Attributes:
        sources: the toolsets, in order.
        toolsets: those of them that may have instructions; this is whom PydanticAI asks for them.
        reserved: gives the names that are taken by others, e.g. by output tools.
        check: whether names are checked here; without, PydanticAI's own check still ends the run at a conflict.
        tell: is told the toolsets and their tools at each step.
    """

    def __init__(
        self, sources: Sequence[Source], *, reserved: Reserved = dict, check: bool = True, tell: Tell = _tell_nobody
    ) -> None:
        """Combine toolsets; nothing is checked before a run asks for tools."""
        super().__init__([source.toolset for source in sources if source.instructs])
        self.sources = tuple(sources)
        self.reserved = reserved
        self.check = check
        self.tell = tell
        self._entered = AsyncExitStack()

    @override
    async def for_run(self, ctx: RunContext[Any]) -> SourcedToolset:
        """The toolsets of one run; what is entered and left is this copy.

        Raises:
            FactoryError: a factory made no toolset.
            AgentError: several did, told together.
            Exception: what a factory or a toolset raises.
        """
        toolsets: list[AbstractToolset[Any]] = []
        faults: list[FactoryError] = []
        for source in self.sources:
            try:
                toolsets.append(await source.toolset.for_run(ctx))
            except FactoryError as fault:
                faults.append(fault)
        if len(faults) == 1:
            raise faults[0]
        if faults:
            raise AgentError("\n".join(map(str, faults)), problems=faults)
        return self._with(toolsets)

    @override
    async def for_run_step(self, ctx: RunContext[Any]) -> SourcedToolset:
        """The toolsets of one step; the same object if no member has put another one in its place."""
        toolsets = [await source.toolset.for_run_step(ctx) for source in self.sources]
        if all(new is source.toolset for new, source in zip(toolsets, self.sources, strict=True)):
            return self
        return self._with(toolsets)

    @override
    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for source in self.sources:
                await source.toolset.__aenter__()
                stack.push_async_exit(partial(_leave, source.toolset))
            self._entered = stack.pop_all()
        return self

    @override
    async def __aexit__(self, *args: Any) -> bool | None:  # noqa: PYI036 - as PydanticAI declares it
        return await self._entered.__aexit__(*args)  # which empties it

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools of all members; each member is asked once.

        Raises:
            ToolConflictError: several members have a tool of one name; all such names are told.
            UserError: the same, in PydanticAI's words, if the names are not checked here.
        """
        if not self.check:
            return await CombinedToolset([source.toolset for source in self.sources]).get_tools(ctx)
        listed = [(source, await source.toolset.get_tools(ctx)) for source in self.sources]
        conflict = name_conflict(((source.label, tools) for source, tools in listed), self.reserved())
        if conflict is not None:
            raise conflict
        self.tell(listed)
        owners = {name: (source.toolset, tool) for source, tools in listed for name, tool in tools.items()}
        return await CombinedToolset([_Listed(self, owners)]).get_tools(ctx)

    @override
    def apply(self, visitor: Callable[[AbstractToolset[Any]], None]) -> None:
        """Show each member to the visitor."""
        for source in self.sources:
            source.toolset.apply(visitor)

    @override
    def visit_and_replace(self, visitor: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]) -> SourcedToolset:
        """A copy, not entered, over what the visitor puts in the places of the members."""
        return self._with([source.toolset.visit_and_replace(visitor) for source in self.sources])

    def _with(self, toolsets: Sequence[AbstractToolset[Any]]) -> SourcedToolset:
        sources = [replace(source, toolset=toolset) for source, toolset in zip(self.sources, toolsets, strict=True)]
        return SourcedToolset(sources, reserved=self.reserved, check=self.check, tell=self.tell)


class _Listed(WrapperToolset[Any]):
    """The tools that all members have at one step, each with the member that calls it."""

    def __init__(
        self, wrapped: SourcedToolset, owners: Mapping[str, tuple[AbstractToolset[Any], ToolsetTool[Any]]]
    ) -> None:
        super().__init__(wrapped)
        self.owners = owners

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {name: tool for name, (_, tool) in self.owners.items()}

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        member, _ = self.owners[name]
        return await member.call_tool(name, tool_args, ctx, tool)


async def _leave(toolset: AbstractToolset[Any], *args: Any) -> None:  # noqa: ANN401 - PydanticAI's
    """Leave a toolset, and let it swallow nothing: a run whose toolsets were not all entered must not go on."""
    await toolset.__aexit__(*args)


def name_conflict(
    sources: Iterable[tuple[str, Iterable[str]]], reserved: Mapping[str, str]
) -> ToolConflictError | None:
    """What is to be said of tool names that several sources have; `None` if there are none.

    Args:
        sources: the label of each source, with the names of its tools.
        reserved: names that no source may have, each with the label of what has it.
    """
    takers: dict[str, list[str]] = {name: [label] for name, label in reserved.items()}
    for label, names in sources:
        for name in names:
            takers.setdefault(name, []).append(label)
    taken = {name: labels for name, labels in takers.items() if len(labels) > 1}
    if not taken:
        return None
    lines = [f"  {name}: {', '.join(labels)}" for name, labels in taken.items()]
    return ToolConflictError(
        "the tools of an agent need different names, and these are taken more than once:\n"
        + "\n".join(lines)
        + "\nRename a tool, or prefix the names of a toolset in Python: toolset.prefixed('x').",
        tools=tuple(taken),
    )
