"""Results that wait are applied without a call of the model, once each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr

from handrail.adapters.loop import session_ledger
from handrail.adapters.settlement import SettledCall
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import LedgerError, PromptEvaluationError, SessionError, UnboundResourceError
from handrail.prompt import (
    External,
    IdempotencyConfig,
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.redaction import MASK
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.runtime.failures import SECRETS_GONE, cannot_apply
from handrail.runtime.ledger.effects import AppliedByHand, EffectResult, NotApplied
from handrail.session.calls import CallRef
from handrail.store import EffectRow, MemoryStore
from handrail.testing import FakeClock
from tests.kit import Decides, Note, call, executor, raises, tool
from tests.runtime.kit import MINUTE, Booked, Shop, ask
from tests.store.kit import delete, replace
from tests.wording import Wording

both_entries = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def settle(door: ToolExecutor, is_async: bool) -> tuple[SettledCall, ...]:
    """Settle the open calls, by one of the entries."""
    return asyncio.run(door.settle_open_async()) if is_async else door.settle_open()


def _resolved_by_a_person(shop: Shop, session: Session) -> None:
    door = shop.door(session)
    assert not ask(door, "lost").success
    ledger = session_ledger(session, clock=shop.clock)
    assert ledger.resolve(shop.row(), EffectResult("the bank says so", b'{"text":"lost"}'))


@both_entries
def test_a_result_that_a_person_finds_is_applied_when_the_session_is_opened_next(shop: Shop, is_async: bool) -> None:
    """Once, without policies and approvers; it is recorded as nested in the open call, which replays afterwards."""
    with Session.open(shop.store, "till", types=(Booked, Note)) as session:
        _resolved_by_a_person(shop, session)
    session = shop.session()
    (open_call,) = session.open_calls
    assert open_call.state == "unapplied"
    denies = Decides(lambda _tool, _params: PolicyDecision.deny("closed"))
    door = shop.door(session, policies=[denies])
    (settled,) = settle(door, is_async)
    assert (settled.call, settled.tool) == (open_call.call, "charge")
    assert (settled.message.success, settled.message.replayed) == (True, True)
    assert settled.message.result == ToolResult("the bank says so", Note("lost"))
    assert [one.text for one in session[Booked]] == ["lost"]
    assert (len(session[Note]), shop.charged, shop.row().applied_at) == (1, ["lost"], shop.clock.now())
    assert session.open_calls == ()
    assert door.settle_open() == ()
    assert session[ToolInvoked].all()[-1].ref.parent == open_call.call
    again = ask(shop.door(session), "lost")
    assert (again.success, again.replayed, len(session[Booked]), len(session[Note])) == (True, True, 1, 1)


def test_a_result_that_a_person_has_mistyped_can_be_corrected_until_it_is_applied(shop: Shop, wording: Wording) -> None:
    """That it has not happened cannot be recorded any more; what is applied stays, also if it is applied meanwhile."""
    session = shop.session()
    _resolved_by_a_person(shop, session)
    ledger = session_ledger(session, clock=shop.clock)
    mistyped = EffectResult("the bank says so", b"17")
    assert ledger.resolve(shop.row(), mistyped)
    door = shop.door(session)
    assert [each.message.success for each in door.settle_open()] == [False]
    seen = shop.row()
    with raises(LedgerError, wording):
        ledger.resolve(seen, NotApplied())
    assert ledger.resolve(seen, EffectResult("the bank says so", b'{"text":"lost"}'))
    assert (shop.row().fence, shop.row().applied_at, shop.row().expires_at) == (seen.fence, None, seen.expires_at)
    assert [each.message.success for each in door.settle_open()] == [True]
    assert (len(session[Booked]), shop.charged) == (1, ["lost"])
    applied = shop.row()
    assert not ledger.resolve(seen, mistyped)
    assert shop.row() == applied
    with raises(LedgerError, wording):
        ledger.resolve(applied, mistyped)


def test_what_cannot_be_settled_says_why_and_waits(stall: Shop, wording: Wording) -> None:
    """Its tool is not in the prompt, `apply` raises, or the program is at fault."""
    session = stall.session()
    _resolved_by_a_person(stall, session)
    (unknown_tool,) = executor(tool("other"), session=session).settle_open()
    assert unknown_tool.message.content == wording
    stall.fails.append(ValueError("no such account"))
    door = stall.door(session)
    (raised,) = door.settle_open()
    assert (raised.message.content, len(session.open_calls), len(session[Booked])) == (wording, 1, 0)
    stall.fails.append(UnboundResourceError(int))
    with pytest.raises(UnboundResourceError):
        door.settle_open()
    (settled,) = door.settle_open()
    assert (settled.message.success, len(session[Booked])) == (True, 1)


def test_a_nested_effect_that_a_person_has_found_is_settled_though_its_parent_has_succeeded(stall: Shop) -> None:
    """The parent went on without the result, and is not made again."""

    def parent(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        assert not door.execute(call("charge", "lost", id="inner")).success
        return ToolResult.ok(Note("parent"))

    session = stall.session()
    door = stall.door(session, stall.tool(), tool("parent", parent))
    assert ask(door, name="parent").success
    assert session_ledger(session, clock=stall.clock).resolve(stall.row(), EffectResult("paid", b'{"text":"lost"}'))
    (settled,) = door.settle_open()
    assert (settled.message.success, stall.booked, stall.charged) == (True, ["lost"], ["lost"])
    assert door.settle_open() == ()


def test_a_tool_without_apply_is_settled_once(stall: Shop) -> None:
    """Its row is marked, so its call is no longer open; an `apply` that it is given later does not run for it."""
    session = stall.session()
    plain = tool("charge", stall.charge, effect=External(lease=MINUTE))
    door = stall.door(session, plain)
    assert not ask(door, "lost").success
    assert session_ledger(session, clock=stall.clock).resolve(stall.row(), EffectResult("paid", b'{"text":"lost"}'))
    (settled,) = door.settle_open()
    assert (settled.message.success, session.open_calls) == (True, ())
    assert stall.row().applied_at == stall.clock.now()
    assert stall.door(session).settle_open() == ()
    assert stall.booked == []


@dataclass(frozen=True)
class Secret:
    """Parameters of which the ledger has only a mask."""

    text: str
    pin: SecretStr


@dataclass(frozen=True)
class Marked:
    """The same with a secret that shows itself, so that the record in memory is masked as well."""

    text: str
    pin: str = field(metadata={"secret": True})


def _charging(pins: list[str], takes: Any, *fails: Exception) -> Tool[Any, None]:
    """A tool that takes a secret, and whose `apply` fails first; it notes the secret."""
    planned = list(fails)

    def charge(params: Any, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult.ok(None, "paid")

    def book(params: Any, result: ToolResult[None], *, context: ToolContext) -> None:
        if planned:
            raise planned.pop()
        pins.append(params.pin if isinstance(params.pin, str) else params.pin.get_secret_value())
        context.session[Booked].append(Booked(params.text, str(context.idempotency_key)))

    return Tool[takes, None](name="charge", description="Charges.", handler=charge, effect=External(apply=book))


ASKED = ToolCall("call-1", "charge", {"text": "lamp", "pin": "1234"})


@both_entries
@pytest.mark.parametrize("takes", [Secret, Marked])
def test_secrets_are_taken_from_the_conversation_of_this_process(stall: Shop, takes: Any, is_async: bool) -> None:
    """Ledger and record have masked them; the conversation has the call that was asked for."""
    pins: list[str] = []
    session = stall.session()
    door = stall.door(session, _charging(pins, takes, ValueError("closed")))
    assert not door.execute(ASKED, reply="r1").success
    assert session[ToolInvoked][0].call.arguments == {"text": "lamp", "pin": MASK}
    (lost,) = settle(door, is_async)
    assert lost.message.content == cannot_apply("charge", SECRETS_GONE)
    session.conversation.append({"role": "assistant"}, calls=[ASKED], reply="r1")
    (settled,) = settle(door, is_async)
    assert (settled.message.success, pins) == (True, ["1234"])


@pytest.mark.parametrize("reply, id", [("r0", "call-1"), ("r2", "call-1"), ("r1", "call-0"), ("r1", "call-2")])
def test_secrets_are_not_taken_from_another_call(stall: Shop, reply: str, id: str) -> None:
    """The reply or the id may be the same, and the arguments differ in nothing but the secret."""
    pins: list[str] = []
    session = stall.session()
    door = stall.door(session, _charging(pins, Marked, ValueError("closed")))
    door.execute(ASKED, reply="r1")
    other = ToolCall(id, ASKED.name, {"text": "lamp", "pin": "9876"})
    session.conversation.append({"role": "assistant"}, calls=[other], reply=reply)
    (waits,) = door.settle_open()
    assert (waits.call, waits.message.success, pins) == (CallRef("r1", "call-1"), False, [])


@both_entries
def test_a_result_whose_secrets_are_gone_is_reported_until_a_person_has_applied_it(
    shop: Shop, is_async: bool, wording: Wording
) -> None:
    """A run only logs it. What a person has applied by hand is not applied again."""
    pins: list[str] = []
    charging = _charging(pins, Secret, ValueError("closed"))
    with Session.open(shop.store, "till", types=(Booked, Note)) as session:
        assert not shop.door(session, charging).execute(ASKED, reply="r1").success
    with Session.open(shop.store, "till", types=(Booked, Note)) as session:
        door = shop.door(session, charging)
        asyncio.run(door.settle_before_run_async())
        (reported,) = settle(door, is_async)
        assert (reported.call, reported.message.success) == (CallRef("r1", "call-1"), False)
        assert reported.message.content == cannot_apply("charge", SECRETS_GONE)
    session = shop.session()
    door = shop.door(session, charging)
    assert settle(door, is_async) == (reported,)
    assert [each.state for each in session.open_calls] == ["unapplied"]
    with pytest.raises(SessionError):
        session.reset()
    ledger, seen = session_ledger(session, clock=shop.clock), shop.row()
    assert ledger.resolve(seen, AppliedByHand("ada has booked it"))
    assert not ledger.resolve(seen, AppliedByHand("twice"))
    row = shop.row()
    assert (row.status, row.applied_at, row.expires_at, row.note) == (
        "done",
        shop.clock.now(),
        None,
        "ada has booked it",
    )
    with raises(LedgerError, wording):
        ledger.resolve(row, AppliedByHand())
    assert (settle(door, is_async), session.open_calls) == ((), ())
    again = door.execute(ASKED, reply="r1")
    assert (again.success, again.replayed, again.content, pins) == (True, True, "paid", [])
    session.reset()


@pytest.mark.anyio
async def test_an_async_apply_on_a_loop_says_what_to_call(stall: Shop) -> None:
    """The blocking form would stop the loop that it needs; the result waits on."""

    async def book(params: Note, result: ToolResult[Note], *, context: ToolContext) -> None:
        context.session[Booked].append(Booked(params.text, str(context.idempotency_key)))

    session = stall.session()
    _resolved_by_a_person(stall, session)
    door = stall.door(session, stall.tool(apply=book))
    with pytest.raises(PromptEvaluationError, match="settle_open_async"):
        door.settle_open()
    assert [each.state for each in session.open_calls] == ["unapplied"]
    (settled,) = await door.settle_open_async()
    assert (settled.message.success, len(session[Booked])) == (True, 1)


def test_a_tool_in_a_closed_section_is_settled(stall: Shop) -> None:
    """Its effect has happened, whatever the model sees now."""
    with Session.open(stall.store, "till", types=(Booked, Note)) as before:
        _resolved_by_a_person(stall, before)
    session = stall.session()
    section = MarkdownSection(title="Till", key="till", template="Charge.", tools=[stall.tool()], summary="The till.")
    prompt = Prompt(PromptTemplate(ns="tests", key="closed", sections=[section]))
    (settled,) = ToolExecutor(prompt=prompt, session=session, clock=stall.clock).settle_open()
    assert (settled.message.success, len(session[Booked])) == (True, 1)


@dataclass
class Till:
    """A session with calls of `charge`, whose effects a person has found done.

    Attributes:
        applied: what `apply` was given.
        meets: what happens while `apply` runs, the last one first.
        fails: what `apply` raises, the last one first.
    """

    store: MemoryStore
    clock: FakeClock
    session: Session
    applied: list[Any] = field(default_factory=list[Any])
    meets: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    fails: list[BaseException] = field(default_factory=list[BaseException])

    def book(self, params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Note the parameters."""
        self.applied.append(params)
        if self.meets:
            self.meets.pop()()
        if self.fails:
            raise self.fails.pop()

    def door(self, key: IdempotencyConfig | None = None, *, apply: Any = None) -> ToolExecutor:
        """An executor of the tool."""
        effect = External(apply=apply or self.book)
        made = tool("charge", lost, effect=effect, idempotency=key)
        return executor(made, session=self.session, clock=self.clock)

    def owe(self, *texts: str, key: IdempotencyConfig | None = None) -> list[EffectRow]:
        """Make these calls, and resolve their effects; the rows."""
        door, ledger = self.door(key), session_ledger(self.session, clock=self.clock)
        for text in texts:
            assert not door.execute(ToolCall(text, "charge", {"text": text}), reply="r1").success
        for row in self.store.rows():
            assert ledger.resolve(row, EffectResult("paid"))
        return list(self.store.rows())


def lost(params: Any, *, context: ToolContext) -> ToolResult[Any]:
    """Fail after the deed."""
    raise TimeoutError


@pytest.fixture
def till() -> Generator[Till]:
    """A session without calls."""
    clock = FakeClock()
    with MemoryStore(clock=clock) as store, store.session("till", types=(Note,)) as session:
        yield Till(store, clock, session)


def test_a_session_in_memory_has_nothing_to_settle() -> None:
    """Its effects end with its process."""
    assert executor(session=Session()).settle_open() == ()


def test_an_effect_that_is_shared_with_other_sessions_is_settled(till: Till) -> None:
    """Its row is not among those of the session."""
    (row,) = till.owe("lamp", key=IdempotencyConfig(scope="shop"))
    assert row.partition == ""
    (settled,) = till.door(IdempotencyConfig(scope="shop")).settle_open()
    assert (settled.message.success, till.applied) == (True, [Note("lamp")])


def test_an_effect_that_a_person_removes_while_another_is_settled_is_not_applied(till: Till, wording: Wording) -> None:
    """Its message says so, and no handler runs."""
    _, second = till.owe("lamp", "desk")
    till.meets.append(lambda: delete(till.store, second))
    first, removed = till.door().settle_open()
    assert (first.message.success, removed.message.success, removed.message.content) == (True, False, wording)
    assert till.applied == [Note("lamp")]


def test_an_interrupt_ends_the_settling_with_the_mistakes_as_notes(till: Till) -> None:
    """The program learns of both."""
    till.owe("lamp", "desk", "vase")
    till.fails += [KeyboardInterrupt(), UnboundResourceError(int)]
    with pytest.raises(KeyboardInterrupt) as caught:
        till.door().settle_open()
    effect, mistake = caught.value.__notes__
    assert ("was done" in effect, mistake.split(":")[1].strip()) == (True, "UnboundResourceError")
    assert till.applied == [Note("lamp"), Note("desk")]


def test_the_recorded_parameters_count_where_a_person_has_changed_them(till: Till) -> None:
    """The record of the call has what the model wrote."""
    (row,) = till.owe("lamp")
    assert replace(till.store, row, row._replace(arguments=b'{"text":"desk"}'))
    (settled,) = till.door().settle_open()
    assert (settled.message.success, till.applied) == (True, [Note("desk")])


@dataclass(frozen=True)
class Bill:
    """Parameters that the arguments of before do not fit."""

    amount: int


@pytest.mark.parametrize("recorded", [None, b'{"text":"lamp"}'])
def test_a_result_whose_parameters_cannot_be_restored_waits(
    till: Till, recorded: bytes | None, wording: Wording
) -> None:
    """They were not recorded, or the tool has other ones since."""
    (row,) = till.owe("lamp")
    assert replace(till.store, row, row._replace(arguments=recorded))
    changed = Tool[Bill, None](name="charge", description="Charges.", handler=lost, effect=External(apply=till.book))
    (waits,) = executor(changed, session=till.session, clock=till.clock).settle_open()
    assert (waits.message.success, waits.message.content) == (False, wording)
    assert (till.applied, [each.state for each in till.session.open_calls]) == ([], ["unapplied"])


@pytest.mark.parametrize("before_run", [False, True])
@pytest.mark.parametrize("happened", [True, False])
def test_the_reconciler_is_asked_about_what_is_unknown(till: Till, *, happened: bool, before_run: bool) -> None:
    """What it does not know stays open; what has happened is applied, and what has not is failed and no longer open."""
    answers: list[ToolResult[Note] | None] = [ToolResult.ok(Note("lamp"), "found") if happened else None]

    def find(_params: object, key: str) -> ToolResult[Note] | None:
        if till.fails:
            raise till.fails.pop()
        return answers.pop()

    door = executor(tool("charge", lost, effect=External(reconcile=find)), session=till.session, clock=till.clock)
    till.fails += [ConnectionError("closed"), ConnectionError("closed")]
    assert not door.execute(ToolCall("c1", "charge", {"text": "lamp"}), reply="r1").success
    assert door.settle_open() == ()
    assert [each.state for each in till.session.open_calls] == ["unknown"]
    if before_run:
        asyncio.run(door.settle_before_run_async())
    else:
        (settled,) = door.settle_open()
        assert (settled.call, settled.message.success) == (CallRef("r1", "c1"), happened)
    assert till.session.open_calls == ()
    assert [row.status for row in till.store.rows()] == ["done" if happened else "failed"]
    assert till.session[Note].all() == ((Note("lamp"),) if happened else ())
    assert door.settle_open() == ()
