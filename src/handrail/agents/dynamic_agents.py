"""Agents that an agent makes for itself while it runs: `agent_create` and `agent_call`.

A made agent is a value in the session of the run that made it. So it goes when the call that made it fails, and it is
there when the run is resumed. It may name what its maker names, and nothing else; it uses its maker's model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import Field
from pydantic_ai import RunContext
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from handrail.agents.active_run import CurrentRun, current_run
from handrail.agents.agent_file import NAME_PATTERN, AgentFile
from handrail.agents.exports.entries import BUILT_IN, Entry, ToolsetFactory
from handrail.errors import ToolValidationError
from handrail.serde.formatting import enumerated, nearest, shortened
from handrail.session import Session, stored_as

_LONGEST_NAME = 64
_MOST_LISTED = 600  # bytes of names

_GUIDANCE = """\
You can make agents for parts of your work. agent_create makes one, with instructions of its own and with some of your \
tools; agent_call gives it a task and returns its answer. It knows nothing of this conversation: say all that it needs.\
"""


@stored_as("handrail.made_agent")
@dataclass(frozen=True, slots=True)
class MadeAgent:
    """An agent that a run has made. Its slice is rolled back with the call that made it.

    Attributes:
        name: its name.
        instructions: its instructions.
        description: what it is for.
        tools: names of tools.
        toolsets: names of toolsets.
    """

    name: str
    instructions: str
    description: str
    tools: tuple[str, ...]
    toolsets: tuple[str, ...]

    @property
    def file(self) -> AgentFile:
        """The same as an agent file would say it."""
        return AgentFile(
            name=self.name,
            instructions=self.instructions,
            description=self.description,
            tools=self.tools,
            toolsets=self.toolsets,
        )


def made_agents(session: Session) -> dict[str, AgentFile]:
    """The agents that were made in a session, by name."""
    return {made.name: made.file for made in session[MadeAgent]}


def dynamic_agents(_ctx: RunContext[Any]) -> AbstractToolset[Any]:
    """The toolset `dynamic_agents`, for one run."""
    return _toolset()


def _toolset() -> FunctionToolset[Any]:
    create = PydanticTool[Any](_create, name="agent_create", metadata={"effect": "state", "approval": "allow"})
    call = PydanticTool[Any](
        _call, name="agent_call", metadata={"effect": "state", "concurrent": True, "approval": "allow"}
    )
    return FunctionToolset[Any]([create, call], id="dynamic_agents", instructions=_GUIDANCE)


DYNAMIC_AGENTS = Entry(
    "dynamic_agents", "toolset", ToolsetFactory(dynamic_agents, known_tools=cache(lambda: _toolset().tools)), BUILT_IN
)
"""The toolset, as every project has it."""

Names = Annotated[list[str], Field(default_factory=list[str])]
"""Names that a model gives; none if it says nothing."""


async def _create(
    _ctx: RunContext[Any],
    name: Annotated[str, Field(pattern=NAME_PATTERN)],
    instructions: Annotated[str, Field(min_length=1)],
    tools: Names,
    toolsets: Names,
    description: str = "",
) -> str:
    """Make an agent, which agent_call can then give tasks.

    Args:
        name: what the agent is called by, 1 to 64 letters, digits, '_' and '-'.
        instructions: what the agent is told once for all.
        tools: which of your own tools it may use.
        toolsets: which of your own toolsets it may use.
        description: what the agent is for, in a sentence.
    """
    run = current_run()
    faults = [*_not_held("tools", tools, run.tool_names), *_not_held("toolsets", toolsets, run.toolset_names)]
    if name in run.agents:
        faults.append(f"there is an agent {name} already; choose another name.")
    if faults:
        raise ToolValidationError(f"agent {name} was not made: {' '.join(faults)}")
    made = MadeAgent(name, instructions, description, tuple(dict.fromkeys(tools)), tuple(dict.fromkeys(toolsets)))
    run.session[MadeAgent].append(made)
    return f"agent {name} is made; give it tasks with agent_call"


async def _call(ctx: RunContext[Any], agent: str, input: Annotated[str, Field(min_length=1)]) -> str:
    """Give an agent a task, and return its answer.

    Args:
        ctx: the run.
        agent: the name of the agent.
        input: the task, with everything that the agent must know to do it.
    """
    run = current_run()
    within_reach = _within_reach(run)
    if agent not in within_reach:
        asked = shortened(agent, _LONGEST_NAME)
        near = nearest(asked, within_reach)
        hint = f" Did you mean {near}?" if near else ""
        known = enumerated(within_reach, limit=_MOST_LISTED, wanted=asked) or "none; make one with agent_create"
        raise ToolValidationError(f"there is no agent {asked!r} that you may call.{hint} The agents are: {known}.")
    return await run.call_agent(agent, input, ctx)


def _within_reach(run: CurrentRun) -> list[str]:
    """The agents that a run has made, and those among its toolsets."""
    return [*made_agents(run.session), *(name for name in run.toolset_names if name in run.agents)]


def _not_held(field: str, wanted: Sequence[str], held: Sequence[str]) -> list[str]:
    beyond = [name for name in dict.fromkeys(wanted) if name not in held]
    if not beyond:
        return []
    asked = enumerated(beyond, limit=_MOST_LISTED)
    there = enumerated(held, limit=_MOST_LISTED, wanted=beyond[0]) or "none"
    return [f"{field}: {asked} cannot be given, because you have only {there}."]
