"""The toolsets of one agent as one, made from the entries of its file, under labels.

Objects of a program are handed to PydanticAI as they are. A tool gets a toolset of its own, so that a conflict of names
can be reported with both origins; nothing is set on it, because `FunctionToolset(tools, requires_approval=...)` and its
like write into the very tool that they are given. An agent is a toolset of one tool, which takes a task.

`LabelledToolset` adds to PydanticAI's `CombinedToolset`:

- at every step, names that several toolsets have are reported together, each with the entries that they come from;
- members are asked one after the other, in the order of the agent file, as PydanticAI enters them: an agent has a
  toolset for each of its tools, and a task for each of these at every step costs more than the asking;
- the error of a member that cannot be entered reaches the caller, even if a member before it would swallow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic_ai import RunContext, ToolDefinition, ToolsetTool
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset, WrapperToolset
from pydantic_core import to_json
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.agents.active_run import current_run
from handrail.agents.agent_file import AgentFile
from handrail.agents.registry import AgentReference, Entry, ResolvedAgent, ToolsetFactory
from handrail.agents.toolsets.lifetimes import FactoryToolset
from handrail.errors import ToolConflictError
from handrail.prompt import Section, Tool
from handrail.serde import canonical_json, codec

Reserved = Callable[[], Mapping[str, str]]
"""Gives names that tools of a toolset may not have, each with its owner, in words."""


@dataclass(frozen=True, slots=True)
class LabelledSource:
    """A toolset with the label of its entry.

    `instructs` is false for the toolset of a single tool, which has no instructions, and is not asked for them at every
    step.
    """

    label: str
    toolset: AbstractToolset[Any]
    instructs: bool = True


NotifyStep = Callable[[Sequence[tuple[LabelledSource, Mapping[str, ToolsetTool[Any]]]]], None]
"""Called with the toolsets of a step, each with its tools by name."""


class LabelledToolset(CombinedToolset[Any]):
    """All toolsets of one agent as one, which knows where each tool comes from.

    PydanticAI asks those in `toolsets` for instructions. `reserved` gives the names of others, such as output tools.
    With `check`, names are checked here; without, PydanticAI's own check still ends the run at a conflict.
    """

    def __init__(
        self,
        sources: Sequence[LabelledSource],
        *,
        reserved: Reserved = dict,
        check: bool = True,
        notify: NotifyStep = lambda _tools: None,
    ) -> None:
        """Combines toolsets; they are checked when a run asks for tools."""
        # PydanticAI asks these for instructions at every step; the toolset of a single tool has none.
        super().__init__([source.toolset for source in sources if source.instructs])
        self.sources: tuple[LabelledSource, ...] = tuple(sources)
        self.reserved = reserved
        self.check = check
        self.notify = notify
        self._entered = AsyncExitStack()

    @override
    async def for_run(self, ctx: RunContext[Any]) -> LabelledToolset:
        """A copy for one run, which is entered and left."""
        return self._with([await source.toolset.for_run(ctx) for source in self.sources])

    @override
    async def for_run_step(self, ctx: RunContext[Any]) -> LabelledToolset:
        """The toolsets of one step; the same object if no member was replaced by another one."""
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
        """The tools of all members; each is asked once. A `ToolConflictError` reports all names that several have."""
        if not self.check:
            return await CombinedToolset([source.toolset for source in self.sources]).get_tools(ctx)
        members_tools = [(source, await source.toolset.get_tools(ctx)) for source in self.sources]
        # The same conflicts as PydanticAI would report, but all of them, and with their origins.
        names = [(source.label, tools) for source, tools in members_tools]
        if (conflict := name_conflict(names, self.reserved())) is not None:
            raise conflict
        self.notify(members_tools)
        owners = {name: (source.toolset, tool) for source, tools in members_tools for name, tool in tools.items()}
        return await CombinedToolset([_StepToolset(self, owners)]).get_tools(ctx)

    @override
    def apply(self, visitor: Callable[[AbstractToolset[Any]], None]) -> None:
        """Calls the visitor with each member."""
        for source in self.sources:
            source.toolset.apply(visitor)

    @override
    def visit_and_replace(self, visitor: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]) -> LabelledToolset:
        """A copy, not entered, over the replacements of the members."""
        return self._with([source.toolset.visit_and_replace(visitor) for source in self.sources])

    def _with(self, toolsets: Sequence[AbstractToolset[Any]]) -> LabelledToolset:
        sources = [replace(source, toolset=toolset) for source, toolset in zip(self.sources, toolsets, strict=True)]
        return LabelledToolset(sources, reserved=self.reserved, check=self.check, notify=self.notify)


@dataclass
class _StepToolset(WrapperToolset[Any]):
    # The tools of all members at one step, each with the member that calls it.
    owners: Mapping[str, tuple[AbstractToolset[Any], ToolsetTool[Any]]]

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {name: tool for name, (_, tool) in self.owners.items()}

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        member, _ = self.owners[name]
        return await member.call_tool(name, tool_args, ctx, tool)


async def _enter(source: LabelledSource) -> None:
    try:
        await source.toolset.__aenter__()
    except Exception as error:
        error.add_note(f"{source.label} could not be entered")
        raise


async def _leave(toolset: AbstractToolset[Any], *args: Any) -> None:  # noqa: ANN401 - PydanticAI's
    # Its result is dropped: a run whose toolsets were not all entered must not continue.
    await toolset.__aexit__(*args)


def name_conflict(
    sources: Iterable[tuple[str, Iterable[str]]], reserved: Mapping[str, str]
) -> ToolConflictError | None:
    """The error about tool names that several sources have, given by their labels; `None` if there are none.

    `reserved` are names of others, each with the label of its owner.
    """
    # Reserved names come first, so that a message lists the owner of such a name before the tools that conflict with
    # it.
    owners: dict[str, list[str]] = {name: [label] for name, label in reserved.items()}
    for label, names in sources:
        for name in names:
            owners.setdefault(name, []).append(label)
    conflicts = {name: labels for name, labels in owners.items() if len(labels) > 1}
    if not conflicts:
        return None
    return ToolConflictError(
        "the tools of an agent need different names, and these are taken more than once:\n"
        + "\n".join(f"  {name}: {', '.join(labels)}" for name, labels in conflicts.items())
        + "\nRename a tool, or prefix the names of a toolset in Python: toolset.prefixed('x').",
        tools=tuple(conflicts),
    )


_LONGEST_DESCRIPTION = 1000
"""The characters of the description of an agent as a tool; providers take 1024."""


def build_toolsets(agent: ResolvedAgent, agents: Mapping[str, AgentFile]) -> tuple[LabelledSource, ...]:
    """The toolsets of a run, tools first, in the order of the agent file."""
    return tuple(
        LabelledSource(entry.label, _toolset(entry, agents), instructs=entry.kind == "toolset")
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
    return FactoryToolset(factory, entry)


class Task(BaseModel):
    """What an agent is asked to do."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    input: str = Field(min_length=1, description="The task, with everything that the agent must know to do it.")


class _InputValidator:
    # PydanticAI expects the fields of the input as JSON has them.
    def __init__(self, kind: type[Any]) -> None:
        self._adapter = TypeAdapter[Any](kind)

    def validate_python(self, input: Any, **_options: Any) -> dict[str, Any]:  # noqa: ANN401 - PydanticAI's
        # Strict, as the arguments of all calls are: a number is not a text.
        text = input if isinstance(input, str | bytes | bytearray) else to_json(input)
        value = self._adapter.validate_json(text, strict=True, extra="forbid")
        return cast("dict[str, Any]", self._adapter.dump_python(value, mode="json", by_alias=True))

    validate_json = validate_python


def input_schema(kind: type[Any] | None) -> dict[str, Any]:
    """The JSON Schema of the input of an agent; `kind` is its type, `None` for text."""
    return Task.model_json_schema() if kind is None else codec(kind).schema


class AgentToolset(AbstractToolset[Any]):
    """An agent as a tool of the agents that name it. It runs beside other agents that the same reply calls."""

    def __init__(self, file: AgentFile, input_type: type[Any] | None = None) -> None:
        """Offers the agent of that file, by its name; its input is a text, or of a type."""
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
        """Runs the agent on a session of its own, and returns its answer; raises as `CurrentRun.call_agent`."""
        task = tool_args["input"] if self._is_text else canonical_json(tool_args).decode()
        return await current_run().call_agent(self._name, task, ctx)
