"""A call whose effect has been started was decided before: it is answered from the ledger, and not judged anew."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from handrail.adapters.loop import session_ledger
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed, EffectUncertain, PromptEvaluationError, RecordingError, SessionError
from handrail.limits import Deadline
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    External,
    IdempotencyConfig,
    PolicyDecision,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.runtime import EffectLedger, Session, ToolCall, ToolInvoked, ToolMessage
from handrail.runtime.calls import Step
from handrail.runtime.ledger.effects import EffectResult, NotApplied
from handrail.session.open_calls import GivenAnswer, PostponedCall, postponed_call
from handrail.store import Store
from handrail.testing import FakeClock
from tests.kit import ASKS, Decides, Note, executor, raises, tool
from tests.runtime.kit import MINUTE, Shop, ask, present
from tests.session.faulty_stores import FaultyStore, faulty
from tests.store.kit import replace
from tests.store.stores import STORES
from tests.wording import Wording

both_entries = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


DENIES = Decides(lambda _tool, _params: PolicyDecision.deny("the shop is closed"))


@dataclass
class Desk:
    """A tool that pays, whose calls are asked about.

    Attributes:
        shop: where the sessions are.
        answers: what the approver answers, the first one first.
        asked: how often it was asked.
        paid: how often the handler ran; it does not know whether it has paid until `knows`.
        knows: whether the handler knows.
        found: what the reconciler finds.
    """

    shop: Shop
    answers: list[bool | Approval]
    asked: list[ApprovalRequest] = field(default_factory=list[ApprovalRequest])
    paid: list[str] = field(default_factory=list[str])
    knows: bool = False
    found: Callable[[], ToolResult[Note] | None] | None = None

    def approve(self, request: ApprovalRequest) -> bool | Approval:
        """Answer as planned."""
        self.asked.append(request)
        return self.answers.pop(0)

    def pay(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Pay; the bank may not answer."""
        self.paid.append(params.text)
        if not self.knows:
            raise EffectUncertain("the bank has not answered")
        return ToolResult.ok(params, "paid")

    def look(self, _params: Note, _key: str) -> ToolResult[Note] | None:
        """Ask the bank."""
        assert self.found is not None
        return self.found()

    def door(
        self, session: Session, policy: Any = ASKS, *, key: IdempotencyConfig | None = None, **options: Any
    ) -> ToolExecutor:
        """The tool over a session."""
        retries = options.pop("on_orphan", None) == "retry"
        look = None if self.found is None else self.look
        effect = External(lease=MINUTE, on_orphan="retry") if retries else External(lease=MINUTE, reconcile=look)
        made: Tool[Note, Note] = tool("charge", self.pay, effect=effect, idempotency=key)
        options.setdefault("approver", self.approve)
        return self.shop.door(session, made, policies=[policy], **options)


def make(door: ToolExecutor, is_async: bool) -> ToolMessage:
    """Make the call, by one of the entries."""
    if not is_async:
        return ask(door)
    return asyncio.run(door.execute_async(ToolCall("call-1", "charge", {"text": "lamp"}), reply="r1"))


def resolve(shop: Shop, session: Session, finding: EffectResult | NotApplied) -> None:
    """A person finds out."""
    assert session_ledger(session, clock=shop.clock).resolve(shop.row(), finding)


@both_entries
def test_a_call_that_was_approved_and_has_started_is_not_asked_about_again(
    shop: Shop, is_async: bool, wording: Wording
) -> None:
    """Unknown, and then done: a no would come too late, and would have the model read that nothing happened."""
    desk = Desk(shop, [True, False])
    session = shop.session()
    door = desk.door(session)
    assert not make(door, is_async).success
    unknown = make(door, is_async)
    assert (unknown.content, [each.state for each in session.open_calls]) == (wording, ["unknown"])
    resolve(shop, session, EffectResult("paid, says the bank", b'{"text":"lamp"}'))
    done = make(door, is_async)
    assert (done.success, done.replayed, done.result.message) == (True, True, "paid, says the bank")
    assert (len(desk.asked), desk.paid, session.open_calls) == (1, ["lamp"], ())


@both_entries
def test_a_call_whose_process_has_died_is_not_asked_about_again(shop: Shop, is_async: bool, wording: Wording) -> None:
    """Its lease has expired, and no attempt is recorded."""
    desk = Desk(shop, [True])
    session = shop.session()
    make(desk.door(session), is_async)
    row = shop.row()
    claimed = row._replace(status="running", lease_until=shop.clock.now() - MINUTE, note="")
    assert replace(shop.store, row, claimed)
    assert make(desk.door(session), is_async).content == wording
    assert (len(desk.asked), desk.paid) == (1, ["lamp"])


@both_entries
def test_a_policy_that_denies_comes_too_late_for_what_has_started(shop: Shop, is_async: bool, wording: Wording) -> None:
    """Until the effect is found not to have happened: then nothing runs that a policy denies."""
    desk = Desk(shop, [True])
    session = shop.session()
    make(desk.door(session), is_async)
    closed = desk.door(session, DENIES)
    assert make(closed, is_async).content == wording
    resolve(shop, session, NotApplied("says the bank"))
    assert "the shop is closed" in make(closed, is_async).content
    assert (len(desk.asked), desk.paid, session[ToolInvoked][-1].final) == (1, ["lamp"], True)


@both_entries
@pytest.mark.parametrize("answer", [True, False])
def test_what_the_reconciler_finds_not_to_have_happened_is_asked_about_again(
    shop: Shop, is_async: bool, answer: bool
) -> None:
    """Before the handler runs; the refusal is final, and the effect is recorded as not happened."""
    desk = Desk(shop, [True, answer], found=lambda: None)
    session = shop.session()
    door = desk.door(session)
    make(door, is_async)
    desk.knows = True
    message = make(door, is_async)
    assert (message.success, len(desk.asked), desk.paid) == (answer, 2, ["lamp", "lamp"] if answer else ["lamp"])
    assert shop.row().status == ("done" if answer else "failed")
    assert make(door, is_async).content == message.content
    assert len(desk.asked) == 2


@both_entries
def test_what_the_reconciler_finds_to_have_happened_is_not_asked_about(shop: Shop, is_async: bool) -> None:
    """Nothing is to run."""
    desk = Desk(shop, [True], found=lambda: ToolResult.ok(Note("lamp"), "found"))
    door = desk.door(shop.session())
    make(door, is_async)
    message = make(door, is_async)
    assert (message.success, message.result.message, len(desk.asked), desk.paid) == (True, "found", 1, ["lamp"])


@both_entries
def test_a_question_that_is_asked_again_can_be_left_open(shop: Shop, is_async: bool) -> None:
    """The call is listed with it, and runs with the answer that is recorded."""
    desk = Desk(shop, [True, Approval.later("the office is asked")], found=lambda: None)
    session = shop.session()
    door = desk.door(session)
    make(door, is_async)
    with pytest.raises(CallPostponed):
        make(door, is_async)
    (waits,) = session.open_calls
    assert waits.state == "postponed"
    item = present(postponed_call(session[PostponedCall], waits.call))
    (event,) = session[ToolInvoked]
    yes = GivenAnswer(approved=True, reason="a person said yes", by="ada", at=item.at)
    session[PostponedCall].append(dataclasses.replace(item, answer=yes, last_attempt=event.at))
    desk.knows = True
    assert make(door, is_async).success
    assert (len(desk.asked), desk.paid) == (2, ["lamp", "lamp"])


def test_a_deadline_that_passes_while_it_is_asked_again_stops_the_call(stall: Shop, wording: Wording) -> None:
    """As it does while it is asked first."""
    desk = Desk(stall, [True], found=lambda: None)
    session = stall.session()
    make(desk.door(session), is_async=False)

    def slow(request: ApprovalRequest) -> bool:
        stall.clock.advance(timedelta(hours=1))
        return desk.approve(request)  # type: ignore[return-value]  # a bool is planned

    desk.answers.append(True)
    deadline = Deadline.after(MINUTE, clock=stall.clock)
    with raises(PromptEvaluationError, wording):
        make(desk.door(session, approver=slow, deadline=deadline), is_async=False)
    assert session[ToolInvoked][-1].refused_at is Step.DEADLINE
    assert (len(desk.asked), desk.paid) == (2, ["lamp"])


@both_entries
def test_a_tool_that_runs_again_is_asked_about_again(shop: Shop, is_async: bool, wording: Wording) -> None:
    """With `on_orphan="retry"` an unknown effect is started once more."""
    desk = Desk(shop, [True, False])
    door = desk.door(shop.session(), on_orphan="retry")
    make(door, is_async)
    assert make(door, is_async).content == wording
    assert shop.row().status == "unknown"
    assert (len(desk.asked), desk.paid) == (2, ["lamp"])


def test_another_call_with_the_same_key_is_asked_about(stall: Shop, wording: Wording) -> None:
    """What was answered about the first call was not about this one."""
    desk = Desk(stall, [True, False], knows=True)
    door = desk.door(stall.session(), key=IdempotencyConfig(ttl=None))
    assert ask(door).success
    assert ask(door, reply="r2").content == wording
    assert len(desk.asked) == 2


Entry = Callable[[ToolExecutor, ToolCall], ToolMessage]


CALL = ToolCall("1", "pay", '{"text":"a"}')


def inline(door: ToolExecutor, call: ToolCall) -> ToolMessage:
    """Through the synchronous entry."""
    return door.execute(call, reply="r1")


def on_loop(door: ToolExecutor, call: ToolCall) -> ToolMessage:
    """Through the asynchronous entry."""
    return asyncio.run(door.execute_async(call, reply="r1"))


@pytest.fixture(params=[inline, on_loop])
def make_deferred_replies(request: pytest.FixtureRequest) -> Entry:
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


def test_the_reply_is_stored_before_the_effect_begins(store: FaultyStore, make_deferred_replies: Entry) -> None:
    """Its handler finds it there; one unit has both."""
    payments = Payments(store)
    with Session.open(store, "s") as session:
        door = payments.executor(session)
        session.conversation.append({"n": 1}, calls=[CALL], reply="r1")
        assert replies(store) == 0
        units: list[int] = []
        store.at("begin", *(lambda: units.append(store.appended) for _ in range(9)))
        assert make_deferred_replies(door, CALL).success
        assert payments.found == [1]
        assert units == [0, 1]  # the claim, which appends the reply, and the commit
    with Session.open(store, "s") as session:
        assert (session.conversation.messages, session.open_calls) == ([{"n": 1}], ())


@pytest.mark.anyio
@pytest.mark.parametrize(
    "names, record",
    [((), ["begin", "replace"]), (("earlier",), ["insert", "replace", "begin"])],
    ids=["alone", "after another"],
)
async def test_effect_of_a_concurrent_call_is_recorded_with_its_commit_unless_an_earlier_call_runs(
    store: FaultyStore, names: tuple[str, ...], record: Sequence[str]
) -> None:
    """While it waited for the other to commit, a kill would leave an effect that nothing knows of."""
    entered, released = asyncio.Event(), asyncio.Event()

    async def earlier(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        entered.set()
        await released.wait()
        return ToolResult.ok(params)

    async def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        asyncio.get_running_loop().call_later(0.05, released.set)
        return ToolResult.ok(params)

    points: list[str] = []
    with Session.open(store, "s") as session:
        options: dict[str, Any] = {"effect": "external", "concurrent": True}
        entry = executor(tool("earlier", earlier, **options), tool("pay", pay, **options), session=session)
        first = [asyncio.ensure_future(entry.execute_async(ToolCall("1", name, {"text": "a"}))) for name in names]
        for point in ("insert", "replace", "append", "begin"):
            store.at(point, *(partial(points.append, point) for _ in range(9)))
        if first:
            await entered.wait()
        assert (await entry.execute_async(ToolCall("2", "pay", {"text": "a"}))).success
        await asyncio.gather(*first)
        assert points[1 : 1 + len(record)] == record


def test_a_ledger_elsewhere_is_asked_when_the_reply_is_stored(store: FaultyStore, make_deferred_replies: Entry) -> None:
    """One unit cannot be written to two stores, so the reply comes first."""
    payments = Payments(store)
    with Session.open(store, "s") as session:
        session.conversation.append({"n": 1}, calls=[CALL], reply="r1")
        assert make_deferred_replies(payments.executor(session, effect_ledger=EffectLedger()), CALL).success
        assert payments.found == [1]


def test_a_reply_that_cannot_be_stored_keeps_the_effect_from_beginning(
    store: FaultyStore, make_deferred_replies: Entry
) -> None:
    """The run ends, and the call is made again when the store answers."""
    payments = Payments(store)
    with Session.open(store, "s") as session:
        session.conversation.append({"n": 1}, calls=[CALL], reply="r1")
        store.lose("append", 1)
        with pytest.raises(RecordingError):
            make_deferred_replies(payments.executor(session), CALL)
        assert payments.found == []
        assert make_deferred_replies(payments.executor(session), CALL).success
        assert payments.found == [1]


def test_a_claim_in_doubt_closes_the_session(store: FaultyStore, make_deferred_replies: Entry) -> None:
    """What it has appended may be there; opened again, the session is as the store says."""
    payments = Payments(store)
    session = Session.open(store, "s")
    session.conversation.append({"n": 1}, calls=[CALL], reply="r1")
    store.lose("committed", 9)
    with pytest.raises(RecordingError):
        make_deferred_replies(payments.executor(session), CALL)
    store.come_back()
    assert payments.found == []
    with pytest.raises(SessionError):
        session.conversation.append({"n": 2})
    session.close()
    with Session.open(store, "s") as again:
        assert (again.conversation.messages, [each.state for each in again.open_calls]) == ([{"n": 1}], ["running"])
