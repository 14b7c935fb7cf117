"""How `make chaos` judges what is left: each promise that is broken shows in its own column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chaos.desk import CHARGED, FOUND, NAMES, call_of, order_of
from chaos.faults import DOUBTS, TIMEOUT
from chaos.history import Change
from chaos.service import Report
from chaos.verdict import Kept, State, Verdict, judge
from handrail.prompt import Tool
from handrail.runtime.failures import HandlerTimeoutError

UNTIL = 2 * len(NAMES)
ORDERS = {n: [order for number in range(UNTIL) if (order := order_of(n, number))] for n in range(2)}
KEYS = {order for orders in ORDERS.values() for order in orders}
EFFECTS = {f"key of {order}": "done" for order in KEYS}


def kept(n: int) -> Kept:
    """A session of which all is well."""
    return Kept(UNTIL, ORDERS[n], noted=[2, 6], rows=[6, 2], written=[3, 7], lines=[3, 7])


def judged(state: State | None = None, **reported: Any) -> Verdict:
    """The verdict on two sessions and a service, all well but for what is given."""
    whole = State({0: kept(0), 1: kept(1)}, EFFECTS)
    report = Report(dict.fromkeys(KEYS, 1), {}, {}, stale=1, repeated=2)
    return judge(state or whole, replace(report, **reported), kills=5, grouped=3, until=UNTIL)


def test_two_sessions_share_some_orders_and_have_others_of_their_own() -> None:
    """The same number is the same call, at every life of a worker."""
    assert call_of(0, 4) == call_of(1, 4)
    assert call_of(0, 5) != call_of(1, 5)
    assert len(KEYS) == 6


def test_a_run_in_which_all_is_well_has_kept_its_promises() -> None:
    """The counts of what the service refused are told, and are no fault."""
    verdict = judged()
    assert (verdict.calls, verdict.keys, verdict.done, verdict.stale, verdict.repeated) == (16, 6, 6, 1, 2)
    assert verdict.kept


@pytest.mark.parametrize("times, duplicates, lost", [(3, 2, 0), (0, 0, 1)])
def test_an_effect_that_did_not_happen_once_is_a_duplicate_or_lost(times: int, duplicates: int, lost: int) -> None:
    """Each time beyond the first counts, whatever the session believes."""
    first = {order_of(0, 0): times} if times else {}
    verdict = judged(charged=dict.fromkeys(KEYS - {order_of(0, 0)}, 1) | first)
    assert (verdict.duplicates, verdict.lost, verdict.kept) == (duplicates, lost, False)


@pytest.mark.parametrize("times, misapplied", [(1, 0), (0, 1), (3, 2)])
def test_an_effect_that_is_not_applied_exactly_once_is_misapplied(times: int, misapplied: int) -> None:
    """A row for each effect of the tool with `apply`."""
    effects = {f"key of {order}": "done" for order in KEYS - {order_of(0, 0)}} | {"shop:charge:1": "done"}
    rows = {"shop:charge:1": times} if times else {}
    verdict = judged(State({0: kept(0), 1: kept(1)}, effects, applications=rows))
    assert (verdict.applied, verdict.misapplied, verdict.kept) == (len(rows), misapplied, not misapplied)


def test_an_effect_that_the_ledger_does_not_have_as_done_is_told() -> None:
    """And one that was unknown is resolved only when it is done."""
    key = f"key of {order_of(0, 0)}"
    well = judged(asked={key: 2})
    assert (well.unknown, well.resolved, well.kept) == (1, 1, True)
    ill = judged(State({0: kept(0), 1: kept(1)}, EFFECTS | {key: "unknown"}), asked={key: 2})
    assert (ill.done, ill.unknown, ill.resolved, ill.kept) == (5, 1, 0, False)


@pytest.mark.parametrize(
    "wrong, torn",
    [
        (replace(kept(0), rows=[2]), 1),
        (replace(kept(0), rows=[2, 2, 6]), 1),
        (replace(kept(0), lines=[3]), 1),
        (replace(kept(0), lines=[3, 7, 11]), 1),
        (replace(kept(0), receipts=[*ORDERS[0], ORDERS[0][0]]), 1),
        (replace(kept(0), receipts=ORDERS[0][1:]), 1),
        (replace(kept(0), applied=UNTIL - 2), 2),
    ],
    ids=["row missing", "row twice", "line missing", "line too many", "receipt twice", "receipt missing", "not ended"],
)
def test_a_session_that_disagrees_with_the_table_or_the_files_is_torn(wrong: Kept, torn: int) -> None:
    """Missing and too many count alike."""
    verdict = judged(State({0: wrong, 1: kept(1)}, EFFECTS))
    assert (verdict.torn, verdict.kept) == (torn, False)


def changed(was: str, status: str, fence: int, *, message: str = "", note: str = "") -> Change:
    """A change of an effect."""
    return Change("key", "e1", was, status, fence, message, note)


def told(*changes: Change, **reported: Any) -> Verdict:
    """The verdict where the ledger has said this of an effect in turn."""
    return judged(State({0: kept(0), 1: kept(1)}, EFFECTS, list(changes)), **reported)


@pytest.mark.parametrize("charged_under, denied", [(1, 1), (2, 1), (3, 0)])
def test_an_effect_that_was_recorded_as_failed_though_it_had_happened_is_denied(
    charged_under: int, denied: int
) -> None:
    """It may have happened later, under a newer fencing token: the entry was right then."""
    verdict = told(changed("running", "failed", 2), firsts={"key": charged_under})
    assert (verdict.denied, verdict.kept) == (denied, not denied)
    assert told(changed("running", "failed", 2)).denied == 0


def test_reasons_for_which_effects_became_unknown_are_counted() -> None:
    """What a handler raised, a timeout, and others, such as an expired lease."""
    tool = Tool[None, None](name="pay", description="Pays.", handler=None)
    notes = [
        *(f"KeyError: {make()}\nTraceback" for make in DOUBTS.values()),
        str(HandlerTimeoutError(tool, TIMEOUT)),
        "expired",
    ]
    verdict = told(*(changed("running", "unknown", 2, note=note) for note in notes))
    assert (verdict.raised, verdict.overran, verdict.kept) == (len(DOUBTS), 1, True)


@pytest.mark.parametrize(
    "change, accepted",
    [
        (changed("unknown", "done", 2, message=CHARGED), 1),
        (changed("unknown", "done", 2, message=FOUND), 0),
        (changed("running", "done", 2, message=CHARGED), 0),
        (changed("unknown", "running", 3), 0),
    ],
    ids=["late", "found by a reconciler", "by its owner", "claimed"],
)
def test_a_late_result_that_settled_its_effect_is_counted(change: Change, accepted: int) -> None:
    """An effect that was unknown is done, and not because a reconciler has found it."""
    assert told(change).late_accepted == accepted
