"""A reply is stored in one unit with the first claim of its calls: before an effect begins.

Over each kind of store, through both entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import RecordingError, SessionError
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, ToolCall, ToolInvoked, ToolMessage
from handrail.store import Store
from handrail.testing import FakeClock
from tests.kit import Note, executor, tool
from tests.session.faulty_stores import FaultyStore, faulty
from tests.store.stores import STORES

Entry = Callable[[ToolExecutor, ToolCall], ToolMessage]

CALL = ToolCall("1", "pay", '{"text":"a"}')


def inline(door: ToolExecutor, call: ToolCall) -> ToolMessage:
    """Through the synchronous entry."""
    return door.execute(call, reply="r1")


def on_loop(door: ToolExecutor, call: ToolCall) -> ToolMessage:
    """Through the asynchronous entry."""
    return asyncio.run(door.execute_async(call, reply="r1"))


@pytest.fixture(params=[inline, on_loop])
def make(request: pytest.FixtureRequest) -> Entry:
    """Each entry."""
    entry: Entry = request.param
    return entry


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> Iterator[FaultyStore]:
    """Each kind of store, with connections that may be lost."""
    with faulty(request.param, FakeClock()) as made:
        yield made


class Payments:
    """A tool with an effect outside, and what its handler finds in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.found: list[int] = []
        self.beside: Callable[[], Awaitable[object] | object] = lambda: None

    async def pay(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Note how many replies are stored."""
        self.found.append(await asyncio.to_thread(replies, self._store))
        return ToolResult.ok(params)

    def executor(self, session: Session, **options: Any) -> ToolExecutor:
        """An executor with the tool; `shared` payments have a key that all sessions share."""
        shared = IdempotencyConfig(scope="global")
        tools = (
            tool("pay", self.pay, effect="external"),
            tool("shared", self.pay, effect="external", idempotency=shared),
        )
        return executor(*tools, session=session, **options)


def replies(store: Store, session_id: str = "s") -> int:
    """How many parts of the conversation of a session are stored."""
    return sum(entry.type_name == "handrail.said" for entry in store.entries(session_id))


def test_the_reply_is_stored_before_the_effect_begins(store: FaultyStore, make: Entry) -> None:
    """Its handler finds it there; one unit has both."""
    payments = Payments(store)
    with Session.open(store, "s") as session:
        door = payments.executor(session)
        session.conversation.append({"n": 1}, calls=[CALL], reply="r1")
        assert replies(store) == 0
        units: list[int] = []
        store.at("begin", *(lambda: units.append(store.appended) for _ in range(9)))
        assert make(door, CALL).success
        assert payments.found == [1]
        assert units == [0, 1]  # the claim, which appends the reply, and the commit
    with Session.open(store, "s") as session:
        assert session.conversation.messages == [{"n": 1}]
        assert session.open_calls == ()


def test_a_claim_that_is_refused_leaves_the_reply_to_the_record(store: FaultyStore, make: Entry) -> None:
    """The effect has happened for another session: the call is answered from the ledger, and recorded."""
    payments = Payments(store)
    paid = ToolCall("1", "shared", '{"text":"a"}')
    with Session.open(store, "other") as other:
        assert make(payments.executor(other), paid).success
    with Session.open(store, "s") as session:
        session.conversation.append({"n": 1}, calls=[paid], reply="r1")
        message = make(payments.executor(session), paid)
        assert (message.success, message.replayed) == (True, True)
        assert replies(store) == 1
        session.conversation.append({"n": 2})
    with Session.open(store, "s") as session:
        assert session.conversation.messages == [{"n": 1}, {"n": 2}]
        assert [event.replayed for event in session[ToolInvoked]] == [True]


def test_a_ledger_elsewhere_is_asked_when_the_reply_is_stored(store: FaultyStore, make: Entry) -> None:
    """One unit cannot be written to two stores, so the reply comes first."""
    payments = Payments(store)
    with Session.open(store, "s") as session:
        session.conversation.append({"n": 1}, calls=[CALL], reply="r1")
        assert make(payments.executor(session, effect_ledger=EffectLedger()), CALL).success
        assert payments.found == [1]


def test_a_reply_that_cannot_be_stored_keeps_the_effect_from_beginning(store: FaultyStore, make: Entry) -> None:
    """The run ends, and the call is made again when the store answers."""
    payments = Payments(store)
    with Session.open(store, "s") as session:
        session.conversation.append({"n": 1}, calls=[CALL], reply="r1")
        store.lose("append", 1)
        with pytest.raises(RecordingError):
            make(payments.executor(session), CALL)
        assert payments.found == []
        assert make(payments.executor(session), CALL).success
        assert payments.found == [1]


def test_a_session_that_has_passed_on_claims_nothing(store: FaultyStore, make: Entry) -> None:
    """Neither the claim nor the reply is written, and the handler does not run."""
    payments = Payments(store)
    session = Session.open(store, "s")
    session.conversation.append({"n": 1}, calls=[CALL], reply="r1")
    store.release(store.holds[-1])
    with Session.open(store, "s", wait=timedelta(0)), pytest.raises(RecordingError):
        make(payments.executor(session), CALL)
    assert payments.found == []
    assert list(store.rows()) == []
    assert replies(store) == 0


def test_a_claim_in_doubt_closes_the_session(store: FaultyStore, make: Entry) -> None:
    """What it has appended may be there; opened again, the session is as the store says."""
    payments = Payments(store)
    session = Session.open(store, "s")
    session.conversation.append({"n": 1}, calls=[CALL], reply="r1")
    store.lose("committed", 9)
    with pytest.raises(RecordingError):
        make(payments.executor(session), CALL)
    store.come_back()
    assert payments.found == []
    with pytest.raises(SessionError):
        session.conversation.append({"n": 2})
    session.close()
    with Session.open(store, "s") as again:
        assert again.conversation.messages == [{"n": 1}]
        assert [each.state for each in again.open_calls] == ["running"]
