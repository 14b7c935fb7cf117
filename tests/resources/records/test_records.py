"""`Records` in transactions: who may change them, what is rolled back, and what other readers see."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, cast

import pytest

from handrail.errors import (
    ReadOnlyViolation,
    ResourceBusyError,
    SnapshotError,
    TransactionClosedError,
    TurnConflictError,
)
from handrail.resources import Records, Snapshotable
from handrail.transaction import Transaction
from handrail.turns import HasTurn, draw_ticket
from tests.resources.records.edits import DATA, call, edit
from tests.wording import Wording

TEXT = json.dumps(DATA)


def outside(act: Callable[..., Any], *given: Any) -> Any:
    """Call something outside of the calls of this context."""
    return Context().run(act, *given)


def test_records_are_a_participant_that_reports_its_writes() -> None:
    """So they join a call with its first write, and never where the call changes nothing."""
    records = Records(DATA)
    assert isinstance(records, Snapshotable)
    assert isinstance(records, HasTurn)
    with call(records) as transaction:
        records["a"]["items"].copy()
        assert transaction.participants == ()
        records["a"]["items"].append(1)
        assert list(map(id, transaction.participants)) == [id(records)]


@pytest.mark.parametrize("way", range(12))
@pytest.mark.parametrize("picks", [[], [0], [0, 0], [1, 1], [1, 0]], ids=str)
def test_a_change_is_rolled_back_with_its_call(picks: list[int], way: int) -> None:
    """At any depth, with the order of the keys; a call that commits keeps it."""
    records, changed = Records(DATA), json.loads(TEXT)
    edit(changed, picks, way)
    with call(records):
        edit(records, picks, way)
        edit(records, [], 3)
        edit(records, picks, way)
    assert json.dumps(records) == TEXT
    with call(records) as transaction:
        edit(records, picks, way)
        transaction.commit()
    assert json.dumps(records) == json.dumps(changed)


def test_a_reference_from_before_the_rollback_is_that_of_the_record() -> None:
    """The record is restored in its place, so a program may keep what it has read."""
    records = Records(DATA)
    item = records["a"]["items"][0]
    with call(records):
        item["n"] += 1
        records["a"]["items"].clear()
        del records["a"]
    assert item == {"name": "mug", "n": 1}
    assert records["a"]["items"][0] is item
    item["n"] = 7
    assert records["a"]["items"][0]["n"] == 7


def test_an_inner_call_is_a_savepoint() -> None:
    """What it changed goes with it alone; what it committed goes with the outer one."""
    records = Records(DATA)
    with call(records) as outer:
        records["a"]["status"] = "outer"
        with call(parent=outer):
            records["a"]["status"] = "inner"
            records["a"]["items"].append("inner")
        assert (records["a"]["status"], len(records["a"]["items"])) == ("outer", 2)
        with call(parent=outer) as inner:
            records["b"] = "inner"
            inner.commit()
        assert records["b"] == "inner"
    assert json.dumps(records) == TEXT


def test_other_readers_see_what_is_committed() -> None:
    """Every way to read a container that the call has changed, and what they held before; never a half of it."""
    records = Records(DATA)
    held = records["b"]["tags"]
    with call(records) as transaction:
        assert outside(records.plain) == DATA
        del records["a"]
        records["b"]["tags"].append("z")
        records["b"]["new"] = {"k": 1}
        assert (held, len(records)) == (["x", "y", "z"], 2)
        assert outside(lambda: (list(records), len(records), "a" in records, records["a"]["status"])) == (
            ["a", "b", "c"],
            3,
            True,
            "pending",
        )
        assert outside(lambda: (len(held), list(held), held[-1], held == ["x", "y"])) == (2, ["x", "y"], "y", True)
        assert outside(records.plain) == DATA
        assert copy_context().run(len, held) == 3  # a thread of the call
        transaction.commit()
    assert outside(lambda: (len(held), "a" in records)) == (3, False)


def test_a_call_that_may_only_read_cannot_write(wording: Wording) -> None:
    """The error names the change; nothing is changed."""
    records = Records(DATA)
    with call(records, writes=False), pytest.raises(ReadOnlyViolation) as caught:
        records["a"]["items"][0]["n"] += 1
    assert str(caught.value) == wording
    assert json.dumps(records) == TEXT


def test_a_late_writer_is_refused(wording: Wording) -> None:
    """A handler that outlives its call holds containers still, and cannot change them."""
    records = Records(DATA)
    with call(records):
        item = records["a"]["items"][0]
        item["n"] = 2
        late = copy_context()
    with pytest.raises(TransactionClosedError) as caught:
        late.run(item.update, n=3)
    assert str(caught.value) == wording
    assert json.dumps(records) == TEXT


def test_a_write_from_outside_does_not_wait(wording: Wording) -> None:
    """While a call uses the records, it is refused, also where the call only reads."""
    records = Records(DATA)
    for writes in (True, False):
        with call(records, writes=writes), pytest.raises(ResourceBusyError) as caught:
            outside(records["a"].update, {"status": "outside"})
        assert caught.value.resource == "Records"
    assert str(caught.value) == wording
    records["a"]["status"] = "outside"
    assert records["a"]["status"] == "outside"


def test_a_call_cannot_write_where_another_one_does(wording: Wording) -> None:
    """One that reached the records without being given a turn on them."""
    records = Records(DATA)
    with call(records):
        records["a"]["status"] = "one"
        ticket = draw_ticket((), exclusive=True)

        def write() -> None:
            with Transaction("other", ticket=ticket, writes=True):
                records["a"]["status"] = "other"

        with pytest.raises(TurnConflictError) as caught:
            outside(write)
        ticket.release()
        assert str(caught.value) == wording
        assert records["a"]["status"] == "one"


def test_a_call_that_was_given_no_turn_takes_it() -> None:
    """With its first write, if it is free."""
    records = Records(DATA)
    with call():
        records["a"]["status"] = "changed"
        with pytest.raises(ResourceBusyError):
            outside(records.clear)
    assert json.dumps(records) == TEXT


def test_a_snapshot_is_restored_by_a_program_too() -> None:
    """In a call that is a write as any other, which is rolled back with the call."""
    records = Records(DATA)
    first = records.snapshot()
    records["a"]["status"] = "second"
    second = records.snapshot()
    del records["a"]
    records["b"]["tags"].append("z")
    with call(records):
        records["c"] = 4
        records.restore(first)
        assert json.dumps(records) == TEXT
        records.restore(second)
        assert records["a"]["status"] == "second"
    assert (list(records), records["b"]["tags"]) == (["b", "c"], ["x", "y", "z"])
    with call(records, writes=False), pytest.raises(ReadOnlyViolation):
        records.restore(first)
    records.restore(first)
    assert json.dumps(records) == TEXT


def test_a_snapshot_of_other_records_is_refused(wording: Wording) -> None:
    """Nothing has changed."""
    records = Records(DATA)
    with pytest.raises(SnapshotError) as caught:
        records.restore(Records(DATA).snapshot())
    assert str(caught.value) == wording


def test_what_was_removed_is_released() -> None:
    """Before-images are dropped with the snapshots that need them, whether the next write is of a call or not."""
    records = Records({"a": {"items": []}, "b": {}})
    removed = [weakref.finalize(Weak.of(records, key), lambda: None) for key in ("a", "b")]
    with call(records) as transaction:
        del records["a"]
        transaction.commit()
    with call(records) as transaction:
        records["c"] = 1
        transaction.commit()
    kept = records.snapshot()
    with call(records) as transaction:
        del records["b"]
        transaction.commit()
    del transaction
    gc.collect()
    assert [each.alive for each in removed] == [False, True]
    del kept
    records["c"] = 2
    gc.collect()
    assert not removed[1].alive


class Weak:
    """A part of records that can be weakly referenced."""

    @staticmethod
    def of(records: Records, key: str) -> Weak:
        """Put one under a key; it takes the place of a value."""
        made, storage = Weak(), cast("type[dict[str, Any]]", dict)
        storage.__setitem__(records.inner, key, made)
        return made


class Orders(Records):
    """Records with a name of their own."""

    def pending(self) -> list[str]:
        """The orders that are pending."""
        return [number for number, order in self.items() if order["status"] == "pending"]


def test_a_subclass_names_the_records() -> None:
    """Two kinds of records are bound under two types, and messages say which."""
    orders = Orders({"#1": {"status": "pending"}, "#2": {"status": "sent"}})
    assert orders.pending() == ["#1"]
    with call(orders, writes=False), pytest.raises(ReadOnlyViolation, match="Orders"):
        orders["#1"]["status"] = "sent"
