"""What a store takes of large texts that a session holds twice, and how long a long session takes to open and fork."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from benchmarks.timing import Limit
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import VfsToolsSection
from handrail.filesystem import InMemoryFilesystem
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.serde.json_values import encode_json
from handrail.session import SlicePolicy, stored_as
from handrail.session.persistence.protocol import SessionAppend, SessionEntry
from handrail.session.persistence.stored_types import stored_type
from handrail.store import Store
from handrail.transaction import UnitOfWork

SIZE = 100_000
TURNS = 20
SMALL, LARGE, CHECKPOINT = 100_000, 2_000, 1_000

RESULT = "a result of 100 kB and the message with it, bytes stored"
WRITE = "write_file of 100 kB and the reply with it, bytes stored"
OPENED_SMALL = f"{SMALL:,} calls, open the session"
FORKED = f"{SMALL:,} calls, fork the session at the last one"
OPENED_FORK = f"{SMALL:,} calls, open a fork"
OPENED_LARGE = f"{LARGE:,} calls with results of 100 kB, open the session"
LIMITS = (
    Limit(RESULT, 0.6, "times its bytes"),
    Limit(WRITE, 0.9, "times its bytes"),
    Limit(OPENED_SMALL, 20.0, "ms"),
    Limit(FORKED, 20.0, "ms"),
    Limit(OPENED_FORK, 20.0, "ms"),
    Limit(OPENED_LARGE, 20.0, "ms"),
)

_SESSION = "long"
_WORDS = [f"word{number}" for number in range(997)]


@stored_as("benchmarks.texts.said")
@dataclass(frozen=True, slots=True)
class Said:
    """A message of a conversation: what the model is shown, or its reply with the arguments of a call as text."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """The arguments of the calls that have large results."""

    number: int


def text_of(number: int) -> str:
    """A text of 100 kB in lines, other than all others."""
    words = random.Random(number).choices(_WORDS, k=SIZE // 6)  # noqa: S311 - no secret
    return "".join(f"{word}{' ' if place % 12 else chr(10)}" for place, word in enumerate(words, 1))[:SIZE]


def _fetch(params: Fetch, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok(text_of(params.number))


def _executor(session: Session) -> ToolExecutor:
    tool = Tool[Fetch, str](name="fetch", description="Returns a text.", handler=_fetch)
    section = MarkdownSection(title="Tools", key="tools", template="Use them.", tools=[tool])
    template = PromptTemplate(ns="benchmarks", key="texts", sections=[section, VfsToolsSection(InMemoryFilesystem())])
    return ToolExecutor(prompt=Prompt(template), session=session)


def _turn(executor: ToolExecutor, session: Session, number: int, name: str, arguments: str) -> ToolMessage:
    """A call as of an agent: its reply is stored before it, and the message with its result after it."""
    session[Said].append(Said("model", arguments))
    message = executor.execute(ToolCall(f"call-{number}", name, arguments), reply=f"reply-{number}")
    assert message.success, message.content
    session[Said].append(Said("tool", message.content))
    return message


def _stored(folder: Path, name: str, turn: Callable[[ToolExecutor, Session, int], object]) -> float:
    """By how much a store grows in some turns of 100 kB, in times of these."""
    file = folder / f"{name}.db"
    sizes: list[int] = []
    for numbers in (range(1), range(1, 1 + TURNS)):
        with store.open(f"sqlite:///{file}", durability="normal") as kept, Session.open(kept, name) as session:
            executor = _executor(session)
            for number in numbers:
                turn(executor, session, number)
        sizes.append(file.stat().st_size)
    return (sizes[1] - sizes[0]) / (TURNS * SIZE)


def _fetching(executor: ToolExecutor, session: Session, number: int) -> object:
    return _turn(executor, session, number, "fetch", f'{{"number": {number}}}')


def _writing(executor: ToolExecutor, session: Session, number: int) -> object:
    arguments = encode_json({"path": f"file-{number}.txt", "content": text_of(number)}).decode()
    return _turn(executor, session, number, "write_file", arguments)


def _record(kept: Store) -> ToolInvoked:
    """The record of a call, as a session with small results has many."""
    with Session.open(kept, "model") as session:
        _turn(_executor(session), session, 0, "write_file", '{"path":"a.txt","content":"a small text"}')
        (record,) = session[ToolInvoked].all()
    return record


def _records(record: ToolInvoked, numbers: range, place: int) -> Iterator[SessionEntry]:
    """The entries of many such calls, numbered as these are; the first of them is at that place in the slice."""
    stored = stored_type(ToolInvoked)
    for start, number in enumerate(numbers, place):
        event = replace(record, call=replace(record.call, id=f"call-{number}"), reply=f"reply-{number}")
        items = stored.dump((event,))
        yield SessionEntry(number, f"reply-{number}", f"call-{number}", "log", stored.name, 1, start, 0, 1, items)


def _add(kept: Store, entries: Iterator[SessionEntry]) -> None:
    lock = kept.acquire(_SESSION, wait=timedelta(0))
    while page := tuple(islice(entries, CHECKPOINT)):
        assert kept.apply(UnitOfWork((SessionAppend(lock, page[0].number - 1, page),))) is None
    kept.release(lock)


def _fill_small(kept: Store) -> None:
    """A session of very many calls, of which as many as possible come after its newest checkpoint."""
    record, covered = _record(kept), SMALL - CHECKPOINT
    with Session.open(kept, _SESSION):
        pass
    _add(kept, _records(record, range(1, covered + 1), 0))
    with Session.open(kept, _SESSION) as session:  # makes a checkpoint
        session[Said].append(Said("model", "Go on."))
    _add(kept, _records(record, range(covered + 2, SMALL + 1), covered))


def _fill_large(kept: Store) -> None:
    """A session of large results, which ends as many entries as possible after a checkpoint that is made by number."""
    with Session.open(kept, _SESSION) as session:
        executor = _executor(session)
        for _ in range(CHECKPOINT - 1):
            session[Said].append(Said("user", "Go on."))
        for number in range(LARGE):
            _fetching(executor, session, number)


def _opening(kept: Store, session_id: str = _SESSION) -> Callable[[], object]:
    def opened() -> object:
        with Session.open(kept, session_id) as session:
            return session

    return opened


def _forking(session: Session) -> Callable[[], object]:
    def forked() -> object:
        with session.fork(at=(f"reply-{SMALL}", f"call-{SMALL}")) as fork:
            return fork

    return forked


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the databases are there for the time of the block."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        numbers = count()
        small = opened.enter_context(store.open(f"sqlite:///{folder}/small.db", durability="normal"))
        _fill_small(small)
        forked = opened.enter_context(store.open(f"sqlite:///{folder}/forked.db", durability="normal"))
        _fill_small(forked)
        session = opened.enter_context(Session.open(forked, _SESSION))
        session.fork(session_id="fork").close()
        large = opened.enter_context(store.open(f"sqlite:///{folder}/large.db", durability="normal"))
        _fill_large(large)
        yield {
            RESULT: lambda: _stored(folder, f"result-{next(numbers)}", _fetching),
            WRITE: lambda: _stored(folder, f"write-{next(numbers)}", _writing),
            OPENED_SMALL: _opening(small),
            FORKED: _forking(session),
            OPENED_FORK: _opening(forked, "fork"),
            OPENED_LARGE: _opening(large),
        }
