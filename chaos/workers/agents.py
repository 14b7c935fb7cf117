"""The agents that workers run: `handrail worker --agents chaos.workers.agents`, with a folder in the environment.

Each asks for the same calls, in replies of one or two; every other one pays, and those between add a note to the
session. One is a loop of its own, one a PydanticAI agent with the capability, and one the agent of a file. The books of
the folder survive every kill: each attempt, each request to a model with what it was told, and each payment.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from time import monotonic

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from chaos.books import Books
from handrail import tool
from handrail.adapters.pydantic_ai import HandrailCapability, StoredHistory
from handrail.adapters.tool_executor import Answers, ToolExecutor
from handrail.agents import LoadedAgent, RunOptions, load_agent
from handrail.prompt import External, ToolContext
from handrail.runtime import ToolCall
from handrail.session import Session, stored_as
from handrail.worker import AgentFunction, RunTask

FOLDER = "CHAOS_FOLDER"
"""The variable with the folder of the books."""

PAUSE = "CHAOS_PAUSE"
"""The variable with how long a call pauses at most before its effect, and after it, in seconds."""

POISON = "poison"
"""How the id of a session begins whose notes kill the process."""

REPLIES = ((0,), (1, 2), (3,), (4, 5), (6,), (7, 8), (9,))
"""The numbers of the calls of each reply of the models."""

CALLS = sum(map(len, REPLIES))
"""How many calls each run makes; those with an even number pay."""

ANSWER = "all is paid"
TELLER = "teller"
FILE_AGENT = "clerk"

PROJECT: Mapping[str, str] = {
    "pyproject.toml": '[tool.handrail]\napproval = "approval.yaml"\n',
    "approval.yaml": "allow: [pay, note]\n",
    "tools.py": "from chaos.workers.agents import note, pay\n\nTOOLS = [pay, note]\n",
    f"{FILE_AGENT}.agent": f"---\nname: {FILE_AGENT}\ntools: [pay, note]\n---\nYou pay.\n",
}
"""The files of the agent of a file, and of its project."""


def books() -> Books:
    """The books of the folder."""
    return Books(Path(os.environ[FOLDER]))


# ------------------------------------------------------------------------------------------------------- the tools


@stored_as("chaos.workers.note")
@dataclass(frozen=True)
class Note:
    """What a call adds to the session."""

    number: int

    def render(self) -> str:
        """The message to the model."""
        return f"note {self.number}"


async def _pause() -> None:
    await asyncio.sleep(random.random() * float(os.environ[PAUSE]))


@tool(effect=External())
async def pay(number: int, context: ToolContext) -> str:
    """Pays."""
    await _pause()
    receipt = books().pay(f"{context.session.session_id}.{number}", context.idempotency_key)
    await _pause()
    return receipt


@tool
async def note(number: int, context: ToolContext) -> Note:
    """Adds a note."""
    await _pause()
    if context.session.session_id.startswith(POISON):
        os.kill(os.getpid(), signal.SIGKILL)
    return Note(number)


def _name_tool(number: int) -> str:
    return "note" if number % 2 else "pay"


def _ask(session_id: str, place: int, answers: Mapping[str, str]) -> tuple[int, ...]:
    """Asks a model for its reply of that place; the numbers of its calls."""
    books().write("asked", session=session_id, place=place, answers=answers)
    return REPLIES[place] if place < len(REPLIES) else ()


# ------------------------------------------------------------------------------------------------------- the agents


class _Attempt:
    """Notes when an attempt begins, and when it ends in any other way than by the death of its process."""

    def __init__(self, session: Session) -> None:
        self._entry = {"session": session.session_id, "pid": os.getpid()}

    def __enter__(self) -> None:
        books().write("begun", **self._entry, at=monotonic())

    def __exit__(self, *_: object) -> None:
        books().write("left", **self._entry, at=monotonic())


async def loop(task: RunTask) -> str:
    """A loop of its own, over the conversation of the session."""
    session, conversation = task.session, task.session.conversation
    with _Attempt(session):
        executor = ToolExecutor([pay, note], session=session)
        if not conversation:
            await conversation.append_async({"role": "user", "content": task.input})
        while True:
            replies = sum(message["role"] == "assistant" for message in conversation.messages)
            if replies > len(REPLIES):
                return ANSWER
            answers = await executor.answer_async()
            assert isinstance(answers, Answers)
            contents = {answer.call_id: answer.content for answer in answers}
            messages = [
                {"role": "tool", "tool_call_id": call_id, "content": content} for call_id, content in contents.items()
            ]
            if messages:
                await conversation.append_async(*messages)
            numbers = _ask(session.session_id, replies, contents)
            calls = [ToolCall(f"call-{number}", _name_tool(number), {"number": number}) for number in numbers]
            message = {"role": "assistant", "content": ANSWER if not calls else "", "calls": [*map(str, numbers)]}
            if calls:
                await conversation.append_async(message, calls=calls, reply=f"reply-{replies}")
            else:
                await conversation.append_async(message, ended=True)


async def _reply(session_id: str, messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    place = sum(isinstance(message, ModelResponse) for message in messages)
    returns = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    numbers = _ask(session_id, place, {part.tool_call_id: str(part.content) for part in returns})
    calls = [ToolCallPart(_name_tool(number), {"number": number}, tool_call_id=f"call-{number}") for number in numbers]
    return ModelResponse(parts=calls) if calls else ModelResponse(parts=[TextPart(ANSWER)])


async def teller(task: RunTask) -> str:
    """A PydanticAI agent with the capability."""
    session = task.session
    with _Attempt(session):
        stored = await asyncio.to_thread(StoredHistory, session, TELLER)
        executor = ToolExecutor([pay, note], session=session)
        capability = HandrailCapability(executor, conversation=stored)
        agent: Agent[None, str] = Agent(
            FunctionModel(partial(_reply, session.session_id)), name=TELLER, capabilities=[capability]
        )
        if stored.unfinished:
            await agent.run(message_history=stored.history)
        if not stored.history:
            await agent.run(task.input, message_history=stored.history)
        return stored.answer


@cache
def file_agent() -> LoadedAgent:
    """The agent of the file."""
    return load_agent(Path(os.environ[FOLDER], f"{FILE_AGENT}.agent"))


async def clerk(task: RunTask) -> object:
    """The agent of a file, as a worker runs it, with a model that is a function."""
    session = task.session
    with _Attempt(session):
        options = RunOptions(stream=False, model=FunctionModel(partial(_reply, session.session_id)))
        return await file_agent().task(options)(task)


AGENTS: list[AgentFunction] = [loop, teller, clerk]
"""What the workers know."""
