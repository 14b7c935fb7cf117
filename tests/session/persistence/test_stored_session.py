"""Stored sessions: opening, writing, forks, children."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from handrail import errors
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Tool, ToolContext, tool
from handrail.runtime import ToolCall
from handrail.session import Session, replace_latest
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import SessionRow
from handrail.store import MemoryStore, Store
from handrail.store import open as open_store
from handrail.testing import FakeClock
from handrail.waiting import asynchronous_entry, closing_after
from tests.kit import call as kit_call
from tests.kit import executor, raises, refusal
from tests.session.faulty_stores import FaultyStore, faulty, kept
from tests.session.samples import Add, Happened, Note, Task, Total
from tests.store.kit import claim_conditions
from tests.store.stores import STORES
from tests.transaction.notebooks import call
from tests.wording import Wording

NOW = timedelta(0)


def test_a_session_in_memory_has_no_store(wording: Wording) -> None:
    """Closing it, checking it and recording in it are nothing special."""
    with Session() as session:
        assert session.store is None
        assert session.recorder is None
        with call(session) as transaction:
            session.slices.record_with(Happened("closed"), CallRef(None, "c"), transaction)
            transaction.commit()
        session.slices.record(Happened("x"), CallRef(None, "c"))
        assert str(refusal(errors.SessionError, session.connection)) == wording
        assert str(refusal(errors.SessionError, session.fork, at=(None, "c"))) == wording
    session[Note].append(Note("a"))
    assert session[Happened].all() == (Happened("x"),)


def test_a_closed_session_can_be_read_and_not_written(store: FaultyStore, wording: Wording) -> None:
    """Closing twice is closing once; the store has it free."""
    session = Session.open(store, "s")
    session[Note].append(Note("a"))
    session.close()
    session.close()
    with Session.open(store, "s", wait=NOW):
        assert session[Note].all() == (Note("a"),)
        claim, log = partial(claim_conditions, session, None), partial(session.dispatch, Happened("x"))
        for act in (claim, session[Note].clear, log):
            assert str(refusal(errors.SessionError, act)) == wording
        assert session[Happened].all() == ()


def test_a_call_whose_session_was_closed_meanwhile_is_undone(store: FaultyStore, wording: Wording) -> None:
    """It could not be recorded; that it was made is kept in memory."""
    session = Session.open(store, "s")
    with call(session) as transaction:
        session[Note].append(Note("a"))
        session.close()
        assert str(refusal(errors.SessionError, transaction.commit)) == wording
    session.slices.record(Happened("failed"), CallRef(None, "c"))
    assert (session[Note].all(), session[Happened].all()) == ((), (Happened("failed"),))


def test_closing_writes_what_was_logged_while_the_store_was_down(store: FaultyStore) -> None:
    """It is the last chance."""
    session = Session.open(store, "s")
    store.go_down("begin")
    session.dispatch(Happened("x"))
    store.come_back()
    session.close()
    assert kept(store) == {Happened: (Happened("x"),)}


def test_a_session_that_nobody_refers_to_is_let_go(memory: FaultyStore) -> None:
    """When the garbage is collected; closing it is sooner."""
    session = Session.open(memory, "s")
    session[Note].append(Note("a"))
    del session
    gc.collect()
    Session.open(memory, "s", wait=NOW).close()


def test_reducers_are_registered_anew_and_not_run_again(store: FaultyStore) -> None:
    """What they made of the events stands in the store."""
    with Session.open(store, "s") as session:
        session.install(Total, initial=lambda: Total(0))
        session.dispatch(Add(3))
    with Session.open(store, "s", wait=NOW) as again:
        assert again[Total].all() == (Total(3),)
        again.install(Total)
        again.dispatch(Add(4))
        assert again[Total].latest() == Total(7)


# --------------------------------------------------------------------------------------------------- forks and children


def three_calls(session: Session) -> None:
    """Three calls that each append a note, with a LOG between."""
    for number in range(3):
        with call(session) as transaction:
            session[Note].append(Note(str(number)))
            session.slices.record_with(Happened(f"closed {number}"), CallRef(None, f"call-{number}"), transaction)
            transaction.commit()
        session.dispatch(Happened(f"after {number}"))


def test_a_fork_holds_what_there_was_when_a_call_had_been_recorded(store: FaultyStore) -> None:
    """It goes its own way, under its own id, with the tags of the other and its id as origin."""
    with Session.open(store, "s", tags={"a": "b"}, checkpoint_every=2) as session:
        session[Note].register(Note, replace_latest)
        three_calls(session)
        with session.fork(at=(None, "call-1"), session_id="f") as fork:
            assert fork[Note].all() == (Note("0"), Note("1"))
            assert fork[Happened].all()[-1] == Happened("closed 1")
            assert dict(fork.tags) == {"a": "b"}
            fork.dispatch(Note("own"))
            assert fork[Note].all() == (Note("own"),)
        assert session[Note].all() == (Note("0"), Note("1"), Note("2"))
    row = store.find("f")
    assert row is not None
    assert (row.parent, row.origin) == (None, "s")
    assert kept(store, "f")[Note] == (Note("own"),)


def test_a_fork_of_a_fork_goes_back_before_the_first_one(store: FaultyStore) -> None:
    """To a call that both have; what each of the three does afterwards is its own."""
    with Session.open(store, "s", checkpoint_every=2) as session:
        three_calls(session)
        with session.fork(at=(None, "call-1"), session_id="f") as fork:
            fork[Note].append(Note("f"))
            with fork.fork(at=(None, "call-0"), session_id="g") as early, fork.fork(session_id="h") as late:
                late[Note].append(Note("h"))
                assert (early[Note].all(), early.origins) == ((Note("0"),), ("f", "s"))
                early[Note].append(Note("g"))
        session[Note].append(Note("s"))
    texts = {name: "".join(note.text for note in kept(store, name)[Note]) for name in "sfgh"}
    assert texts == {"s": "012s", "f": "01f", "g": "0g", "h": "01fh"}


def test_a_fork_has_what_a_reset_takes_from_the_other(store: FaultyStore) -> None:
    """A reset is an entry of one session; the records of calls stay in both."""
    with Session.open(store, "s") as session:
        three_calls(session)
        session.fork(session_id="f").close()
        session.reset()
        with Session.open(store, "f") as fork:
            assert fork[Note].all() == (Note("0"), Note("1"), Note("2"))
            fork.fork(session_id="g").close()
            fork.reset()
            assert fork[Note].all() == ()
    assert kept(store, "g")[Note] == (Note("0"), Note("1"), Note("2"))
    assert [store.record_of_call(name, CallRef(None, "call-2")) for name in "sfg"] == [8, 8, 8]


def test_a_session_in_memory_repeats_what_its_origin_has_done() -> None:
    """It has a ledger of its own, and so has its fork: neither has an origin."""
    assert Session().fork().origins == ()


def test_a_fork_that_cannot_be_made_says_why(store: FaultyStore, wording: Wording) -> None:
    """Nothing is left of it."""
    with Session.open(store, "s") as session:
        three_calls(session)
        for at in ((None, "call-7"), (None, "")):
            assert str(refusal(errors.SessionError, session.fork, at=at, session_id="f")) == wording
        assert str(refusal(errors.SessionError, session.fork, session_id="s")) == wording
        with call(session), raises(errors.SessionError, wording):
            session.fork(session_id="f")
    assert [row.session_id for row in store.sessions()] == ["s"]


class Emptied(MemoryStore):
    """Somebody has removed all sessions."""

    emptied = False

    def find(self, session_id: str) -> SessionRow | None:
        return None if self.emptied else super().find(session_id)


def test_a_session_that_is_gone_from_its_store_cannot_be_forked(wording: Wording) -> None:
    """Somebody has removed it."""
    inner = Emptied(clock=FakeClock())
    session = Session.open(inner, "s")
    inner.emptied = True
    error = refusal(errors.SessionNotFoundError, session.fork)
    assert str(error) == wording
    assert error.session_id == "s"
    session.close()


@pytest.mark.parametrize("create", [True, False])
def test_a_child_is_stored_beside_its_parent(store: FaultyStore, create: bool) -> None:
    """However the parent was opened; it names it."""
    Session.open(store, "s").close()
    with Session.open(store, "s", create=create) as session, session.child(tags={"a": "b"}) as child:
        assert child.parent is session
        child[Note].append(Note("a"))
        row = store.find(child.session_id)
        assert row is not None
        assert (row.parent, dict(row.tags)) == ("s", {"a": "b"})
    with Session.open(store, child.session_id, wait=NOW) as again:
        assert again[Note].all() == (Note("a"),)
    with Session.open(store, "s") as session, session.child(session_id="named") as named:
        assert named.session_id == "named"


def test_a_session_opened_in_a_call_is_settled_with_it(memory: FaultyStore, wording: Wording) -> None:
    """Its changes are the call's; left before the call has ended, it can take none."""
    with Session.open(memory, "s") as session:
        with call(session) as transaction:
            other = Session.open(memory, "t")
            other[Task].append(Task("k", "x"))
            transaction.commit()
        assert other[Task].all() == (Task("k", "x"),)
        other.close()
        with call(session) as transaction:
            with Session.open(memory, "t") as other:
                other[Task].append(Task("k", "y"))
            assert str(refusal(errors.SessionError, transaction.commit)) == wording
    assert kept(memory, "t") == {Task: (Task("k", "x"),)}


PATIENCE = timedelta(seconds=50)  # after which a wait has been forgotten
OVER_A_DATABASE = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


async def make_call(session: Session, called: Tool[Any, Any], text: str, *, id: str = "c1") -> bool:
    """Make a call of a tool; returns whether it has succeeded."""
    message = await executor(called, session=session).execute_async(kit_call(called.name, text, id=id), reply="r")
    return message.success


async def is_free(store: Store, session_id: str) -> bool:
    """Whether a session is there, and nobody has it open."""
    try:
        async with await Session.open_async(store, session_id, create=False, wait=timedelta(0)):
            return True
    except errors.SessionLockedError:
        return False


@pytest.mark.anyio
async def test_a_session_that_is_opened_for_a_cancelled_task_is_closed_again(tmp_path: Path) -> None:
    """Otherwise no one could close it."""
    with open_store(f"sqlite:///{tmp_path / 'desk.db'}") as store:
        held = Session.open(store, "desk")
        waiting = asyncio.ensure_future(Session.open_async(store, "desk", wait=timedelta(seconds=50)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        held.close()
        with await Session.open_async(store, "desk", wait=timedelta(seconds=50)) as opened:
            assert opened.session_id == "desk"


@OVER_A_DATABASE
@pytest.mark.anyio
async def test_child_and_close_hold_the_loop_which_the_guard_sees_and_their_asynchronous_forms_do_not(
    kind: str,
) -> None:
    """A session that could not be closed on the loop stays open, and is closed by `close_async`."""
    store = STORES[kind](FakeClock())
    session = await Session.open_async(store, "desk")

    @asynchronous_entry
    async def make() -> None:
        refusal(errors.LoopBlockedError, session.child, session_id="desk/blocking")
        child = await session.child_async(session_id="desk/1", tags={"agent": "research"})
        assert (child.parent, child.tags) == (session, {"agent": "research"})
        assert not await is_free(store, "desk/1")
        refusal(errors.LoopBlockedError, child.close)
        await child.close_async()
        async with await session.child_async(session_id="desk/2"):
            assert not await is_free(store, "desk/2")
        assert await is_free(store, "desk/2")

    await make()
    assert await is_free(store, "desk/1")
    await asynchronous_entry(session.close_async)()
    await session.close_async()  # as `close`, it may be called twice
    assert await is_free(store, "desk")
    refusal(errors.SessionUseError, session[Note].append, Note("late"))


@OVER_A_DATABASE
@pytest.mark.anyio
async def test_a_handler_has_a_child_without_holding_the_loop(kind: str) -> None:
    """It is a view, as by `child`: what it is given belongs to the call, and is undone with it."""
    children: list[Session] = []

    @tool
    async def research(text: str, *, context: ToolContext) -> str:
        """Research something."""
        child = await context.session.child_async(session_id=f"desk/{text}")
        children.append(child)
        assert (child.parent, child.unbound is child) == (context.session, False)
        child[Note].append(Note(text))
        if text == "nothing":
            raise LookupError
        return text

    store = STORES[kind](FakeClock())
    async with await Session.open_async(store, "desk") as session:
        assert await make_call(session, research, "found")
        assert not await make_call(session, research, "nothing", id="c2")
    assert await is_free(store, "desk")
    for child, notes in zip(children, ([Note("found")], []), strict=True):
        assert not await is_free(store, child.session_id)
        assert child.parent is not None
        with pytest.raises(errors.TransactionClosedError):
            await child.parent.child_async()
        await child.close_async()
        async with await Session.open_async(store, child.session_id, create=False, types=[Note]) as again:
            assert [*again[Note]] == notes


@pytest.mark.anyio
async def test_a_handler_that_closes_a_child_it_has_written_to_is_refused_to_commit() -> None:
    """What it has written is committed with its call, when the child is no longer open. Nothing is."""

    @tool
    async def research(text: str, *, context: ToolContext) -> str:
        """Research something."""
        context.session[Note].append(Note(text))
        async with await context.session.child_async(session_id="kid") as child:
            child[Note].append(Note(text))
        return text

    store = STORES["sqlite"](FakeClock())
    async with await Session.open_async(store, "desk") as session:
        with pytest.raises(errors.SessionUseError):
            await make_call(session, research, "found")
        assert len(session[Note]) == 0
    async with await Session.open_async(store, "kid", create=False) as child:
        assert len(child[Note]) == 0


@pytest.mark.anyio
async def test_a_task_that_is_cancelled_while_it_closes_a_session_has_closed_it() -> None:
    """What LOGs have got has been written by then."""
    reached, released = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        assert released.wait(PATIENCE.total_seconds())

    with faulty("sqlite", FakeClock()) as store:
        session = Session.open(store, "desk")
        session[Happened].log(Happened("x"), write="deferred")
        store.at("begin", wait)
        closing = asyncio.ensure_future(session.close_async())
        assert await asyncio.to_thread(reached.wait, PATIENCE.total_seconds())
        closing.cancel()
        await asyncio.sleep(0)
        assert not closing.done()
        released.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with Session.open(store, "desk", create=False, wait=timedelta(0)) as again:
            assert [*again[Happened]] == [Happened("x")]


PAYMENT = ToolCall("c", "pay", {"order": "A"})


def paying_desk(session: Session, database: Path) -> ToolExecutor:
    """Pays, and loses the database meanwhile."""

    @tool(effect="external")
    def pay(order: str) -> str:
        """Pays an order."""
        database.rename(database.with_suffix(".moved"))
        return f"{order} is paid"

    return executor(pay, session=session)


def check_reported(error: errors.RecordingError, logged: pytest.LogCaptureFixture, wording: Wording) -> None:
    """Check that the error says what became of the effect, and that notes and log say what could not be closed."""
    assert error.effect == "unknown"
    assert error.__notes__ == wording
    assert [record.levelno for record in logged.records if record.name == "handrail"] == [logging.WARNING]


def test_a_recording_error_leaves_the_blocks_of_a_store_that_cannot_be_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The program reads whether the payment may have happened, and not only that the file is gone."""
    database = tmp_path / "desk.db"
    with (
        pytest.raises(errors.RecordingError) as raised,
        open_store(f"sqlite:///{database}") as opened,
        Session.open(opened, "s") as session,
    ):
        paying_desk(session, database).execute(PAYMENT, reply="r")
    check_reported(raised.value, caplog, wording)


@pytest.mark.anyio
async def test_a_recording_error_leaves_the_asynchronous_block_of_a_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """As that of a blocking one."""
    database = tmp_path / "desk.db"
    with pytest.raises(errors.RecordingError) as raised, open_store(f"sqlite:///{database}") as opened:
        async with await Session.open_async(opened, "s") as session:
            await paying_desk(session, database).execute_async(PAYMENT, reply="r")
    check_reported(raised.value, caplog, wording)


def test_closing_that_fails_raises_at_the_end_of_a_block_that_nothing_has_left(tmp_path: Path) -> None:
    """As `close` does."""
    database = tmp_path / "desk.db"
    with pytest.raises(errors.StoreUnavailableError), open_store(f"sqlite:///{database}"):
        database.unlink()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_closing_is_raised(interrupt: type[BaseException]) -> None:
    """It ends the program, whatever has left the block."""
    with pytest.raises(interrupt), closing_after(errors.SessionLostError("lost", session_id="s"), "a session"):
        raise interrupt()
