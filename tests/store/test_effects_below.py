"""The effects of a session and of those below it, which are named after it: `effects_below`, `unresolved_slots`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import psycopg
import pytest

from handrail.store import EffectRow, Store
from handrail.store.base_store import UnresolvedSlots
from handrail.store.protocol import ClaimOwner, change_effect
from handrail.testing import FakeClock
from tests.store.postgres_server import server_url
from tests.store.stores import STORES
from tests.store.units import insert

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


def test_all_effects_are_listed_whatever_their_state(store: Store) -> None:
    """Those with declared keys too."""
    rows = [unknown("s", "declared"), unknown("s/1")._replace(status="done", completed_at=store.now())]
    for row in rows:
        assert insert(store, row) is None
    assert set(store.effects_below("s")) == set(rows)


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
