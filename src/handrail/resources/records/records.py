"""`Records`: data of a program's own that takes part in the transactions of calls.

::

    records = Records({"orders": {"#W1": {"status": "pending", "items": [{"name": "mug", "count": 2}]}}})
    prompt = Prompt(template).bind(resources={Records: records})

    def cancel(order: str, records: Annotated[Records, Resource]) -> str:
        records["orders"][order]["status"] = "cancelled"    # rolled back if the call fails
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any, Self, cast

from handrail.resources.records.changes import ProgramWrite, RecordChanges, RecordsSnapshot
from handrail.resources.records.containers import check_keys, stored_value
from handrail.resources.records.program_handles import ProgramDict, container_like
from handrail.transaction import Transaction
from handrail.turns import Turn


class Records(ProgramDict):
    """A mapping of JSON-like records whose changes, nested ones included, are rolled back when a call fails.

    It is a dict of dicts, lists, text, numbers, booleans and `None`, and is used like one: `json.dumps` takes it, and
    functions that were written for a dict work on it. What goes in is copied; `plain` copies it out.

    Bind it as a resource; to bind several, make a subclass for each. Calls take turns on it: calls that read run beside
    each other, a call that may only read cannot write, and a handler that runs on after its call cannot write any more.
    Until a call has committed, other readers see what was there before it. Outside of calls, each method is atomic.

    Attributes:
        turn: the turn that calls acquire to use it.
    """

    __slots__ = ("__weakref__", "turn")

    def __init__(self, data: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Copy the data.

        Raises:
            InvalidArgumentError: something in it has no form in JSON.
        """
        self.turn: Turn = Turn()
        changes = RecordChanges(self)
        check_keys(data, ())
        content = {key: stored_value(value, changes, (key,)) for key, value in data.items()}
        super().__init__(changes, container_like(self, changes, content))

    def view_for_call(self, call: Transaction, /) -> Self:
        """The records as the handler of a call gets them; see `handrail.resources.records.program_handles`."""
        self._changes.last_call = call
        return cast("Self", self.inner)  # its class is made of that of these records

    def snapshot(self) -> RecordsSnapshot:
        """The present state, to be restored; costs the same whatever is in it."""
        with self._changes.lock:
            return self._changes.snapshot()

    def restore(self, snapshot: RecordsSnapshot, /) -> None:
        """Restore a snapshot; costs what has changed since. In a call it is a write as any other.

        Raises:
            SnapshotError: the snapshot is of other records. Nothing has changed.
            ResourceBusyError: outside of calls, while a call uses the records.
            ModelVisibleError: the call may not write; see `handrail.transaction.check_write`.
        """
        with self._changes.lock, ProgramWrite() if self.outer is None else nullcontext():
            self._changes.restore(snapshot)
