"""The guardian of this process, for its threads: it is started with the first program, and again if it has ended.

A program inherits from the guardian what it does not get from the call: its user and groups, capabilities, limits and
`umask`. So a guardian is used only while those of this process are as they were; after a change another one is started,
and the former one ends with its last program. A process that was forked off has no guardian until it starts a program.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

_SOURCE = Path(__file__).parents[2]
_RUN = "import sys; sys.path.append(sys.argv[1]); from handrail.programs.guardian import run_guardian; run_guardian()"
_SECONDS_TO_ASK = 10.0
"""How long to wait for a guardian that was stopped, and has as many requests as a socket holds."""

_STANDING = (b"Umask:", b"Uid:", b"Gid:", b"Groups:", b"Cap", b"NoNewPrivs:", b"Seccomp:")


class _Guardian:
    """One guardian, as its parent sees it."""

    def __init__(self, standing: bytes) -> None:
        self.standing = standing
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_SECONDS_TO_ASK)
        try:
            with theirs:
                descriptor = str(theirs.fileno())
                # Isolated, so that neither the environment nor the folder decides what it imports.
                self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with a module of Handrail
                    [sys.executable, "-I", "-S", "-c", _RUN, os.fspath(_SOURCE), str(os.getpid()), descriptor],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    pass_fds=(theirs.fileno(),),
                    # Out of the group of the terminal: Ctrl-C ends the agent, and then the guardian ends.
                    start_new_session=True,
                )
        except OSError as error:
            self._socket.close()
            # Without the path, which a model must not read.
            raise OSError(error.errno, "the process that starts programs cannot be started") from error

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, files: Sequence[int]) -> int:
        """Ask for a supervisor; returns its own process id.

        Raises:
            OSError: it has ended, or does not answer.
        """
        socket.send_fds(self._socket, [b"\0"], [*files], socket.MSG_NOSIGNAL)
        return self.pid

    def let_end(self) -> None:
        """Ask it for no more; it ends with its last program."""
        self._socket.close()

    def has_ended(self) -> bool:
        """Whether it has ended; then it has been waited for."""
        return self._process.poll() is not None

    def forget(self) -> None:
        """Leave its end to others, in a process that was forked off, or that ends itself."""
        self._process.returncode = 0  # else the object warns that its process still runs


class Guardians:
    """The guardian that this process uses, and former ones that have not ended. Threads may share it."""

    __slots__ = ("_former", "_lock", "_now")

    def __init__(self) -> None:
        """Start none yet."""
        self._lock = threading.Lock()
        self._now: _Guardian | None = None
        self._former: list[_Guardian] = []

    @property
    def pid(self) -> int | None:
        """The process id of the guardian; `None` if none was started."""
        with self._lock:
            return None if self._now is None else self._now.pid

    def ask(self, files: Sequence[int]) -> int:
        """Have the guardian fork a supervisor for a call, and start the guardian if there is none.

        Args:
            files: the socket of the call, the input and the output of the program.

        Returns:
            The process id of the guardian.

        Raises:
            OSError: no guardian can be started.
        """
        with self._lock:
            self._former = [guardian for guardian in self._former if not guardian.has_ended()]
            try:
                return self._usable().ask(files)
            except (BrokenPipeError, ConnectionResetError, TimeoutError):
                # It was killed since the last program.
                self._retire()
                return self._usable().ask(files)

    def give_up(self, pid: int) -> None:
        """Do not ask this guardian again: it does not answer. Another thread may have replaced it already."""
        with self._lock:
            if self._now is not None and self._now.pid == pid:
                self._retire()

    def close(self) -> None:
        """Let the guardian end when it has no program any more; the next program starts another one."""
        with self._lock:
            self._retire()

    def forked(self) -> None:
        """Forget the guardians of the parent, in a process that was forked off; no other thread runs in it."""
        self._forget()
        # Another thread of the parent may have held the old one at the fork.
        self._lock = threading.Lock()

    def at_exit(self) -> None:
        """Close the sockets: the guardians end with their last program, or when this process has ended."""
        with self._lock:
            self._forget()

    def _usable(self) -> _Guardian:
        standing = _own_standing()
        if self._now is not None and self._now.standing != standing:
            self._retire()
        if self._now is None:
            self._now = _Guardian(standing)
        return self._now

    def _retire(self) -> None:
        if self._now is not None:
            self._now.let_end()
            self._former.append(self._now)
            self._now = None

    def _forget(self) -> None:
        self._retire()
        for guardian in self._former:
            guardian.forget()
        self._former = []


def _own_standing() -> bytes:
    """What a program inherits and a call does not set: user, groups, capabilities, `umask`, and limits."""
    lines = Path("/proc/self/status").read_bytes().splitlines()
    limits = Path("/proc/self/limits").read_bytes()
    return b"\n".join([*(line for line in lines if line.startswith(_STANDING)), limits])


GUARDIANS = Guardians()
"""The guardian of this process."""

if sys.platform == "linux":  # pragma: no branch - elsewhere nothing asks for a guardian
    os.register_at_fork(after_in_child=GUARDIANS.forked)
    atexit.register(GUARDIANS.at_exit)
