"""What `make chaos` is built on: the judge of what is left, what goes wrong in handlers, and the outside world."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from chaos import history, service
from chaos.desk import CHARGED, FOUND, NAMES, call_of, order_of
from chaos.faults import DOUBTS, MARK, NOT_APPLIED_ON, PROOFS, TIMEOUT
from chaos.history import Change
from chaos.service import Client, Report
from chaos.verdict import Kept, State, Verdict, judge
from handrail import store
from handrail.prompt import External, Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger
from handrail.runtime.failures import unknown_because
from handrail.runtime.ledger.effects import Claimed, ClaimRequest, EffectResult, NotKnown
from tests.architecture.sources import ROOT

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
        *(({"rows": [2]}, 1), ({"rows": [2, 2, 6]}, 1), ({"lines": [3]}, 1), ({"lines": [3, 7, 11]}, 1)),
        *(({"receipts": [*ORDERS[0], ORDERS[0][0]]}, 1), ({"receipts": ORDERS[0][1:]}, 1), ({"applied": UNTIL - 2}, 2)),
    ],
    ids=str,
)
def test_a_session_that_disagrees_with_the_table_or_the_files_is_torn(wrong: dict[str, Any], torn: int) -> None:
    """Missing and too many count alike."""
    verdict = judged(State({0: replace(kept(0), **wrong), 1: kept(1)}, EFFECTS))
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
    notes = [f"KeyError: {make()}\nTraceback" for make in DOUBTS.values()]
    seconds = f"{TIMEOUT.total_seconds():g}"
    undone = "and its changes to session and files were undone."
    notes += [f"{tool.name} was stopped after its timeout of {seconds} s, {undone}", "expired"]
    verdict = told(*(changed("running", "unknown", 2, note=note) for note in notes))
    assert (verdict.raised, verdict.overran, verdict.kept) == (len(DOUBTS), 1, True)


@pytest.mark.parametrize(
    "was, status, message, accepted",
    [
        *(("unknown", "done", CHARGED, 1), ("unknown", "done", FOUND, 0)),
        *(("running", "done", CHARGED, 0), ("unknown", "running", "", 0)),
    ],
)
def test_a_late_result_that_settled_its_effect_is_counted(was: str, status: str, message: str, accepted: int) -> None:
    """An effect that was unknown is done, and not because a reconciler has found it."""
    assert told(changed(was, status, 2, message=message)).late_accepted == accepted


def pay(params: None, *, context: ToolContext) -> ToolResult[None]:
    """Never called."""
    raise NotImplementedError


PAYING = Tool[None, None](name="pay", description="Pays.", handler=pay, effect=External(not_applied_on=NOT_APPLIED_ON))


@pytest.mark.parametrize("make", PROOFS.values(), ids=PROOFS)
def test_what_is_raised_only_before_the_effect_proves_that_it_was_not_applied(make: Callable[[], Exception]) -> None:
    """The ledger takes it so."""
    assert unknown_because(make(), PAYING) is None


@pytest.mark.parametrize("make", DOUBTS.values(), ids=DOUBTS)
def test_what_is_raised_after_the_effect_proves_nothing(make: Callable[[], Exception]) -> None:
    """And the note of the effect shows that it was raised here."""
    note = unknown_because(make(), PAYING)
    assert note is not None
    assert MARK in note.partition("\n")[0]


def test_every_change_of_an_effect_is_noted(url: str) -> None:
    """With the key, the states before and after, and the fencing token."""
    history.create(url)
    with store.open(url) as kept:
        ledger = EffectLedger(kept)
        claim = ledger.claim(ClaimRequest("", "key", "pay", "hash", lease=timedelta(minutes=1)))
        assert isinstance(claim, Claimed)
        ledger.renew(claim)
        assert ledger.end(claim, NotKnown("read timed out"))
        row = ledger.row("key")
        assert row is not None
        assert ledger.resolve(row, EffectResult("found"))
    assert history.changes_of(url) == [
        Change("key", row.effect_id, "running", "unknown", 2, "", "read timed out"),
        Change("key", row.effect_id, "unknown", "done", 2, "found", ""),
    ]


@pytest.fixture
def client() -> Generator[Client]:
    """A client of a service of its own."""
    with service.running() as address:
        speaking = Client(address)
        yield speaking
        speaking.close()


def test_every_charge_counts_unless_it_is_asked_to_know_the_key(client: Client) -> None:
    """A service that honours keys answers with the receipt of the first time."""
    assert client.charge("tea", "k1", 1, once=False) == 1
    assert client.charge("tea", "k1", 1, once=False) == 2
    assert client.charge("bun", "k2", 1, once=True) == 3
    assert client.charge("bun", "k2", 2, once=True) == 3
    assert client.report() == Report({"tea": 2, "bun": 1}, {}, {"k1": 1, "k2": 1}, stale=0, repeated=1)


def test_an_older_fence_is_refused_after_a_newer_one_was_seen(client: Client) -> None:
    """In a charge, or in a question: whoever asked was told that it did not happen, so it must not happen later."""
    assert client.find("k1", 2) is None
    assert client.charge("tea", "k1", 1, once=False) is None
    assert client.charge("tea", "k1", 3, once=False) == 1
    assert client.charge("tea", "k1", 2, once=False) is None
    assert client.find("k1", 0) == 1
    assert client.report() == Report({"tea": 1}, {"k1": 2}, {"k1": 3}, stale=2, repeated=0)


def test_what_a_process_asked_before_it_was_killed_is_known_to_who_asks_after_it() -> None:
    """Requests are taken in the order in which they were sent; the answer to a dead one goes nowhere."""
    with service.running() as address:
        request = json.dumps({"do": "charge", "order": "tea", "key": "k1", "fence": 1, "once": False})
        code = (
            "import os, signal, socket, sys\n"
            "speaking = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            "speaking.bind(sys.argv[1] + '.dead')\n"
            "speaking.sendto(sys.argv[2].encode(), sys.argv[1])\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        dead = subprocess.run([sys.executable, "-c", code, address, request], check=False, cwd=ROOT)
        assert dead.returncode == -signal.SIGKILL
        client = Client(address)
        assert client.find("k1", 2) == 1
        client.close()
