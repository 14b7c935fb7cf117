"""The rows of a ledger and units of work over every store, alone and in groups: all of it or nothing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from handrail import crash_points, errors, store
from handrail.session.persistence.protocol import (
    AnswerChange,
    AnswerRow,
    Checkpoint,
    SessionAppend,
    SessionHeld,
    SessionLock,
)
from handrail.store import EffectRow, LedgerStore, MemoryStore, Store
from handrail.store.base_store import UnresolvedSlots
from handrail.store.protocol import ClaimOwner, EffectChange, EffectInsert, MarkApplied, RefusedWrite, change_effect
from handrail.store.sql.units import PendingUnit, UnitAnswer
from handrail.store.sqlite.store import SqliteStore
from handrail.testing import FakeClock
from handrail.transaction import RecordCommit, UnitOfWork
from tests.store import kit
from tests.store.postgres_server import doomed, end_connections, fresh_url, server_url
from tests.store.stores import STORES
from tests.wording import Wording


def unknown(row: EffectRow) -> EffectRow:
    """What a row becomes in most units here."""
    return row._replace(status="unknown", lease_until=None)


def test_unit_of_which_one_write_is_refused_leaves_nothing(store: Store, clock: FakeClock) -> None:
    """Whichever it is: a key that is taken, a row that has changed, or one that is gone."""
    stays, doomed, hold = kit.running_row(clock), kit.running_row(clock, "gone"), kit.held(store, clock)
    kit.insert(store, stays)
    kit.insert(store, doomed)
    kit.append(store, hold, 0, kit.entries(1, 1), Checkpoint(1, b"one"))
    kit.record_commit(store, "j1")
    taken = EffectInsert(stays._replace(effect_id="2" * 32))
    changed, absent = EffectChange(stays._replace(fence=7), None), EffectChange(kit.running_row(clock, "none"), None)
    for write, present in ((taken, stays), (changed, stays), (absent, None)):
        writes = (
            EffectInsert(kit.running_row(clock, "new")),
            EffectChange(doomed, None),
            SessionAppend(hold, 1, tuple(kit.entries(2, 3)), Checkpoint(3, b"three")),
            RecordCommit("j2"),
            write,
        )
        assert store.apply(UnitOfWork(writes)) == RefusedWrite(write, present)
        assert {row.key: row for row in store.rows()} == {stays.key: stays, "gone": doomed}
        assert list(store.entries("s1")) == kit.entries(1, 1)
        assert store.checkpoint("s1") == Checkpoint(1, b"one")
        assert (store.is_committed("j1"), store.is_committed("j2")) == (True, False)


def test_unit_that_was_written_already_changes_nothing(store: Store, clock: FakeClock) -> None:
    """Its answer was lost, so it is repeated: it is answered as if it had been written now."""
    row, added, hold = kit.running_row(clock), kit.running_row(clock, "added"), kit.held(store, clock)
    kit.insert(store, row)
    units = [
        (EffectChange(row, unknown(row)), SessionAppend(hold, 0, tuple(kit.entries(1, 2))), RecordCommit("j")),
        (EffectInsert(added), RecordCommit("j2")),
    ]
    for _ in range(2):
        assert [store.apply(UnitOfWork(writes)) for writes in units] == [None] * 2
    assert {one.key: one for one in store.rows()} == {row.key: unknown(row), "added": added}
    assert list(store.entries("s1")) == kit.entries(1, 2)


def test_watcher_is_notified_when_the_unit_counts(store: Store, clock: FakeClock) -> None:
    """After the commit, and never of a unit that was refused."""
    notified: list[EffectRow | None] = []
    row, taken = kit.running_row(clock), kit.running_row(clock, "taken")
    kit.insert(store, taken)
    store.watch("s1", row.key, notified.append)
    assert store.apply(UnitOfWork((EffectInsert(row), EffectInsert(taken._replace(fence=2))))) is not None
    assert notified == []
    assert store.apply(UnitOfWork((EffectInsert(row), EffectChange(taken, None)))) is None
    assert kit.replace(store, row, unknown(row))
    assert notified == [row, unknown(row)]


def test_a_done_effect_is_marked_as_applied_once(store: Store, clock: FakeClock) -> None:
    """The mark is compared and set: not for another effect of the key, nor one that runs. A unit may be repeated."""
    now = clock.now()
    waits = kit.running_row(clock)._replace(status="done", lease_until=None, completed_at=now, expires_at=now)
    kit.insert(store, waits)
    kit.insert(store, kit.running_row(clock, "runs"))
    hold = kit.held(store, clock)
    woken: list[EffectRow | None] = []
    store.watch("s1", waits.key, woken.append)
    marked = waits._replace(applied_at=now, expires_at=None)
    unit = UnitOfWork((MarkApplied(waits, marked), SessionAppend(hold, 0, tuple(kit.entries(1, 1)), None)))
    other, runs = waits._replace(effect_id="7" * 32), kit.running_row(clock, "runs")
    for write in (MarkApplied(other, marked), MarkApplied(runs, runs._replace(applied_at=now))):
        present = store.get("s1", write.before.key)
        assert store.apply(UnitOfWork((write, *unit.writes[1:]))) == RefusedWrite(write, present)
    assert list(store.entries("s1")) == []
    assert store.apply(unit) is None
    assert (store.get("s1", waits.key), woken) == (marked, [marked])
    assert store.apply(unit) is None
    clock.advance(timedelta(seconds=1))
    again = MarkApplied(waits, marked._replace(applied_at=clock.now()))
    refusal = store.apply(UnitOfWork((again, SessionAppend(hold, 1, tuple(kit.entries(2, 2)), None))))
    assert refusal == RefusedWrite(again, marked)
    assert list(store.entries("s1")) == kit.entries(1, 1)


def test_change_is_refused_for_the_row_of_another_call_with_the_same_fence(store: Store, clock: FakeClock) -> None:
    """Of two calls that claim a failed effect again one is refused; if it is cancelled then, it withdraws its own."""
    failed = kit.running_row(clock)._replace(status="failed", completed_at=clock.now(), lease_until=None)
    kit.insert(store, failed)
    first = kit.running_row(clock)._replace(fence=failed.fence + 1)
    second = first._replace(owner=first.owner._replace(call_id="another"))
    assert kit.replace(store, failed, first)
    for write in (EffectChange(second, second._replace(status="failed")), EffectChange(second, None)):
        assert store.apply(UnitOfWork((write,))) == RefusedWrite(write, first)
        assert store.apply(UnitOfWork((write, RecordCommit("j")))) == RefusedWrite(write, first)
    assert kit.replace(store, first, unknown(first))


def group(database: Store, *units: Sequence[object], again: bool = False) -> list[UnitAnswer]:
    """Write units as the group that they are when they wait at the same time."""
    pending = [PendingUnit(UnitOfWork(tuple(unit))) for unit in units]
    for unit in pending:
        unit.may_be_written = again
    return list(kit.committer_of(database).write(pending))


def done(row: EffectRow) -> EffectRow:
    """What a row becomes when its call is committed."""
    return row._replace(status="done", lease_until=None, completed_at=row.created_at)


def commit_of(lock: SessionLock, row: EffectRow, *, head: int = 0) -> tuple[object, ...]:
    """A unit that commits a call."""
    appended = SessionAppend(lock, head, tuple(kit.entries(head + 1, head + 2)), Checkpoint(head + 2, b"c"))
    return (EffectChange(row, done(row)), appended, RecordCommit(f"journal-{lock.session_id}"))


def sessions(database: Store, clock: FakeClock, number: int) -> list[tuple[SessionLock, EffectRow]]:
    """Sessions that are held, each with a running effect."""
    pairs: list[tuple[SessionLock, EffectRow]] = []
    for place in range(number):
        row = kit.running_row(clock)._replace(partition=f"s{place}", effect_id=f"{place:032x}")
        kit.insert(database, row)
        pairs.append((kit.held(database, clock, f"s{place}"), row))
    return pairs


def test_commit_that_is_refused_leaves_the_others_of_its_group_alone(database: Store, clock: FakeClock) -> None:
    """A lost lease, a lost session, entries that do not follow: nothing of those is written, all of the others is."""
    pairs = sessions(database, clock, 7)
    (lost_lock, lost_row), (_, moved), (gap, gap_row), *others, unsorted, odd = pairs
    stale = lost_lock._replace(token="0" * 32)
    units = [
        commit_of(stale, lost_row),
        commit_of(pairs[1][0], moved._replace(fence=9)),
        commit_of(gap, gap_row, head=7),
        *(commit_of(*one) for one in others),
        (SessionAppend(unsorted[0], 0, tuple(kit.entries(2, 3)), None),),
    ]
    answers = group(database, *units)
    assert isinstance(answers.pop(), errors.SessionError)
    surrogate = SessionAppend(odd[0], 0, (kit.entries(1, 1)[0]._replace(reply="\ud800"),), None)
    assert isinstance(group(database, (surrogate,), commit_of(*odd))[0], errors.StoreError)
    assert isinstance(answers[0], errors.SessionLostError)
    assert isinstance(answers[1], RefusedWrite)
    assert isinstance(answers[2], errors.SessionLostError)
    assert answers[3:] == [None, None]
    for lock, row in pairs[:3]:
        assert database.get(lock.session_id, row.key) == row
        assert list(database.entries(lock.session_id)) == []
        assert not database.is_committed(f"journal-{lock.session_id}")
    for lock, row in others:
        assert database.get(lock.session_id, row.key) == done(row)
        assert list(database.entries(lock.session_id)) == kit.entries(1, 2)


@pytest.mark.parametrize("point", ["unit-group-written", "unit-after-commit"])
def test_connection_that_is_lost_in_a_group_loses_and_repeats_nothing(clock: FakeClock, point: str) -> None:
    """The server ends the connection after the commit, or before it: each unit is looked up, and then written."""
    with fresh_url() as url, store.open(doomed(url), clock=clock) as database:
        pairs, counts = sessions(database, clock, 3), list[int]()

        def end() -> None:
            crash_points.arm(None)
            counts.append(end_connections(url))

        with kit.at_point(point, end):
            assert group(database, *(commit_of(*pair) for pair in pairs)) == [None] * 3
        assert counts > [0]
        assert [len(list(database.entries(lock.session_id))) for lock, _ in pairs] == [2] * 3


def test_group_that_cannot_be_begun_is_written_by_none(tmp_path: Path, clock: FakeClock) -> None:
    """Each of its units would wait for the lock of another process as long as the first, so none does."""
    path = tmp_path / "desk.db"
    with SqliteStore(path, busy=timedelta(milliseconds=10), clock=clock) as database:
        pairs = sessions(database, clock, 3)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(errors.StoreUnavailableError):
                group(database, *(commit_of(*one) for one in pairs))
            assert list(database.entries("s0")) == []  # reading does not wait
        assert group(database, *(commit_of(*one) for one in pairs)) == [None] * 3


def test_commits_of_a_group_are_written_in_one_transaction(database: Store, clock: FakeClock) -> None:
    """Rows, entries, checkpoints and journals of all sessions; known again when the answer was lost, with a claim."""
    pairs = sessions(database, clock, 5)
    units = [commit_of(*session) for session in pairs]
    with kit.points() as reached:
        assert group(database, *units) == [None] * 5
    assert reached.count("unit-after-commit") == 1
    claim = (EffectInsert(kit.running_row(clock, "a")._replace(partition="s0")), SessionHeld(pairs[0][0]))
    assert group(database, claim) == [None]
    assert group(database, *units, claim, again=True) == [None] * 6
    for lock, row in pairs:
        name = lock.session_id
        assert database.get(name, row.key) == done(row)
        assert list(database.entries(name)) == kit.entries(1, 2)
        assert database.checkpoint(name) == Checkpoint(2, b"c")
        assert database.is_committed(f"journal-{name}")


def test_claims_of_a_group_are_granted_each_for_itself(database: Store, clock: FakeClock) -> None:
    """Also where a key is taken, twice the same in one group, or the session is no longer held."""
    (lock, taken), (held, _) = sessions(database, clock, 2)
    lost, other = SessionHeld(held._replace(token="0" * 32)), EffectInsert(taken._replace(effect_id="e" * 32))
    claims = [kit.running_row(clock, key)._replace(partition="s0") for key in ("a", "b")]
    twice = EffectInsert(claims[0]._replace(effect_id="f" * 32))
    strange = EffectInsert(kit.running_row(clock, "c")._replace(partition="s1"))
    first, last, mine = *map(EffectInsert, claims), SessionHeld(lock)
    with kit.points() as reached:
        answers = group(database, (first, mine), (other,), (twice, mine), (strange, lost), (last,))
    assert reached.count("unit-after-commit") == 1
    assert isinstance(answers.pop(3), errors.SessionLostError)
    assert answers == [None, RefusedWrite(other, taken), RefusedWrite(twice, claims[0]), None]
    assert [*map(database.get, ("s0", "s0", "s1"), "abc")] == [*claims, None]


def test_claims_of_a_group_bring_entries_if_they_are_granted(database: Store, clock: FakeClock) -> None:
    """In one transaction; a claim that is refused adds nothing to its session, and leaves the others alone."""

    def claim(lock: SessionLock, row: EffectRow, *, head: int = 0) -> tuple[object, ...]:
        return (
            EffectInsert(row),
            SessionAppend(lock, head, tuple(kit.entries(head + 1, head + 2)), Checkpoint(head + 2, b"c")),
        )

    (lock, taken), (lost, _), (behind, _), *others = sessions(database, clock, 5)
    claims = [kit.running_row(clock, "a")._replace(partition=f"s{place}") for place in range(5)]
    granted = [claim(lock, row) for (lock, _), row in zip(others, claims[3:], strict=True)]
    unsound, other = lost._replace(token="0" * 32), taken._replace(effect_id="e" * 32)
    refused = claim(lock, other), claim(unsound, claims[1]), claim(behind, claims[2], head=5)
    answers = group(database, *refused, *granted)
    assert answers[0] == RefusedWrite(EffectInsert(other), taken)
    assert [*map(type, answers[1:])] == [*[errors.SessionLostError] * 2, *[type(None)] * 2]
    with kit.points() as reached:
        assert group(database, *granted, again=True) == [None] * 2
    assert reached.count("unit-after-commit") <= 1
    assert [database.get(f"s{place}", "a") for place in range(5)] == [None, None, None, *claims[3:]]
    assert [list(database.entries(f"s{place}")) for place in range(5)] == [*[[]] * 3, *[kit.entries(1, 2)] * 2]
    assert database.checkpoint("s3") == Checkpoint(2, b"c")


@pytest.mark.parametrize("point", ["", "unit-begun", "unit-ledger-written", "unit-before-commit"])
def test_unit_that_cannot_go_on_is_undone(store: Store, clock: FakeClock, point: str) -> None:
    """Whatever is raised at a point on the way to its commit; the store can be used afterwards."""
    row, hold = kit.running_row(clock), kit.held(store, clock)
    unit = UnitOfWork((EffectInsert(row), SessionAppend(hold, 0, tuple(kit.entries(1, 1)))))
    if point:
        with kit.at_point(point, kit.fail), pytest.raises(kit.Stop):
            store.apply(unit)
        assert list(store.rows()) == []
    with kit.points() as reached:
        assert store.apply(unit) is None
    assert reached == [
        *("unit-begun", "unit-ledger-written", "unit-session-written", "unit-before-commit", "unit-after-commit")
    ]


THREADS = 32


OTHERS: dict[str, Callable[[EffectRow], EffectRow]] = {
    "a newer fence": lambda row: row._replace(fence=row.fence + 1),
    "another status": lambda row: row._replace(status="unknown"),
    "another effect under the same fence": lambda row: row._replace(effect_id="2" * 32),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_row_that_has_changed_is_neither_replaced_nor_deleted(
    store: LedgerStore, clock: FakeClock, change: Callable[[EffectRow], EffectRow]
) -> None:
    """A writer that has seen another row than the one that stands changes nothing."""
    before = kit.running_row(clock)
    present = change(before)
    kit.insert(store, present)
    assert not kit.replace(store, before, before._replace(note="zombie"))
    assert not kit.delete(store, before)
    assert store.get("s1", before.key) == present


def test_all_columns_come_back(store: LedgerStore, clock: FakeClock) -> None:
    """A store keeps every column as it was: times with their zone, bytes, falsy values."""
    now = clock.now()
    owner, span = ClaimOwner("s/1", None, "cäll/1", "a b 1 2"), timedelta(microseconds=1)
    row = kit.running_row(clock, "session:pay:ü\n'; --", partition="", effect_id="f" * 32)
    row = row._replace(owner=owner, status="done", fence=7, lease_until=None, message="", value=b'{"a":null}')
    row = row._replace(completed_at=now, expires_at=now + span, applied_at=now + 2 * span, note="nöte")
    row = row._replace(exclude_value_from_context=True, arguments=b'{"order":1}')
    kit.insert(store, row)
    assert store.get("", row.key) == row
    assert list(store.rows()) == [row]


def test_the_key_for_hashes_is_random_and_stays(store: LedgerStore) -> None:
    """32 bytes, the same whenever they are asked for."""
    key = store.hash_key()
    assert len(key) == 32
    assert store.hash_key() == key
    assert MemoryStore().hash_key() != key


def test_an_expired_lease_hides_no_other(store: Store, clock: FakeClock) -> None:
    """Every running effect of a session is looked at; those within their lease are returned."""
    late = kit.running_row(clock)._replace(key="a", lease_until=clock.now())
    kit.insert(store, late)
    held = late._replace(key="b", effect_id="2" * 32, lease_until=clock.now() + timedelta(minutes=1))
    kit.insert(store, held)
    (found,) = store.end_leases_of_dead("s1")
    assert found.key == "b"


def test_a_refused_write_says_what_the_call_has_lost(clock: FakeClock, wording: Wording) -> None:
    """Its claim, its turn to apply, or the right to answer."""
    row = kit.running_row(clock)
    claim = RefusedWrite(EffectInsert(row)).error()
    assert isinstance(claim, errors.LeaseLostError)
    assert (claim.key, claim.fence) == (row.key, row.fence)
    applied = RefusedWrite(MarkApplied(row, row._replace(applied_at=clock.now()))).error()
    assert isinstance(applied, errors.AppliedMeanwhileError)
    assert applied.key == row.key
    answered = RefusedWrite(AnswerChange(None, AnswerRow("s1", "r1", "c1", clock.now(), b"{}"))).error()
    assert isinstance(answered, errors.SessionError)
    assert str(answered) == wording


BELOW = ("s", "s/1", "s/1/2", "s/é", "s/\U0010ffff")
BESIDE = ("", "/s", "S/1", "r", "s!", "s-1", "s.1", "s0", "s0/1", "s1", "t/s", "ß/1", "s ", "\U0010ffff")


def unknown_row(partition: str, key: str = "call:r/c", tool: str = "pay") -> EffectRow:
    """The row of an effect whose outcome is unknown."""
    now = FakeClock().now()
    return EffectRow(partition, key, "a" * 32, tool, "", ClaimOwner(), "unknown", 2, now)


def test_sessions_that_are_named_after_another_are_below_it(store: Store) -> None:
    """And no others, however a database sorts their ids."""
    for partition in (*BESIDE, *BELOW):
        assert kit.insert(store, unknown_row(partition)) is None
    assert {row.partition for row in store.effects_below("s")} == set(BELOW)
    assert {row.partition for row in store.unresolved_slots("s", "pay")} == set(BELOW)
    assert {row.partition for row in store.unresolved_slots("s/1", "pay")} == {"s/1", "s/1/2"}
    assert store.unresolved_slots("s", "send") == ()


def test_postgresql_compares_the_ids_of_sessions_byte_by_byte() -> None:
    """In a database that sorts by a language, a range of ids would have others in it."""
    kept = STORES["postgres"](FakeClock())
    with psycopg.connect(server_url()) as connection:
        collations = connection.execute(
            "SELECT DISTINCT collation_name FROM information_schema.columns "
            "WHERE table_name = 'handrail_effects' AND column_name = 'partition'"
        ).fetchall()
    assert (list(kept.rows()), collations) == ([], [("C",)])


def test_what_is_written_below_a_session_is_noted(store: Store) -> None:
    """Also after the session has been asked for."""
    assert store.unresolved_slots("s", "pay") == ()
    row = unknown_row("s/1")
    assert kit.insert(store, row) is None
    assert store.unresolved_slots("s", "pay") == (row,)
    now = store.now()
    done = row._replace(status="done", completed_at=now)
    assert change_effect(store, row, done)
    assert store.unresolved_slots("s", "pay") == (done,)  # it was found out, and no model has read it
    assert change_effect(store, done, done._replace(expires_at=now + timedelta(days=1), fence=3))
    assert store.unresolved_slots("s", "pay") == ()


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_becomes_unknown_while_the_slots_are_read_is_noted(is_forgotten: bool) -> None:
    """Another agent of the run works meanwhile, or begins."""
    slots, row = UnresolvedSlots(), unknown_row("s/1")
    reads: list[int] = []

    def load() -> Iterable[EffectRow]:
        reads.append(1)
        if len(reads) > 1:
            return [row]
        if is_forgotten:
            slots.forget("s/2")
        slots.note(*row[:2], row)
        return []

    assert slots.find("s", "pay", load) == [row[:2]]
    assert slots.find("s", "pay", load) == [row[:2]]
    assert len(reads) == 2
    slots.forget("s/2")
    assert slots.find("s", "pay", load) == [row[:2]]
    assert len(reads) == 3


class Interrupting(str):
    """An id whose first use is interrupted."""

    __slots__ = ()

    def __hash__(self) -> int:
        if interrupts:
            raise interrupts.pop()
        return super().__hash__()


interrupts: list[KeyboardInterrupt] = []


def test_interrupt_in_the_middle_of_a_unit_leaves_it_whole(clock: FakeClock) -> None:
    """Nothing undoes a unit in memory, so it is written to its end; then the interrupt propagates."""
    store, row = MemoryStore(clock=clock), kit.running_row(clock)
    hold = kit.held(store, clock)
    unit = UnitOfWork(
        (EffectInsert(row), SessionAppend(hold, 0, tuple(kit.entries(1, 2))), RecordCommit(Interrupting("j")))
    )
    interrupts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        store.apply(unit)
    assert list(store.rows()) == [row]
    assert list(store.entries("s1")) == kit.entries(1, 2)
    assert store.is_committed("j")
    assert store.apply(unit) is None


@pytest.mark.parametrize("is_there", [False, True])
def test_one_of_many_threads_writes_a_row(store: LedgerStore, clock: FakeClock, *, is_there: bool) -> None:
    """Of all that insert one key at once, or replace its row, one does; the others are told of the row."""
    start, before = threading.Barrier(THREADS), kit.running_row(clock)
    rows = [before._replace(fence=2, owner=ClaimOwner(call_id=str(number))) for number in range(THREADS)]
    if is_there:
        kit.insert(store, before)

    def write(row: EffectRow) -> bool:
        start.wait()
        return kit.replace(store, before, row) if is_there else kit.insert(store, row) is None

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(write, rows))
    assert answers.count(True) == 1
    assert list(store.rows()) == [rows[answers.index(True)]]
