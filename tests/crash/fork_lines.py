"""A process that forks a session, and is killed at one of the lines that it executes for that."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import handrail
import handrail.store
from handrail.runtime import Session, ToolInvoked
from handrail.store import Store
from tests.kit import Note, call, executor, tool

ORIGIN, FORK = "night", "what-if"

AT = ("reply-3", "call-1")
"""The call that ends what the fork shares."""

CALLS, SHARED = 6, 4

_SOURCE = str(Path(handrail.__file__).parent)


def work(session: Session, numbers: range) -> list[str]:
    """Make the calls of some replies; returns what the model reads."""
    door = executor(tool("note"), session=session)
    return [door.execute(call("note", str(number)), reply=f"reply-{number}").content for number in numbers]


def texts(session: Session) -> list[str]:
    """What the calls have noted."""
    return [note.text for note in session[Note].all()]


def begin(url: str) -> None:
    """Make the session that is forked."""
    with handrail.store.open(url) as store, Session.open(store, ORIGIN) as session:
        work(session, range(CALLS))


def check(store: Store) -> bool:
    """The origin is whole, and so is the fork, if there is one; both go on. Returns whether there is one."""
    row = store.find(FORK)
    assert row is None or (row.head, row.origin, row.origin_head) == (row.origin_head, ORIGIN, row.origin_head)
    with Session.open(store, ORIGIN) as session:
        assert texts(session) == [str(number) for number in range(CALLS)]
        assert len(session[ToolInvoked]) == CALLS
        if row is None:
            session.fork(session_id=FORK, at=AT).close()
    with Session.open(store, FORK) as fork:
        assert texts(fork) == [str(number) for number in range(SHARED)]
        assert work(fork, range(CALLS)) == [str(number) for number in range(CALLS)]
        assert texts(fork) == [str(number) for number in range(CALLS)]
    return row is not None


def main(url: str, line: str) -> None:
    """Fork the session, and die at the line of that number; print how many lines it took."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(_SOURCE):
            return None
        if event == "line":
            count += 1
            if count == int(line):
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    with handrail.store.open(url) as store, Session.open(store, ORIGIN) as session:
        sys.settrace(trace)
        fork = session.fork(session_id=FORK, at=AT)
        sys.settrace(None)
        fork.close()
    sys.stdout.write(f"{count}\n")
