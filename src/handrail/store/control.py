"""Statements that a handler may not execute, because the transaction is its call's."""

from __future__ import annotations

import re

from handrail.errors import SessionError

_SKIPPED = re.compile(r"(?:\s|;|--[^\n]*(?:\n|\Z))+")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_WORD = re.compile(r"[A-Za-z_]+")
_CONTROL = frozenset(
    {
        *("ABORT", "BEGIN", "COMMIT", "END", "RELEASE", "ROLLBACK", "SAVEPOINT", "START"),
        *("ATTACH", "DETACH", "DISCARD", "PRAGMA", "RESET", "SET", "VACUUM"),
    }
)
_TWO_WORDS = re.compile(r"PREPARE\s+TRANSACTION\b", re.IGNORECASE)


def refuse_control(sql: str) -> None:
    """Let a handler's statement pass unless it would begin, end or change the transaction, or change the connection.

    Raises:
        SessionError: it would.
    """
    start = _first_word_at(sql)
    word = _WORD.match(sql, start)
    found = word.group().upper() if word else ""
    if found in _CONTROL or _TWO_WORDS.match(sql, start):
        msg = (
            f"context.connection does not execute {found}: the transaction and the connection are the call's. It "
            "commits when the call succeeds and is undone when the call fails; raise to undo it"
        )
        raise SessionError(msg)


def _first_word_at(sql: str) -> int:
    """Where the first word stands, after blanks, semicolons and comments; comments may stand in comments."""
    place = 0
    while True:
        skipped = _SKIPPED.match(sql, place)
        place = skipped.end() if skipped else place
        if not sql.startswith("/*", place):
            return place
        place = _comment_end(sql, place)


def _comment_end(sql: str, start: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(sql, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(sql)
