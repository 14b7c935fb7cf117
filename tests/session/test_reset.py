"""Resetting a session, and removing items of a slice."""

from __future__ import annotations

import threading
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handrail import errors
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.runtime import EffectApplied, ToolCall, ToolInvoked
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import PostponedCall, record_postponed
from handrail.store.urls import open as open_store
from handrail.testing import Completed, Crashed
from tests import kit
from tests.crash.forks import fork_to_crash
from tests.kit import refusal
from tests.session.faulty_stores import FaultyStore, Point, held, kept
from tests.session.samples import A, Add, B, C, Happened, Note, Task, Total
from tests.transaction.notebooks import call
from tests.wording import Wording

KINDS = (Note, Task, Total, Happened)


@dataclass(frozen=True)
class Order:
    """What is paid, and that it was."""

    number: str


@dataclass
class Desk:
    """A tool that acts outside, over a session; `paid` is what has happened."""

    session: Session
    paid: list[str]

    def pay(self, params: Order, *, context: ToolContext) -> ToolResult[Order]:
        self.paid.append(params.number)
        if params.number == "?":
            raise errors.EffectUncertain("no answer")
        return ToolResult.ok(params, f"paid {params.number}")

    def ask(self, call_id: str, number: str, *, reply: str = "r1") -> tuple[bool, str]:
        """Make a call; returns whether it is answered from what is known, and the answer."""
        pay = Tool[Order, Order](
            name="pay", description="Pays.", handler=self.pay, effect=External(), idempotency=IdempotencyConfig()
        )
        message = kit.executor(pay, session=self.session).execute(
            ToolCall(call_id, "pay", {"number": number}), reply=reply
        )
        return message.replayed, message.content.splitlines()[0]


def fill(session: Session) -> Session:
    """Something in slices of either kind, by reducers and past them."""
    session.install(Total, initial=lambda: Total(0))
    session[Note].seed(A, B)
    session.dispatch(Task("k", "t"))
    session.dispatch(Add(7))
    session.dispatch(Happened("a"))
    session.dispatch(Happened("b"))
    return session


def test_reset_session_is_empty_and_can_be_used_anew(store: FaultyStore) -> None:
    """In memory and in a store, now and when it is opened again: reducers stay, and begin from nothing."""
    for session in (fill(Session()), fill(Session.open(store, "s", checkpoint_every=3))):
        before, log = session.snapshot(), session[Happened].version
        session.reset()
        session.reset()
        assert held(session) == {}
        session.dispatch(Add(1))
        session.dispatch(Happened("c"))
        assert held(session) == {Total: (Total(1),), Happened: (Happened("c"),)}
        # A snapshot and a version of a LOG that were taken before are values.
        assert log is not None
        assert log.length == 2
        session.restore(before)
        assert session[Note].all() == (A, B)
        assert session[Happened].all() == (Happened("c"),)
        session.close()
    assert kept(store) == {Note: (A, B), Task: (Task("k", "t"),), Total: (Total(7),), Happened: (Happened("c"),)}


def test_nothing_happens_twice_after_a_reset(store: FaultyStore) -> None:
    """The same call is answered from its record, and another one with the same key from the ledger, unapplied."""
    paid: list[str] = []
    with Session.open(store, "s") as session:
        assert Desk(session, paid).ask("c1", "A-1") == (False, "paid A-1")
        applied = session[EffectApplied].all()
        session.reset()
        assert held(session) == {EffectApplied: applied}
    with Session.open(store, "s") as session:
        desk = Desk(session, paid)
        assert desk.ask("c1", "A-1") == (True, "paid A-1")
        assert desk.ask("c2", "A-1") == (True, "paid A-1")
        assert (paid, session[Order].all()) == (["A-1"], ())
        assert [event.call.id for event in session[ToolInvoked]] == ["c2"]
        assert desk.ask("c3", "A-2") == (False, "paid A-2")
        assert session[Order].all() == (Order("A-2"),)


def test_session_in_memory_answers_recorded_calls_after_a_reset() -> None:
    """The records stay, although the LOG that showed them is empty."""
    desk = Desk(Session(), [])
    desk.ask("c1", "A-1")
    desk.session.reset()
    assert desk.session[ToolInvoked].all() == ()
    assert desk.ask("c1", "A-1") == (True, "paid A-1")
    assert desk.paid == ["A-1"]


def test_fork_at_a_call_before_a_reset_holds_what_there_was(store: FaultyStore) -> None:
    """The entries stay in the store: a reset is one more of them."""
    with Session.open(store, "s") as session:
        desk = Desk(session, [])
        desk.ask("c1", "A-1")
        session.reset()
        with session.fork(at=("r1", "c1")) as fork:
            assert fork[Order].all() == (Order("A-1"),)
        with session.fork() as fork:
            assert fork[Order].all() == ()


def test_session_with_an_open_call_is_not_reset(store: FaultyStore, wording: Wording) -> None:
    """One whose effect is unknown, or that waits for an approval, would be forgotten."""
    with Session.open(store, "s") as session:
        Desk(session, []).ask("c1", "?")
        before = held(session)
        assert str(refusal(errors.SessionError, session.reset)) == wording
        assert held(session) == before
    with Session.open(store, "s2") as session:
        record_postponed(session[PostponedCall], CallRef("r1", "c1"), "pay", store.now())
        assert str(refusal(errors.SessionError, session.reset)) == wording


@pytest.mark.parametrize("is_stored", [True, False])
def test_open_reply_is_abandoned_only_if_that_is_asked_for(
    store: FaultyStore, is_stored: bool, wording: Wording
) -> None:
    """Its calls that have no record would not run: they are open calls as all others, and are listed as such."""
    with Session.open(store, "s") if is_stored else Session(session_id="s") as session:
        desk = Desk(session, [])
        asked = [ToolCall("c1", "pay", {"order": "A-1"}), ToolCall("c2", "pay", {"order": "A-2"})]
        session.conversation.append({"role": "assistant"}, calls=asked, reply="r1")
        desk.ask("c1", "A-1")
        assert [call.state for call in session.open_calls] == ["unrecorded"]
        assert str(refusal(errors.SessionError, session.reset)) == wording
        session.reset(with_open_calls=True)
        assert (session.open_calls, session.conversation.messages, desk.paid) == ((), [], ["A-1"])
        session.conversation.append({"role": "user"})


def test_abandoned_effects_stay_in_the_ledger(store: FaultyStore) -> None:
    """A reset does not make an unknown effect known."""
    with Session.open(store, "s") as session:
        Desk(session, []).ask("c1", "?")
        session.reset(with_open_calls=True)
        assert [call.state for call in session.open_calls] == ["unknown"]


def test_session_is_not_reset_while_a_call_runs(store: FaultyStore, wording: Wording) -> None:
    """Neither inside of the call nor beside it; a closed session is refused, too."""
    for session in (fill(Session()), fill(Session.open(store, "s"))):
        before = held(session)
        with call(session) as transaction:
            assert str(refusal(errors.SessionUseError, session.reset)) == wording
            refusal(errors.SessionBusyError, Context().run, session.reset)
            transaction.commit()
        assert held(session) == before
    session.close()
    refusal(errors.SessionUseError, session.reset)


@pytest.mark.parametrize("point", ["begin", "append", "commit"])
def test_reset_that_the_store_does_not_take_changes_nothing(store: FaultyStore, point: Point) -> None:
    """It is one unit of work: all slices, or none."""
    session = fill(Session.open(store, "s"))
    before = held(session)
    store.go_down(point)
    refusal(errors.StoreUnavailableError, session.reset)
    assert held(session) == before
    store.come_back()
    session.reset()
    assert held(session) == {}
    session.close()
    assert kept(store) == {}


def test_item_that_is_logged_during_a_reset_stays(store: FaultyStore) -> None:
    """A LOG takes items at any time; what comes after the reset was put together is not part of it."""
    session = fill(Session.open(store, "s"))
    late = threading.Thread(target=session.dispatch, args=(Happened("late"),))

    def log_late() -> None:
        late.start()
        while len(session[Happened]) < 3:  # it is in the LOG, and is stored with the next unit
            pass

    store.at("commit", log_late)
    session.reset()
    late.join()
    assert held(session) == {Happened: (Happened("late"),)}
    session.close()
    assert kept(store) == {Happened: (Happened("late"),)}


def test_item_that_the_store_has_not_got_yet_is_reset_with_the_others(store: FaultyStore) -> None:
    """What was logged while the store was down is written with the reset, and emptied by it."""
    session = fill(Session.open(store, "s"))
    store.go_down("begin")
    session.dispatch(Happened("while it was down"))
    store.come_back()
    session.reset()
    assert held(session) == {}
    session.close()
    assert kept(store) == {}


def reset_stored(url: str) -> list[str]:
    """Reset a session, and say what is left; the target of a crash."""
    with open_store(url) as kept, Session.open(kept, "s", types=KINDS) as session:
        session.reset()
        return [kind.__name__ for kind in session.kinds]


@pytest.mark.parametrize("at", ["unit-session-written", "unit-before-commit", "unit-after-commit"])
@pytest.mark.short(1)
def test_reset_that_is_killed_has_happened_whole_or_not_at_all(tmp_path: Path, at: str) -> None:
    """Whichever it was, the next reset empties the session."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    with open_store(url) as kept, fill(Session.open(kept, "s")) as session:
        before = held(session)
    assert fork_to_crash(reset_stored, url, at=at) == Crashed(at)
    with open_store(url) as kept, Session.open(kept, "s") as session:
        assert held(session) == ({} if at == "unit-after-commit" else before)
    assert fork_to_crash(reset_stored, url, at=None) == Completed([])


def test_predicate_says_which_items_are_cleared(store: FaultyStore) -> None:
    """The others stay in their order; in a call, the removal is undone with it."""
    for session in (Session(), Session.open(store, "s")):
        session[Note].seed(A, B, A, C)
        with call(session):
            session[Note].clear(where=lambda note: note == B)
            assert session[Note].all() == (A, A, C)
        assert session[Note].all() == (A, B, A, C)
        session[Note].clear(where=lambda note: note == A)
        session[Note].clear(where=lambda note: note == A)
        session[Task].clear(where=bool)
        assert session[Note].all() == (B, C)
        session.close()
    with Session.open(store, "s") as again:
        again[Note].clear(where=lambda note: note == B)
        assert held(again) == {Note: (C,)}


def test_predicate_that_fails_removes_nothing(wording: Wording) -> None:
    """Nor does one that writes to the session, or one for a LOG."""
    session = fill(Session())
    before = held(session)

    def writes(note: Note) -> bool:
        session[Note].append(note)
        return True

    with pytest.raises(ZeroDivisionError):
        session[Note].clear(where=lambda note: note == A or 1 // 0 == 0)
    assert str(refusal(errors.SessionUseError, session[Note].clear, where=writes)) == wording
    assert str(refusal(errors.SessionUseError, session[Happened].clear, where=bool)) == wording
    assert held(session) == before


@dataclass(frozen=True)
class Route:
    """An item that can be iterated over, as some values can."""

    stops: tuple[str, ...]

    def __iter__(self) -> Any:
        return iter(self.stops)


def test_item_that_is_iterable_is_one_item() -> None:
    """A dataclass instance is never taken apart, whether it is an item of the slice or a mistake."""
    session, route = Session(), Route(("a", "b"))
    session[Route].seed(route)
    assert session[Route].all() == (route,)
    session[Route].seed([route, route])
    assert session[Route].all() == (route, route)
    for mistake in (route, "ab", None, [A, "b"]):
        with pytest.raises(errors.SessionError):
            session[Note].seed(mistake)  # type: ignore[arg-type]  # the fault under test
    assert session[Note].all() == ()
