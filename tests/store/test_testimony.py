"""Testimony, over every store: it stands beside the row of its effect, and goes with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from handrail.errors import StoreUnavailableError
from handrail.store import EffectRow, LedgerStore, SqliteStore, Store, protocol
from handrail.store.protocol import EffectChange
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.store.calls import call
from tests.store.failing import failing
from tests.store.ledger_stores import running_row
from tests.store.orders import add, with_orders
from tests.store.units import delete, give_testimony, insert, replace
from tests.wording import Wording

EFFECT, OTHER = "1" * 32, "2" * 32


def said(clock: FakeClock, fence: int = 1, *, effect_id: str = EFFECT, message: str = "paid") -> protocol.Testimony:
    """That an effect is done."""
    return protocol.Testimony(effect_id, fence, clock.now(), "done", message, b"1")


def test_all_columns_of_testimony_come_back(store: LedgerStore, clock: FakeClock) -> None:
    """Times with their zone, bytes, falsy values, text that a database refuses in a message."""
    given = [
        protocol.Testimony(EFFECT, 1, clock.now(), "done", "päid \ud800\0", b"", exclude_value_from_context=True),
        protocol.Testimony(EFFECT, 2, clock.now() + timedelta(microseconds=1), "failed", note="nö"),
        protocol.Testimony(EFFECT, 3, clock.now(), "unknown"),
    ]
    assert all(give_testimony(store, each) for each in given)
    assert store.testimony(EFFECT) == tuple(given)
    assert store.testimony(OTHER) == ()


def test_first_testimony_of_a_fencing_token_stays(store: LedgerStore, clock: FakeClock) -> None:
    """A second one changes nothing; one of another token or another effect is another one."""
    first = said(clock)
    assert give_testimony(store, first)
    assert not give_testimony(store, said(clock, message="paid twice"))
    assert give_testimony(store, said(clock, effect_id=OTHER))
    assert store.testimony(EFFECT) == (first,)


def test_testimony_is_in_the_order_of_the_fencing_tokens(store: LedgerStore, clock: FakeClock) -> None:
    """Whatever the order in which it was given."""
    for fence in (10, 2, 7):
        assert give_testimony(store, said(clock, fence))
    assert [each.fence for each in store.testimony(EFFECT)] == [2, 7, 10]


def test_one_of_many_threads_testifies(store: LedgerStore, clock: FakeClock) -> None:
    """Of all that testify under one fencing token at once, one does."""
    with ThreadPoolExecutor(8) as pool:
        first = list(
            pool.map(partial(give_testimony, store), [said(clock, message=str(number)) for number in range(8)])
        )
    assert first.count(True) == 1
    assert store.testimony(EFFECT) == (said(clock, message=str(first.index(True))),)


REMOVALS: dict[str, Callable[[LedgerStore, EffectRow], bool]] = {
    "deleted": delete,
    "replaced by another effect": lambda store, row: replace(store, row, row._replace(effect_id=OTHER)),
}
removals = pytest.mark.parametrize("remove", REMOVALS.values(), ids=REMOVALS)


@removals
def test_testimony_goes_with_the_row_of_its_effect(
    store: LedgerStore, clock: FakeClock, remove: Callable[[LedgerStore, EffectRow], bool]
) -> None:
    """When the row is deleted, or another effect takes its place; testimony about other effects stays."""
    row = running_row(clock)
    insert(store, row)
    for fence in (1, 2):
        give_testimony(store, said(clock, fence))
    give_testimony(store, said(clock, effect_id="3" * 32))
    assert not remove(store, row._replace(fence=9))
    assert replace(store, row, row._replace(status="unknown", fence=2))
    assert len(store.testimony(EFFECT)) == 2
    assert remove(store, row._replace(status="unknown", fence=2))
    assert store.testimony(EFFECT) == ()
    assert len(store.testimony("3" * 32)) == 1


@removals
def test_what_removes_testimony_is_undone_with_its_unit(
    store: Store, clock: FakeClock, remove: Callable[[LedgerStore, EffectRow], bool]
) -> None:
    """The row and the testimony are there, and what the unit would have added is not."""
    row = running_row(clock)
    insert(store, row)
    give_testimony(store, said(clock))
    becomes = None if remove is delete else row._replace(effect_id=OTHER)
    writes = (EffectChange(row, becomes), said(clock, 5), EffectChange(running_row(clock, "none"), None))
    assert store.apply(UnitOfWork(writes)) is not None
    assert store.get("s1", row.key) == row
    assert store.testimony(EFFECT) == (said(clock),)


def test_watchers_are_told_of_a_removal_once(store: LedgerStore, clock: FakeClock) -> None:
    """When it counts, whether the row had testimony or not; testimony is no change of the row."""
    told: list[EffectRow | None] = []
    row = running_row(clock)
    other = row._replace(effect_id=OTHER)
    store.watch(row.partition, row.key, told.append)
    insert(store, row)
    give_testimony(store, said(clock))
    replace(store, row, other)
    delete(store, other)
    assert told == [row, other, None]


# ------------------------------------------------------------------------------------------------------ inside a call


@removals
def test_removal_inside_a_call_does_not_belong_to_the_call(
    database: Store, clock: FakeClock, remove: Callable[[LedgerStore, EffectRow], bool]
) -> None:
    """A call that writes to the database and fails takes no removal along: it is refused or it stays.

    Otherwise a nested call would carry an effect out under a claim that is undone with its parent.
    """
    row, orders = running_row(clock), with_orders(database)
    insert(orders, row)
    give_testimony(orders, said(clock))
    removed = False
    with failing(call()):
        add(orders.connection(), "tea")
        with suppress(StoreUnavailableError):
            removed = remove(orders, row)
    assert (orders.get("s1", row.key) == row) == (not removed)
    assert (orders.testimony(EFFECT) == ()) == removed


# -------------------------------------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize(
    "column, value",
    [
        ("message", "text"),
        ("value", 5),
        ("given_at", 2**62),
        ("status", "gibberish"),
        pytest.param("note", b"\xff", id="note"),
        ("fence", "one"),
    ],
)
def test_testimony_that_cannot_be_read_is_unknown(tmp_path: Path, column: str, value: object, wording: Wording) -> None:
    """It says why, shows what can be read, is not left out, and goes with its row all the same."""
    path, clock = tmp_path / "desk.db", FakeClock()
    row = running_row(clock)
    with SqliteStore(path, clock=clock) as store:
        insert(store, row)
        give_testimony(store, said(clock))
        give_testimony(store, said(clock, 2))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE handrail_testimony SET {column} = ? WHERE fence = 1", (value,))  # noqa: S608 - a column's name
    with SqliteStore(path, clock=clock) as store:
        found, second = store.testimony(EFFECT)
        assert second == said(clock, 2)
        assert (found.status, found.note) == ("unknown", wording)
        assert (found.effect_id, found.fence) == (EFFECT, 0 if column == "fence" else 1)
        assert found.message == ("" if column == "message" else "paid")
        assert found.given_at == (datetime(1970, 1, 1, tzinfo=UTC) if column == "given_at" else clock.now())
        assert delete(store, row)
        assert store.testimony(EFFECT) == ()


def test_row_that_cannot_be_read_takes_its_testimony_along(tmp_path: Path) -> None:
    """It is removed as it was seen."""
    path, clock = tmp_path / "desk.db", FakeClock()
    row = running_row(clock)
    with SqliteStore(path, clock=clock) as store:
        insert(store, row)
        give_testimony(store, said(clock))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE handrail_effects SET message = 5")
    with SqliteStore(path, clock=clock) as store:
        seen = store.get("s1", row.key)
        assert seen is not None
        assert store.apply(UnitOfWork((EffectChange(seen, None), EffectChange(running_row(clock, "none"), None))))
        assert store.testimony(EFFECT) == (said(clock),)
        assert delete(store, seen)
        assert store.testimony(EFFECT) == ()
