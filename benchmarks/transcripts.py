"""How long the transcript of a long session takes.

The command is run in this process, as it is typed, without the time that Python takes to start and to import it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.timing import Limit
from handrail import store
from handrail.cli import main
from handrail.prompt import ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.session.conversation import REPLY_KEY, ConversationPart, RequestedCall
from handrail.session.persistence.protocol import SessionAppend, SessionEntry
from handrail.session.persistence.stored_types import stored_type
from handrail.store import Store
from handrail.transaction import UnitOfWork

CALLS = 10_000

LOOP = f"transcript of {CALLS:,} calls of an own loop"
AGENT = f"transcript of {CALLS:,} calls of an agent"
LIMITS = (Limit(LOOP, 2_000.0, "ms"), Limit(AGENT, 2_000.0, "ms"))

_AT = datetime(2026, 1, 5, 20, tzinfo=UTC)
_PAGE = 1_000


class _Nowhere(io.StringIO):
    """A pipe whose reader takes everything at once."""

    def write(self, text: str, /) -> int:
        """Drop the text."""
        return len(text)


def _call(number: int) -> ToolCall:
    arguments = {"order": f"A-{number}", "cents": 4_990, "note": "as agreed with the customer on the phone"}
    return ToolCall(f"call-{number}", "refund", json.dumps(arguments))


def _record(call: ToolCall, number: int) -> ToolInvoked:
    return ToolInvoked(
        call=call,
        params=None,
        result=ToolResult.ok(f"A-{number} is refunded"),
        refused_at=None,
        handler_seconds=0.1,
        total_seconds=0.2,
        effect_key=None,
        replayed=False,
        session_id="long",
        run_context=None,
        at=_AT,
        reply=f"reply-{number}",
    )


def loop_items(calls: int) -> Iterator[object]:
    """A program's own loop over Chat Completions: a call in each reply."""
    yield ConversationPart(({"role": "user", "content": "Refund all orders."},), at=_AT)
    for number in range(calls):
        call = _call(number)
        function = {"name": call.name, "arguments": call.arguments}
        message = {
            "role": "assistant",
            "content": f"Next is A-{number}.",
            "tool_calls": [{"id": call.id, "type": "function", "function": function}],
        }
        requested = (RequestedCall(call.id, call.name, call.arguments),)
        yield ConversationPart((message,), f"reply-{number}", requested, at=_AT)
        yield _record(call, number)
        answer = {"role": "tool", "tool_call_id": call.id, "content": f"A-{number} is refunded"}
        yield ConversationPart((answer,), at=_AT)


def _agent(calls: int) -> Iterator[object]:
    """An agent: each part has the answer to the call before, and the next call."""
    said: dict[str, Any] = {"part_kind": "user-prompt", "content": "Refund all orders."}
    for number in range(calls):
        call, reply = _call(number), f"reply-{number}"
        asked = {"part_kind": "tool-call", "tool_name": call.name, "args": call.arguments, "tool_call_id": call.id}
        messages = (
            {"kind": "request", "parts": [said]},
            {"kind": "response", "parts": [asked], "metadata": {REPLY_KEY: reply}},
        )
        requested = (RequestedCall(call.id, call.name, call.arguments),)
        yield ConversationPart(messages, reply, requested, speaker="agent", name="clerk", at=_AT)
        yield _record(call, number)
        answer = {"content": f"A-{number} is refunded", "tool_name": call.name, "tool_call_id": call.id}
        said = {"part_kind": "tool-return", **answer}


def _entries(items: Iterator[object]) -> Iterator[SessionEntry]:
    lengths: dict[str, int] = {}
    for number, item in enumerate(items, 1):
        stored = stored_type(type(item))
        start = lengths.get(stored.name, 0)
        lengths[stored.name] = start + 1
        reply, call_id = (item.reply or "", item.call_id) if isinstance(item, ToolInvoked) else ("", "")
        data = stored.dump((item,))
        yield SessionEntry(number, reply, call_id, "log", stored.name, stored.version, start, 0, 1, data)


def fill(kept: Store, session_id: str, items: Iterator[object]) -> None:
    """Begin a session that has these items."""
    with Session.open(kept, session_id):
        pass
    lock = kept.acquire(session_id, wait=timedelta(0))
    entries = _entries(items)
    while page := tuple(islice(entries, _PAGE)):
        assert kept.apply(UnitOfWork((SessionAppend(lock, page[0].number - 1, page),))) is None
    kept.release(lock)


def _print(url: str, session_id: str) -> int:
    with redirect_stdout(_Nowhere()), redirect_stderr(_Nowhere()):
        code = main(["sessions", "show", session_id, "--store", url])
    assert code == 0, code
    return code


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the database is there for the time of the block."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        url = f"sqlite:///{folder}/long.db"
        with store.open(url, durability="normal") as kept:
            fill(kept, "loop", loop_items(CALLS))
            fill(kept, "agent", _agent(CALLS))
        yield {LOOP: partial(_print, url, "loop"), AGENT: partial(_print, url, "agent")}
