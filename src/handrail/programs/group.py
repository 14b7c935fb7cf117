"""A program that leads a process group of its own, where no guardian is: on systems other than Linux.

When it ends, its group is killed. It is waited for last, because until then its process id, which names the group,
cannot be reused. A process that leaves the group (a daemon) is not killed. If the agent is killed, nothing ends the
program.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress

from handrail.process_identity import process_name
from handrail.programs.launch import Launch, ProgramEnd, ProgramIdentity
from handrail.programs.process_tree import CALL_VARIABLE


class GroupProgram:
    """A `RunningProgram` that is the leader of a session and process group.

    Attributes:
        identity: what identifies it.
        output: the descriptor to read what it writes.
        errors: the descriptor to read its error output, if that is apart.
        input: the descriptor to write what it reads.
        woken: nothing wakes its caller when it ends.
    """

    woken: int | None = None

    def __init__(self, launch: Launch) -> None:
        """Prepare it; nothing is opened before `start`."""
        self._launch = launch
        self._lock = threading.Lock()
        self._is_killed = self._is_running = False
        self.output: int = -1
        self.errors: int | None = None
        self.input: int | None = None

    def start(self) -> bool:
        """Start it, unless it was killed before; it runs at once.

        Raises:
            OSError: it cannot be started.
        """
        launch = self._launch
        if self._was_killed():
            return False
        process = subprocess.Popen(  # noqa: S603 - no shell; rules decide what may be run
            launch.line,
            cwd=launch.folder,
            env={**launch.environment, CALL_VARIABLE: launch.call},
            # Never the input of this process, from which a program would read what a person types.
            stdin=subprocess.PIPE if launch.has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Standard error joins the output, so that the order in which a program has written is preserved.
            stderr=subprocess.PIPE if launch.errors_apart else subprocess.STDOUT,
            bufsize=0,
            # A group of its own, so that `killpg` reaches its children and not this process.
            start_new_session=True,
        )
        with self._lock:
            self._process, self._is_running = process, True
        self.identity: ProgramIdentity = ProgramIdentity(launch.call, process_name(process.pid))
        self.output = -1 if process.stdout is None else process.stdout.fileno()
        self.errors = None if process.stderr is None else process.stderr.fileno()
        self.input = None if process.stdin is None else process.stdin.fileno()
        if self._was_killed():  # while it was being started
            self.kill()
        return True

    def release(self) -> None:
        """Does nothing: it runs already."""

    def close_input(self) -> None:
        """Let it read the end of its input."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self.input = None

    def has_ended(self) -> bool:
        """Whether it has ended; it is not waited for, where possible, so that its id is not reused."""
        if not hasattr(os, "waitid"):  # pragma: no cover - macOS before Python 3.13
            return self._process.poll() is not None
        # `WNOWAIT` leaves the program waitable, so that its id is not reused. A process that was reaped by other code
        # raises `ChildProcessError`, which is an `OSError`.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """Kill its group, while its id cannot be reused."""
        with self._lock:
            self._is_killed = True
            if self._is_running:
                with suppress(
                    ProcessLookupError, PermissionError
                ):  # it has ended; only ended processes are left (macOS)
                    os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> ProgramEnd:
        """Kill its group, and wait for it."""
        self.kill()
        try:
            if hasattr(os, "waitid"):  # pragma: no branch - as above
                # The program becomes a zombie, and its id stays reserved, so `kill` cannot kill another group.
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        finally:
            with self._lock:
                self._is_running = False
                code = self._process.wait()
        return ProgramEnd(code)

    def close(self) -> None:
        """Close the descriptors."""
        self.close_input()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _was_killed(self) -> bool:
        with self._lock:
            return self._is_killed
