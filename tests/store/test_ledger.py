"""What every store promises of the rows of a ledger, and the slots below a session, over every store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from handrail.errors import AppliedMeanwhileError, LeaseLostError, SessionError
from handrail.session.persistence.protocol import AnswerChange, AnswerRow, SessionAppend
from handrail.store import EffectRow, LedgerStore, MemoryStore, Store
from handrail.store.base_store import UnresolvedSlots
from handrail.store.protocol import ClaimOwner, EffectInsert, MarkApplied, RefusedWrite, change_effect
from handrail.testing import FakeClock
from handrail.transaction import RecordCommit, UnitOfWork
from tests.store.kit import delete, entries, held, insert, replace, running_row
from tests.store.postgres_server import server_url
from tests.store.stores import STORES
from tests.wording import Wording

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
    before = running_row(clock)
    present = change(before)
    insert(store, present)
    assert not replace(store, before, before._replace(note="zombie"))
    assert not delete(store, before)
    assert store.get("s1", before.key) == present


def test_all_columns_come_back(store: LedgerStore, clock: FakeClock) -> None:
    """A store keeps every column as it was: times with their zone, bytes, falsy values."""
    now = clock.now()
    row = running_row(clock, "session:pay:ü\n'; --", partition="")._replace(
        owner=ClaimOwner("s/1", None, "cäll/1", "a b 1 2"),
        status="done",
        fence=7,
        lease_until=None,
        completed_at=now,
        expires_at=now + timedelta(microseconds=1),
        message="",
        value=b'{"a":null}',
        exclude_value_from_context=True,
        note="nöte",
        arguments=b'{"order":1}',
        applied_at=now + timedelta(microseconds=2),
    )
    insert(store, row)
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
    late = running_row(clock)._replace(key="a", lease_until=clock.now())
    insert(store, late)
    held = late._replace(key="b", effect_id="2" * 32, lease_until=clock.now() + timedelta(minutes=1))
    insert(store, held)
    (found,) = store.end_leases_of_dead("s1")
    assert found.key == "b"


def test_a_refused_write_says_what_the_call_has_lost(clock: FakeClock, wording: Wording) -> None:
    """Its claim, its turn to apply, or the right to answer."""
    row = running_row(clock)
    claim = RefusedWrite(EffectInsert(row)).error()
    assert isinstance(claim, LeaseLostError)
    assert (claim.key, claim.fence) == (row.key, row.fence)
    applied = RefusedWrite(MarkApplied(row, row._replace(applied_at=clock.now()))).error()
    assert isinstance(applied, AppliedMeanwhileError)
    assert applied.key == row.key
    answered = RefusedWrite(AnswerChange(None, AnswerRow("s1", "r1", "c1", clock.now(), b"{}"))).error()
    assert isinstance(answered, SessionError)
    assert str(answered) == wording


BELOW = ("s", "s/1", "s/1/2", "s/é", "s/\U0010ffff")
BESIDE = ("", "/s", "S/1", "r", "s!", "s-1", "s.1", "s0", "s0/1", "s1", "t/s", "ß/1", "s ", "\U0010ffff")


def unknown(partition: str, key: str = "call:r/c", tool: str = "pay") -> EffectRow:
    """The row of an effect whose outcome is unknown."""
    now = FakeClock().now()
    return EffectRow(partition, key, "a" * 32, tool, "", ClaimOwner(), "unknown", 2, now)


def test_sessions_that_are_named_after_another_are_below_it(store: Store) -> None:
    """And no others, however a database sorts their ids."""
    for partition in (*BESIDE, *BELOW):
        assert insert(store, unknown(partition)) is None
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
    row = unknown("s/1")
    assert insert(store, row) is None
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
    slots, row = UnresolvedSlots(), unknown("s/1")
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
    store, row = MemoryStore(clock=clock), running_row(clock)
    hold = held(store, clock)
    unit = UnitOfWork(
        (EffectInsert(row), SessionAppend(hold, 0, tuple(entries(1, 2))), RecordCommit(Interrupting("j")))
    )
    interrupts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        store.apply(unit)
    assert list(store.rows()) == [row]
    assert list(store.entries("s1")) == entries(1, 2)
    assert store.is_committed("j")
    assert store.apply(unit) is None


@pytest.mark.parametrize("is_there", [False, True])
def test_one_of_many_threads_writes_a_row(store: LedgerStore, clock: FakeClock, *, is_there: bool) -> None:
    """Of all that insert one key at once, or replace its row, one does; the others are told of the row."""
    start, before = threading.Barrier(THREADS), running_row(clock)
    rows = [before._replace(fence=2, owner=ClaimOwner(call_id=str(number))) for number in range(THREADS)]
    if is_there:
        insert(store, before)

    def write(row: EffectRow) -> bool:
        start.wait()
        return replace(store, before, row) if is_there else insert(store, row) is None

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(write, rows))
    assert answers.count(True) == 1
    assert list(store.rows()) == [rows[answers.index(True)]]
