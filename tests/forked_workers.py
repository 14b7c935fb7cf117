"""Workers that a run forks when it has collected the tests: `--forked-workers 3`.

What the tests import is imported once, and the tests are collected once. Each worker of pytest-xdist does both for
itself, which takes a tenth of the time of a whole run. Here each worker takes the next file of tests from a pipe until
that is empty, in the order of the collection, and sends reports to the process that has forked it. That process shows
the tests of a file when a worker has finished the file.

Tests that a worker was to run when it was killed are not run, which fails the run.

A worker that has run its tests and does not end, because one of them has left a thread that never ends, says where its
threads are, and is killed; the run fails.

A worker goes on from the fork as the run of pytest that it is: it makes the fixtures of the session for itself, and
ends as pytest does. So what a module takes from its process when it is imported, such as the process id, does not stand
for the process of a test.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final

import pytest

_NUMBER: Final = 4
"""How many bytes the number of a file takes in the pipe; a pipe gives a reader all four or none."""

Files = Sequence[Sequence[pytest.Item]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that says how many workers there are."""
    parser.addoption("--forked-workers", type=int, default=0, metavar="N", help="fork N workers after the collection")
    parser.addoption(
        "--worker-end", type=float, default=60.0, metavar="S", help="kill a worker S seconds after its tests"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers; leave them to pytest where there are none, or nothing to run."""
    number: int = session.config.option.forked_workers
    if number < 1 or session.testsfailed or session.config.option.collectonly:
        return None
    files = [[*items] for _, items in groupby(session.items, key=lambda item: item.path)]
    numbers = _filled(len(files))
    workers: list[Worker] = []
    for _ in range(number):
        receiver, sender = Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for other in [receiver, *(worker.receiver for worker in workers)]:
                other.close()
            _work(session, _taken(files, numbers), sender)
            # Cancelled by the end of the process.
            faulthandler.dump_traceback_later(session.config.option.worker_end / 2, file=sys.stderr.fileno())
            return True
        sender.close()
        workers.append(Worker(pid, receiver, session.config.option.worker_end))
    os.close(numbers)
    try:
        started = _follow(session, workers)
    finally:
        for worker in workers:
            worker.end()
    for path, left in Counter(item.path for number, item in enumerate(session.items) if number not in started).items():
        fault = f"{left} tests were not run, because their worker ended"
        _log_failure(session, path.relative_to(session.config.rootpath).as_posix(), fault)
    return True


# ------------------------------------------------------------------------------------------------ in the process itself


class Worker:
    """A worker, as the process sees it that has forked it.

    Attributes:
        pid: its process.
        receiver: where its messages arrive.
        waiting: the messages about the file that it runs: the number of a test that starts, a report of it, or nothing
            when it has ended.
    """

    def __init__(self, pid: int, receiver: Connection, seconds_to_end: float) -> None:
        self.pid = pid
        self.receiver = receiver
        self._seconds_to_end = seconds_to_end
        self.waiting: list[Any] = []
        self._code: int | None = None

    def end(self) -> int:
        """Wait until it has ended, and return its exit code; its next message fails, and in the end it is killed."""
        if self._code is None:
            self.receiver.close()
            if hasattr(os, "pidfd_open"):  # of Linux
                ended = os.pidfd_open(self.pid)
                if not wait([ended], self._seconds_to_end):
                    os.kill(self.pid, signal.SIGKILL)
                os.close(ended)
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code


def _filled(count: int) -> int:
    """A pipe with the numbers below `count`; its reading end, and no process writes to it any more."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(number.to_bytes(_NUMBER) for number in range(count)))
    os.close(writing)
    return reading


def _follow(session: pytest.Session, workers: Sequence[Worker]) -> set[int]:
    """Log what the workers report until all have ended, or the run is to stop; return the tests that have started."""
    started: set[int] = set()
    running = {worker.receiver: worker for worker in workers}
    while running:
        for ready in wait([*running]):
            worker = next(worker for receiver, worker in running.items() if receiver is ready)
            try:
                message = worker.receiver.recv()
            except EOFError:
                del running[worker.receiver]
                _log_the_end(session, worker)
                continue
            if message == "file":
                _log(session, worker.waiting)
                worker.waiting.clear()
            else:
                worker.waiting.append(message)
            if isinstance(message, int):
                started.add(message)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    return started


def _log(session: pytest.Session, messages: Sequence[Any]) -> None:
    """Hand what a worker has sent to the plugins, as if the tests had run here."""
    hook = session.config.hook
    item: pytest.Item | None = None
    for message in messages:
        if isinstance(message, int):
            item = session.items[message]
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif message is not None:
            report = hook.pytest_report_from_serializable(config=session.config, data=message)
            hook.pytest_runtest_logreport(report=report)
        elif item is not None:
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _log_the_end(session: pytest.Session, worker: Worker) -> None:
    """Log a failure of the test that a worker ran when it was killed; one that fails between tests fails the run."""
    code = worker.end()
    _log(session, worker.waiting)
    fault = f"a worker ended with exit code {code}"
    if worker.waiting and worker.waiting[-1] is not None:
        item = session.items[[message for message in worker.waiting if isinstance(message, int)][-1]]
        _log_failure(session, item.nodeid, fault)
    elif code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        _log_failure(session, __name__, fault)


def _log_failure(session: pytest.Session, nodeid: str, fault: str) -> None:
    """Log what is the fault of no test, but of a worker."""
    location = (nodeid.partition("::")[0], None, nodeid.rpartition("::")[2])
    report = pytest.TestReport(nodeid, location, {}, "failed", fault, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


# --------------------------------------------------------------------------------------------------------- in a worker


class _Sender:
    """The plugin of a worker that sends its reports."""

    def __init__(self, config: pytest.Config, sender: Connection) -> None:
        self._config = config
        self._sender = sender

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        self._sender.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _taken(files: Files, numbers: int) -> Iterator[Sequence[pytest.Item]]:
    """The files that this worker takes."""
    while number := os.read(numbers, _NUMBER):
        yield files[int.from_bytes(number)]


def _work(session: pytest.Session, files: Iterator[Sequence[pytest.Item]], sender: Connection) -> None:
    """Run the tests of files, and send what becomes of them."""
    config = session.config
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # `tests.conftest` has a handler for it
    config.workerinput = {}  # type: ignore[attr-defined] # how plugins know that they are in a worker
    capturing: Any = config.pluginmanager.getplugin("capturemanager")
    capturing.stop_global_capturing()  # into a file that all workers would share
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())  # what pytest prints in this process
    os.close(nothing)
    capturing.start_global_capturing()
    capturing.suspend_global_capture()
    config.pluginmanager.register(_Sender(config, sender))
    position = {id(item): number for number, item in enumerate(session.items)}
    following = next(files, None)
    while (items := following) is not None:
        for number, item in enumerate(items, 1):
            if number < len(items):
                next_item: pytest.Item | None = items[number]
            else:
                following = next(files, None)
                next_item = following[0] if following else None
            sender.send(position[id(item)])
            config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            sender.send(None)
        sender.send("file")
    sender.close()
