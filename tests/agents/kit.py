"""Project folders, agents with tools of a test, models that play scripts, people who answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
from pydantic_ai import ModelMessage, ToolDefinition, ToolReturnPart
from pydantic_ai.messages import ModelRequest

from handrail.adapters.pydantic_ai import tool_context
from handrail.agents import (
    Answer,
    ApprovalRules,
    CallEnded,
    CallStarted,
    GatedCall,
    LoadedAgent,
    Project,
    Registry,
    RunEvent,
    RunOptions,
    RunResult,
    parse_rules,
)
from handrail.agents.modules import import_modules
from handrail.agents.registry import resolve
from handrail.errors import DiscoveryError, ResolutionError
from handrail.runtime import ToolInvoked
from handrail.session import Session
from handrail.testing import Call, Outcome, Reply, ScriptedModel
from handrail.testing.script import Expect
from tests.agents.toolsets.traced import Trace
from tests.wording import Wording

IMPORTS = """
from __future__ import annotations
import functools
from typing import Any
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, FunctionToolset
from handrail.agents.registry import AgentReference, toolset_factory
from handrail.prompt import Section
from handrail.prompt import Tool as HandrailTool
def ping(text: str) -> str:
    return text
async def later(text: str) -> str:
    return text
def make(ctx: RunContext[Any]) -> FunctionToolset[Any]:
    return FunctionToolset(id="made")
"""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files of a folder, each by its path from there."""
    for where, text in files.items():
        file = folder / where
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")
    return folder


def imported(folder: Path, *files: str) -> tuple[dict[str, ModuleType], list[DiscoveryError]]:
    """What comes of importing files of a folder."""
    return import_modules(folder, [Path(file) for file in files])


def module_of(folder: Path, source: str) -> ModuleType:
    """A module `tools.py` of a folder, with a few names imported or defined above what is given."""
    write(folder, {"tools.py": IMPORTS})
    with (folder / "tools.py").open("a", encoding="utf-8") as file:
        file.write(f"\n{dedent(source)}\n")
    return imported(folder, "tools.py")[0]["tools.py"]


def agent(name: str, *, tools: str = "[]", toolsets: str = "[]", front: str = "") -> str:
    """The text of an agent file; `front` has more lines of its front matter."""
    return f"---\nname: {name}\ntools: {tools}\ntoolsets: {toolsets}\n{front}\n---\nYou work at the desk.\n"


DONE = Reply(text="Done.")


@contextmanager
def refusal(kind: type[BaseException], wording: Wording) -> Generator[None]:
    """An exception of this kind in the block, with the text of the test."""
    with pytest.raises(kind) as raised:
        yield
    assert str(raised.value) == wording


def ruled(text: str) -> ApprovalRules:
    """The rules of a file `approval.yaml`."""
    return parse_rules(text, file="approval.yaml")


@dataclass(frozen=True, slots=True)
class Line:
    """What a tool leaves in the session of its call."""

    text: str


def write_line(text: str) -> None:
    """Leave a line in the session of the call that runs here."""
    context = tool_context()
    assert context is not None, "no call runs here"
    context.session[Line].append(Line(text))


def lines(session: Session) -> list[str]:
    """The lines that were left and not undone."""
    return [line.text for line in session[Line].all()]


def desk(  # noqa: PLR0913 - what differs from project to project
    folder: Path,
    *,
    tools: Sequence[Any] = (),
    toolsets: Mapping[str, Any] | None = None,
    also: Sequence[str] = (),
    others: Mapping[str, str] | None = None,
    front: str = "",
) -> LoadedAgent:
    """The agent `desk` of a project, which names all tools and toolsets that are given.

    Args:
        folder: where the project is made.
        tools: the tools of the program.
        toolsets: its toolsets, by name.
        also: names of other toolsets that the agent names, built in or agents.
        others: agent files beside, and other files, by their paths.
        front: more lines of its front matter.
    """
    registry = Registry.of_python(tools=list(tools), toolsets=dict(toolsets or {}))
    tools_named, toolsets_named = (f"[{', '.join(names)}]" for names in (registry.tools, (*registry.toolsets, *also)))
    text = agent("desk", tools=tools_named, toolsets=toolsets_named, front=front)
    write(folder, {"desk.agent": text, **(others or {})})
    project, problems = Project.survey(folder, entries=registry.entries)
    for problem in problems:
        if not isinstance(problem, ResolutionError):  # what others name is their own affair
            raise problem
    assert project is not None
    return LoadedAgent(project, resolve(project.agents["desk"], project.registry))


async def play(agent: LoadedAgent, replies: Sequence[Reply], input: str | None = "Do it.", **options: Any) -> RunResult:
    """Have an agent play a script to its end; everything is approved unless `options` say otherwise."""
    chosen: dict[str, Any] = {"mode": "approve-all", **options}
    with ScriptedModel(replies) as model:
        return await agent.run_async(input, RunOptions(model=model, **chosen))


class Watched(ScriptedModel):
    """Notes tools and instructions of each request, and the messages of the last one."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        super().__init__(replies)
        self.definitions: list[Sequence[ToolDefinition]] = []
        self.instructions: list[str] = []
        self.messages: list[ModelMessage] = []

    async def _reply(self, messages: Any, info: Any) -> Any:
        self.definitions.append(info.function_tools)
        self.instructions.append(info.instructions or "")
        self.messages = messages
        return await super()._reply(messages, info)

    @property
    def tools(self) -> list[list[str]]:
        """The names of the tools of each request."""
        return [sorted(each.name for each in definitions) for definitions in self.definitions]


async def watched(agent: LoadedAgent, replies: Sequence[Reply], **options: Any) -> Watched:
    """Play a script, with everything approved unless `options` say otherwise."""
    chosen: dict[str, Any] = {"mode": "approve-all", **options}
    with Watched(replies) as model:
        await agent.run_async("Do it.", RunOptions(model=model, **chosen))
    return model


def called(*calls: Call, **came: Outcome) -> list[Reply]:
    """A script of one reply with calls, named `c1`, `c2`, ..., and what must have come of them."""
    named = [Call(call.name, call.arguments, id=call.id or f"c{number}") for number, call in enumerate(calls, 1)]
    return [Reply(calls=named), Reply(text="Done.", expect=Expect(messages=came))]


def inside(call_id: str, replies: Sequence[Reply]) -> list[Reply]:
    """The replies of an agent that was called by the call of that id."""
    return [replace(reply, within=call_id) for reply in replies]


def texts(folder: Path) -> dict[str, str]:
    """The files of a folder, by name."""
    return {path.name: path.read_text("utf-8") for path in folder.iterdir() if path.is_file()}


def events(session: Session) -> tuple[ToolInvoked, ...]:
    """What was recorded."""
    return session[ToolInvoked].all()


def outcomes(session: Session) -> list[tuple[str, bool]]:
    """Id and success of each call, in the order in which the calls ended."""
    return [(event.call_id, event.success) for event in events(session)]


def returns(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    """What the model was sent of its calls."""
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part for message in requests for part in message.parts if isinstance(part, ToolReturnPart)]


async def cut_off(trace: Trace, run: Coroutine[Any, Any, object]) -> None:
    """Cancel a run where the trace stays."""
    running, reached = asyncio.create_task(run), asyncio.create_task(trace.reached.wait())
    await asyncio.wait({running, reached}, return_when=asyncio.FIRST_COMPLETED)
    assert reached.done(), "the run ended before"
    running.cancel()
    (ended,) = await asyncio.gather(running, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError)


@dataclass
class Person:
    """Answers questions, all in the same way unless told otherwise for a tool, and keeps what it was asked."""

    answer: Answer = field(default_factory=lambda: Answer("yes"))
    to: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    asked: list[GatedCall] = field(default_factory=list[GatedCall])

    async def __call__(self, call: GatedCall) -> Answer:
        self.asked.append(call)
        return self.to.get(call.tool, self.answer)

    @property
    def ids(self) -> list[str]:
        """The ids of the calls that it was asked about."""
        return [call.call_id for call in self.asked]


@dataclass
class Heard:
    """Keeps what a run tells."""

    events: list[RunEvent] = field(default_factory=list[RunEvent])

    def __call__(self, event: RunEvent) -> None:
        self.events.append(event)

    @property
    def story(self) -> list[str]:
        """Each event as its agents and what it is."""
        return [f"{'/'.join(event.path)} {_told(event)}" for event in self.events]


def _told(event: RunEvent) -> str:
    kind = type(event).__name__
    detail = next((str(getattr(event, name)) for name in ("status", "tool", "text") if hasattr(event, name)), "")
    call = getattr(event, "call", None)
    return f"{kind} {call.tool if call is not None else detail}".rstrip()


@dataclass
class CallLog:
    """Keeps what a run tells of its calls."""

    started: list[str] = field(default_factory=list[str])
    ended: list[CallEnded] = field(default_factory=list[CallEnded])

    @property
    def told(self) -> dict[str, str]:
        """What came of each call, by its id."""
        return {event.call_id: event.content for event in self.ended}

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, CallStarted):
            self.started.append(event.call_id)
        if isinstance(event, CallEnded):
            self.ended.append(event)


def read(path: str, id: str = "") -> Call:
    """A call that reads a file."""
    return Call("read_file", {"path": path}, id=id)


def put(path: str) -> Call:
    """A call that writes a file."""
    return Call("write_file", {"path": path, "content": "x"})


def move(path: str, new_path: str) -> Call:
    """A call that moves a file or a folder."""
    return Call("move_file", {"path": path, "new_path": new_path})


def remove(path: str, *, recursive: bool = False) -> Call:
    """A call that removes a file or a folder."""
    return Call("remove_file", {"path": path, "recursive": recursive})


def running(*commands: Sequence[str], tool: str = "shell_run") -> list[Call]:
    """Calls that run these programs, each as its words or as a line."""
    return [Call(tool, {"command": each if isinstance(each, str) else list(each)}) for each in commands]


async def answers(agent: LoadedAgent, *calls: Call, **options: Any) -> list[str]:
    """What the model reads after each call of one reply."""
    log = CallLog()
    await play(agent, called(*calls), listener=log, **options)
    return [event.content for event in log.ended]
