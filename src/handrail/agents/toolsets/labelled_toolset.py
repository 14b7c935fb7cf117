"""All toolsets of one agent, each with the name that people know it by.

PydanticAI's `CombinedToolset` does the combining. What is added:

- at every step, names that several toolsets have are reported together, each with the entries that they come from;
- members are asked one after the other, in the order of the agent file: when a run begins, at each step, and for their
  tools. An agent has a toolset for each of its tools, and a task for each of these at every step costs more than the
  asking; entering, where connections are opened, is one after the other in PydanticAI too;
- toolsets that cannot be made are reported together;
- the texts of tools are those of the overrides of the agent (`handrail.agents.run.agent_texts`);
- the error of a member that cannot be entered reaches the caller, even if a member before it would swallow it.

A toolset that an agent file discloses by a summary shows neither tools nor instructions while it is closed. The summary
stands in the text of the run, in a section of its own (`handrail.agents.run.agent_texts`). The toolset is made
and entered with the run, whether or not it is open: its tools are known, so that names that are taken twice are found
when the run begins, and a call of one of them is answered with the section to open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from pydantic_ai import RunContext, ToolDefinition, ToolsetTool
from pydantic_ai.messages import InstructionPart
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, WrapperToolset
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.errors import AgentError, HandrailError, ToolConflictError


@dataclass
class DisclosedToolset(WrapperToolset[Any]):
    """A toolset that is open or closed.

    Attributes:
        wrapped: the toolset.
        name: what the agent file calls it.
        is_open: whether a toolset of a name is open now.
        hidden: the tools that it had at the last step, if it was closed then.
    """

    wrapped: AbstractToolset[Any]
    name: str
    is_open: Callable[[str], bool]
    hidden: dict[str, ToolsetTool[Any]] = field(init=False, default_factory=dict[str, ToolsetTool[Any]])

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Its tools, if it is open."""
        tools = await super().get_tools(ctx)
        is_open = self.is_open(self.name)
        self.hidden = {} if is_open else tools
        return tools if is_open else {}

    @override
    async def get_instructions(
        self, ctx: RunContext[Any]
    ) -> str | InstructionPart | Sequence[str | InstructionPart] | None:
        """Its instructions, if it is open."""
        return await super().get_instructions(ctx) if self.is_open(self.name) else None


Reserved = Callable[[], Mapping[str, str]]
"""Gives names that no tool of a toolset may have, each with what has it, in words."""


@dataclass(frozen=True, slots=True)
class LabelledSource:
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


NotifyConflict = Callable[[Sequence[tuple[LabelledSource, Mapping[str, ToolsetTool[Any]]]]], None]
"""Called with the toolsets of a step, each with its tools by name."""


ShownDefinition = Callable[[ToolDefinition], ToolDefinition]
"""What the model gets of a tool; its name is the same."""


class LabelledToolset(CombinedToolset[Any]):
    """All toolsets of one agent as one, which knows where each tool comes from.

    Attributes:
        sources: the toolsets, in order.
        toolsets: those of them that may have instructions; this is whom PydanticAI asks for them.
        reserved: gives the names that are taken by others, e.g. by output tools.
        check: whether names are checked here; without, PydanticAI's own check still ends the run at a conflict.
        notify: called with the toolsets and their tools at each step.
        shown: what the model gets of each tool, and what it would get of those of toolsets that are closed.
    """

    def __init__(
        self,
        sources: Sequence[LabelledSource],
        *,
        reserved: Reserved = dict,
        check: bool = True,
        notify: NotifyConflict = lambda _listed: None,
        shown: ShownDefinition = lambda definition: definition,
    ) -> None:
        """Combine toolsets; nothing is checked before a run asks for tools."""
        # PydanticAI asks these for instructions at every step; the toolset of a single tool has none.
        super().__init__([source.toolset for source in sources if source.instructs])
        self.sources: tuple[LabelledSource, ...] = tuple(sources)
        self.reserved = reserved
        self.check = check
        self.notify = notify
        self.shown = shown
        self._entered = AsyncExitStack()

    @override
    async def for_run(self, ctx: RunContext[Any]) -> LabelledToolset:
        """The toolsets of one run; what is entered and left is this copy.

        Raises:
            FactoryError: a factory made no toolset.
            AgentError: several members have a fault, reported together.
            Exception: what a factory or a toolset raises, if it is the only one.
        """
        toolsets: list[AbstractToolset[Any]] = []
        faults: list[tuple[str, Exception]] = []
        for source in self.sources:
            try:
                toolsets.append(await source.toolset.for_run(ctx))
            except Exception as fault:  # noqa: BLE001 - raised below, when the others have been asked
                faults.append((source.label, fault))
        if len(faults) == 1:
            raise faults[0][1]
        if faults:
            problems = [_problem(label, fault) for label, fault in faults]
            raise AgentError("\n".join(map(str, problems)), problems=problems) from faults[0][1]
        return self._with(toolsets)

    @override
    async def for_run_step(self, ctx: RunContext[Any]) -> LabelledToolset:
        """The toolsets of one step; the same object if no member has put another one in its place."""
        toolsets = [await source.toolset.for_run_step(ctx) for source in self.sources]
        if all(new is source.toolset for new, source in zip(toolsets, self.sources, strict=True)):
            return self
        return self._with(toolsets)

    @override
    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for source in self.sources:
                await _enter(source)
                # Pushed after the entry: a member that could not be entered is not left.
                stack.push_async_exit(partial(_leave, source.toolset))
            # Without this line the block would leave all members at its end; on an exception it does.
            self._entered = stack.pop_all()
        return self

    @override
    async def __aexit__(self, *args: Any) -> bool | None:  # noqa: PYI036 - as PydanticAI declares it
        return await self._entered.__aexit__(*args)  # which empties it

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools of all members; each member is asked once.

        Raises:
            ToolConflictError: several members have a tool of one name; all such names are reported.
            UserError: the same, in PydanticAI's words, if the names are not checked here.
        """
        if not self.check:
            members = [source.toolset for source in self.sources]
            return self._as_shown(await CombinedToolset(members).get_tools(ctx))
        listed = [(source, await source.toolset.get_tools(ctx)) for source in self.sources]
        # The same names as PydanticAI would find, but all of them, and with where they come from.
        every = [(source.label, {**tools, **_hidden(source.toolset)}) for source, tools in listed]
        conflict = name_conflict(every, self.reserved())
        if conflict is not None:
            raise conflict
        self.notify(listed)
        owners = {name: (source.toolset, tool) for source, tools in listed for name, tool in tools.items()}
        return self._as_shown(await CombinedToolset([_Listed(self, owners)]).get_tools(ctx))

    @override
    def apply(self, visitor: Callable[[AbstractToolset[Any]], None]) -> None:
        """Show each member to the visitor."""
        for source in self.sources:
            source.toolset.apply(visitor)

    @override
    def visit_and_replace(self, visitor: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]) -> LabelledToolset:
        """A copy, not entered, over what the visitor puts in the places of the members."""
        return self._with([source.toolset.visit_and_replace(visitor) for source in self.sources])

    def _with(self, toolsets: Sequence[AbstractToolset[Any]]) -> LabelledToolset:
        sources = [replace(source, toolset=toolset) for source, toolset in zip(self.sources, toolsets, strict=True)]
        return LabelledToolset(sources, reserved=self.reserved, check=self.check, notify=self.notify, shown=self.shown)

    def _as_shown(self, tools: dict[str, ToolsetTool[Any]]) -> dict[str, ToolsetTool[Any]]:
        for source in self.sources:
            for tool in _hidden(source.toolset).values():
                self.shown(tool.tool_def)
        definitions = {name: self.shown(tool.tool_def) for name, tool in tools.items()}
        # A tool that is shown as it is stays the same object.
        return {
            name: tool if definitions[name] is tool.tool_def else replace(tool, tool_def=definitions[name])
            for name, tool in tools.items()
        }


class _Listed(WrapperToolset[Any]):
    """The tools that all members have at one step, each with the member that calls it."""

    def __init__(
        self, wrapped: LabelledToolset, owners: Mapping[str, tuple[AbstractToolset[Any], ToolsetTool[Any]]]
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


def hidden_tools(sources: Iterable[LabelledSource]) -> Mapping[str, str]:
    """The tools of the toolsets that are closed at this step, each with the name of its toolset."""
    closed = [source.toolset for source in sources if isinstance(source.toolset, DisclosedToolset)]
    return {name: toolset.name for toolset in closed for name in toolset.hidden}


def _hidden(toolset: AbstractToolset[Any]) -> Mapping[str, ToolsetTool[Any]]:
    """The tools of a toolset that is closed at this step: they must not have the names of others either."""
    return toolset.hidden if isinstance(toolset, DisclosedToolset) else {}


def _problem(label: str, fault: Exception) -> AgentError:
    """Why a member cannot be made, among those of others."""
    if isinstance(fault, AgentError):
        return fault
    kind = "" if isinstance(fault, HandrailError) else f"{type(fault).__name__}: "
    problem = AgentError(f"{label} cannot be made: {kind}{fault}")
    problem.__cause__ = fault
    return problem


async def _enter(source: LabelledSource) -> None:
    """Enter a toolset; its error says which one it is, as when its server cannot be reached."""
    try:
        await source.toolset.__aenter__()
    except Exception as error:
        error.add_note(f"{source.label} could not be entered")
        raise


async def _leave(toolset: AbstractToolset[Any], *args: Any) -> None:  # noqa: ANN401 - PydanticAI's
    """Leave a toolset, and let it swallow nothing: a run whose toolsets were not all entered must not continue."""
    await toolset.__aexit__(*args)


def name_conflict(
    sources: Iterable[tuple[str, Iterable[str]]], reserved: Mapping[str, str], *, agent: str = "an agent"
) -> ToolConflictError | None:
    """The error about tool names that several sources have; `None` if there are none.

    Args:
        sources: the label of each source, with the names of its tools.
        reserved: names that no source may have, each with the label of what has it.
        agent: whose tools they are, in words.
    """
    # Reserved names come first, so that a message lists the owner of such a name before the tools that conflict with
    # it.
    takers: dict[str, list[str]] = {name: [label] for name, label in reserved.items()}
    for label, names in sources:
        for name in names:
            takers.setdefault(name, []).append(label)
    taken = {name: labels for name, labels in takers.items() if len(labels) > 1}
    if not taken:
        return None
    lines = [f"  {name}: {', '.join(labels)}" for name, labels in taken.items()]
    return ToolConflictError(
        f"the tools of {agent} need different names, and these are taken more than once:\n"
        + "\n".join(lines)
        + "\nRename a tool, or prefix the names of a toolset in Python: toolset.prefixed('x').",
        tools=tuple(taken),
    )
