"""How long it takes to open a session of very many calls for its last turns: what a program does that resumes one.

Each case opens the session, reads the messages of its last ten turns, looks up a call that has not been recorded, and
closes the session. The turns are those of an agent: a reply, the record of its call, and the answer. They are written
as a session stores them, but many in a unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psycopg

from benchmarks.texts import Fetch, text_of
from benchmarks.timing import Limit
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall
from handrail.session import CallRef
from handrail.session.persistence.protocol import Checkpoint, EntryIndex, SessionAppend, SessionEntry, dump_indexes
from handrail.store import MemoryStore, Store
from handrail.transaction import UnitOfWork
from tests.store.postgres_server import server_of_its_own

CALLS, LARGE, TURNS = 100_000, 2_000, 10

SMALL_SQLITE = f"open {CALLS:,} calls for the last ten turns, small, SQLite"
LARGE_SQLITE = f"open {CALLS:,} calls for the last ten turns, 100 kB, SQLite"
SMALL_POSTGRES = f"open {CALLS:,} calls for the last ten turns, small, PostgreSQL"
LARGE_POSTGRES = f"open {CALLS:,} calls for the last ten turns, 100 kB, PostgreSQL"
LIMITS = tuple(Limit(case, 20.0, "ms") for case in (SMALL_SQLITE, LARGE_SQLITE, SMALL_POSTGRES, LARGE_POSTGRES))

_SESSION = "long"
_NUMBER = "q7q7q7q"
"""Stands for the number of a call, in as many digits, in the entries that all calls are made of."""


class _Turn(NamedTuple):
    """What a session stores of one turn.

    Attributes:
        entries: its entries, in order; a turn whose result is cut has one more.
    """

    entries: tuple[SessionEntry, ...]

    @staticmethod
    def of(text: str) -> _Turn:
        """What a session stores of a turn with a call that returns this text."""
        kept = MemoryStore()
        with Session.open(kept, "model") as session:
            executor = _executor(session, f"{_NUMBER} {text}")
            call, reply = ToolCall(f"call-{_NUMBER}", "fetch", '{"number": 1}'), f"reply-{_NUMBER}"
            asked = {"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "name": call.name}]}
            session.conversation.append(asked, calls=[call], reply=reply)
            answer = executor.execute(call, reply=reply)
            session.conversation.append({"role": "tool", "tool_call_id": call.id, "content": answer.content})
        return _Turn(tuple(kept.entries("model")))

    def numbered(self, number: int, before: Counter[str]) -> Iterator[SessionEntry]:
        """The entries of the turn of that number, from 1.

        Args:
            number: of the turn.
            before: how many entries of each slice the session has; these are added.
        """
        digits = f"{number:07}"
        for entry in self.entries:
            at = before.total() + 1
            data = entry.items.replace(_NUMBER.encode(), digits.encode())
            yield entry._replace(
                number=at,
                reply=entry.reply.replace(_NUMBER, digits),
                call_id=entry.call_id.replace(_NUMBER, digits),
                start=before[entry.type_name],
                items=data,
            )
            before[entry.type_name] += 1


def _executor(session: Session, text: str) -> ToolExecutor:
    def fetch(_: Fetch, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok(text)

    tool = Tool[Fetch, str](name="fetch", description="Returns a text.", handler=fetch)
    section = MarkdownSection(title="Tools", key="tools", template="Use them.", tools=[tool])
    return ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="benchmarks", key="turns", sections=[section])), session=session
    )


def fill(kept: Store, *, large: int) -> None:
    """Store a session of `CALLS` calls, of which the newest `large` have results of 100 kB.

    There is a checkpoint after 1,000 entries or 1 MB, as `SessionRecorder` makes them, and as much as possible after
    the last one.
    """
    small, big = _Turn.of("a small text"), _Turn.of(text_of(0))
    with Session.open(kept, _SESSION):
        pass
    before = Counter[str]()
    turns = chain.from_iterable(
        (big if number > CALLS - large else small).numbered(number, before) for number in range(1, CALLS + 1)
    )
    last = (CALLS - large) * len(small.entries) + large * len(big.entries)
    layouts: dict[str, EntryIndex] = {}
    page: list[SessionEntry] = []
    lock = kept.acquire(_SESSION, wait=timedelta(0))
    size = 0
    for entry in turns:
        page.append(entry)
        size += len(entry.items)
        layouts[entry.type_name] = layouts.get(entry.type_name, EntryIndex("log")).after(entry)
        if (len(page) >= 1000 or size >= 1_000_000) and entry.number < last:
            checkpoint = Checkpoint(entry.number, dump_indexes(layouts))
            _append(kept, SessionAppend(lock, page[0].number - 1, tuple(page), checkpoint))
            page, size = [], 0
    _append(kept, SessionAppend(lock, page[0].number - 1, tuple(page)))
    kept.release(lock)


def _append(kept: Store, append: SessionAppend) -> None:
    assert kept.apply(UnitOfWork((append,))) is None


def _opening(kept: Store) -> Callable[[], object]:
    numbers = count()

    def opened() -> object:
        with Session.open(kept, _SESSION) as session:
            assert len(session.conversation.last(TURNS)) == 2 * TURNS
            return session.calls.find(CallRef(f"another-{next(numbers)}", "call"))

    return opened


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the databases are there for the time of the block."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        found: dict[str, Callable[[], object]] = {}
        for name, large in ((SMALL_SQLITE, 0), (LARGE_SQLITE, LARGE)):
            kept = opened.enter_context(store.open(f"sqlite:///{folder}/{large}.db", durability="normal"))
            fill(kept, large=large)
            found[name] = _opening(kept)
        for name, large in ((SMALL_POSTGRES, 0), (LARGE_POSTGRES, LARGE)):
            url, _ = opened.enter_context(server_of_its_own())
            kept = opened.enter_context(store.open(url))
            fill(kept, large=large)
            # As the server does by itself, a minute after so many rows were added.
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE handrail_entries")
            found[name] = _opening(kept)
        yield found
