"""What belongs to an effect is applied once, however its result was found, and by whichever call meets it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.loop import session_ledger
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import LedgerError, PromptEvaluationError, PromptValidationError, SecondStoreError
from handrail.limits import Deadline
from handrail.prompt import External, IdempotencyConfig, PolicyDecision, Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, Session, ToolCall, ToolInvoked, ToolRaised
from handrail.store import MemoryStore
from handrail.testing import FakeClock, run_tool
from tests.handler_threads import HandlerThreads
from tests.kit import Decides, Note, Run, both_ways, call, executor, raises, tool
from tests.runtime.kit import MINUTE, SHARED, Booked, Shop, ask
from tests.store.kit import delete, replace
from tests.wording import Wording


@both_ways
def test_a_fresh_result_is_applied_in_the_unit_that_commits_the_call(shop: Shop, way: Run) -> None:
    """The row is done and applied at once; a `def` runs on a thread of its own through the asynchronous entry."""
    threads: list[bool] = []

    def book(params: Note, result: ToolResult[Note], *, context: ToolContext) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        shop.book(params, result, context=context)

    session = shop.session()
    door = shop.door(session, shop.tool(apply=book))
    assert way(door, call("charge")).success
    assert [one.text for one in session[Booked]] == ["hello"]
    assert shop.row().applied_at == shop.row().completed_at == shop.clock.now()
    assert session[Booked].all()[0].key == shop.row().key
    assert (threads, session.open_calls) == ([way.__name__ == "sync"], ())


def test_it_is_applied_before_policies_reducers_and_subscribers(stall: Shop) -> None:
    """Each of them sees what belongs to the effect."""
    seen: list[str] = []

    class Noting(Decides):
        """Notes what there is when the result comes."""

        def on_result(
            self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext
        ) -> None:
            seen.append(f"policy {len(context.session[Booked])}")

    session = stall.session()
    session.dispatcher.subscribe(Note, lambda _: seen.append(f"subscriber {len(session[Booked])}"))
    door = stall.door(session, policies=[Noting(lambda _tool, _params: PolicyDecision.allow())])
    ask(door)
    assert seen == ["policy 1", "subscriber 1"]


@both_ways
def test_if_it_raises_the_effect_stays_done_and_the_next_call_applies_it(
    shop: Shop, way: Run, wording: Wording
) -> None:
    """The call is rolled back, the message says what waits, and the handler does not run again."""
    shop.fails.append(ValueError("no such account"))
    session = shop.session()
    raised: list[ToolRaised] = []
    session.dispatcher.subscribe(ToolRaised, raised.append)
    door = shop.door(session, shop.tool(key=SHARED))
    message = way(door, call("charge"))
    assert (message.content, [type(each.error) for each in raised]) == (wording, [ValueError])
    assert (shop.row().status, shop.row().applied_at, len(session[Booked]), len(session[Note])) == ("done", None, 0, 0)
    (open_call,) = session.open_calls
    assert open_call.state == "unapplied"
    expires = shop.row().expires_at
    assert expires is not None
    assert expires > shop.clock.now() + timedelta(days=365)  # it is kept until it is applied

    again = way(door, call("charge", id="call-2"))
    assert (again.success, again.replayed, shop.charged) == (True, True, ["hello"])
    assert (len(session[Booked]), len(session[Note])) == (1, 1)
    assert shop.row().applied_at == shop.clock.now()
    assert shop.row().expires_at == shop.clock.now() + timedelta(days=1)
    assert way(door, call("charge", id="call-3")).replayed
    assert (len(session[Booked]), shop.booked) == (1, ["hello", "hello"])


@pytest.mark.parametrize("key", [None, SHARED])
def test_only_a_declared_key_lets_the_model_ask_again(
    stall: Shop, key: IdempotencyConfig | None, wording: Wording
) -> None:
    """Without one a call under a new id is another effect, which the message must not invite."""
    stall.fails.append(ValueError("no such account"))
    door = stall.door(stall.session(), stall.tool(key=key))
    assert ask(door).content == wording
    (settled,) = door.settle_open()
    assert (settled.message.success, stall.charged, stall.row().applied_at) == (True, ["lamp"], stall.clock.now())


def test_a_failing_reducer_undoes_what_was_applied_and_leaves_the_effect_unapplied(shop: Shop) -> None:
    """All of step 10 is one transaction."""
    session = shop.session()
    failing = [ValueError("no")]

    def fail(_: object) -> None:
        if failing:
            raise failing.pop()

    session.dispatcher.subscribe(Note, fail)
    door = shop.door(session)
    assert not ask(door).success
    assert (len(session[Booked]), shop.row().applied_at) == (0, None)
    assert ask(door).replayed
    assert (len(session[Booked]), shop.row().applied_at) == (1, shop.clock.now())


def test_an_equal_call_applies_once_what_no_call_has_applied(shop: Shop) -> None:
    """The model asks again under another id; after that, an equal call is new. In one caller, each is new."""
    session = shop.session()
    shop.fails.append(ValueError("no such account"))
    door = shop.door(session)
    messages = [ask(door, reply=f"r{number}") for number in range(3)]
    assert [(each.success, each.replayed) for each in messages] == [(False, False), (True, True), (True, False)]
    assert (shop.charged, len(session[Booked])) == (["lamp"] * 2, 2)

    def twice(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        refs = [ToolCall(ref, "charge", {"text": params.text}) for ref in ("n1", "n2")]
        assert [door.execute(ref).replayed for ref in refs] == [False, False]
        return ToolResult.ok(params)

    door = shop.door(session, shop.tool(), tool("parent", twice))
    assert ask(door, name="parent", reply="r4").success
    assert (len(shop.charged), len(session[Booked])) == (4, 4)


@pytest.mark.parametrize("removed", [False, True])
def test_two_sessions_that_apply_one_effect_at_the_same_time_apply_it_once(shop: Shop, *, removed: bool) -> None:
    """The second is rolled back and answered from the row, or fails if that was removed; its reducers have run once."""
    key = shop.tool(key=SHARED)
    first, second = shop.session("first"), shop.session("second")
    shop.fails.append(ValueError("no such account"))
    ask(shop.door(first, key))
    one, other = shop.door(first, key), shop.door(second, key)

    def meet() -> None:
        ask_alone(other)
        assert not removed or delete(shop.store, shop.row())

    shop.meets.append(meet)
    answer = ask(one)
    assert (answer.success, shop.charged, len(first[Booked]), len(second[Booked])) == (not removed, ["lamp"], 0, 1)
    if not removed:
        assert (answer.replayed, len(first[Note]), len(second[Note])) == (True, 1, 1)
        assert shop.row().applied_at is not None
        assert first[ToolInvoked].all()[-1].success


def test_a_repeat_whose_parameters_cannot_be_restored_is_refused(stall: Shop, wording: Wording) -> None:
    """The effect waits for a person; `apply` never runs with what another call asked for."""
    stall.fails.append(ValueError("no such account"))
    door = stall.door(stall.session(), stall.tool(key=SHARED))
    ask(door)
    assert replace(stall.store, stall.row(), stall.row()._replace(arguments=b'"cut"'))
    refused = ask(door)
    assert (refused.success, refused.content) == (False, wording)
    assert (stall.row().status, stall.row().applied_at, stall.booked) == ("done", None, ["lamp"])


def ask_alone(door: ToolExecutor) -> None:
    """Ask in a thread of its own, so that the call is not nested in the one that runs here."""
    thread = threading.Thread(target=ask, args=(door,))
    thread.start()
    thread.join()


def outer(shop: Shop, session: Session, asks: Callable[[ToolExecutor], object]) -> ToolExecutor:
    """An executor whose tool `parent` asks for nested calls of `charge`."""

    def parent(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        asks(door)
        return ToolResult.ok(Note("parent"))

    door = shop.door(session, shop.tool(key=SHARED), tool("parent", parent))
    return door


def test_a_nested_call_is_applied_with_its_parent_and_nowhere_else(shop: Shop) -> None:
    """If the parent is rolled back, the effect stays done and unapplied; the parent that is repeated applies it."""
    failing = [ValueError("after the nested call")]

    def asks(door: ToolExecutor) -> None:
        assert door.execute(call("charge", id="inner")).success
        assert door.execute(call("charge", id="twin")).replayed  # in the same transaction: applied once
        if failing:
            raise failing.pop()

    session = shop.session()
    door = outer(shop, session, asks)
    assert not ask(door, name="parent").success
    assert (shop.row().status, shop.row().applied_at, len(session[Booked])) == ("done", None, 0)
    assert door.settle_open() == ()
    assert ask(door, name="parent").success
    assert (len(session[Booked]), shop.booked, shop.charged) == (1, ["hello", "hello"], ["hello"])
    assert shop.row().applied_at == shop.clock.now()


def test_what_waits_to_be_applied_is_not_invalidated_unless_by_force(stall: Shop, wording: Wording) -> None:
    """The effect would happen again, and what belongs to it would be lost."""
    stall.fails.append(ValueError("no such account"))
    session = stall.session()
    ask(stall.door(session))
    ledger = session_ledger(session, clock=stall.clock)
    row = stall.row()
    with raises(LedgerError, wording):
        ledger.invalidate(row.key, partition=row.partition)
    assert (ledger.invalidate_by_tool("charge"), ledger.clear(), stall.rows()) == (0, 0, [row])
    assert ledger.invalidate(row.key, partition=row.partition, force=True)


def test_a_parent_is_undone_if_another_session_applies_the_nested_effect_first(shop: Shop, wording: Wording) -> None:
    """Its handler cannot be run again by itself; asked again, it finds the effect applied."""
    other = shop.door(shop.session("other"), shop.tool(key=SHARED))

    def asks(door: ToolExecutor) -> None:
        door.execute(call("charge", id="inner"))
        if not shop.rows()[0].applied_at:
            thread = threading.Thread(target=other.execute, args=(call("charge"),), kwargs={"reply": "r1"})
            thread.start()
            thread.join()

    session = shop.session()
    door = outer(shop, session, asks)
    message = ask(door, name="parent")
    assert (message.content, len(session[Booked]), len(other.environment.session[Booked])) == (wording, 0, 1)
    assert ask(door, name="parent").success
    assert (len(session[Booked]), shop.charged) == (0, ["hello"])


def test_an_async_function_is_awaited_through_both_entries(stall: Shop) -> None:
    """As an `async def` handler is; so is what a `def` returns that makes one."""

    async def book(params: Note, result: ToolResult[Note], *, context: ToolContext) -> None:
        await asyncio.sleep(0)
        stall.book(params, result, context=context)

    def made(params: Note, result: ToolResult[Note], *, context: ToolContext) -> Any:
        return book(params, result, context=context)

    door = stall.door(stall.session(), stall.tool(apply=book))
    assert ask(door).success
    assert ask(stall.door(door.environment.session, stall.tool(apply=made)), reply="r2").success
    assert asyncio.run(door.execute_async(call("charge", id="call-3"), reply="r3")).success
    assert len(stall.booked) == 3


def test_it_is_bounded_by_the_timeout_of_the_tool(stall: Shop, wording: Wording) -> None:
    """What it writes afterwards is refused; the effect stays done and unapplied."""
    release, refused = threading.Event(), threading.Event()

    def book(params: Note, result: ToolResult[Note], *, context: ToolContext) -> None:
        release.wait()
        try:
            context.session[Booked].append(Booked(params.text, ""))
        finally:
            refused.set()

    session = stall.session()
    door = stall.door(session, stall.tool(apply=book, timeout=timedelta(seconds=0.05)))
    assert ask(door).content == wording
    release.set()
    refused.wait()
    assert (len(session[Booked]), stall.row().status, stall.row().applied_at) == (0, "done", None)


def test_past_the_deadline_it_is_not_begun(stall: Shop) -> None:
    """The run ends; the effect is done."""
    deadline = Deadline.after(MINUTE, clock=stall.clock)

    def charge(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        stall.clock.advance(MINUTE)
        return ToolResult.ok(params)

    said = External(apply=stall.book)
    door = stall.door(stall.session(), tool("charge", charge, effect=said), deadline=deadline)
    with pytest.raises(PromptEvaluationError):
        ask(door)
    assert (stall.row().status, stall.row().applied_at, stall.booked) == ("done", None, [])


def test_an_executor_refuses_a_tool_whose_effects_and_session_are_in_two_places(wording: Wording) -> None:
    """It names the tool and both; the session may be in no store at all."""
    clock = FakeClock()
    stall = Shop(MemoryStore(clock=clock), clock, ExitStack())
    with pytest.raises(SecondStoreError) as caught:
        executor(stall.tool(), session=Session(session_id="s"))
    assert (str(caught.value), caught.value.tool, caught.value.store) == (wording, "charge", None)
    with pytest.raises(SecondStoreError) as caught:
        stall.door(stall.session(), effect_ledger=EffectLedger(clock=clock))
    assert caught.value.store is stall.store
    with pytest.raises(SecondStoreError):
        run_tool(stall.tool(), Note("x"))
    stall.opened.close()


@pytest.mark.parametrize(
    "name, made",
    [
        ("apply takes too little", lambda: tool("charge", effect=External(apply=lambda params: None))),  # type: ignore[arg-type]
        ("apply returns", lambda: tool("charge", effect=External(apply=_returning))),  # type: ignore[arg-type]
        ("apply is text", lambda: tool("charge", effect=External(apply="book"))),  # type: ignore[arg-type]
        (
            "apply without an effect in the ledger",
            lambda: tool("charge", effect=External(apply=_fitting), idempotency=IdempotencyConfig(strategy="none")),
        ),
        ("apply of a concurrent tool", lambda: tool("charge", effect=External(apply=_fitting), concurrent=True)),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(
    name: str, made: Callable[[], Tool[Any, Any]], wording: Wording
) -> None:
    """When the tool is made."""
    with raises(PromptValidationError, wording):
        made()


def test_a_late_result_that_is_accepted_is_applied_by_the_next_call(shop: Shop) -> None:
    """The call itself has been answered; the handler was left behind."""
    release, threads = threading.Event(), HandlerThreads()

    def charge(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        release.wait()
        return ToolResult.ok(params)

    said = External(apply=shop.book, accept_late_result=True)
    session = shop.session()
    declared = IdempotencyConfig(scope="shop", ttl=MINUTE)
    door = shop.door(
        session, tool("charge", charge, effect=said, idempotency=declared, timeout=timedelta(seconds=0.05))
    )
    assert not ask(door).success
    release.set()
    threads.join()
    shop.clock.advance(timedelta(days=400))
    assert (shop.row().status, shop.row().applied_at, shop.row().is_kept_until_applied) == ("done", None, True)
    assert ask(door).replayed
    assert (len(session[Booked]), shop.row().applied_at) == (1, shop.clock.now())
    assert shop.row().expires_at == shop.clock.now() + MINUTE


def _fitting(params: Note, result: ToolResult[Note], *, context: ToolContext) -> None: ...


def _returning(params: Note, result: ToolResult[Note], *, context: ToolContext) -> int:
    return 0


def test_a_result_that_the_reconciler_finds_does_not_expire_before_it_is_applied(shop: Shop) -> None:
    """The call that asks may fail; the effect must not happen again for that."""
    session = shop.session()
    door = shop.door(session, shop.tool(key=IdempotencyConfig(scope="shop", ttl=MINUTE)))
    assert not ask(door, "lost").success
    shop.known.append("lost")
    shop.fails.append(OSError("full"))
    assert not ask(door, "lost", reply="r2").success
    shop.clock.advance(timedelta(days=400))
    assert ask(door, "lost", reply="r3").replayed
    assert (shop.charged, len(session[Booked]), shop.row().expires_at) == (["lost"], 1, shop.clock.now() + MINUTE)
