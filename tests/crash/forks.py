"""Processes forked from one that has imported Handrail, for tests that start many and kill them.

A new Python process that imports a store takes half a second of processor time before it does anything. `start` runs
the `main` of a module in a process that needs none of it; `fork_to_crash` does what `run_to_crash` does. What a process
imports, and `run_to_crash` itself, are tested with new ones.

One process of a run of tests, or of a worker of it, has one server that forks; it is the parent of the processes.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, NoReturn

from handrail import waiting
from handrail.testing import Completed, Crashed
from handrail.testing.crash import REACHED, RETURNED, run_child, write_request
from tests.architecture.sources import ROOT

MODULES = ("handrail.adapters.tool_executor", "handrail.store.postgres", "handrail.store.sqlite")

_LONGEST = 65536
"""Bytes of a request, and of an answer."""


_FILES = 256
"""More than the server has open."""


class Fork:
    """A process that runs, and is killed when the block of `start` ends.

    Attributes:
        pid: its process id.
        stdin: what it reads.
        stdout: what it prints.
    """

    def __init__(self, server: _Server, pid: int, stdin: IO[str], stdout: IO[str]) -> None:
        self._server = server
        self._code: int | None = None
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout

    def kill(self) -> None:
        """Kill it, if it has not been waited for."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)

    def watch(self, state: int) -> None:
        """Return when it has ended (`os.WEXITED`) or stopped (`os.WSTOPPED`); one that has ended stays a zombie."""
        self._server.ask("watch", self.pid, state)

    def wait(self) -> int:
        """Return its exit code when it has ended; it is no zombie then."""
        if self._code is None:
            self._code = int(self._server.ask("wait", self.pid))
        return self._code


@contextmanager
def start(module: str, *arguments: str) -> Generator[Fork]:
    """Run the `main` of a module with arguments in a process, while the block runs."""
    server = _server_of(os.getpid())
    with ExitStack() as stack:
        reading, stdin = os.pipe()
        stdout, writing = os.pipe()
        try:
            pid = int(server.ask("fork", module, arguments, waiting.IS_ON, files=(reading, writing)))
        finally:
            os.close(reading)
            os.close(writing)
        files = os.fdopen(stdin, "w", encoding="utf-8"), os.fdopen(stdout, encoding="utf-8")
        process = Fork(server, pid, *map(stack.enter_context, files))
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def fork_to_crash(target: Callable[..., object], *arguments: Any, at: str | None, nth: int = 1) -> Crashed | Completed:
    """Run a function of a module in a process, and kill that when it reaches a point for the nth time."""
    with TemporaryDirectory(prefix="handrail-crash-") as name:
        folder = Path(name)
        write_request(folder, target, arguments, at, nth)
        _server_of(os.getpid()).ask("import", target.__module__)
        with start(__name__, name) as process:
            code = process.wait()
        reached = tuple((folder / REACHED).read_text(encoding="utf-8").split())
        if code == 0:
            return Completed(pickle.loads((folder / RETURNED).read_bytes()), reached)  # noqa: S301 - of `run_child`
    assert code == -signal.SIGKILL, f"exit code {code}"
    assert at is not None
    assert (reached[-1], reached.count(at)) == (at, nth), f"killed at {reached[-1]}"
    return Crashed(at, nth, reached)


def main(folder: str) -> None:
    """What a process of `fork_to_crash` does."""
    run_child(folder)


# -------------------------------------------------------------------------------------------------------------- server


class _Server:
    """The other end of the server."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair()
        command = [sys.executable, "-m", __name__, str(other.fileno())]
        with other:
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[other.fileno()])

    def ask(self, *request: object, files: tuple[int, ...] = ()) -> Any:
        """What it answers to a request."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], files)
        return json.loads(self._socket.recv(_LONGEST))

    def end(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait()


@functools.cache
def _server_of(_: int) -> _Server:
    """The server of this process, which a process that was forked off does not share."""
    server = _Server()
    atexit.register(server.end)
    return server


def _serve(number: int) -> None:
    for name in MODULES:
        importlib.import_module(name)
    with socket.socket(fileno=number) as asked:
        while True:
            request, files, _, _ = socket.recv_fds(asked, _LONGEST, 2)
            if not request:
                return
            verb, *arguments = json.loads(request)
            answer: int = _VERBS[verb](*arguments, *files)
            asked.sendall(json.dumps(answer).encode())


def _import(module: str) -> int:
    importlib.import_module(module)
    return 0


def _fork(module: str, arguments: list[str], is_guarded: bool, reading: int, writing: int) -> int:
    _import(module)  # here, and so once
    pid = os.fork()
    if pid == 0:
        _run(module, arguments, is_guarded, reading, writing)
    os.close(reading)
    os.close(writing)
    return pid


def _run(module: str, arguments: list[str], is_guarded: bool, reading: int, writing: int) -> NoReturn:
    code = 1
    try:
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        os.closerange(3, _FILES)
        sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115 - for its life
        waiting.IS_ON = is_guarded
        importlib.import_module(module).main(*arguments)
        sys.stdout.flush()
        code = 0
    except BaseException:  # noqa: BLE001 - shown by the test, which fails
        traceback.print_exc()
    finally:
        os._exit(code)


def _watch(pid: int, state: int) -> int:
    os.waitid(os.P_PID, pid, state | os.WNOWAIT)
    return pid


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


_VERBS: dict[str, Callable[..., int]] = {"import": _import, "fork": _fork, "watch": _watch, "wait": _wait}


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
