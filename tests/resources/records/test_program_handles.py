"""A program and its calls hold different objects for one dict or list of records, so their writes are distinguished."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from handrail.errors import ResourceBusyError, TransactionClosedError
from handrail.resources import Records
from tests.resources.records.edits import call

DICT: Any = dict
LIST: Any = list
"""For the storage of a container, past its methods."""


class Orders(Records):
    """Records with an attribute and a method of their own."""

    changed = 0

    def cancel(self, number: str) -> None:
        """Change an order."""
        self.changed += 1
        self[number]["status"] = "cancelled"


def test_a_program_gets_the_same_handle_each_time() -> None:
    """Also from methods that return several values; a default is the caller's own."""
    records = Records({"a": {"items": [{"x": 1}]}, "b": [1]})
    items = records["a"]["items"]
    default: list[int] = []
    assert items is records["a"].get("items") is records.copy()["a"]["items"] is dict(records.items())["a"]["items"]
    assert next(iter(items)) is items[0] is items[:][0] is items.copy()[0]
    assert records.get("c", default) is default
    assert records.pop("c", default) is default
    assert records.setdefault("d", [2]) is records["d"]


def test_a_call_and_a_program_have_equal_containers_with_one_content() -> None:
    """Each sees what the other has written; so does code that reads the storage past the methods."""
    records = Records({"a": {"items": [1]}})
    ours = records["a"]
    with call(records) as transaction:
        theirs = records["a"]
        assert theirs is not ours
        assert theirs == ours
        theirs["items"].append(2)
        theirs["new"] = {"x": 1}
        del theirs["new"]
        transaction.commit()
    assert ours["items"] == theirs["items"] == [1, 2]
    assert (DICT.__len__(ours), LIST.__len__(ours["items"])) == (1, 2)
    ours["items"] += [3]
    ours |= {"z": []}
    assert theirs["items"] == [1, 2, 3]
    assert json.loads(json.dumps(theirs)) == json.loads(json.dumps(ours)) == {"items": [1, 2, 3], "z": []}


def test_the_storage_of_a_handle_is_rolled_back_with_the_call() -> None:
    """Keys come back in their order, and lists whole."""
    records = Records({"a": {"x": 1, "y": [1]}, "b": {"x": 1}})
    first, second, items = records["a"], records["b"], records["a"]["y"]
    with call(records):
        del records["a"]["x"]
        records["a"]["y"].clear()
        records["b"].update(x=2, z=3)
    assert list(DICT.items(first)) == [("x", 1), ("y", items)]
    assert list(LIST.__iter__(items)) == [1]
    assert list(DICT.items(second)) == [("x", 1)]


def test_what_a_handle_stands_for_is_stored_once() -> None:
    """Storing a handle where it is already changes nothing; elsewhere it is copied."""
    records = Records({"a": {"items": [[1], [2]]}})
    items = records["a"]["items"]
    records["a"]["items"] = items
    records["a"].update({"items": items})
    items[:] = [items[1], items[0]]
    assert records["a"]["items"] is items
    assert items == [[2], [1]]
    records["b"] = records["a"]
    assert records["b"] == records["a"]
    records["b"]["items"].append(3)
    assert records["a"]["items"] == [[2], [1]]


def test_what_a_call_has_read_out_is_writable_in_calls_alone() -> None:
    """In a thread without the context of the call; after the call nowhere, and the program writes as before."""
    orders = Orders({"#1": {"status": "pending"}})
    raised: list[type[Exception]] = []

    def write(container: Any) -> None:
        try:
            container["status"] = "late"
        except (ResourceBusyError, TransactionClosedError) as error:
            raised.append(type(error))

    with call(orders) as transaction:
        bound = orders.view_for_call(transaction)
        container = bound["#1"]
        thread = threading.Thread(target=write, args=(container,))
        thread.start()
        thread.join()
        bound.cancel("#1")
        transaction.commit()
    write(container)
    write(bound)
    with pytest.raises(TransactionClosedError):
        bound.restore(bound.snapshot())
    assert raised == [ResourceBusyError, TransactionClosedError, TransactionClosedError]
    assert orders == {"#1": {"status": "cancelled"}} == bound
    orders.cancel("#1")
    orders.restore(orders.snapshot())
    assert (orders.changed, bound.changed, bound.view_for_call(transaction)) == (2, 2, bound)
    assert isinstance(bound, Orders)
    with pytest.raises(AttributeError):
        bound.nothing  # type: ignore[attr-defined] # noqa: B018
