"""Which statements a handler may not execute: those that would begin, end or change the transaction of its call.

To find the first word of a statement is to skip comments, and the databases do not agree where those end: in PostgreSQL
there are comments in comments, and a line ends at a carriage return too. A statement passes if it may in both.
"""

from __future__ import annotations

import re
from string import ascii_letters
from typing import NamedTuple

from handrail.errors import SessionError

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
