"""A plan is applied: everything is as it was, each undo is a call of its own, and none is made twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handrail import undo
from handrail.errors import (
    CallPostponed,
    EffectNotApplied,
    RunAbortedError,
    SessionUseError,
    ToolValidationError,
    UndoRefusedError,
)
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    PolicyDecision,
    SequentialDependencyPolicy,
    ToolContext,
    ToolResult,
    Undo,
    tool,
)
from handrail.runtime import Deadline, ToolCall, ToolInvoked
from handrail.runtime.ledger.effects import EffectResult
from handrail.store import Store
from handrail.undo import UndoneCalls
from tests.kit import raises
from tests.undo.desk import KEYED, Book, Desk, Heard, Note, Order, Receipt, Seen, Total
from tests.wording import Wording


def test_everything_is_as_it_was_before(store: Store) -> None:
    """State, files and payments; what declares that it stays, and what a LOG has, stays."""
    desk = Desk(store)
    before = desk.state
    desk.ask("note", text="one")
    desk.ask("pay", order="A-1")
    desk.ask("count", by=2)
    desk.ask("write", path="kept.txt", text="changed")
    desk.ask("write", path="new.txt", text="new")
    desk.ask("pay", order="A-2")
    desk.ask("count", by=3)
    assert desk.outcomes() == [
        "c7: restored",
        "c6: compensated",
        "c5: restored",
        "c4: restored",
        "c3: restored",
        "c2: compensated",
        "c1: restored",
    ]
    report = asyncio.run(undo.apply(desk.plan()))
    assert report.complete
    assert desk.state == before
    assert desk.book.order == ["payment-2 after 1", "payment-1 after 0"]
    assert desk.session[Seen].all() == (Seen("counted"), Seen("counted"))
    assert desk.session[Heard].all() == (Heard("counted"), Heard("counted"))
    desk.resume()
    assert desk.state == before
    assert desk.plan().steps == ()


def test_an_undo_is_a_call_of_the_same_reply(store: Store) -> None:
    """It has a slot and a record, and is answered from it."""
    desk = Desk(store)
    desk.ask("pay", order="A-1")
    asyncio.run(undo.apply(desk.plan()))
    _, event = desk.session[ToolInvoked].all()
    assert (event.name, event.reply, event.call_id, event.effect_key) == ("undo_pay", "r", "undo:c1", "call:r/undo:c1")
    assert desk.book.refunded == {"call:r/undo:c1": "payment-1"}


def test_calls_without_a_reply_are_undone(store: Store) -> None:
    """Their ids are unique in a stored session."""
    desk = Desk(store)
    desk.ask("pay", order="A-1", reply=None)
    desk.ask("note", text="one", reply=None)
    plan = desk.plan()
    assert asyncio.run(undo.apply(plan)).complete
    assert asyncio.run(undo.apply(plan)).complete
    assert desk.book.paid == []


def test_the_same_plan_applied_again_undoes_nothing_twice(store: Store) -> None:
    """The messages come from the records."""
    desk = Desk(store)
    desk.ask("pay", order="A-1")
    plan = desk.plan()
    first = asyncio.run(undo.apply(plan))
    again = asyncio.run(undo.apply(plan))
    assert [message.replayed for _, message in (*first.undone, *again.undone)] == [False, True]
    assert len(desk.book.refunded) == 1


def test_a_failed_undo_stops_the_rest_and_continues_when_asked_again(store: Store) -> None:
    """What was undone before is not undone again, and what is older was not tried."""
    desk = Desk(store)
    desk.ask("note", text="one")
    desk.ask("pay", order="A-1")
    desk.ask("note", text="two")
    plan = desk.plan()
    desk.book.fails = EffectNotApplied("the bank is closed")
    report = asyncio.run(undo.apply(plan))
    assert [step.ref.call_id for step, _ in report.undone] == ["c3"]
    assert report.failed is not None
    assert report.failed[0].ref.call_id == "c2"
    assert not report.complete
    assert desk.session[Note].all() == (Note("one"),)
    assert desk.outcomes() == ["c2: compensated", "c1: restored"]
    desk.book.fails = None
    report = asyncio.run(undo.apply(plan))
    assert report.complete
    assert [step.ref.call_id for step, _ in report.undone] == ["c3", "c2", "c1"]
    assert desk.book.paid == []


@pytest.mark.parametrize("error", [ToolValidationError("no"), EffectNotApplied("no"), ToolResult[None].error("no")])
def test_an_undo_that_has_certainly_failed_may_be_tried_again(error: Any, memory: Store) -> None:
    """A failed result is final for a call of the model; for an undo it is not."""
    answers: list[Any] = [error, None]

    def refund(params: Order, result: ToolResult[Receipt], before: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    desk = Desk(memory, Book().pays(undo=refund))
    desk.ask("pay", order="A-1")
    plan = desk.plan()
    assert asyncio.run(undo.apply(plan)).failed is not None
    assert asyncio.run(undo.apply(plan)).complete


def test_an_undo_whose_outcome_is_unknown_is_not_repeated(store: Store) -> None:
    """A person settles it, as any effect; then the rest is undone."""
    desk = Desk(store)
    desk.ask("note", text="one")
    desk.ask("pay", order="A-1")
    desk.book.fails_after = TimeoutError("the line is dead")
    report = asyncio.run(undo.apply(desk.plan()))
    assert report.failed is not None
    desk.book.fails_after = None
    desk.resume()
    assert desk.outcomes() == ["c2: unknown", "c1: restored"]
    with pytest.raises(UndoRefusedError):
        asyncio.run(undo.apply(desk.plan()))
    ledger = desk.executor.environment.find_ledger()
    row = ledger.row("call:r/undo:c2", partition="desk")
    assert row is not None
    ledger.resolve(row, EffectResult("a person has seen the refund", b"null", exclude_value_from_context=False))
    assert asyncio.run(undo.apply(desk.plan())).complete
    assert desk.book.order == ["payment-1 after 0"]
    assert desk.session[Receipt].all() == ()


def test_an_undo_that_can_be_asked_about_settles_itself(store: Store) -> None:
    """Its reconciler is asked, and the refund that has happened is not made again; slices are restored with it."""
    book = Book()
    desk = Desk(store, book.asks(), book=book)
    desk.ask("pay", order="A-1")
    book.fails_after = TimeoutError("the line is dead")
    report = asyncio.run(undo.apply(desk.plan()))
    book.fails_after = None
    assert report.complete
    assert book.order == ["payment-1 after 0"]
    assert desk.session[Receipt].all() == ()


def test_a_plan_is_refused_unless_every_call_is_undone(memory: Store, wording: Wording) -> None:
    """Applied in part, it says what stays."""
    desk = Desk(memory)
    desk.ask("pay", order="A-1")
    desk.ask("mail", to="somebody")
    plan = desk.plan()
    with raises(UndoRefusedError, wording) as refused:
        asyncio.run(undo.apply(plan))
    assert refused.value.plan is plan
    assert desk.book.paid == ["payment-1"]
    report = asyncio.run(undo.apply(plan, partial=True))
    assert not report.complete
    assert desk.book.paid == []


def _more(desk: Desk) -> None:
    desk.ask("note", text="two")


def _file(desk: Desk) -> None:
    desk.files.write_text("kept.txt", "by hand")


def _slice(desk: Desk) -> None:
    desk.session[Note].seed(Note("one"), Note("by hand"))


@pytest.mark.parametrize("change", [_more, _file, _slice])
def test_a_plan_is_refused_when_something_has_changed_since(change: Callable[[Desk], None], memory: Store) -> None:
    """Another call, a file, or a slice."""
    desk = Desk(memory)
    desk.ask("note", text="one")
    desk.ask("write", path="kept.txt", text="changed")
    plan = desk.plan()
    change(desk)
    with pytest.raises(UndoRefusedError):
        asyncio.run(undo.apply(plan))
    assert Note("one") in desk.session[Note].all()


class Ask:
    """A policy that asks about each payment, or denies it."""

    name = "asking"

    def __init__(self, verdict: str = "ask") -> None:
        self.verdict = verdict

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        if not isinstance(params, Order) or not tool.name.startswith("undo_"):
            return PolicyDecision.allow()
        return PolicyDecision.ask("a refund?") if self.verdict == "ask" else PolicyDecision.deny("no refunds")

    def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None: ...


def test_one_approval_covers_the_plan(memory: Store) -> None:
    """It is bound to its digest, and lists the calls."""
    requests: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> bool:
        requests.append(request)
        return True

    desk = Desk(memory, policies=(Ask(),))
    desk.ask("pay", order="A-1")
    desk.ask("pay", order="A-2")
    plan = desk.plan()
    assert asyncio.run(undo.apply(plan, approver=approver)).complete
    (request,) = requests
    assert isinstance(request.params, UndoneCalls)
    assert request.params == UndoneCalls(plan.digest, ("compensated: pay (r/c2)", "compensated: pay (r/c1)"))


@pytest.mark.parametrize("answer", [False, Approval(False, "too late")])
def test_a_plan_that_is_not_approved_undoes_nothing(answer: Any, memory: Store) -> None:
    """Nor does one that no approver can be asked about, or whose question is left open."""
    desk = Desk(memory, policies=(Ask(),))
    desk.ask("note", text="one")
    desk.ask("pay", order="A-1")
    with pytest.raises(UndoRefusedError):
        asyncio.run(undo.apply(desk.plan(), approver=lambda _: answer))
    with pytest.raises(UndoRefusedError):
        asyncio.run(undo.apply(desk.plan()))
    with pytest.raises(UndoRefusedError):
        asyncio.run(undo.apply(desk.plan(), approver=lambda _: Approval.later("tomorrow")))
    assert desk.book.paid == ["payment-1"]
    assert desk.session[Note].all() == (Note("one"),)


def test_a_policy_that_denies_one_call_keeps_all(memory: Store, wording: Wording) -> None:
    """Policies are asked about every call before the first is undone."""
    desk = Desk(memory, policies=(Ask("deny"),))
    desk.ask("pay", order="A-1")
    desk.ask("note", text="one")
    with raises(UndoRefusedError, wording):
        asyncio.run(undo.apply(desk.plan()))
    assert desk.session[Note].all() == (Note("one"),)


@pytest.mark.parametrize("partial", [False, True])
def test_an_undo_that_was_denied_is_judged_anew(partial: bool, memory: Store) -> None:
    """As when an office closes meanwhile: the same plan continues once it is open again."""
    denials = iter(["", "closed", "closed"])  # before the plan is applied, in it, and before it is applied again

    class OfficeHours:
        name = "office_hours"

        def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
            why = next(denials, "") if context.call_id.startswith("undo:") else ""
            return PolicyDecision.deny(why) if why else PolicyDecision.allow()

        def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None: ...

    desk = Desk(memory, policies=[OfficeHours()])
    desk.ask("pay", order="A-1")
    plan = desk.plan()
    report = asyncio.run(undo.apply(plan, partial=partial))
    assert report.failed is not None
    with pytest.raises(UndoRefusedError):
        asyncio.run(undo.apply(plan, partial=partial))
    assert asyncio.run(undo.apply(plan, partial=partial)).complete
    assert desk.book.paid == []


def test_a_declared_key_is_free_again(store: Store) -> None:
    """The same request pays anew, and is not answered with the payment that was refunded."""
    book = Book()
    desk = Desk(store, book.pays(idempotency=KEYED), book=book)
    desk.ask("pay", order="A-1")
    assert desk.ask("pay", order="A-1").replayed
    plan = desk.plan()
    assert [(step.ref.call_id, step.outcome) for step in plan.steps] == [("c1", "compensated")]
    assert asyncio.run(undo.apply(plan)).complete
    assert not desk.ask("pay", order="A-1").replayed
    assert book.paid == ["payment-2"]
    assert desk.ask("pay", order="A-1").replayed, "the key of the new payment is not freed by the old plan"


def test_keys_are_freed_by_the_next_undo_if_one_dies_before_it_ends(store: Store) -> None:
    """The refund would be answered with the payment before it."""
    book = Book()

    def cancel(_params: object, _result: object, _before: object) -> None:
        book.abort()

    @tool(effect="external", undo=cancel)
    def reserve(room: str) -> str:
        """Reserve a room."""
        return room

    desk = Desk(store, book.pays(idempotency=KEYED), reserve, book=book)
    desk.ask("reserve", room="4")
    desk.ask("pay", order="A-1")
    with pytest.raises(RunAbortedError):
        asyncio.run(undo.apply(desk.plan()))
    assert book.paid == []
    desk.resume()
    report = asyncio.run(undo.apply(desk.plan(), partial=True))
    assert "pay" in report.message
    assert not desk.ask("pay", order="A-1").replayed


def test_a_session_without_conversation_gives_the_message_again(store: Store) -> None:
    """As to a program that died before it could pass it on."""
    desk = Desk(store)
    desk.ask("note", text="one")
    plan = desk.plan()
    messages = [asyncio.run(undo.apply(plan)).message for _ in range(2)]
    assert messages[0] == messages[1] != ""


def test_the_conversation_says_what_was_undone_once(store: Store) -> None:
    """The model would rely on a world that is gone."""
    desk = Desk(store)
    desk.session.conversation.append({"role": "user", "content": "pay A-1"})
    desk.session.conversation.append({"role": "assistant", "content": "done"}, ended=True)
    desk.ask("pay", order="A-1")
    report = asyncio.run(undo.apply(desk.plan()))
    asyncio.run(undo.apply(report.plan))
    assert report.in_conversation
    assert [message["content"] for message in desk.session.conversation.messages][2:] == [report.message]


def test_a_reply_that_waits_for_answers_takes_no_message(store: Store) -> None:
    """The next `apply` appends it, when the reply has been answered."""
    desk = Desk(store)
    request = ToolCall("c9", "note", {"text": "later"})
    desk.ask("pay", order="A-1")
    desk.session.conversation.append({"role": "assistant", "content": ""}, calls=[request], reply="r9")
    report = asyncio.run(undo.apply(desk.plan()))
    assert report.complete
    assert not report.in_conversation
    desk.executor.answer()
    desk.session.conversation.append({"role": "tool", "content": "noted"})
    again = asyncio.run(undo.apply(desk.plan(("r9", "c9"))))
    assert "pay" in again.message
    assert desk.session.conversation.messages[-1] == {"role": "user", "content": again.message}


def test_an_undo_is_not_undone(store: Store) -> None:
    """What it has taken back is done anew."""
    desk = Desk(store)
    desk.ask("write", path="kept.txt", text="changed")
    desk.ask("pay", order="A-1")
    asyncio.run(undo.apply(desk.plan()))
    assert desk.plan().steps == ()
    with pytest.raises(SessionUseError):
        desk.plan(("r", "undo:c1"))
    assert desk.plan(("r", "c1")).steps == ()
    desk.ask("write", path="kept.txt", text="changed anew")
    assert desk.outcomes() == ["c3: restored"]


def test_a_deadline_of_the_run_does_not_hold_for_its_undo(memory: Store) -> None:
    """A run that was stopped by it is undone all the same."""
    desk = Desk(memory)
    desk.ask("pay", order="A-1")
    desk.options["deadline"] = Deadline(datetime.now(UTC) - timedelta(seconds=1))
    desk.executor = desk.open_executor()
    assert asyncio.run(undo.apply(desk.plan())).complete


@pytest.mark.anyio
async def test_async_functions_undo_and_capture(memory: Store) -> None:
    """They are awaited on the loop, and get the context of the undo."""
    keys: list[str | None] = []

    async def refund(
        params: Order, result: ToolResult[Receipt], before: dict[str, int], *, context: ToolContext
    ) -> str:
        keys.append(context.idempotency_key)
        return f"refunded after {before['paid']}"

    async def look(params: Order, *, context: ToolContext) -> dict[str, int]:
        return {"paid": 0}

    desk = Desk(memory, Book().pays(undo=Undo(refund), capture=look))
    await desk.executor.execute_async(ToolCall("c1", "pay", {"order": "A-1"}), reply="r")
    report = await undo.apply(undo.plan(desk.session, executors=desk.executor))
    assert report.complete
    assert keys == ["call:r/undo:c1"]


@pytest.mark.anyio
async def test_an_aborted_run_is_undone_if_it_says_so(memory: Store, wording: Wording) -> None:
    """What came before it stays; so does what cannot be undone, and the error says it."""
    desk = Desk(memory)
    await desk.executor.execute_async(ToolCall("c1", "note", {"text": "before"}), reply="r")
    calls = (("pay", {"order": "A-1"}), ("mail", {"to": "x"}), ("note", {"text": "one"}))

    async def run() -> None:
        async with undo.on_abort(desk.executor):
            for number, (name, arguments) in enumerate(calls, start=2):
                await desk.executor.execute_async(ToolCall(f"c{number}", name, arguments), reply="r")
            raise KeyError("the program")

    with pytest.raises(KeyError) as raised:
        await run()
    assert desk.book.paid == []
    assert desk.session[Note].all() == (Note("before"),)
    assert "\n".join(raised.value.__notes__) == wording


@pytest.mark.anyio
async def test_a_cancelled_run_is_undone(memory: Store) -> None:
    """The undo runs in a task that is not being cancelled."""
    desk = Desk(memory)
    paid = asyncio.Event()

    async def run() -> None:
        async with undo.on_abort(desk.executor):
            await desk.executor.execute_async(ToolCall("c1", "pay", {"order": "A-1"}), reply="r")
            paid.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(run())
    await paid.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert desk.book.paid == []


@pytest.mark.anyio
async def test_a_failed_call_and_a_run_that_waits_undo_nothing(memory: Store) -> None:
    """The model reads the error, and tries another way; a person answers, and the run continues."""
    desk = Desk(memory)
    async with undo.on_abort(desk.executor):
        await desk.executor.execute_async(ToolCall("c1", "pay", {"order": "A-1"}), reply="r")
        failed = await desk.executor.execute_async(ToolCall("c2", "note", {}), reply="r")
    with pytest.raises(CallPostponed):
        async with undo.on_abort(desk.executor):
            raise CallPostponed("a person is asked")
    assert not failed.success
    assert desk.book.paid == ["payment-1"]


def test_what_a_policy_of_dependencies_knows_is_undone(memory: Store) -> None:
    """A tool that needs another waits for it again when that was undone."""
    policy = SequentialDependencyPolicy(dependencies={"note": frozenset({"pay"})})
    desk = Desk(memory, policies=(policy,))
    desk.ask("pay", order="A-1")
    assert desk.ask("note", text="one").success
    assert asyncio.run(undo.apply(desk.plan())).complete
    assert not desk.ask("note", text="two").success


def test_total_is_restored_exactly(store: Store) -> None:
    """A slice whose one value was replaced has the value before."""
    desk = Desk(store)
    desk.ask("count", by=1)
    desk.ask("count", by=2)
    desk.ask("count", by=3)
    report = asyncio.run(undo.apply(desk.plan(("r", "c2"))))
    assert report.complete
    assert desk.session[Total].all() == (Total(1),)
