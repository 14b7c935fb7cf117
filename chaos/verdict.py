"""What came of a run: every promise that Handrail gives, counted."""

from __future__ import annotations

import json
import os
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta

from chaos.desk import APPLYING, BOOK, CHARGED, TYPES, Noted, Receipt, Written, applied, order_of, session_name
from chaos.faults import MARK
from chaos.history import Change, changes_of
from chaos.service import Report
from chaos.table import applications_of, rows_of
from chaos.world import World
from handrail.runtime import Session
from handrail.store import Store

_PATIENCE = timedelta(seconds=30)
"""How long to wait for a session whose last writer has just been killed."""


_OVERRAN = "was stopped after its timeout"
"""Stands in the note of an effect that is unknown because its handler overran."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a store holds of one session, and what lies on disk for it.

    Attributes:
        applied: how many calls it has taken in.
        receipts: the orders that it has a receipt of, in order.
        noted: the numbers that it believes to be rows of the table.
        rows: the numbers that are.
        written: the numbers that it believes to be lines of its book.
        lines: the numbers that are.
    """

    applied: int
    receipts: list[str]
    noted: list[int]
    rows: list[int]
    written: list[int]
    lines: list[int]


@dataclass(frozen=True, slots=True)
class State:
    """What is left when everybody has gone.

    Attributes:
        sessions: what is kept of each, by its number.
        effects: the status of each effect in the ledger, by its key; here no two partitions share one.
        changes: what the ledger has said of them in turn.
        applications: how many rows were written for each effect that is applied, by its key.
    """

    sessions: Mapping[int, Kept]
    effects: Mapping[str, str]
    changes: list[Change] = field(default_factory=list[Change])
    applications: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Verdict:
    """The line of one run.

    Attributes:
        kills: how many workers were killed.
        grouped: how many units of work were written beside others in one transaction.
        calls: how many calls the sessions have taken in.
        keys: how many effects were asked for.
        done: how many of them the ledger has as done.
        duplicates: how many effects happened once too often.
        lost: how many effects somebody has a receipt of, or should have, that have not happened.
        unknown: how many effects were unknown at some time.
        resolved: how many of them have come to an end all the same.
        torn: how many calls are in the session and not on disk or in the table, or the other way round, or twice.
        stale: how many late charges the service has refused.
        repeated: how many charges it has answered with an earlier receipt.
        denied: how often the ledger has recorded as failed what had happened.
        raised: how often an effect became unknown because its handler raised.
        overran: how often because its handler overran its timeout.
        late_accepted: how often an effect that was unknown was settled by the late result of its owner.
        applied: how many effects were applied.
        misapplied: how many effects that are to be applied were not, or once too often.
    """

    kills: int
    grouped: int
    calls: int
    keys: int
    done: int
    duplicates: int
    lost: int
    unknown: int
    resolved: int
    torn: int
    stale: int
    repeated: int
    denied: int = 0
    raised: int = 0
    overran: int = 0
    late_accepted: int = 0
    applied: int = 0
    misapplied: int = 0

    @property
    def kept(self) -> bool:
        """Whether every promise was kept."""
        broken = self.duplicates + self.lost + self.torn + self.denied + self.misapplied
        return self.done == self.keys and self.unknown == self.resolved and not broken


def read_state(world: World) -> State:
    """What the store and the files hold, read in a process of its own, so that nothing stays open in this one."""
    path = world.folder / "state.json"
    path.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        try:
            state = _read(world)
            path.write_text(json.dumps(asdict(state)), encoding="utf-8")
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the run ends with it
            traceback.print_exc()
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    known = json.loads(path.read_text(encoding="utf-8"))
    return State(
        {int(number): Kept(**kept) for number, kept in known["sessions"].items()},
        known["effects"],
        [Change(*change) for change in known["changes"]],
        known["applications"],
    )


def judge(state: State, report: Report, *, kills: int, grouped: int, until: int) -> Verdict:
    """Compare what is kept with what has happened.

    Args:
        state: what is left.
        report: what the service has done.
        kills: how many workers were killed.
        grouped: how many units were written in groups.
        until: how many calls each session was to take in.
    """
    orders = {n: [order for number in range(until) if (order := order_of(n, number))] for n in state.sessions}
    keys = {order for of_session in orders.values() for order in of_session}
    receipts = Counter[str]()
    torn = 0
    for n, kept in state.sessions.items():
        receipts.update(kept.receipts)
        torn += _differences(kept.receipts, orders[n])
        torn += _differences(kept.noted, kept.rows) + _differences(kept.written, kept.lines)
        torn += abs(kept.applied - until)
    done = {key for key, status in state.effects.items() if status == "done"}
    reasons = [change.note.partition("\n")[0] for change in state.changes if change.status == "unknown"]
    return Verdict(
        kills=kills,
        grouped=grouped,
        calls=sum(kept.applied for kept in state.sessions.values()),
        keys=len(keys),
        done=len(done),
        duplicates=sum(times - 1 for times in report.charged.values() if times > 1),
        lost=len((keys | receipts.keys()) - report.charged.keys()),
        unknown=len(report.asked),
        resolved=len(report.asked.keys() & done),
        torn=torn,
        stale=report.stale,
        repeated=report.repeated,
        denied=sum(
            change.status == "failed" and report.firsts.get(change.key, change.fence + 1) <= change.fence
            for change in state.changes
        ),
        raised=sum(MARK in why for why in reasons),
        overran=sum(_OVERRAN in why for why in reasons),
        # What a reconciler has found says so.
        late_accepted=sum(
            (change.was, change.status, change.message) == ("unknown", "done", CHARGED) for change in state.changes
        ),
        applied=len(state.applications),
        misapplied=sum(abs(state.applications.get(key, 0) - 1) for key in _to_be_applied(state)),
    )


def _to_be_applied(state: State) -> set[str]:
    """The keys of the effects whose tool has `apply`, and of those that were applied."""
    return {key for key in state.effects if f":{APPLYING}:" in key} | state.applications.keys()


def _differences(some: list[str] | list[int], others: list[str] | list[int]) -> int:
    """How many items two lists do not share, each as often as it stands there."""
    one, other = Counter[object](some), Counter[object](others)
    return (one - other).total() + (other - one).total()


def _read(world: World) -> State:
    with world.open_store() as kept_in:
        known = {n: _kept(world, kept_in, n) for n in range(world.sessions)}
        rows = list(kept_in.rows())
        return State(known, {row.key: row.status for row in rows}, changes_of(world.url), applications_of(world.url))


def _kept(world: World, kept_in: Store, n: int) -> Kept:
    name = session_name(n)
    with Session.open(kept_in, name, types=TYPES, wait=_PATIENCE) as session, world.open_files(n, kept_in) as files:
        return Kept(
            applied=applied(session),
            receipts=[receipt.order for receipt in session[Receipt].all()],
            noted=[noted.n for noted in session[Noted].all()],
            rows=rows_of(world.url, name),
            written=[written.n for written in session[Written].all()],
            lines=[int(line) for line in files.read_text(BOOK).split()] if files.exists(BOOK) else [],
        )
