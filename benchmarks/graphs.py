"""What `HandrailNode` adds to the call of a message, beside `ToolExecutor.answer` in the same session.

Both make LangChain's `ToolMessage`, and LangGraph does not run. The node opens the session and makes an executor each
time it is executed, which is measured apart: by hand in memory, and a session in a file alone. LangChain is imported
when this is measured, so that what other groups measure has no more for the garbage collector to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from benchmarks.timing import Limit

BY_HAND = "session, executor and message by hand, in memory"
NODE = "HandrailNode.invoke, in memory"
STORED = "HandrailNode.invoke, SQLite (full)"
OPENING = "open and close a session, SQLite (full)"

LIMITS = (
    Limit(BY_HAND, None, "ms"),
    Limit(NODE, 0.01, "ms over a direct call"),
    Limit(STORED, None, "ms"),
    Limit(OPENING, None, "ms"),
)


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name."""
    from benchmarks.graph_calls import opened_desk  # noqa: PLC0415 - imports LangChain

    with opened_desk() as desk:
        yield {BY_HAND: desk.by_hand, NODE: desk.over_direct, STORED: desk.stored, OPENING: desk.open_stored}
