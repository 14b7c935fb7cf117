"""A process whose handler outlasts its call: it says `left` when the call has ended, and `ended` when the handler has.

The handler ends when a line comes; the process when its input does, or when it is killed.
"""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import Any

import handrail.store
from handrail import ToolExecutor
from handrail.prompt import External, Tool, ToolResult
from handrail.runtime import Session, ToolCall, ToolMessage
from tests.kit import Note, tool


def payment(handler: Any) -> Tool[Note, Note]:
    """A payment whose reconciler has found nothing yet."""
    external = External(reconcile=lambda _params, _key: None)
    return tool("pay", handler, effect=external, timeout=timedelta(milliseconds=50))


def request(session: Session, handler: Any, call_id: str) -> ToolMessage:
    """One call of it; equal to those before it but for its id."""
    return ToolExecutor([payment(handler)], session=session).execute(ToolCall(call_id, "pay", '{"text": "A-1"}'))


def slow(params: Note, *, context: Any) -> ToolResult[Note]:
    """Wait for a line, and report that nothing is known of the payment."""
    sys.stdin.readline()
    raise TimeoutError


def main(url: str) -> None:
    """Leave the handler behind."""
    with handrail.store.open(url) as store:
        with store.session("desk") as session:
            request(session, slow, "call-1")
        sys.stdout.write("left\n")
        sys.stdout.flush()
        while any(row.owner.process for row in store.rows()):  # which is written once the handler has ended
            threading.Event().wait(0.01)
        sys.stdout.write("ended\n")
        sys.stdout.flush()
        sys.stdin.read()
