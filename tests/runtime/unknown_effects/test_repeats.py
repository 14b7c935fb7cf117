"""`handrail.runtime.claim_step`: a call without a key that repeats one whose effect may have happened."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import RecordingError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, Session, ToolInvoked, ToolMessage
from handrail.runtime.ledger.effects import EffectResult, NotApplied
from handrail.store import EffectRow, Store
from handrail.testing import FakeClock
from tests.kit import executor
from tests.runtime import payments
from tests.runtime.payments import Card, later
from tests.session.faulty_stores import faulty
from tests.wording import Wording


@dataclass(frozen=True)
class Payment:
    """What is paid."""

    to: str
    cents: float = 500.0


class Bank:
    """The world outside: it charges, and answers as often as it is told to."""

    def __init__(self, *silent: bool) -> None:
        self.charges: list[str] = []
        self.silent = list(silent)

    def pay(self, params: Any, *, context: ToolContext) -> ToolResult[str]:
        """Charge; then raise, if the bank is silent."""
        self.charges.append(str(context.idempotency_key))
        if not self.silent or self.silent.pop(0):
            raise TimeoutError("no answer")
        return ToolResult.ok("paid")

    def find(self, _params: object, key: str) -> ToolResult[str] | None:
        """Look a charge up."""
        return ToolResult.ok("the bank says: paid") if key in self.charges else None

    def tool(self, params: type[Any] = Payment, **said: Any) -> Tool[Any, Any]:
        """The tool, without a key."""

        def pay(params: Any, *, context: ToolContext) -> ToolResult[str]:
            return self.pay(params, context=context)

        return payments.paying(params, pay, **said)

    def door(self, session: Session, params: type[Any] = Payment, **said: Any) -> ToolExecutor:
        """An executor of the tool."""
        return executor(self.tool(params, **said), session=session)


def ask(door: ToolExecutor, ref: str, arguments: Any = None, written: Any = None) -> ToolMessage:
    """Ask for a payment, to ann if nothing else is said."""
    return payments.ask(door, ref, {"to": "ann"} if arguments is None else arguments, written)


def row_of(kept: Store, ref: str) -> EffectRow:
    """The row of a call's slot."""
    row = kept.get("s", f"call:{ref}")
    assert row is not None
    return row


# ------------------------------------------------------------------------------------------------- refusals are final


def test_repeat_of_what_is_unknown_is_answered_from_its_record_after_a_crash(kept: Store) -> None:
    """What it repeats is found to have happened later; the resumed reply does not run it."""
    bank = Bank()
    with Session.open(kept, "s") as session:
        door = bank.door(session)
        ask(door, "r1/c1")
        refused = ask(door, "r2/c2")
        assert (refused.success, [event.final for event in session[ToolInvoked]]) == (False, [False, True])
    assert EffectLedger(kept).resolve(row_of(kept, "r1/c1"), EffectResult("it is paid"))
    with Session.open(kept, "s") as session:
        again = ask(bank.door(session), "r2/c2")
    assert (again.success, again.replayed, again.content) == (False, True, refused.content)
    assert bank.charges == ["call:r1/c1"]


def test_refused_repeat_is_looked_at_anew_under_another_id(session: Session, kept: Store) -> None:
    """A person has found out that the first one did not happen."""
    bank = Bank(True, False)
    door = bank.door(session)
    ask(door, "r1/c1")
    assert not ask(door, "r2/c2").success
    assert EffectLedger(kept).resolve(row_of(kept, "r1/c1"), NotApplied("not there"))
    assert ask(door, "r3/c3").success
    assert bank.charges == ["call:r1/c1", "call:r3/c3"]


def test_equal_calls_of_a_reply_are_refused_while_one_is_unknown(kept: Store) -> None:
    """Also where a new process goes on with the reply, and where the calls have no reply."""
    bank = Bank()
    for reply in ("r1", ""):
        bank.charges.clear()
        for number in (1, 2, 3):
            with Session.open(kept, f"s{reply}") as session:
                assert not ask(bank.door(session), f"{reply}/c{number}").success
        assert len(bank.charges) == 1


# -------------------------------------------------------------------------------------------------------- asked at once


def test_reconciler_is_asked_before_the_model_reads_anything(session: Session, kept: Store) -> None:
    """That it happened is the message of the call, and its only record."""
    bank = Bank()
    message = ask(bank.door(session, reconcile=bank.find), "r1/c1")
    (event,) = session[ToolInvoked]
    assert (message.success, message.content) == (True, "the bank says: paid")
    assert (event.final, event.refused_at, event.effect_key) == (True, None, "call:r1/c1")
    assert row_of(kept, "r1/c1").status == "done"


@pytest.mark.parametrize("proves", [False, True])
def test_absence_counts_at_once_only_where_it_is_proved(
    session: Session, kept: Store, wording: Wording, *, proves: bool
) -> None:
    """A request whose answer was lost may still be on its way; asked later, it counts."""
    bank = Bank(True, False)

    def nothing(_params: object, _key: str) -> None:
        """It has not happened."""

    paying = bank.tool(reconcile=nothing, reconcile_proves_absence=proves)
    door = executor(paying, session=session)
    message = ask(door, "r1/c1")
    assert (message.success, message.content) == (False, wording)
    assert row_of(kept, "r1/c1").status == ("failed" if proves else "unknown")
    assert ask(door, "r2/c2").success
    assert bank.charges == ["call:r1/c1", "call:r2/c2"]


@pytest.mark.parametrize("proves", [False, True])
def test_absence_does_not_count_while_the_handler_still_runs(session: Session, kept: Store, *, proves: bool) -> None:
    """Its call was stopped after its timeout. The reconciler is right, and the payment comes after its answer."""
    bank, goes_on, has_paid = Bank(False), threading.Event(), threading.Event()

    def pay(params: Payment, *, context: ToolContext) -> ToolResult[str]:
        goes_on.wait()
        paid = bank.pay(params, context=context)
        has_paid.set()
        return paid

    tool = payments.paying(Payment, pay, reconcile=bank.find, reconcile_proves_absence=proves)
    tool = replace(tool, timeout=timedelta(milliseconds=50))
    door = executor(tool, session=session)
    assert not ask(door, "r1/c1").success
    assert not ask(door, "r2/c2").success
    assert row_of(kept, "r1/c1").status == "unknown"
    goes_on.set()
    assert has_paid.wait(10)
    again = ask(door, "r3/c3")
    assert (again.success, again.replayed, bank.charges) == (True, True, ["call:r1/c1"])


def test_an_effect_that_could_not_be_recorded_is_not_repeated_by_an_equal_call() -> None:
    """The store fails at the commit and comes back; the session is opened again before the row is settled."""
    bank = Bank(False)

    def pay(params: Payment, *, context: ToolContext) -> ToolResult[str]:
        broken.go_down("begin", "replace")
        return bank.pay(params, context=context)

    with faulty("sqlite", FakeClock()) as broken:
        session = Session.open(broken, "s", wait=timedelta(0))
        with pytest.raises(RecordingError):
            ask(executor(payments.paying(Payment, pay), session=session), "r1/c1")
        session.close()
        broken.come_back()
        with Session.open(broken, "s", wait=timedelta(0)) as again:
            assert not ask(bank.door(again), "r2/c2").success
    assert bank.charges == ["call:r1/c1"]


def test_reconciler_that_fails_at_once_leaves_the_call_unknown(session: Session, wording: Wording) -> None:
    """The message does not ask the model to ask again, and the reconciler is asked again by the next equal call."""
    bank = Bank()
    door = bank.door(session, reconcile=later(bank.find))
    message = ask(door, "r1/c1")
    assert (message.success, message.content) == (False, wording)
    again = ask(door, "r2/c2")
    assert (again.success, again.replayed, again.content) == (True, True, "the bank says: paid")
    assert bank.charges == ["call:r1/c1"]


# ------------------------------------------------------------------------------------------------------ answered, once


@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("reply", ["r1", ""])
def test_equal_call_is_answered_once_with_what_a_person_has_found(
    kept: Store, *, reopen: bool, settled: bool, reply: str
) -> None:
    """To record that it happened permits no second charge: the model still reads that the outcome is unknown."""
    bank = Bank(True, False)
    told: list[ToolMessage] = []
    refs = iter(("r2/c2", "r3/c3"))
    with Session.open(kept, "s") as session:
        ask(bank.door(session), f"{reply}/c1")
        (row,) = kept.rows()
        assert EffectLedger(kept).resolve(row, EffectResult("it is paid"))
        if not reopen:
            told += [ask(bank.door(session), ref) for ref in refs]
    for ref in refs:  # each in a process of its own
        with Session.open(kept, "s") as session:
            door = bank.door(session)
            if settled:
                door.settle_open()
            told.append(ask(door, ref))
    assert told[0].content.startswith("it is paid")
    assert [(message.success, message.replayed) for message in told] == [(True, True), (True, False)]
    assert len(bank.charges) == 2
    assert not Session.open(kept, "s").open_calls


def test_call_that_was_answered_with_what_a_person_has_found_permits_an_equal_one(
    session: Session, kept: Store
) -> None:
    """Its own reply was asked again, so an equal call is a new one."""
    bank = Bank(True, False, False)
    door = bank.door(session)
    ask(door, "r1/c1")
    assert EffectLedger(kept).resolve(row_of(kept, "r1/c1"), EffectResult("it is paid"))
    assert ask(door, "r1/c1").content == "it is paid"
    assert ask(door, "r1/c2").success
    assert ask(door, "r2/c3").success
    assert bank.charges == ["call:r1/c1", "call:r1/c2", "call:r2/c3"]


# ------------------------------------------------------------------------------------- others who resolve at that time

RESOLVED: Mapping[str, tuple[EffectResult | NotApplied, int]] = {
    "a person saw that it happened": (EffectResult("I saw it"), 1),
    "a person saw that it did not": (NotApplied("not there"), 2),
}


@pytest.mark.parametrize("finding, charges", RESOLVED.values(), ids=list(RESOLVED))
def test_what_was_recorded_while_the_reconciler_looked_counts(
    session: Session, kept: Store, finding: EffectResult | NotApplied, charges: int
) -> None:
    """The reconciler says that it is not there: the row is looked at again."""
    bank = Bank(True, False)

    def find(_params: object, key: str) -> ToolResult[str] | None:
        assert EffectLedger(kept).resolve(row_of(kept, key.removeprefix("call:")), finding)
        return None

    door = bank.door(session, reconcile=find)
    ask(door, "r1/c1")
    message = ask(door, "r2/c2")
    assert (len(bank.charges), message.success) == (charges, True)


# ----------------------------------------------------------------------------------------------------- equal arguments

EQUAL: list[tuple[Any, Any]] = [
    ({"to": "ann"}, {"to": "ann", "cents": 500}),
    ({"to": "ann", "cents": 500}, {"to": "ann", "cents": 500.0}),
    ('{"to": "ann"}', {"to": "ann"}),
    ({"cents": 500, "to": "ann"}, {"to": "ann", "cents": 500}),
]


@pytest.mark.parametrize("first, second", EQUAL)
def test_equal_arguments_in_other_words_are_a_repeat(session: Session, first: object, second: object) -> None:
    """What the handler gets is the same."""
    bank = Bank()
    door = bank.door(session)
    ask(door, "r1/c1", first)
    ask(door, "r2/c2", second)
    assert bank.charges == ["call:r1/c1"]
    ask(door, "r3/c3", {"to": "ann", "cents": 501})
    assert len(bank.charges) == 2


def test_call_that_equals_what_a_person_made_of_an_unknown_one_is_a_repeat(session: Session) -> None:
    """The model wrote 10,000, a person made 100 of it, and the model asks for that."""
    bank = Bank()
    door = bank.door(session)
    ask(door, "r1/c1", {"to": "ann", "cents": 100}, written={"to": "ann", "cents": 10_000})
    assert not ask(door, "r2/c2", {"to": "ann", "cents": 100}).success
    assert not ask(door, "r3/c3", {"to": "ann", "cents": 10_000}).success
    assert bank.charges == ["call:r1/c1"]


def test_arguments_that_are_masked_or_cut_are_not_compared(kept: Store) -> None:
    """Two records of different payments may look equal; their words still distinguish them."""
    bank = Bank()
    with Session.open(kept, "s") as session:
        door = bank.door(session, Card)
        ask(door, "r1/c1", {"card": "4111"})
        ask(door, "r2/c2", {"card": "4222"})
        assert len(bank.charges) == 2
        ask(door, "r3/c3", {"card": "4222"})
        assert len(bank.charges) == 2
    with Session.open(kept, "t") as session:
        door = bank.door(session)
        ask(door, "r1/c1", {"to": "a" * 70_000 + "x"})
        ask(door, "r2/c2", {"to": "a" * 70_000 + "y"})
    assert len(bank.charges) == 4


# -------------------------------------------------------------------------------------------------------- its own slot


@pytest.mark.parametrize("found, charges", [("both", 2), ("neither", 3), ("the other", 2)])
def test_unknown_call_asked_again_looks_at_itself_and_then_at_its_repeats(
    session: Session, kept: Store, found: str, charges: int
) -> None:
    """Two equal calls that ran beside each other are unknown. The first runs again only if neither has happened."""
    bank = Bank(True, True, False)

    def find(_params: object, key: str) -> ToolResult[str] | None:
        happened = found == "both" or (found == "the other" and key == "call:r1/c2")
        return ToolResult.ok("found") if happened else None

    beside = bank.tool(repeat_unknown="allow")
    for number in (1, 2):
        ask(executor(beside, session=session), f"r1/c{number}")
    message = ask(bank.door(session, reconcile=find), "r1/c1")
    assert (len(bank.charges), message.success) == (charges, True)
    first, second = (row_of(kept, f"r1/c{number}").status for number in (1, 2))
    assert (first, second) == {
        "both": ("done", "unknown"),
        "neither": ("done", "failed"),
        "the other": ("failed", "done"),
    }[found]


# ------------------------------------------------------------------------------------------------------- dead processes


DIES = """
import os, sys
from handrail import store
from handrail.runtime import EffectLedger, Session
from tests.runtime.unknown_effects import test_repeats as repeats

class Deadly(repeats.Bank):
    def pay(self, params, *, context):
        os._exit(3)

ledger = EffectLedger(store.open(sys.argv[1]))
door = repeats.executor(Deadly().tool(), session=Session(session_id="s"), effect_ledger=ledger)
repeats.ask(door, "r1/c1")
"""
"""A process that ends in the middle of a payment."""


def test_what_a_dead_process_left_running_is_unknown_wherever_the_session_is_stored(
    tmp_path: Path, wording: Wording
) -> None:
    """Opening the session ends no lease in the ledger of another store: the claim asks whether the process is dead."""
    bank = Bank(False)
    with store.open(f"sqlite:///{tmp_path}/ledger.db") as shared:
        ledger = EffectLedger(shared)
        door = executor(bank.tool(), session=Session(session_id="s"), effect_ledger=ledger)
        died = subprocess.run((sys.executable, "-c", DIES, shared.url), check=False)
        assert died.returncode == 3
        message = ask(door, "r2/c2")
    assert (message.success, message.content, bank.charges) == (False, wording, [])


# -------------------------------------------------------------------------------------------------------------- expiry


def test_slot_that_was_found_to_have_happened_does_not_expire() -> None:
    """Its call may be asked for again years later, and has not learned of it yet."""
    clock = FakeClock()
    bank = Bank(True, False)
    kept = store.open("memory:", clock=clock)
    with Session.open(kept, "s") as session:
        ask(executor(bank.tool(), session=session, clock=clock), "r1/c1")
    assert EffectLedger(kept, clock=clock).resolve(row_of(kept, "r1/c1"), EffectResult("it is paid", None))
    clock.advance(timedelta(days=400))
    with Session.open(kept, "s") as session:
        message = ask(executor(bank.tool(), session=session, clock=clock), "r1/c1")
    assert (message.success, message.replayed, len(bank.charges)) == (True, True, 1)
