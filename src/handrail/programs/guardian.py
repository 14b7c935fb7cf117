"""The guardian: a process that starts programs for one agent process, and ends all that they start.

====================  =================================================================================================
process               what it does
====================  =================================================================================================
the agent             asks for a program, and sends the other ends of its pipes and of one socket for the call
the guardian          forks a supervisor for each call; has no threads; ends when the agent has closed its socket
a supervisor          starts one program, reports its end, then kills all that descends from it; has one call
the program           waits to be released, because it must be recorded before it runs; then it is executed
====================  =================================================================================================

Two forks take longer than many programs. So the supervisor of the next call is forked in advance, and it has forked the
process that becomes the program: both wait, and a call gives them its descriptors and its request.

Supervisors and guardian are child subreapers: a process whose parent ends becomes a child of its supervisor, whatever
sessions it has made, and of the guardian if the supervisor has been killed. So each of them finds what it has to end by
parents alone, and has ended it when it has no children.

======================  ===============================================================================================
what is killed          what ends the programs
======================  ===============================================================================================
the agent               supervisors and guardian wait on its pidfd, and supervisors on the sockets of their calls
a supervisor            the guardian kills its children that are not supervisors; so does the agent, by the variable
the guardian            the supervisors that it has forked continue; the agent starts another one for its next program
all three               the next opening of the folder, by what is recorded there
======================  ===============================================================================================

It is run as `python -I -S -c` with the path of the package, so that nothing but the standard library is imported.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import CDLL
from types import FrameType
from typing import NamedTuple, NoReturn

from handrail.programs.guardian_messages import (
    ENDED,
    FAILED,
    GONE,
    LENGTH,
    PLACED,
    RELEASE,
    REPORT,
    REQUEST_FILES,
)
from handrail.programs.process_tree import Process, children, descendants, kill_all, running, send

_SYSTEM = CDLL(None)  # opened once, because each supervisor would open it anew
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_NOT_STARTED = 127
_MOST_LOOKS = 200
_ATTEMPTS = 2
_QUICK_KILLS, _SECONDS_TO_END = 2, 0.005
"""How often children are killed without a search for their own, and how long to wait each time for the end of one."""


class _Children:
    """The children of this process, as a subreaper.

    Attributes:
        woken: readable when a child may have ended.
    """

    def __init__(self, ended: Callable[[int, int], object]) -> None:
        """Call `ended` with the pid and the status of each child that has ended, before it is waited for."""
        self._ended = ended
        self.woken, writing = os.pipe()
        for descriptor in (self.woken, writing):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _do_nothing)  # without a handler, nothing is written to the pipe

    def reap(self) -> bool:
        """Wait for those that have ended; returns whether there are others."""
        with suppress(BlockingIOError):
            while os.read(self.woken, 1024):
                pass
        try:
            # `WNOWAIT` first: while a child has not been waited for, its process group cannot be another's.
            while (seen := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                code = seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status
                self._ended(seen.si_pid, code)
                os.waitpid(seen.si_pid, 0)
        except ChildProcessError:
            return False
        return True

    def kill(self) -> int:
        """Kill all descendants; returns how many are left."""
        # Mostly nothing is left, or the first process of a namespace, with which the kernel ends the rest of it.
        for _ in range(_QUICK_KILLS):
            if not self.reap():
                return 0
            for child in children():
                send(child, signal.SIGKILL)
            select.select([self.woken], [], [], _SECONDS_TO_END)
        return max(len(kill_all(self._descendants, first=self._children, then=self.reap)), int(self.reap()))

    def _children(self) -> set[Process]:
        return children() if self.reap() else set()

    def _descendants(self) -> set[Process]:
        # A process whose parent ends during the search may be missed, and is found by the next one as a child.
        for _ in range(_MOST_LOOKS):
            if not self.reap():
                return set()
            if found := children() | descendants([os.getpid()], running()):
                return found
        return set()  # a child that the system does not show


class _Supervisor:
    """What a supervisor is about: one call, until nothing of it is left."""

    def __init__(self, calls: socket.socket, agent: int | None) -> None:
        self._calls = calls
        self._agent = agent
        self._children = _Children(self._has_ended)
        self._program = 0
        self._is_over = False
        self._unsent = b""

    def run(self) -> None:
        """Prepare a program, wait for its call, and kill what is left of it at its end."""
        _adopt()  # a fork does not inherit it
        gate, inner_gate = socket.socketpair()
        self._program = os.fork()
        if not self._program:  # pragma: no cover - a frame that a fork has inherited is not traced
            gate.close()
            self._calls.close()
            _become(inner_gate)
        inner_gate.close()
        files = self._files_of_call()
        if len(files) == REQUEST_FILES:
            self._serve(files, gate)
        else:
            gate.close()
            self._children.kill()

    def _files_of_call(self) -> list[int]:
        """Wait for a call; returns its descriptors, and none if it is not to come."""
        poll = self._poll(self._calls)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._agent in ready or not self._children.reap():
                return []
            if self._calls.fileno() in ready:
                _, files = _received(self._calls)
                self._calls.close()
                return files

    def _serve(self, files: Sequence[int], gate: socket.socket) -> None:
        """Start the program, wait until it has ended or is to end, and kill what is left."""
        self._control = socket.socket(fileno=files[0])
        # The agent may have ended, and then no process reads the reports.
        with suppress(OSError):
            request = _request(self._control)
            socket.send_fds(gate, [b"\0"], files)
            gate.sendall(request)
            for descriptor in files[1:]:
                os.close(descriptor)
            self._report(PLACED, self._program, os.getpid())
            self._wait(gate)
        self._kill_group()
        # Mostly nothing is left: then the end is sent with the last report, which wakes the agent once.
        with suppress(OSError):
            if self._children.reap():
                self._send()
        left = self._children.kill()
        with suppress(OSError):
            self._report(GONE, left)

    def _wait(self, gate: socket.socket) -> None:
        poll = self._poll(self._control)
        while not self._is_over:
            ready = {descriptor for descriptor, _ in poll.poll()}
            self._children.reap()
            if self._agent in ready:
                return
            if self._control.fileno() in ready and not self._is_over:
                if self._control.recv(1) != RELEASE:
                    return
                with suppress(BrokenPipeError):  # it has been killed before
                    gate.sendall(RELEASE)

    def _poll(self, channel: socket.socket) -> select.poll:
        poll = select.poll()
        for descriptor in (channel.fileno(), self._children.woken, self._agent):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        return poll

    def _has_ended(self, pid: int, code: int) -> None:
        if pid != self._program or self._is_over:
            return
        self._kill_group()
        self._is_over = True
        self._unsent = REPORT.pack(ENDED, code, 0)

    def _kill_group(self) -> None:
        # Most of what is left is in the group of the program, and is killed without a search.
        if self._program and not self._is_over:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._program, signal.SIGKILL)

    def _report(self, kind: bytes, number: int, other: int = 0) -> None:
        self._unsent += REPORT.pack(kind, number, other)
        self._send()

    def _send(self) -> None:
        reports, self._unsent = self._unsent, b""
        self._control.sendall(reports)


class _Guardian:
    """What the guardian is about: supervisors, until the agent asks for no more."""

    def __init__(self, requests: socket.socket, agent: int | None) -> None:
        self._requests = requests
        self._agent = agent
        self._children = _Children(self._has_ended)
        self._supervisors = set[int]()
        self._next: socket.socket | None = None
        self._has_strays = False

    def run(self) -> None:
        """Fork supervisors until the agent ends or closes the socket, and the last supervisor has ended."""
        poll = select.poll()
        for descriptor in (self._requests.fileno(), self._children.woken, self._agent):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        is_open = True
        while is_open or self._supervisors:
            ready = {descriptor for descriptor, _ in poll.poll()}
            self._children.reap()
            if self._agent in ready:
                self._children.kill()
                return
            if self._has_strays:
                self._has_strays = False
                kill_all(self._strays, then=self._children.reap)
            if is_open and self._requests.fileno() in ready:
                is_open = self._serve()
                if not is_open:
                    poll.unregister(self._requests.fileno())

    def _serve(self) -> bool:
        """Give a request to a supervisor; false if there will be no more."""
        asked, files = _received(self._requests)
        # With fewer, this process has too many files open; the agent sees the end of the socket of its call.
        if len(files) == REQUEST_FILES:
            self._hand_over(files)
        # Before the next fork, which would hold them open.
        for descriptor in files:
            os.close(descriptor)
        if asked:
            self._prepare()
        elif self._next is not None:
            self._next.close()
        return bool(asked)

    def _hand_over(self, files: Sequence[int]) -> None:
        for _ in range(_ATTEMPTS):  # the one that waits may have been killed
            self._prepare(files)
            if self._next is None:
                return
            with self._next as supervisor, suppress(BrokenPipeError):
                self._next = None
                socket.send_fds(supervisor, [b"\0"], files)
                return

    def _prepare(self, files: Sequence[int] = ()) -> None:
        """Have a supervisor wait for the next call; none if there are too many processes.

        Args:
            files: the descriptors of a call that has come before it. It is sent them, and keeps no others open.
        """
        if self._next is not None:
            return
        ours, theirs = socket.socketpair()
        with theirs, suppress(BlockingIOError):
            pid = os.fork()
            if not pid:  # pragma: no cover - as above
                ours.close()
                self._requests.close()
                for descriptor in files:
                    os.close(descriptor)
                _run_to_end(lambda: _Supervisor(theirs, self._agent).run())
            self._supervisors.add(pid)
            self._next = ours
            return
        ours.close()

    def _has_ended(self, pid: int, code: int) -> None:
        if pid in self._supervisors:
            self._supervisors.discard(pid)
            # One that was killed leaves its descendants to this process.
            self._has_strays |= code != 0

    def _strays(self) -> set[Process]:
        # Twice, because a process whose parent ends during the search may be missed.
        found = descendants([os.getpid()], running(), spared=self._supervisors)
        return found or descendants([os.getpid()], running(), spared=self._supervisors)


def run_guardian() -> None:
    """Run the guardian of the process and over the socket that the arguments name."""
    agent, descriptor = map(int, sys.argv[2:4])
    for number in _IGNORED:  # it ends when the agent does, and not by what is sent to a terminal or a service
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _adopt()
    watched = None
    with suppress(OSError):  # a kernel before 5.3: the end of the sockets has to do
        watched = os.pidfd_open(agent)
    # Compared after the descriptor was opened: it is of the agent if the agent lives still.
    if os.getppid() == agent:
        _Guardian(socket.socket(fileno=descriptor), watched).run()


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """The handler of a signal that only wakes this process."""


def _adopt() -> None:
    """Become the parent of descendants whose parents end."""
    if _SYSTEM.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise SystemExit("this system does not let a process adopt the children of others")


class _Request(NamedTuple):
    """What is to be started.

    Attributes:
        folder: where.
        groups: the files of control groups that it joins.
        most: its resource limits, as `number=most`.
        line: the path of the program, and its arguments.
        environment: its environment, as `name=value`.
    """

    folder: bytes
    groups: list[bytes]
    most: list[bytes]
    line: list[bytes]
    environment: list[bytes]


def _request(control: socket.socket) -> bytes:
    """What the agent asks for, with its length.

    Raises:
        OSError: the other end is closed.
    """
    head = _exactly(control, LENGTH.size)
    return head + _exactly(control, *LENGTH.unpack(head))


def _parsed(request: bytes) -> _Request:
    folder, *rest = request[LENGTH.size :].split(b"\0")
    groups, rest = _counted(rest)
    most, rest = _counted(rest)
    line, environment = _counted(rest)
    return _Request(folder, groups, most, line, environment)


def _counted(parts: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """As many parts as the first one says, and the rest."""
    end = 1 + int(parts[0])
    return parts[1:end], parts[end:]


def _exactly(control: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = control.recv(size - len(data))
        if not piece:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        data += piece
    return bytes(data)


def _received(channel: socket.socket) -> tuple[bytes, list[int]]:
    """A byte and the descriptors of a call that came with it; a program that is executed has none of them."""
    data, files, _, _ = socket.recv_fds(channel, 1, REQUEST_FILES)
    for descriptor in files:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - one of the system's
    return data, files


def _become(gate: socket.socket) -> NoReturn:
    """Wait for a call, and become its program once it is released."""
    control: socket.socket | None = None
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        for number in (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
            signal.signal(number, signal.SIG_DFL)
        _, files = _received(gate)
        if len(files) == REQUEST_FILES:
            control = socket.socket(fileno=files[0])
            request = _parsed(_request(gate))
            for target, source in enumerate(files[1:]):
                os.dup2(source, target)
            if gate.recv(1) == RELEASE:
                _limit(request)
                os.chdir(request.folder)
                environment = dict(pair.split(b"=", 1) for pair in request.environment)
                os.execve(request.line[0], request.line, environment)  # noqa: S606 - rules decide
    except OSError as error:
        if control is not None:
            with suppress(OSError):
                control.sendall(REPORT.pack(FAILED, error.errno or errno.EINVAL, 0))
    finally:
        os._exit(_NOT_STARTED)


def _limit(request: _Request) -> None:
    """Join the control groups, and set the resource limits, of this process."""
    for path in request.groups:
        descriptor = os.open(path, os.O_WRONLY)
        os.write(descriptor, b"0")
        os.close(descriptor)
    for number, most in (map(int, pair.split(b"=")) for pair in request.most):
        _, hard = resource.getrlimit(number)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (least, least))


def _run_to_end(body: Callable[[], object]) -> NoReturn:
    """Run what a forked process is for, and end it: it must not return into the guardian."""
    code = 1
    try:
        body()
        code = 0
    finally:
        os._exit(code)
