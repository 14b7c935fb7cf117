"""What tests of running programs share: both ways to start one, and what shows that nothing of it is left."""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from handrail.clock import SYSTEM_CLOCK
from handrail.programs import guardian
from handrail.programs.guardian_client import Guardians
from handrail.programs.launch import Launch, ProgramEnd
from handrail.programs.supervised import SupervisedProgram

PYTHON = (sys.executable, "-I", "-S", "-c")

LEAVES_EVERYTHING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = os.open("fifo", os.O_WRONLY)
os.set_inheritable(held, True)
ready, left = os.pipe()
os.set_inheritable(left, True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        script = f"import os, time; os.write({held}, b'on'); os.write({left}, b'x'); time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", script], {})
    os._exit(0)
os.read(ready, 1)
"""
"""Ignores SIGTERM, and leaves a process without parent, session and environment, which holds the fifo."""


def launch(script: str, folder: Path, **environment: str) -> Launch:
    """A Python script as a program."""
    return Launch(call=uuid4().hex, line=(*PYTHON, script), folder=folder, environment=environment, has_input=False)


def supervised(script: str, folder: Path, guardians: Guardians) -> SupervisedProgram:
    """A Python script below a guardian; it waits for its release."""
    running = SupervisedProgram(launch(script, folder), SYSTEM_CLOCK, guardians)
    assert running.start()
    return running


def output_of(running: SupervisedProgram) -> bytes:
    """What a program writes until no process of it is left."""
    with os.fdopen(os.dup(running.output), "rb") as output:
        return output.read()


def wait_for_end(running: SupervisedProgram) -> None:
    """Wait until a program has ended by itself."""
    while not running.has_ended():
        assert select.select([running.woken], [], [], 30)[0], "it has not ended"


def ended(running: SupervisedProgram) -> ProgramEnd:
    """The end of a program, whose descriptors are closed then."""
    try:
        return running.end()
    finally:
        running.close()


class ForkedGuardian(Guardians):
    """A guardian that is a fork of this process, so that its lines are traced.

    Attributes:
        process: its process id.
    """

    def __init__(self) -> None:
        super().__init__()
        self._requests, theirs = socket.socketpair()
        agent = os.getpid()
        self.process = os.fork()
        if not self.process:
            self._requests.close()
            sys.argv = ["guardian", "", str(agent), str(theirs.detach())]
            try:
                guardian.run_guardian()
            finally:
                os._exit(0)
        theirs.close()

    def ask(self, files: Sequence[int]) -> int:
        """Ask for a supervisor."""
        socket.send_fds(self._requests, [b"\0"], [*files])
        return self.process

    def close(self) -> None:
        """Ask for no more, and wait until it has ended."""
        self.close_socket()
        os.waitpid(self.process, 0)

    def close_socket(self) -> None:
        """Ask for no more."""
        self._requests.close()
