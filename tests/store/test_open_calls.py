"""Which calls of a stored session are open, in each state, over every store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed
from handrail.prompt import ApprovalRequest, Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, ToolInvoked, ToolMessage
from handrail.runtime.ledger.effects import Claimed, ClaimRequest, EffectResult, NotApplied, NotKnown
from handrail.session import Session, SlicePolicy
from handrail.session.calls import CallRef, OpenCall
from handrail.session.open_calls import PostponedCall, open_calls_in_store
from handrail.store import Store
from handrail.store.protocol import ClaimOwner
from handrail.testing import FakeClock
from tests import kit
from tests.kit import ASKS, Note, tool
from tests.runtime.ledger_calls import stop_renewing
from tests.store.kit import stored
from tests.wording import Wording

CALL = CallRef("resp_1", "call_0")
OWNER = ClaimOwner("night", *CALL)


@dataclass(frozen=True)
class Asked:
    """Items of a conversation: the calls of a reply."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    reply: str
    call_id: str

    @staticmethod
    def listed_calls(items: Sequence[Asked]) -> Iterable[OpenCall]:
        """Those of the last reply."""
        return (
            OpenCall(call=CallRef(item.reply, item.call_id), tool="pay", state="unrecorded")
            for item in items
            if item.reply == items[-1].reply
        )


PAY = tool("pay", effect="external")


class Later:
    """An approver that leaves the question open until it is told otherwise."""

    def __init__(self) -> None:
        self.answers = False

    def __call__(self, request: ApprovalRequest) -> bool:
        if not self.answers:
            raise CallPostponed("somebody is asked")
        return True


def executor(session: Session, *tools: Tool[Any, Any], approver: Later | None = None) -> ToolExecutor:
    """An executor with tools whose calls have to be approved, if there is somebody to ask."""
    policies = () if approver is None else (ASKS,)
    return kit.executor(*(tools or (PAY,)), policies=policies, session=session, approver=approver)


def execute(desk: ToolExecutor, call: CallRef = CALL, name: str = "pay") -> ToolMessage:
    """Ask for a call."""
    return desk.execute(kit.call(name, id=call.call_id), reply=call.reply)


def claim(store: Store, *, partition: str = "night", owner: ClaimOwner = OWNER) -> tuple[EffectLedger, Claimed]:
    """The claim of the call, as a process leaves it behind that was killed."""
    ledger = EffectLedger(store, clock=FakeClock())
    claimed = ledger.claim(ClaimRequest(partition, "session:pay:1", "pay", "0" * 64, owner))
    assert isinstance(claimed, Claimed)
    stop_renewing(ledger, claimed)
    return ledger, claimed


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    """A stored session."""
    with Session.open(store, "night") as session:
        yield session


def open_of(session: Session) -> list[OpenCall]:
    """The open calls of a session."""
    return list(session.open_calls)


def reopened(session: Session) -> Session:
    """The same session, as the next process opens it."""
    session.close()
    store = session.store
    assert store is not None
    return Session.open(store, session.session_id)


@pytest.mark.parametrize("partition", ["night", ""])
def test_running_claim_is_open(store: Store, session: Session, clock: FakeClock, partition: str) -> None:
    """Under a key of the session, and under one that all sessions share; with its owner, and the end of its lease."""
    _, claimed = claim(store, partition=partition)
    (call,) = session.open_calls
    until = clock.now() + timedelta(minutes=1)
    assert (call.call, call.tool, call.state, call.key) == (CALL, "pay", "running", claimed.row.key)
    assert call.lease_until == claimed.row.lease_until == until
    assert call.claimed_at == claimed.row.created_at
    with reopened(session) as again:
        assert open_of(again) == [call]


def test_unknown_effect_is_open_until_somebody_finds_out(store: Store, session: Session) -> None:
    """It waits for nothing that passes by itself."""
    ledger, claimed = claim(store)
    assert ledger.end(claimed, NotKnown("timed out"))
    expected = OpenCall(call=CALL, tool="pay", state="unknown", key=claimed.row.key, claimed_at=claimed.row.created_at)
    assert open_of(session) == [expected]
    with reopened(session) as again:
        assert open_of(again) == [expected]
        row = ledger.row(claimed.row.key, partition="night")
        assert row is not None
        assert ledger.resolve(row, NotApplied())
        assert open_of(again) == []


def test_effect_whose_result_was_not_applied_is_open(store: Store, session: Session) -> None:
    """It has happened, and the process ended before the call was committed; asked again, it is answered."""
    executor_ = executor(session)
    key = f"call:{CALL}"
    ledger = EffectLedger(store, clock=FakeClock())
    message = execute(executor(Session.open(store, "other")))  # to learn the hash of the arguments
    assert message.success
    row = next(row for row in store.rows() if row.partition == "other")
    claimed = ledger.claim(ClaimRequest("night", key, "pay", row.params_hash, OWNER))
    assert isinstance(claimed, Claimed)
    assert ledger.end(claimed, EffectResult("paid A-1"))
    expected = OpenCall(call=CALL, tool="pay", state="unapplied", key=key, claimed_at=claimed.row.created_at)
    assert open_of(session) == [expected]
    assert execute(executor_).replayed
    assert open_of(session) == []
    with reopened(session) as again:
        assert open_of(again) == []


def test_postponed_call_is_open_until_it_is_carried_out(session: Session) -> None:
    """It is noted once, however often it is asked; it is not recorded, because it is made again."""
    approver = Later()
    expected = OpenCall(call=CALL, tool="pay", state="postponed")
    for _ in range(3):
        with pytest.raises(CallPostponed):
            execute(executor(session, approver=approver))
        assert open_of(session) == [expected]
    assert session[ToolInvoked].all() == ()
    with reopened(session) as again:
        assert open_of(again) == [expected]
        with pytest.raises(CallPostponed):
            execute(executor(again, approver=approver))
        (noted,) = again[PostponedCall].all()
        assert (noted.session_id, noted.call, noted.tool) == ("night", CALL, "pay")
        approver.answers = True
        assert execute(executor(again, approver=approver)).success
        assert open_of(again) == []
    assert open_of(reopened(again)) == []


def test_postponed_calls_of_one_id_are_told_apart_by_their_replies(session: Session) -> None:
    """As servers number them that count from 0; one without a reply is another call."""
    approver = Later()
    calls = [CALL, CallRef("resp_2", "call_0"), CallRef(None, "call_0")]
    for call in calls:
        with pytest.raises(CallPostponed):
            execute(executor(session, approver=approver), call)
    approver.answers = True
    assert execute(executor(session, approver=approver), CALL).success
    assert [call.call for call in session.open_calls] == calls[1:]


def test_postponed_call_that_cannot_be_noted_is_postponed_all_the_same(
    session: Session, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The session was closed while somebody was asked."""

    class Closes(Later):
        def __call__(self, request: ApprovalRequest) -> bool:
            session.close()
            return super().__call__(request)

    with pytest.raises(CallPostponed):
        execute(executor(session, approver=Closes()))
    assert caplog.messages == wording


class Nesting:
    """A tool whose handler executes a call of another tool, and then raises an exception or returns a result."""

    def __init__(self, inner: Tool[Any, Any]) -> None:
        self.ends: ToolResult[Note] | Exception = ToolResult.ok(Note("ordered"))
        self.tool = tool(f"order-{inner.name}", self.order)
        self._inner = inner

    def order(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Execute the nested call, without stating a reply."""
        assert execute(executor(context.session, self._inner), CallRef(None, "call_0"), self._inner.name).success
        if isinstance(self.ends, Exception):
            raise self.ends
        return self.ends


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    "ends", [ToolResult.ok(Note("ordered")), ToolResult.error("sold out")], ids=["succeeds", "refuses"]
)
def test_unapplied_nested_call_is_open_until_the_outermost_call_is_final(
    store: Store, session: Session, ends: ToolResult[Note], depth: int
) -> None:
    """At any depth. Executed again, that call is answered with it, and records that it is applied, if it succeeds."""
    outermost, ref = Nesting(PAY), CallRef(f"@{CALL}", "call_0")
    for _ in range(depth - 1):
        outermost, ref = Nesting(outermost.tool), CallRef(f"@{ref}", "call_0")
    outermost.ends = ConnectionError("no answer")
    assert not execute(executor(session, outermost.tool), name=outermost.tool.name).success
    (expected,) = open_of(session)
    assert (expected.call, expected.tool, expected.state, expected.key) == (ref, "pay", "unapplied", f"call:{ref}")
    with reopened(session) as again:
        assert open_of(again) == [expected]
        outermost.ends = ends
        assert execute(executor(again, outermost.tool), name=outermost.tool.name).success == ends.success
        (row,) = store.rows()
        assert (row.status, row.applied_at is not None) == ("done", ends.success)
        assert open_of(again) == []
    found = stored(store, "night")
    assert open_calls_in_store(store, found) == ()


@pytest.mark.parametrize("reply", ["resp_1", "resp/1", "100%", "%ff", "%ff/call_0"])
def test_unapplied_call_is_open_however_its_reply_is_named(store: Store, session: Session, reply: str) -> None:
    """A reply has the name that the provider gave it, which need not be that of a call."""
    ledger, claimed = claim(store, owner=ClaimOwner("night", reply, "call_0"))
    assert ledger.end(claimed, EffectResult("paid A-1"))
    assert [(call.call, call.state) for call in session.open_calls] == [(CallRef(reply, "call_0"), "unapplied")]


def test_call_of_the_last_reply_without_a_record_is_open(store: Store, session: Session) -> None:
    """As a conversation lists them; what is known of it otherwise counts more."""
    other = CallRef("resp_1", "call_1")
    for asked in (CALL, other):
        session[Asked].append(Asked(str(asked.reply), asked.call_id))
    unrecorded = OpenCall(call=other, tool="pay", state="unrecorded")
    assert open_of(session) == [OpenCall(call=CALL, tool="pay", state="unrecorded"), unrecorded]
    with pytest.raises(CallPostponed):
        execute(executor(session, approver=Later()))
    expected = {OpenCall(call=CALL, tool="pay", state="postponed"), unrecorded}
    assert set(session.open_calls) == expected
    with reopened(session) as again:
        assert set(again.open_calls) == expected
        assert execute(executor(again)).success
        assert open_of(again) == [unrecorded]
        again[Asked].append(Asked("resp_2", "call_0"))
        assert [call.call for call in again.open_calls] == [CallRef("resp_2", "call_0")]
    row = stored(store, "night")
    assert [call.call for call in open_calls_in_store(store, row)] == [CallRef("resp_2", "call_0")]


def test_fork_inherits_no_open_call(store: Store, session: Session) -> None:
    """Its claims are those of the other session, and so are the questions that were left open."""
    ledger, claimed = claim(store)
    ledger.end(claimed, NotKnown("timed out"))
    with pytest.raises(CallPostponed):
        execute(executor(session, approver=Later()), CallRef("resp_1", "call_1"))
    assert len(session.open_calls) == 2
    with session.fork(session_id="fork") as fork:
        assert open_of(fork) == []
        with pytest.raises(CallPostponed):
            execute(executor(fork, approver=Later()), CallRef("resp_1", "call_1"))
        assert [call.call.call_id for call in fork.open_calls] == ["call_1"]
    assert len(session.open_calls) == 2
    row = stored(store, "fork")
    assert len(open_calls_in_store(store, row)) == 1


def test_child_has_open_calls_of_its_own(store: Store, session: Session) -> None:
    """They are not those of the session that it was made for."""
    claim(store)
    with session.child(session_id="night-agent") as child:
        assert open_of(child) == []
        assert [call.state for call in session.open_calls] == ["running"]
