"""`Copied`: a value of any type as a resource that rolls back, by a deep copy.

::

    class Shop(Copied[dict[str, Any]]):
        pass

    prompt = Prompt(template).bind(resources={Shop: Shop(data)})

    def cancel(number: str, *, shop: Shop) -> str:
        shop.value["orders"][number]["status"] = "cancelled"    # rolled back if the call fails
"""

from __future__ import annotations

import copy
import threading
from typing import Generic, Self, TypeVar

from handrail.errors import InvalidArgumentError
from handrail.transaction import Transaction, check_write, current
from handrail.turns import Turn

T = TypeVar("T")


class Copied(Generic[T]):
    """A resource that holds a value, and restores a deep copy of it when a call fails.

    A call that may write copies the value when it first asks for the resource. A rollback replaces the value by a copy:
    what has been read from `value` before it is out of date. A call with `effect="read"` cannot set `value`; what it
    changes inside of the value is neither refused nor rolled back. Nor is what a handler changes, after its call, in
    what it has read before.

    Attributes:
        turn: the turn that calls acquire to use it.

    Raises:
        InvalidArgumentError: `copy.deepcopy` cannot copy the value.
    """

    def __init__(self, value: T) -> None:
        try:
            self._value = copy.deepcopy(value)
        except Exception as error:
            expected = f"a value that copy.deepcopy copies ({error})"
            raise InvalidArgumentError(function="Copied", argument="value", value=value, expected=expected) from error
        self._lock = threading.RLock()
        self.turn: Turn = Turn()

    @property
    def value(self) -> T:
        """The value itself, to be read and changed in place.

        Raises:
            TransactionClosedError: a handler that may write asks for it after its call has ended.
            TurnConflictError: another call uses it; see `check_write`.
        """
        with self._lock:
            call = current()
            if call is not None and call.writes:
                check_write(self, f"use the value of {type(self).__name__}")
            return self._value

    @value.setter
    def value(self, value: T) -> None:
        """Replaces the value; raises as `restore` does."""
        with self._lock:
            check_write(self, f"set the value of {type(self).__name__}")
            self._value = value

    def view_for_call(self, call: Transaction, /) -> Self:
        """Copies the value for a call that may write, which asks for the resource; returns the resource itself."""
        with self._lock:
            if call.writes:
                call.join(self)
            return self

    def snapshot(self) -> T:
        """Returns a copy of the value."""
        with self._lock:
            return copy.deepcopy(self._value)

    def restore(self, snapshot: T, /) -> None:
        """Replaces the value by a copy of a snapshot, which can be restored again.

        Raises:
            ModelVisibleError: the call may not write; see `handrail.transaction.check_write`.
        """
        with self._lock:
            check_write(self, f"restore {type(self).__name__}")
            self._value = copy.deepcopy(snapshot)  # nested calls share a snapshot
