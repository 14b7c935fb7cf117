"""The entries through which a user asks an agent, over a session in a store; and a process that dies while it asks."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.adapters.pydantic_ai import HandrailCapability, PydanticAIAdapter, StoredHistory
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents import RunOptions, load_agent
from handrail.operations.sessions import SessionState, states_in_store
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session
from handrail.session.conversation import ConversationPart
from handrail.store import SqliteStore, Store
from tests.agents.kit import write

Entry = Literal["agent", "history", "evaluation"]
"""`Agent.run` of an agent file, a program's own PydanticAI agent with `StoredHistory`, and `evaluate`."""

AGENT = "---\nname: desk\n---\nYou mend.\n"


@dataclass
class Listener:
    """A model that remembers what each request asked it.

    Attributes:
        act: what is done instead of replying; `None` replies.
        asked: the user's messages of each request.
    """

    act: Callable[[], Awaitable[object]] | None = None
    asked: list[list[str]] = field(default_factory=list[list[str]])

    async def __call__(self, messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        """Reply, or act."""
        self.asked.append(prompts(messages))
        if self.act is not None:
            await self.act()
        return ModelResponse([TextPart("Mended.")])


def prompts(messages: list[ModelMessage]) -> list[str]:
    """What the user says in messages."""
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [str(part.content) for each in requests for part in each.parts if isinstance(part, UserPromptPart)]


async def ask(entry: Entry, session: Session, said: str | None, listener: Listener) -> str:
    """Ask through an entry; `None` resumes."""
    model = FunctionModel(listener)
    prompt = Prompt(PromptTemplate[str](ns="t", key="desk", sections=[]))
    if entry == "agent":
        assert session.store is not None
        folder = Path(session.store.url.removeprefix("sqlite:///")).parent
        agent = load_agent(write(folder, {"desk.agent": AGENT}) / "desk.agent")
        return str((await agent.run_async(said, RunOptions(session=session, model=model))).output)
    if entry == "evaluation":
        return (await PydanticAIAdapter(model).evaluate_async(prompt, session=session, user_prompt=said)).text
    stored = StoredHistory(session, "desk")
    executor = ToolExecutor(prompt=prompt, session=session)
    own = Agent(model, capabilities=[HandrailCapability(executor, conversation=stored)])
    return (await own.run(said, message_history=stored.history)).output


@dataclass
class Place:
    """A store with one session, opened anew for each question as by another process.

    Attributes:
        folder: where the store is.
        entry: how is asked.
    """

    folder: Path
    entry: Entry

    @property
    def url(self) -> str:
        """The URL of the store."""
        return f"sqlite:///{self.folder / 's.db'}"

    def store(self) -> Store:
        """The store."""
        return SqliteStore(self.folder / "s.db")

    async def ask(self, said: str | None, listener: Listener) -> str:
        """Ask in the session."""
        with self.store() as store, Session.open(store, "s") as session:
            return await ask(self.entry, session, said, listener)

    @property
    def states(self) -> tuple[SessionState, ...]:
        """What the command says of the session."""
        with self.store() as store:
            row = store.find("s")
            assert row is not None
            return states_in_store(store, row, store.held_sessions())

    @property
    def stored_questions(self) -> int:
        """How many messages of a user are stored."""
        with self.store() as store, Session.open(store, "s") as session:
            return repr(session[ConversationPart].all()).count("user-prompt")


async def die() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, entry: Entry, said: str) -> None:
    """Ask, and die before the model has replied; without something said, resume."""
    asyncio.run(Place(Path(folder), entry).ask(said or None, Listener(die)))
