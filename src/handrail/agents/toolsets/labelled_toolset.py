"""All toolsets of one agent, made from the entries that its file names, each with the name that people know it by.

What a program registered is handed to PydanticAI as it is. A tool gets a toolset of its own, so that a name that is
taken twice can be reported with both origins; nothing is set on it, because `FunctionToolset(tools,
requires_approval=...)` and its like write into the very tool that they are given. An agent is a toolset of one tool:
the model of another agent gives it a task, and reads its answer.

PydanticAI's `CombinedToolset` does the combining. What is added:

- at every step, names that several toolsets have are reported together, each with the entries that they come from;
- members are asked one after the other, in the order of the agent file: when a run begins, at each step, and for their
  tools. An agent has a toolset for each of its tools, and a task for each of these at every step costs more than the
  asking; entering, where connections are opened, is one after the other in PydanticAI too;
- toolsets that cannot be made are reported together;
- the texts of tools are those of the overrides of the agent (`handrail.agents.run.agent_texts`);
- the error of a member that cannot be entered reaches the caller, even if a member before it would swallow it.

A toolset that an agent file discloses by a summary shows neither tools nor instructions while it is closed. The summary
stands in the text of the run, in a section of its own. The toolset is made and entered with the run, whether or not it
is open: its tools are known, so that names that are taken twice are found when the run begins, and a call of one of
them is answered with the section to open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic_ai import RunContext, ToolDefinition, ToolsetTool
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.messages import InstructionPart
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset, WrapperToolset
from pydantic_core import to_json
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.agents.active_run import current_run
from handrail.agents.agent_file import AgentFile
from handrail.agents.registry import AgentReference, Entry, ResolvedAgent, ToolsetFactory
from handrail.agents.toolsets.lifetimes import FactoryToolset
from handrail.errors import AgentError, HandrailError, ToolConflictError
from handrail.prompt import Section, Tool
from handrail.serde import canonical_json, codec


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


_LONGEST_DESCRIPTION = 1000
"""Characters that a model reads of an agent; providers take 1024."""


def build_toolsets(
    agent: ResolvedAgent, agents: Mapping[str, AgentFile], is_open: Callable[[str], bool] = lambda _name: True
) -> tuple[LabelledSource, ...]:
    """The toolsets of a run, tools first, in the order of the agent file.

    Args:
        agent: the agent, with the entries that it names.
        agents: all agents of the project, by name.
        is_open: whether a toolset that the file discloses by its summary is open now, by name.
    """
    disclosed = {each.toolset for each in agent.file.disclose}

    def made(entry: Entry) -> AbstractToolset[Any]:
        toolset = _toolset(entry, agents)
        is_disclosed = entry.kind == "toolset" and entry.name in disclosed
        return DisclosedToolset(toolset, entry.name, is_open) if is_disclosed else toolset

    # The toolset of a single tool has nothing to say beside it, and is not asked at every step.
    return tuple(
        LabelledSource(entry.label, made(entry), instructs=entry.kind == "toolset")
        for entry in (*agent.tools, *agent.toolsets)
    )


def _toolset(entry: Entry, agents: Mapping[str, AgentFile]) -> AbstractToolset[Any]:
    value = entry.value
    if isinstance(value, PydanticTool):
        return FunctionToolset[Any]([value], id=entry.name)
    if isinstance(value, AgentReference):
        return AgentToolset(agents[value.name], value.input_type)
    if isinstance(value, AbstractToolset):
        return value
    # Tools and sections of Handrail are made for each run too, because their calls run on the session of the run.
    if isinstance(value, Tool):
        factory = ToolsetFactory(lambda _ctx: current_run().tool_toolset(value, id=entry.name))
    else:
        factory = ToolsetFactory(lambda _ctx: value) if isinstance(value, Section) else value
    return FactoryToolset(factory, name=entry.name, origin=entry.origin, kind=entry.kind)


class Task(BaseModel):
    """What an agent is asked to do."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    input: str = Field(min_length=1, description="The task, with everything that the agent must know to do it.")


class _InputValidator:
    """Validates the input of an agent, and hands it on as the fields that it has in JSON, as PydanticAI expects it."""

    def __init__(self, kind: type[Any]) -> None:
        self._adapter = TypeAdapter[Any](kind)

    def validate_python(self, input: Any, **_options: Any) -> dict[str, Any]:  # noqa: ANN401 - PydanticAI's
        # Strict, as the arguments of all calls are: a number is not a text.
        text = input if isinstance(input, str | bytes | bytearray) else to_json(input)
        value = self._adapter.validate_json(text, strict=True, extra="forbid")
        return cast("dict[str, Any]", self._adapter.dump_python(value, mode="json", by_alias=True))

    validate_json = validate_python


def input_schema(kind: type[Any] | None) -> dict[str, Any]:
    """The JSON Schema of what an agent is asked; `kind` is the type of its input."""
    return Task.model_json_schema() if kind is None else codec(kind).schema


class AgentToolset(AbstractToolset[Any]):
    """An agent as a tool of the agents that name it. It runs beside other agents that the same reply calls."""

    def __init__(self, file: AgentFile, input_type: type[Any] | None = None) -> None:
        """Offer the agent of that file, by its name; its input is a text, or of a type."""
        # An agent without a description still needs one: the model chooses a tool by it.
        text = " ".join((file.description or file.instructions).split())
        self._name = file.name
        self._is_text = input_type is None
        self._validator = _InputValidator(input_type or Task)
        self.definition: ToolDefinition = ToolDefinition(
            name=file.name,
            description=text if len(text) <= _LONGEST_DESCRIPTION else f"{text[: _LONGEST_DESCRIPTION - 1]}…",
            parameters_json_schema=input_schema(input_type),
            # What the agent itself does is asked about when it does it.
            metadata={"effect": "state", "concurrent": True, "approval": "allow"},
        )

    @property
    @override
    def id(self) -> str:
        """The name of the agent."""
        return self._name

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The one tool."""
        tool = ToolsetTool[Any](toolset=self, tool_def=self.definition, max_retries=0, args_validator=self._validator)
        return {self._name: tool}

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        """Run the agent on a session of its own, and return its answer.

        Raises:
            AgentDepthError: it would be too deep.
            CallPostponed: one of its calls waits for an approval.
        """
        task = tool_args["input"] if self._is_text else canonical_json(tool_args).decode()
        return await current_run().call_agent(self._name, task, ctx)
