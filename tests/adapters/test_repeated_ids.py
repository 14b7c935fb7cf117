"""Servers that give several responses one id: each reply that arrives is a new one, whatever came of those before."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.messages import UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset, PipelineCapability, PydanticAIAdapter
from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, Section, Tool, ToolContext, ToolResult, ToolsSection
from handrail.prompt.idempotency import slot_effect_key
from handrail.prompt.signature import Effect
from handrail.runtime import EffectLedger, Session, ToolInvoked
from handrail.runtime.ledger.effects import Claimed, ClaimRequest, NotKnown
from handrail.session.calls import CallRef
from handrail.store import SqliteStore
from handrail.store.protocol import ClaimOwner
from tests.adapters.notes import Note
from tests.adapters.replying import Outbox, asks, model

pytestmark = pytest.mark.anyio

SAME = "chatcmpl-123"


@dataclass
class SlowOutbox(Outbox):
    """The first mail is not sent before another one is."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    end: asyncio.Event = field(default_factory=asyncio.Event)

    async def send_slowly(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Send a mail."""
        if self.begun.is_set():
            self.end.set()
        self.begun.set()
        async with asyncio.timeout(10):  # passes only if the other one waits for this one's effect
            await self.end.wait()
        return self.send(params, context=context)

    @override
    def section(self, effect: Effect) -> Section[None]:
        tool = Tool[Note, Note](
            name="send", description="Send.", handler=self.send_slowly, effect=effect, concurrent=True
        )
        return ToolsSection(title="Desk", tools=[tool])


@contextmanager
def opened(folder: Path) -> Generator[Session]:
    """A stored session, as a process opens it."""
    with SqliteStore(folder / "s.db") as store, Session.open(store, "s") as session:
        yield session


def agent_of(box: Outbox, session: Session, *replies: ModelResponse, entry: str = "capability") -> Agent[None, str]:
    """An agent on a model that gives these replies."""
    executor = ToolExecutor(prompt=box.prompt(), session=session)
    if entry == "toolset":
        return Agent(model(*replies), toolsets=[HandrailToolset(executor)])
    kind = HandrailCapability if entry == "capability" else PipelineCapability
    return Agent(model(*replies), capabilities=[kind(executor)])


def left_behind(session: Session, ref: CallRef, text: str) -> None:
    """The claim of a call whose process was killed after the effect and before the record."""
    assert isinstance(session.store, SqliteStore)
    ledger = EffectLedger(session.store)
    key = slot_effect_key(ref, {"text": text}, session_id="s")
    owner = ClaimOwner("s", *ref)
    claimed = ledger.claim(
        ClaimRequest(key.partition, key.key, "send", key.params_hash, owner, lease=timedelta(hours=1))
    )
    assert isinstance(claimed, Claimed)
    ledger.end(claimed, NotKnown("the process ended"))


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("entry", ["toolset", "capability", "pipeline"])
async def test_a_reply_beside_one_in_flight_is_another_one(entry: str, stored: bool, tmp_path: Path) -> None:
    """Two runs at once on one session ask for the same mail under the same ids: two mails are sent."""
    box = SlowOutbox()
    with SqliteStore(tmp_path / "s.db") as store, Session.open(store, "s") if stored else Session() as session:
        first = agent_of(box, session, asks("hi", reply_id=SAME), entry=entry)
        second = agent_of(box, session, asks("hi", reply_id=SAME), entry=entry)
        running = asyncio.create_task(first.run("Customer 1."))
        await box.begun.wait()
        result = await second.run("Customer 2.")
        await running
        found = {event.ref for event in session[ToolInvoked]}
    assert box.sent == ["hi", "hi"]
    assert found == {CallRef(SAME, "call_0"), CallRef(f"{result.run_id}:1", "call_0")}


@pytest.mark.parametrize("parent", [None, CallRef(SAME, "call_0")], ids=["its own call", "a nested call"])
async def test_a_reply_after_one_whose_process_was_killed_is_another_one(
    parent: CallRef | None, tmp_path: Path
) -> None:
    """The effect of a call of the old reply is claimed, and there is no record of any call of it."""
    box = Outbox()
    ref = CallRef(SAME, "call_0") if parent is None else CallRef.nested(parent, "call_7")
    with opened(tmp_path) as session:
        left_behind(session, ref, "hi")
    with opened(tmp_path) as session:
        result = await agent_of(box, session, asks("ho", reply_id=SAME)).run("Customer 2.")
        assert [event.ref for event in session[ToolInvoked]] == [CallRef(f"{result.run_id}:1", "call_0")]
    assert box.sent == ["ho"]


async def test_a_reply_that_is_delivered_again_meets_its_claim(tmp_path: Path) -> None:
    """Durable execution delivers the response that the killed process had; its mail is not sent again."""
    box, delivered = Outbox(), asks("hi", reply_id=SAME)
    with opened(tmp_path) as session:
        left_behind(session, CallRef(SAME, "call_0"), "hi")
    with opened(tmp_path) as session:
        agent = agent_of(box, session)
        replies = iter([delivered, ModelResponse([TextPart("Done.")])])
        await agent.run("Do it.", model=FunctionModel(partial(_next, replies)))
        (event,) = session[ToolInvoked]
    assert (event.ref, event.success) == (CallRef(SAME, "call_0"), False)
    assert box.sent == []


def _next(replies: Iterator[ModelResponse], _messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    return next(replies)


async def test_a_reply_is_not_that_of_another_prompt_which_is_unfinished(tmp_path: Path) -> None:
    """Its process was killed before any call was recorded. No record of the other answers it when it is resumed."""
    box = Outbox()
    other = Prompt(PromptTemplate[str](ns="tests", key="other", sections=[box.section("state")]))
    with opened(tmp_path) as session:
        stored = StoredHistory(session, "tests/mails", of="prompt")
        stored.save([ModelRequest([UserPromptPart("Do it.")]), replace(asks("hi", reply_id=SAME), run_id="killed")])
    with opened(tmp_path) as session:
        await PydanticAIAdapter(model(asks("hi", reply_id=SAME))).evaluate_async(other, session=session)
        await PydanticAIAdapter(model()).evaluate_async(box.prompt("state"), session=session)
        assert [event.replayed for event in session[ToolInvoked]] == [False, False]
    assert box.sent == ["hi", "hi"]
