"""The driver's connection of a call, for SQLAlchemy, Django and others that work on a connection of the DB-API.

It is the driver's own, but for the three methods that end a transaction. They act on a savepoint in the transaction of
the call: `rollback` undoes what was written since the last `commit`, and what `commit` has kept is undone when the call
fails. So a library that commits and rolls back works as it is, and the call remains one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from handrail.errors import SessionError, SessionUseError
from handrail.store.sql.driver import DriverConnection


class DriverProxy:
    """A connection of the DB-API; what it does not define is the driver's.

    Args:
        native: the driver's connection.
        link: the same, as a store uses it.
        savepoint: the name of the savepoint that `commit` and `rollback` act on.
        ended: what is raised if the transaction of the call has been ended.

    Raises:
        StoreError: the savepoint cannot be set.
    """

    __slots__ = ("_closed", "_ended", "_link", "_native", "_savepoint")

    def __init__(
        self, native: object, link: DriverConnection, savepoint: str, *, ended: Callable[[], Exception]
    ) -> None:
        self._native = native
        self._link = link
        self._savepoint = savepoint
        self._ended = ended
        self._closed = False
        link.execute(f"SAVEPOINT {savepoint}")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - what the driver's connection has
        """What the driver's connection has under a name.

        Raises:
            SessionError: this one was closed.
            SessionUseError: it is `backup`, which waits until no transaction writes: for the call itself, for ever.
        """
        if self._closed:
            raise SessionError("this connection was closed; take context.connection.driver_connection() again")
        if name == "backup" and hasattr(self._native, name):
            raise SessionUseError(
                "backup() inside a call waits for the transaction of the call, which waits for it; copy the database "
                "outside of calls, by a connection of your own"
            )
        return getattr(self._native, name)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute of the driver's connection, such as `row_factory`."""
        if name in DriverProxy.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(self._native, name, value)

    @property
    def __class__(self) -> type[Any]:
        """The class of the driver's connections: `isinstance` takes this for one, as libraries ask."""
        return type(self._native)

    @__class__.setter
    def __class__(self, kind: type[Any]) -> None:  # pragma: no cover - `__setattr__` comes before
        raise TypeError("the class of this connection is the driver's")

    def commit(self) -> None:
        """Keep what was written so far, if the call is committed; `rollback` does not reach behind it.

        Raises:
            StoreError: a statement has failed since; `rollback` first.
            CallTransactionEndedError: the transaction of the call was ended.
        """
        self._in_savepoint(f"RELEASE SAVEPOINT {self._savepoint}")
        self._in_savepoint(f"SAVEPOINT {self._savepoint}")

    def rollback(self) -> None:
        """Undo what was written since the last `commit`.

        Raises:
            CallTransactionEndedError: the transaction of the call was ended.
        """
        self._in_savepoint(f"ROLLBACK TO SAVEPOINT {self._savepoint}")

    def __enter__(self) -> Self:
        """Itself: at the end of the block, `commit` or `rollback` is called, as by the driver's."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object, /) -> None:
        """Keep what was written, or undo it if the block raised; the connection can be used further.

        Raises:
            StoreError: as for `commit`.
            CallTransactionEndedError: as for `commit`.
        """
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def close(self) -> None:
        """Return the connection to the call, which ends with it; calling it twice has the same effect."""
        self._closed = True

    def _in_savepoint(self, sql: str) -> None:
        if self._closed:
            return
        if not self._link.in_savepoint(sql):
            raise self._ended()
