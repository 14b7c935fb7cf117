"""A store with something of everything in it, and the command run over it: in this process, or before a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sys
import termios
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from handrail.cli import main
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.store import EffectRow, EffectStatus, Store
from handrail.store.protocol import ClaimOwner
from tests.store.kit import append, insert

ENTRY = (sys.executable, "-c", "import sys; from handrail.cli import main; sys.exit(main())")
"""The command as a process of its own."""

HOUR = timedelta(hours=1)
SESSION = "3f2a" * 8
FORK = "77ab" * 8
PLAN = b'[{"title":"Buy milk"}]'
TWO = b'[{"title":"Buy milk"},{"title":"Z\xc3\xbcrich"}]'


def effect(key: str, status: EffectStatus, now: datetime, **changed: Any) -> EffectRow:
    """The row of an effect, as the ledger would have written it ten minutes ago."""
    running, ended = status == "running", status in {"done", "failed"}
    row = EffectRow(
        partition="",
        key=key,
        effect_id="0123456789abcdef" * 2,
        tool="pay",
        params_hash="ab" * 32,
        owner=ClaimOwner(SESSION, "resp_1", "call_1", "desk-host - 4711 0"),
        status=status,
        fence=1,
        created_at=now - timedelta(minutes=10),
        lease_until=now + HOUR if running else None,
        completed_at=now if ended else None,
        expires_at=now + timedelta(hours=23) if ended else None,
        message="Paid 7 EUR." if status == "done" else "",
        value=b'{"receipt":7}' if status == "done" else None,
        note="its owner gave no sign in time" if status == "unknown" else "",
    )
    return row._replace(**changed)


def fill(store: Store) -> None:
    """Two sessions, the older with three entries, and an effect in each state."""
    now = store.now()
    store.create(SessionRow(SESSION, {"desk": "berlin", "customer": "ada"}, None, now - HOUR))
    hold = store.acquire(SESSION, wait=timedelta(0))
    entries = [
        SessionEntry(1, "", "", "state", "desk.plan", 1, 0, 0, 1, PLAN),
        SessionEntry(2, "resp_1", "call_1", "state", "desk.asked", 1, 0, 0, 1, b'[{"amount":7}]'),
        SessionEntry(3, "resp_1", "call_2", "state", "desk.plan", 2, 0, 1, 2, TWO),
    ]
    append(store, hold, 0, entries, None)
    store.release(hold)
    store.create(SessionRow(FORK, {}, SESSION, now))
    minute = timedelta(minutes=1)
    for age, row in enumerate(
        (
            effect("session:pay:running", "running", now, partition=SESSION),
            effect("session:pay:lapsed", "running", now, partition=SESSION, lease_until=now - 5 * minute),
            effect("session:pay:done", "done", now, partition=SESSION),
            effect("session:pay:failed", "failed", now, partition=FORK, note="no money"),
            effect("app:pay:unknown", "unknown", now),
            effect("app:pay:expired", "done", now, expires_at=now - 2 * HOUR),
            effect("app:mail:kept", "done", now, tool="mail", owner=ClaimOwner(), expires_at=None, value=None),
        )
    ):
        insert(store, row._replace(effect_id=f"{age:032x}", created_at=now - age * minute))


def record(store: Store, head: int, *calls: CallRef) -> None:
    """Records of calls of the older session, which has `head` entries."""
    hold = store.acquire(SESSION, wait=timedelta(0))
    records = [
        SessionEntry(number, call.reply or "", call.call_id, "log", "desk.done", 1, number - head - 1, 0, 1, b"[{}]")
        for number, call in enumerate(calls, head + 1)
    ]
    append(store, hold, head, records, None)
    store.release(hold)


_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

ENDS_INPUT = "\x04"
"""What is typed to end the input."""

INTERRUPTS = "\x03"
"""What is typed to interrupt the process."""


@dataclass(slots=True)
class Dialogue:
    """A terminal in the place of the standard streams; each answer is typed when its question stands on the screen.

    Attributes:
        answers: what is typed to each question, in their order; a question is a line that ends in `]` and a blank.
        ahead: what is typed before anything is asked.
        has_keyboard: whether standard input is the terminal.
        written: what was written, with colours; `screen` is the same without them.
    """

    monkeypatch: pytest.MonkeyPatch
    answers: Sequence[str] = ()
    ahead: str = ""
    has_keyboard: bool = True
    written: str = field(default="", init=False)

    @property
    def screen(self) -> str:
        """What was written, without colours."""
        return _ESCAPE.sub("", self.written)

    def run(self, command: Callable[[], object], *, width: int = 120) -> None:
        """Run something before the terminal."""
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert not (ignored and INTERRUPTS in self.answers), "SIGINT is ignored: the test needs the fixture ctrl_c"
        self.monkeypatch.setenv("COLUMNS", str(width))
        self.monkeypatch.setenv("TERM", "xterm")
        master, slave = pty.openpty()
        modes = termios.tcgetattr(slave)
        modes[3] &= ~(termios.ECHO | termios.ISIG)
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        with (
            os.fdopen(slave, "w") as stream,
            os.fdopen(os.open(os.ttyname(slave), os.O_RDONLY | os.O_NOCTTY)) as keyboard,  # its end is no hangup
            self._person(master),
            self.monkeypatch.context() as patch,
        ):
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "stderr", stream)
            if self.has_keyboard:
                patch.setattr(sys, "stdin", keyboard)
            os.write(master, self.ahead.encode())
            try:
                command()
            finally:
                stream.flush()
                keyboard.close()
                stream.close()

    def main(self, *words: str, width: int = 120) -> int:
        """Run the command; its exit code."""
        codes: list[int] = []
        self.run(lambda: codes.append(main(words)), width=width)
        return codes[0]

    @property
    def lines(self) -> list[str]:
        """What stands on the screen, without the blanks at the ends of lines."""
        return [line.rstrip() for line in self.screen.splitlines()]

    @contextmanager
    def _person(self, master: int) -> Generator[None]:
        read = bytearray()
        person = threading.Thread(target=self._read, args=(master, read))
        person.start()
        try:
            yield
        finally:
            person.join()
            os.close(master)
            self.written = read.decode(errors="replace").replace("\r\n", "\n")

    def _read(self, master: int, read: bytearray) -> None:
        left = list(self.answers)
        seen = 0
        try:
            while chunk := os.read(master, 4096):
                read += chunk
                if left and read.endswith(b"] ") and len(read) > seen:
                    seen = len(read)
                    self._type(master, left.pop(0))
        except OSError:  # the other end was closed: how a terminal says the end of file
            return

    @staticmethod
    def _type(master: int, answer: str) -> None:
        if answer == INTERRUPTS:
            # To the main thread: what it waits in is not interrupted if the kernel picks another thread, as it may.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            os.write(master, answer.encode())


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]
"""Runs the command line with some words."""


@dataclass(slots=True)
class Terminal:
    """A terminal before which commands run in this process; `screen` is what they have written to it."""

    monkeypatch: pytest.MonkeyPatch
    screen: str = field(default="", init=False)
    lines: list[str] = field(default_factory=list[str], init=False)

    def run(self, *argv: str, typed: str | None = "", width: int = 120) -> int:
        """Run a command with the lines `typed`; with `None` nothing is typed, and standard input is not a terminal."""
        ahead = "" if typed is None else f"{typed}{ENDS_INPUT}"
        dialogue = Dialogue(self.monkeypatch, ahead=ahead, has_keyboard=typed is not None)
        code = dialogue.main(*argv, width=width)
        self.screen, self.lines = dialogue.written, dialogue.lines
        return code


class Command:
    """The command, run in this process over one store, with its output in a pipe."""

    __slots__ = ("_capture", "url")

    def __init__(self, url: str, capture: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capture = capture

    def __call__(self, *argv: str) -> Ran:
        """Run it."""
        self._capture.readouterr()
        code = main(argv)
        out, err = self._capture.readouterr()
        return Ran(code, out, err)

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """What a list prints for programs."""
        return [json.loads(line) for line in self(*words, "--format", "json").out.splitlines()]

    def document(self, *words: str) -> dict[str, Any]:
        """What a command prints for programs."""
        document: dict[str, Any] = json.loads(self(*words, "--format", "json").out)
        return document
