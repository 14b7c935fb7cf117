"""The statements of a call: which of them it may not execute, and what those that read have found.

A handler may not begin, end or change the transaction of its call. To find the first word of a statement is to skip
comments, and the databases do not agree where those end: in PostgreSQL there are comments in comments, and a line ends
at a carriage return too. A statement passes if it may in both.

Where one transaction writes at a time, a call begins with a transaction that reads, so that it keeps no other call
from writing. When it is about to write, that transaction ends, and one that may write begins, when it is the call's
turn. If the database was changed in between, what was read is read again: the call continues if it is the same, and
else it fails. So the call has the outcome of one that had the database alone from its first statement on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import ascii_letters
from typing import Any, NamedTuple

from handrail.errors import SessionError
from handrail.store.sql.driver import DriverConnection, FetchedRows, Rows

_COMMENT_EDGE = re.compile(r"/\*|\*/")

_LETTERS = frozenset(f"{ascii_letters}_")

_CONTROL = frozenset(
    {
        *("ABORT", "BEGIN", "COMMIT", "END", "RELEASE", "ROLLBACK", "SAVEPOINT", "START", "PREPARE TRANSACTION"),
        *("ATTACH", "DETACH", "DISCARD", "PRAGMA", "RESET", "SET", "VACUUM"),
    }
)


class _Dialect(NamedTuple):
    """How comments are read.

    Attributes:
        skipped: blanks and comments that end with the line; SQLite takes a byte order mark for a blank.
        nests: whether comments may nest.
    """

    skipped: re.Pattern[str]
    nests: bool


_DIALECTS = (
    _Dialect(re.compile(r"(?:[\s;\ufeff]|--[^\n]*(?:\n|\Z))+"), nests=False),  # SQLite
    _Dialect(re.compile(r"(?:[\s;\ufeff]|--[^\r\n]*(?:[\r\n]|\Z))+"), nests=True),  # PostgreSQL
)


def check_statement(sql: str) -> None:
    """Let a handler's statement pass unless it would begin, end or change the transaction, or change the connection.

    Raises:
        SessionError: it would.
    """
    for dialect in _DIALECTS:
        found = _command(sql, dialect)
        if found in _CONTROL:
            msg = (
                f"context.connection does not execute {found}: the transaction and the connection are the call's. It "
                "commits when the call succeeds and is undone when the call fails; raise to undo it"
            )
            raise SessionError(msg)


def _command(sql: str, dialect: _Dialect) -> str:
    """The first word in capitals, or the first two of `PREPARE TRANSACTION`; empty if it begins with no word."""
    word, end = _next_word(sql, 0, dialect)
    return word if word != "PREPARE" else f"{word} {_next_word(sql, end, dialect)[0]}"


def _next_word(sql: str, start: int, dialect: _Dialect) -> tuple[str, int]:
    """The word behind blanks, semicolons and comments, and where it ends."""
    place = start
    while True:
        skipped = dialect.skipped.match(sql, place)
        place = skipped.end() if skipped else place
        if not sql.startswith("/*", place):
            break
        place = _comment_end(sql, place, nests=dialect.nests)
    end = place
    while end < len(sql) and sql[end] in _LETTERS:
        end += 1
    return sql[place:end].upper(), end


def _comment_end(sql: str, start: int, *, nests: bool) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(sql, start):
        depth = 0 if edge.group() == "*/" and not nests else depth + (1 if edge.group() == "/*" else -1)
        if depth == 0:
            return edge.end()
    return len(sql)


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
