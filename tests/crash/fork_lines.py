"""A process that forks a session, and is killed at one of the lines that it executes for that.

With a folder, each call of the session has written a file there, and the fork gets a new folder with those of its call.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import handrail
import handrail.store
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import Session, ToolInvoked
from handrail.store import Store
from tests.kit import Note, call, echo, executor, tool

ORIGIN, FORK = "night", "what-if"

AT = ("reply-3", "call-1")
"""The call that ends what the fork shares."""

CALLS, SHARED = 6, 4

_SOURCE = str(Path(handrail.__file__).parent)


@dataclass(frozen=True)
class Desk:
    """A store, and the session that is forked.

    Attributes:
        store: the store.
        folder: where its files are; without it, there are none.
    """

    store: Store
    folder: Path | None

    @contextmanager
    def files(self, name: str) -> Generator[HostFilesystem | None]:
        """The files of the origin (`root`) or of the fork (`fork`), if there are any."""
        if self.folder is None:
            yield None
            return
        root, journal = self.folder / name, self.folder / f"journal-{name}"
        root.mkdir(exist_ok=True)
        with HostFilesystem(root, journal=journal, store=self.store, durability="normal") as files:
            yield files

    def work(self, session: Session, numbers: range, name: str = "root") -> list[str]:
        """Make the calls of some replies; returns what the model reads."""
        with self.files(name) as files:
            resources: dict[type[object], object] = {} if files is None else {Filesystem: files}
            door = executor(tool("note", echo if files is None else write), session=session, resources=resources)
            return [door.execute(call("note", str(number)), reply=f"reply-{number}").content for number in numbers]

    def fork(self, session: Session) -> Session:
        """Fork the session, with its files."""
        with self.files("root") as files:
            return session.fork(session_id=FORK, at=AT, files={} if files is None else {files: self.new_folder})

    @property
    def new_folder(self) -> Path:
        """The folder of the fork."""
        return (self.folder or Path()) / "fork"

    def written(self, name: str) -> list[str]:
        """The names of the files of the origin or of the fork."""
        return sorted(path.stem for path in ((self.folder or Path()) / name).glob("*.txt"))


def write(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Write a file with the name of the note."""
    context.resources.get(Filesystem).write_text(f"{params.text}.txt", params.text)
    return ToolResult.ok(params)


def texts(session: Session) -> list[str]:
    """What the calls have noted."""
    return [note.text for note in session[Note].all()]


def begin(url: str, folder: Path | None) -> None:
    """Make the session that is forked."""
    with handrail.store.open(url) as store, Session.open(store, ORIGIN) as session:
        Desk(store, folder).work(session, range(CALLS))


def check(store: Store, folder: Path | None) -> bool:
    """The origin is whole, and so is the fork, if there is one; both go on. Returns whether there is one."""
    row, desk = store.find(FORK), Desk(store, folder)
    assert row is None or (row.head, row.origin, row.origin_head) == (row.origin_head, ORIGIN, row.origin_head)
    all_numbers, shared = ([str(number) for number in range(count)] for count in (CALLS, SHARED))
    assert desk.written("root") == (all_numbers if folder else [])
    # A folder is made in full or not at all, and before the fork.
    assert desk.written("fork") == (shared if folder and (row or desk.new_folder.exists()) else [])
    with Session.open(store, ORIGIN) as session:
        assert texts(session) == all_numbers
        assert len(session[ToolInvoked]) == CALLS
        if row is None:
            if folder:
                shutil.rmtree(desk.new_folder, ignore_errors=True)
            desk.fork(session).close()
    with Session.open(store, FORK) as fork:
        assert texts(fork) == shared
        assert desk.work(fork, range(CALLS), "fork") == all_numbers
        assert texts(fork) == all_numbers
    assert desk.written("fork") == (all_numbers if folder else [])
    return row is not None


def main(url: str, line: str, folder: str = "") -> None:
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
        desk = Desk(store, Path(folder) if folder else None)
        sys.settrace(trace)
        fork = desk.fork(session)
        sys.settrace(None)
        fork.close()
    sys.stdout.write(f"{count}\n")
