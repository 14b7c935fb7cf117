"""What a call has read before it wrote, where one transaction writes at a time.

Such a call begins with a transaction that reads, so that it keeps no other call from writing. When it is about to
write, that transaction ends, and one that may write begins, when it is the call's turn. If the database was changed in
between, what was read is read again: the call continues if it is the same, and else it fails. So the call has the
outcome of one that had the database alone from its first statement on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from handrail.store.sql.driver import DriverConnection, FetchedRows, Rows

MOST_ROWS = 10_000
"""The most rows that are kept for one call. If it has read more, any change counts as one of what it has read."""


class _Read(NamedTuple):
    """A statement, and what it has found."""

    sql: str
    parameters: Sequence[Any] | Mapping[str, Any]
    rows: Rows


class RecordedReads:
    """The statements with which a call has read.

    Attributes:
        is_outdated: whether they were executed in an earlier transaction than the present one.
    """

    __slots__ = ("_kept", "_reads", "_too_many", "is_outdated")

    def __init__(self) -> None:
        """Begin with none."""
        self._reads: list[_Read] = []
        self._kept = 0
        self._too_many = False
        self.is_outdated: bool = False

    def read(self, link: DriverConnection, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> FetchedRows:
        """Execute a statement that reads; raises what the driver raises."""
        found = link.execute_native(sql, parameters)
        rows = found.fetchall()
        self._kept += len(rows) + 1
        self._too_many = self._too_many or self._kept > MOST_ROWS
        if self._too_many:
            self._reads.clear()
        else:
            self._reads.append(_Read(sql, parameters, rows))
        return FetchedRows(rows, found.rowcount)

    def are_found_again(self, link: DriverConnection) -> bool:
        """Whether each statement finds what it has found before; raises what the driver raises."""
        return not self._too_many and all(
            link.execute_native(read.sql, read.parameters).fetchall() == read.rows for read in self._reads
        )
