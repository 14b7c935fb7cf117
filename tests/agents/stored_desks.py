"""A desk whose agents take notes and charge orders, in a stored session: run in this process, or in one that dies.

Its model is resumed as a real one is: what it says next depends on nothing but what has been said.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from handrail import store
from handrail.agents import Answer, GatedCall, LoadedAgent, RunOptions, RunResult, load_agent
from handrail.prompt import CompletionContext
from handrail.runtime import ToolInvoked
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.testing import crash_at
from tests.agents.kit import write

PATIENCE = timedelta(seconds=20)
IN_CHECK = "in-check"
"""In the place of a crash point: while the answer is checked for completion."""

UNKNOWN = "it is not known whether it took effect"

_TOOLS = """
from datetime import timedelta
from pathlib import Path
from pydantic_ai import ApprovalRequired, RunContext, Tool
from handrail.adapters.pydantic_ai import tool_context
from handrail.prompt import External, IdempotencyConfig, Tool as OwnTool, ToolContext, ToolResult
from tests.agents.stored_desks import Note, Order
WORLD = Path(__file__).parent / "world"
def note(text: str) -> str:
    tool_context().session[Note].append(Note(text))
    return f"noted {text}"
def charge(order: str) -> str:
    with WORLD.open("a") as world:
        world.write(f"{order}\\n")
    return f"charged {order}"
def bill(params: Order, *, context: ToolContext) -> ToolResult[Order]:
    charge(params.order)
    return ToolResult.ok(params)
def guard(ctx: RunContext, text: str) -> str:
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    return note(text)
PAYS = External(lease=timedelta(milliseconds=300))
TOOLS = [
    Tool(note, metadata={"approval": "allow"}),
    Tool(note, name="sign", metadata={"approval": "ask"}),
    Tool(note, name="stamp", requires_approval=True),
    Tool(guard, metadata={"approval": "allow"}),
    Tool(charge, metadata={"effect": PAYS, "approval": "allow", "idempotency": IdempotencyConfig()}),
    Tool(charge, name="pay", metadata={"effect": "external", "approval": "ask"}),
    OwnTool[Order, Order](name="bill", description="Bills.", handler=bill, effect=PAYS, idempotency=True),
]
"""

_AGENT = """
---
name: {name}
description: The {name}.
tools: [note, sign, stamp, guard, charge, pay, bill]
toolsets: [{toolsets}]
---
I am {name}
"""

RULES = "allow: [bill]\n"


@dataclass(frozen=True, slots=True)
class Note:
    """A note in a session."""

    text: str


@dataclass(frozen=True, slots=True)
class Order:
    """An order, and what its bill comes to."""

    order: str

    def render(self) -> str:
        """What the model reads."""
        return f"billed {self.order}"


class Asked(NamedTuple):
    """A call that the model of a desk asks for."""

    id: str
    tool: str
    arguments: Mapping[str, Any]


Replies = Mapping[str, Sequence[Sequence[Asked] | str]]
"""What each agent says: calls, or its answer."""


@dataclass
class Reader:
    """A model that says what is next, and sees to it that every call before has exactly one answer.

    Attributes:
        replies: what each agent says.
        breaks: an agent, and the number of the reply, from 0, instead of which its provider fails.
        error: what it fails with.
        seen: what each agent was told last, in the order in which they were asked.
    """

    replies: Replies
    breaks: tuple[str, int] | None = None
    error: BaseException = field(default_factory=lambda: RuntimeError("out of order"))
    seen: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])

    def model(self) -> FunctionModel:
        """It as a model."""
        return FunctionModel(self._reply, stream_function=self._stream, model_name="reader")

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for index, part in enumerate(self._reply(messages, info).parts):
            if isinstance(part, ToolCallPart):
                yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                yield part.content

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        agent = (info.instructions or "").partition("I am ")[2].partition("\n")[0] or "desk"
        said = [message for message in messages if isinstance(message, ModelResponse)]
        if self.breaks == (agent, len(said)):
            raise self.error
        told = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        asked = [call.tool_call_id for reply in said for call in reply.tool_calls]
        assert sorted(part.tool_call_id for part in told) == sorted(asked)
        texts = {part.tool_call_id: part.model_response_str() for part in told}
        self.seen.append((agent, [texts[call.tool_call_id] for call in said[-1].tool_calls] if said else []))
        reply = self.replies[agent][len(said)]
        if isinstance(reply, str):
            return ModelResponse([TextPart(reply)])
        return ModelResponse([ToolCallPart(call.tool, dict(call.arguments), tool_call_id=call.id) for call in reply])


@dataclass
class Clerk:
    """Answers by the name of the tool, and remembers what was asked.

    Attributes:
        answers: what is answered, by tool.
        asked: the calls, in order.
    """

    answers: Mapping[str, Answer]
    asked: list[GatedCall] = field(default_factory=list[GatedCall])

    def __call__(self, call: GatedCall) -> Answer:
        self.asked.append(call)
        return self.answers[call.tool]

    @property
    def ids(self) -> list[str]:
        """The ids of the calls that it was asked about."""
        return [call.call_id for call in self.asked]


class Desk(NamedTuple):
    """A desk in a folder, with its sessions in a store.

    Attributes:
        folder: where the agents are.
        url: the store.
    """

    folder: Path
    url: str

    @property
    def world(self) -> list[str]:
        """The orders that were charged, each as often as it was."""
        file = self.folder / "world"
        return file.read_text(encoding="utf-8").split() if file.exists() else []

    def agent(self, name: str = "desk") -> LoadedAgent:
        """An agent of the desk."""
        return load_agent(self.folder / f"{name}.agent")

    def run(self, reader: Reader, input: str | None = None, *, session_id: str = "s", **options: Any) -> RunResult:
        """Run the desk in its stored session, and close it."""
        agent = self.agent(options.pop("agent", "desk"))
        with store.open(self.url) as kept_in, Session.open(kept_in, session_id, wait=PATIENCE) as session:
            return agent.run(input, RunOptions(session=session, model=reader.model(), **options))

    def notes(self, session_id: str = "s") -> list[str]:
        """The notes of a session."""
        return [each.text for each in self.values(Note, session_id)]

    def values(self, kind: type[Any], session_id: str = "s") -> list[Any]:
        """What a session has of a type."""
        with store.open(self.url) as kept_in, Session.open(kept_in, session_id, wait=PATIENCE) as session:
            return list(session[kind])

    def child(self, call_id: str, of: str = "s") -> str:
        """The session of the agent that a call has called."""
        with store.open(self.url) as kept_in:
            children = [row.session_id for row in kept_in.sessions() if row.parent == of]
        (found,) = [name for name in children if CallRef.parse(name.removeprefix(f"{of}/")).call_id == call_id]
        return found

    def calls(self, session_id: str = "s") -> list[tuple[str, bool]]:
        """The calls that a session has recorded, and whether they succeeded."""
        return [(event.call_id, event.success) for event in self.values(ToolInvoked, session_id)]


def desk_in(folder: Path, url: str = "") -> Desk:
    """Make a desk."""
    files = {
        "tools.py": _TOOLS,
        "approval.yaml": RULES,
        "pyproject.toml": '[tool.handrail]\napproval = "approval.yaml"\n',
    }
    files["desk.agent"] = _AGENT.format(name="desk", toolsets="helper, dynamic_agents").lstrip()
    files["helper.agent"] = _AGENT.format(name="helper", toolsets="").lstrip()
    return Desk(write(folder, files), url or f"sqlite:///{folder / 'desk.db'}")


def change_conversation(desk: Desk, old: str, new: str) -> None:
    """Put another text, of the same length, into the stored conversation of a desk in SQLite."""
    assert len(old) == len(new)
    sql = "UPDATE handrail_entries SET items = CAST(replace(items, ?, ?) AS BLOB) WHERE type_name = 'handrail.said'"
    with closing(sqlite3.connect(desk.url.removeprefix("sqlite:///"))) as database, database:
        database.execute(sql, (old, new))


_IMPORTED_ONCE = [
    *("pytest", "pydantic_ai.models.function", "genai_prices.data"),
    *("handrail.agents", "handrail.store.sqlite.store", "handrail.store.postgres", "handrail.testing"),
]


class Doomed:
    """Processes that run a desk and die at a point; they are forked from one that has imported everything."""

    def __init__(self) -> None:
        """Start the process that they come from; it ends with this one."""
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_IMPORTED_ONCE)

    def run(  # noqa: PLR0913 - what a process is to do, and where it dies
        self, desk: Desk, replies: Replies, input: str | None, at: str, nth: int = 1, *, session_id: str = "s"
    ) -> bool:
        """Run a desk in a process that is to be killed at a point, or while its answer is checked.

        Returns:
            Whether it was killed.
        """
        arguments = (str(desk.folder), desk.url, json.dumps(replies), input, session_id, at, nth)
        process = self._context.Process(target=_run_and_die, args=arguments)
        process.start()
        process.join()
        assert process.exitcode in {-signal.SIGKILL, 0}
        return process.exitcode != 0


def _run_and_die(  # noqa: PLR0913, PLR0917 - pickled for a process
    folder: str, url: str, replies: str, input: str | None, session_id: str, at: str, nth: int
) -> None:
    said: dict[str, list[list[list[Any]] | str]] = json.loads(replies)
    asked = {
        agent: [reply if isinstance(reply, str) else [Asked(*call) for call in reply] for reply in its]
        for agent, its in said.items()
    }
    clerk = Clerk({"sign": Answer("yes"), "stamp": Answer("yes"), "pay": Answer("yes")})
    options: dict[str, Any] = {"completion": _die} if at == IN_CHECK else {}
    if at != IN_CHECK:
        crash_at(at, nth=nth)
    Desk(Path(folder), url).run(Reader(asked), input, session_id=session_id, asker=clerk, **options)


def _die(_context: CompletionContext) -> None:
    """A completion checker that never returns."""
    os.kill(os.getpid(), signal.SIGKILL)
