"""What becomes of a call in a plan, and whose effects are compensated."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import SecretStr
from pydantic_core import from_json, to_json

from handrail import undo
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import ShellToolsSection
from handrail.errors import EffectNotApplied, InvalidArgumentError, SessionUseError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate, Tool, ToolContext, ToolResult, tool
from handrail.resources import Resource
from handrail.runtime import Session, ToolCall
from handrail.store import Store
from handrail.undo import UndoStep
from tests.kit import raises, refusal
from tests.undo.desk import KEYED, Book, Desk, Note, Order, Receipt, Total, desk_in_doubt, note
from tests.wording import Wording


def _why(step: UndoStep) -> str:
    return f"{step.outcome}: {step.why}"


def _back(params: Any, result: Any, before: Any) -> None: ...


def _note(params: Order, *, context: ToolContext) -> ToolResult[Note]:
    return ToolResult.ok(Note(params.order))


def test_each_outcome_says_why(memory: Store, wording: Wording) -> None:
    """The newest call is the first line."""
    book = Book()
    silent = book.pays(undo=None, capture=None)
    desk = Desk(memory, replace(silent, name="send"), book=book)
    desk.ask("write", path="kept.txt", text="changed")
    desk.ask("write", path="mine.txt", text="mine")
    desk.ask("count", by=1)
    desk.ask("send", order="A-1")
    desk.ask("mail", to="mine.txt")
    desk.files.write_text("kept.txt", "by hand")
    desk.session[Total].seed(Total(9))
    steps = desk.plan().steps
    assert [step.outcome for step in steps] == ["impossible", "impossible", "conflict", "blocked", "conflict"]
    assert "\n".join(map(_why, steps)) == wording
    assert [change.name for change in steps[-1].changes] == ["kept.txt"]


def test_what_changes_nothing_needs_no_step(memory: Store) -> None:
    """Reads, failed calls, and calls that leave all as it was."""
    desk = Desk(memory)
    desk.ask("look", path="kept.txt")
    desk.ask("note")
    desk.ask("write", path="kept.txt", text="as it was")
    assert desk.plan().steps == ()


def test_a_call_that_stays_blocks_what_it_has_changed_since(memory: Store) -> None:
    """What only appends does not depend on what has appended before."""
    desk = Desk(memory)
    desk.ask("write", path="new.txt", text="1")
    desk.ask("write", path="new.txt", text="2")
    desk.ask("count", by=1)
    desk.ask("note", text="one")
    desk.ask("note", text="two")
    desk.files.write_text("new.txt", "by hand")
    assert desk.outcomes() == ["c5: restored", "c4: restored", "c3: restored", "c2: conflict", "c1: blocked"]


def test_an_append_is_undone_although_a_later_one_stays(memory: Store) -> None:
    """Of two notes the first is undone, and the one written by hand stays."""
    desk = Desk(memory)
    desk.ask("note", text="one")
    desk.session[Note].append(Note("by hand"))
    assert asyncio.run(undo.apply(desk.plan())).complete
    assert desk.session[Note].all() == (Note("by hand"),)


def test_a_payment_is_blocked_by_a_call_that_stays_and_names_it(memory: Store) -> None:
    """What both were asked for with says nothing, but what the first has returned does."""
    desk = Desk(memory)
    desk.ask("pay", order="order-1")
    desk.ask("mail", to="order-1")
    assert desk.outcomes() == ["c2: impossible", "c1: compensated"]
    desk.ask("mail", to="payment-1")
    assert desk.outcomes() == ["c3: impossible", "c2: impossible", "c1: blocked"]


@pytest.mark.parametrize("used", ["see payment-1, please", {"payment-1": 1}, ["https://bank/payment-1/paid"]])
def test_a_payment_is_blocked_by_a_call_whose_arguments_have_its_name(used: Any, memory: Store) -> None:
    """In a text, as a key, in an address; not by a longer name that has it."""

    @tool(effect="external")
    def send(what: Any) -> str:
        """Send something, which nothing undoes."""
        return "sent"

    desk = Desk(memory, send)
    desk.ask("pay", order="A-1")
    desk.ask("send", what=from_json(to_json(used).replace(b"payment-1", b"payment-17")))
    assert desk.outcomes() == ["c2: impossible", "c1: compensated"]
    desk.ask("send", what=used)
    assert desk.outcomes() == ["c3: impossible", "c2: impossible", "c1: blocked"]


@pytest.mark.parametrize("number, outcome", [(900123, "blocked"), (900, "compensated")])
def test_a_number_of_four_digits_is_a_name(number: int, outcome: str, memory: Store) -> None:
    """A shorter one occurs by chance."""

    @tool(effect="external", undo=_back)
    def book(what: str) -> int:
        """Book."""
        return number

    @tool(effect="external")
    def order_taxi(booking: int) -> str:
        """Order a taxi, which nothing undoes."""
        return "ordered"

    desk = Desk(memory, book, order_taxi)
    desk.ask("book", what="room")
    desk.ask("order_taxi", booking=number)
    assert desk.outcomes() == ["c2: impossible", f"c1: {outcome}"]


def test_a_replay_is_not_compensated(store: Store) -> None:
    """Two calls with one key are one payment, which is refunded once, for the first."""
    book = Book()
    desk = Desk(store, book.pays(idempotency=KEYED), book=book)
    desk.ask("pay", order="A-1")
    desk.ask("pay", order="A-1")
    desk.resume()
    desk.ask("pay", order="A-1")
    assert desk.outcomes() == ["c1: compensated"]
    assert desk.outcomes(("r", "c2")) == []


def test_an_effect_of_another_session_is_not_compensated(store: Store) -> None:
    """It belongs to the call that has made it; what this session changed is restored."""
    book = Book()
    key = replace(KEYED, scope="global")
    first = Desk(store, book.pays(idempotency=key), book=book, session_id="first")
    first.ask("pay", order="A-1")
    second = Desk(store, book.pays(idempotency=key), book=book, session_id="second")
    assert second.ask("pay", order="A-1").replayed
    assert second.outcomes() == ["c1: restored"]
    assert asyncio.run(undo.apply(second.plan())).complete
    assert book.paid == ["payment-1"]
    assert second.ask("pay", order="A-1").replayed, "its key is that of the other session"
    assert first.outcomes() == ["c1: compensated"]


def test_an_effect_that_is_unknown_is_settled_first(store: Store, wording: Wording) -> None:
    """Its reconciler is asked by `settle_open`; then it is compensated with what the other side has said."""
    book = Book()
    desk = desk_in_doubt(store, book)
    (step,) = desk.plan().steps
    assert _why(step) == wording
    desk.executor.settle_open()
    assert desk.outcomes() == ["settled: restored", "c1: compensated"]
    assert asyncio.run(undo.apply(desk.plan())).complete
    assert book.paid == []
    assert desk.plan().steps == ()


def test_an_effect_that_a_repeat_was_answered_with_is_compensated_once(store: Store) -> None:
    """A call whose answer was lost, and the one that the model made in its place, are one payment."""
    book = Book()
    desk = desk_in_doubt(store, book)
    assert desk.ask("pay", order="A-1").success
    assert book.calls == 1
    steps = [step for step in desk.plan().steps if step.outcome == "compensated"]
    assert len(steps) == 1
    assert asyncio.run(undo.apply(desk.plan())).complete
    assert book.paid == []
    assert len(book.refunded) == 1


def test_an_effect_that_is_done_and_not_applied_is_settled_first(store: Store) -> None:
    """The payment is made, and a subscriber fails the call; what is then applied is undone with the payment."""
    desk = Desk(store)
    failing = [ValueError("not now")]

    def fail(_event: object) -> None:
        if failing:
            raise failing.pop()

    with desk.session.dispatcher.subscribe(Receipt, fail):
        assert not desk.ask("pay", order="A-1").success
    assert desk.outcomes() == ["c1: unknown"]
    desk.executor.settle_open()
    assert asyncio.run(undo.apply(desk.plan())).complete
    assert desk.book.paid == []
    assert desk.session[Receipt].all() == ()


def test_an_effect_that_has_certainly_not_happened_needs_no_step(memory: Store) -> None:
    """Its handler has said so."""
    desk = Desk(memory, Book().pays(handler=_refuse))
    desk.ask("pay", order="A-1")
    assert desk.plan().steps == ()


def _refuse(params: Order, *, context: ToolContext) -> ToolResult[Receipt]:
    raise EffectNotApplied("no money")


def test_nested_effects_are_steps_of_their_own(store: Store) -> None:
    """What the outer call changed belongs to it; the payment inside it is refunded by itself."""
    book = Book()

    @tool
    def order(item: str, *, context: ToolContext) -> Note:
        """Pay an order, and note it."""
        inner = ToolExecutor([book.pays()], session=context.session)
        inner.execute(ToolCall("inner", "pay", {"order": item}))
        return Note(item)

    desk = Desk(store, order, book=book)
    desk.ask("order", item="A-1")
    assert desk.outcomes() == ["c1: restored", "inner: compensated"]
    assert desk.outcomes(("r", "c1")) == ["c1: restored", "inner: compensated"]
    assert asyncio.run(undo.apply(desk.plan())).complete
    assert book.paid == []
    assert desk.session[Note].all() == ()
    assert desk.plan().steps == ()


def test_the_calls_of_an_agent_are_undone_in_its_own_session(store: Store) -> None:
    """The call that ran it is named, with the session; it is undone when nothing of that session is left."""

    @tool
    def delegate(text: str, *, context: ToolContext) -> str:
        """Have another agent note something."""
        with context.session.child(session_id=f"{context.session.session_id}/{context.call.key}") as child:
            ToolExecutor([note], session=child).execute(ToolCall("n1", "note", {"text": text}), reply="r")
        return text

    desk = Desk(store, replace(delegate, concurrent=True))
    desk.ask("delegate", text="one")
    (step,) = desk.plan().steps
    assert step.outcome == "impossible"
    assert "handrail undo desk/r/c1" in step.why
    with Session.open(store, "desk/r/c1") as child:
        executor = ToolExecutor([note], session=child)
        assert asyncio.run(undo.apply(undo.plan(child, executors=executor))).complete
    assert desk.plan().steps == ()


def test_a_fork_does_not_undo_what_its_original_did(store: Store) -> None:
    """Its state is a copy, and the payment is that of the original."""
    desk = Desk(store)
    desk.ask("pay", order="A-1")
    desk.ask("note", text="one")
    fork = desk.session.fork(session_id="fork")
    executor = ToolExecutor([desk.book.pays(), note], session=fork)
    executor.execute(ToolCall("c9", "note", {"text": "mine"}), reply="f")
    plan = undo.plan(fork, executors=executor)
    assert [step.ref.call_id for step in plan.steps] == ["c9"]
    assert asyncio.run(undo.apply(plan)).complete
    assert fork[Note].all() == (Note("one"),)
    fork.close()
    assert desk.outcomes() == ["c2: restored", "c1: compensated"]


def test_effect_of_an_origin_is_undone_there_alone(store: Store) -> None:
    """A call of the fork was answered with it, by its key or by its slot; then what was undone is done anew there."""
    book = Book()
    desk = Desk(store, book.pays(), replace(book.pays(idempotency=KEYED), name="order"), book=book)
    desk.ask("note", text="one")
    fork = desk.session.fork(session_id="fork")
    desk.ask("pay", order="A-1")
    desk.ask("order", order="A-2")
    executor = ToolExecutor([book.pays(), replace(book.pays(idempotency=KEYED), name="order")], session=fork)
    calls = [ToolCall("c2", "pay", {"order": "A-1"}), ToolCall("c9", "order", {"order": "A-2"})]
    answers = [executor.execute(call, reply="r") for call in calls]
    assert [answer.replayed for answer in answers] == [True, True]
    assert [step.outcome for step in undo.plan(fork, executors=executor).steps] == ["restored", "restored"]
    for plan in (undo.plan(fork, executors=executor), desk.plan()):
        assert len(book.paid) == 2
        assert asyncio.run(undo.apply(plan)).complete
    assert (book.calls, book.paid) == (2, [])
    again = [ToolCall("c3", "order", {"order": "A-2"}), ToolCall("c4", "order", {"order": "A-2"})]
    assert [executor.execute(call, reply="f").replayed for call in again] == [False, True]
    fork.close()
    with desk.session.fork(session_id="other", at=("r", "c1")) as other:
        executor = ToolExecutor([book.pays()], session=other)
        assert not executor.execute(calls[0], reply="r").replayed
    assert len(book.paid) == 2


def test_a_participant_that_keeps_nothing_makes_a_call_impossible(memory: Store, wording: Wording) -> None:
    """Unless its tool says how it is undone."""

    class Counter:
        """A resource of the program that can be rolled back."""

        value = 0

        def snapshot(self) -> int:
            return self.value

        def restore(self, snapshot: int, /) -> None:
            self.value = snapshot

    def count(by: int, *, counter: Annotated[Counter, Resource]) -> str:
        """Count."""
        counter.value += by
        return "counted"

    counter = Counter()

    def back(params: Any, result: Any, before: Any) -> None:
        counter.value -= params.by

    for name, made in (("one", tool(count)), ("two", tool(undo=back)(count))):
        session = Session.open(memory, name)
        executor = ToolExecutor([made], session=session, resources={Counter: counter})
        executor.execute(ToolCall("c1", "count", {"by": 2}), reply="r")
        (step,) = undo.plan(session, executors=executor).steps
        assert _why(step) == wording
        if name == "two":
            assert asyncio.run(undo.apply(undo.plan(session, executors=executor))).complete
            assert counter.value == 2
        session.close()


def test_statements_of_a_call_need_an_undo_of_its_tool(store: Store) -> None:
    """The database of the program is not kept."""
    if store.url.startswith("memory:"):
        return

    @tool
    def insert(text: str, *, context: ToolContext) -> str:
        """Insert a row."""
        context.connection.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
        return text

    desk = Desk(store, insert)
    desk.ask("insert", text="one")
    (step,) = desk.plan().steps
    assert step.outcome == "impossible"
    assert "CallConnection" in step.why


def test_files_of_another_process_in_memory_are_not_kept(memory: Store) -> None:
    """Their ids are those of the process."""
    desk = Desk(memory)
    desk.ask("write", path="new.txt", text="1")
    other = Desk(memory, files=InMemoryFilesystem({"new.txt": "1"}), session_id="other")
    desk.session.close()
    session = Session.open(memory, "desk")
    executor = ToolExecutor(other.tools, session=session, resources={Filesystem: other.files})
    (step,) = undo.plan(session, executors=executor).steps
    assert step.outcome == "impossible"


def test_a_call_with_secrets_cannot_be_undone_by_what_is_stored(memory: Store) -> None:
    """The mask would be used as the secret."""

    @tool(effect="external", undo=_back)
    def login(password: SecretStr) -> str:
        """Log in."""
        return "in"

    desk = Desk(memory, login)
    desk.ask("login", password="x")  # noqa: S106 - of the test
    assert desk.outcomes() == ["c1: impossible"]


def test_a_tool_that_no_executor_has_is_named(memory: Store) -> None:
    """As when a session of another program is undone."""
    desk = Desk(memory)
    desk.ask("pay", order="A-1")
    executor = ToolExecutor([note], session=desk.session)
    (step,) = undo.plan(desk.session, executors=[executor]).steps
    assert "pay" in step.why
    assert step.outcome == "impossible"


def test_a_key_of_state_is_free_again(store: Store) -> None:
    """A state tool with a key is restored, and runs anew."""
    made = Tool[Order, Note](
        name="keyed", description="d", handler=_note,
        idempotency=KEYED, effect="state",
    )  # fmt: skip
    desk = Desk(store, made)
    desk.ask("keyed", order="A-1")
    assert asyncio.run(undo.apply(desk.plan())).complete
    assert desk.session[Note].all() == ()
    assert not desk.ask("keyed", order="A-1").replayed
    assert desk.session[Note].all() == (Note("A-1"),)


def test_a_plan_needs_a_stored_session_with_the_call(memory: Store, wording: Wording) -> None:
    """In memory nothing is kept; a call that does not exist, and an executor of another session, are refused."""
    desk = Desk(memory)
    own, other = Session(session_id="ours"), Desk(memory, session_id="other")
    with raises(SessionUseError, wording):
        undo.plan(own, executors=ToolExecutor([note], session=own))
    with raises(SessionUseError, wording):
        desk.plan(("r", "c7"))
    with raises(SessionUseError, wording):
        undo.plan(desk.session, executors=other.executor)
    refusal(InvalidArgumentError, undo.plan, desk.session, executors=())


def test_a_call_is_named_by_its_id_where_that_is_unique(memory: Store, wording: Wording) -> None:
    """One without a reply by `/ID`, as in answers of approvals."""
    desk = Desk(memory)
    for reply in ("r", "s", None):
        desk.ask("note", text="one", reply=reply, id="same")
    desk.ask("note", text="two", reply="s", id="own")
    assert desk.outcomes("own") == desk.outcomes("s/own") == ["own: restored"]
    assert desk.outcomes("/same") == desk.outcomes("same") == ["own: restored", "same: restored"]
    desk = Desk(memory, session_id="other")
    for reply in ("r", "s"):
        desk.ask("note", text="one", reply=reply, id="same")
    with raises(SessionUseError, wording):
        desk.plan("same")


def test_the_partition_of_a_key_is_named_where_several_sessions_have_it(memory: Store, wording: Wording) -> None:
    """A slot is named by its call, which another session may have, too."""
    for session_id in ("first", "second"):
        desk = Desk(memory, session_id=session_id)
        desk.book.fails_after = TimeoutError("the line is dead")
        desk.ask("pay", order="A-1")
    (step,) = desk.plan().steps
    assert _why(step) == wording


def test_parameters_that_do_not_fit_any_more_are_named(memory: Store, wording: Wording) -> None:
    """Not as secrets, which are never stored."""

    @tool(effect="external", undo=_back)
    def login(password: str) -> str:
        """Log in."""
        return "in"

    desk = Desk(memory, login)
    desk.ask("login", password="x")  # noqa: S106 - of the test

    @tool(name="login", effect="external", undo=_back)
    def log_in_as(user: str) -> str:
        """Log in."""
        return "in"

    executor = ToolExecutor([log_in_as], session=desk.session)
    (step,) = undo.plan(desk.session, executors=executor).steps
    assert _why(step) == wording


def test_calls_are_undone_between_calls(memory: Store) -> None:
    """A handler cannot undo its session."""
    raised: list[Exception] = []

    @tool
    def meddle(*, context: ToolContext) -> str:
        """Undo all."""
        try:
            desk.plan()
        except SessionUseError as error:
            raised.append(error)
        return "done"

    desk = Desk(memory, meddle)
    desk.ask("meddle")
    assert len(raised) == 1


def test_a_plan_has_the_same_digest_in_every_process(store: Store) -> None:
    """An approval of it is bound to what was compared."""
    desk = Desk(store)
    desk.ask("pay", order="A-1")
    desk.ask("note", text="one")
    first = desk.plan()
    desk.resume()
    assert desk.plan().digest == first.digest
    desk.ask("note", text="two")
    assert desk.plan().digest != first.digest


def test_what_a_program_changed_is_restored(store: Store, tmp_path: Path) -> None:
    """Contents, new files, and those that are gone; what other programs have changed since is a conflict."""
    root = tmp_path / "files"
    root.mkdir()
    (root / "kept.txt").write_text("as it was\n")
    (root / "gone.txt").write_text("gone\n")
    section = ShellToolsSection(folder=HostFilesystem(root, store=store), allow=[("python3",)])
    session = Session.open(store, "desk")
    prompt = Prompt(PromptTemplate[str](ns="tests", key="shell", sections=[section]))
    with ToolExecutor(prompt=prompt, session=session) as executor:
        program = "import os; open('kept.txt','w').write('x'); os.remove('gone.txt'); open('new.txt','w').close()"
        command = {"command": ["python3", "-c", program]}
        message = executor.execute(ToolCall("c1", "shell_run", command), reply="r")
        assert message.success, message.content
        (step,) = undo.plan(session, executors=executor).steps
        assert step.outcome == "restored"
        (root / "new.txt").write_text("by hand")
        assert undo.plan(session, executors=executor).steps[0].outcome == "conflict"
        (root / "new.txt").write_text("")
        report = asyncio.run(undo.apply(undo.plan(session, executors=executor)))
        assert report.complete
    assert {one.name: one.read_text() for one in root.iterdir()} == {"kept.txt": "as it was\n", "gone.txt": "gone\n"}
    session.close()
