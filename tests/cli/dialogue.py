"""A person before a terminal who reads what is asked, and only then types an answer."""

from __future__ import annotations

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

import pytest

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
