"""The processes that evaluate code: kept while they are sound, ended with the process that uses them."""

from __future__ import annotations

import os
import select
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from handrail.clock import SYSTEM_CLOCK
from handrail.contrib.tools.python.workers import (
    MOST_IDLE,
    PythonWorkers,
    WorkerKind,
    WorkerLostError,
    WorkerOvertimeError,
    WorkerStartError,
)
from handrail.programs.process_tree import descendants, look, running
from handrail.python_worker.program import Request
from tests.contrib.tools.python import misbehaving
from tests.open_files import open_files
from tests.python_worker.forks import in_fork
from tests.wording import Wording

MEMORY = 64 * 1024 * 1024
MONTY = WorkerKind("monty", MEMORY)
REQUEST = Request("1 + 1", 30, 1000, files=False)


@pytest.fixture
def workers() -> Generator[PythonWorkers]:
    """The workers of one test."""
    workers = PythonWorkers()
    yield workers
    workers.close()


def refuse(name: str, arguments: object) -> Mapping[str, Any]:
    """Lends no function."""
    raise WorkerLostError(f"{name} {arguments}")


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(30_000), "it has not ended"
    os.close(descriptor)


@pytest.mark.parametrize("engine", ["monty", "asteval"])
def test_worker_is_kept_for_the_next_evaluation(engine: Any, workers: PythonWorkers) -> None:
    """One of the same kind is the same process."""
    kind = WorkerKind(engine, MEMORY)
    worker = workers.take(kind, SYSTEM_CLOCK)
    assert {"limits", "privileges", "reaching"} <= set(worker.confinement)
    assert worker.evaluate(REQUEST, refuse)["value"] == "2"
    workers.put(worker)
    other = workers.take(WorkerKind(engine, 2 * MEMORY), SYSTEM_CLOCK)
    assert other.pid != worker.pid
    other.close()
    again = workers.take(kind, SYSTEM_CLOCK)
    assert again is worker
    assert again.evaluate(REQUEST, refuse)["value"] == "2"
    again.close()


def test_worker_has_nothing_of_the_agent(workers: PythonWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither environment, nor folder, nor descriptors."""
    monkeypatch.setenv("HANDRAIL_CANARY", "hunter2")
    worker = workers.take(MONTY, SYSTEM_CLOCK)
    # The process of Monty has loaded its libraries then, and no other file of it is open for a moment.
    worker.evaluate(REQUEST, refuse)
    workers.put(worker)
    family = {worker.pid, *(process.pid for process in descendants([worker.pid], running()))}
    assert len(family) == 2
    for pid in family:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        names = {pair.partition(b"=")[0] for pair in pairs if pair}
        assert names == set()
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
        assert {path for path in open_files(pid) if path.is_absolute()} == {Path(os.devnull)}


def test_no_more_workers_are_kept_than_a_few(workers: PythonWorkers) -> None:
    """The others end."""
    taken = [workers.take(MONTY, SYSTEM_CLOCK) for _ in range(MOST_IDLE + 1)]
    for worker in taken:
        workers.put(worker)
    assert [look(worker.pid) is None for worker in taken] == [False] * MOST_IDLE + [True]
    workers.close()
    assert [look(worker.pid) for worker in taken] == [None] * len(taken)


def test_worker_that_was_killed_while_it_was_kept_is_replaced(workers: PythonWorkers) -> None:
    """Nothing is sent to it."""
    worker = workers.take(MONTY, SYSTEM_CLOCK)
    workers.put(worker)
    worker.kill()
    wait_for_end(worker.pid)
    other = workers.take(MONTY, SYSTEM_CLOCK)
    assert other.pid != worker.pid
    assert other.evaluate(REQUEST, refuse)["value"] == "2"
    workers.put(other)
    assert workers.take(MONTY, SYSTEM_CLOCK) is other
    other.close()


def lost(script: str, raised: type[Exception]) -> str:
    """The text of the error with which an evaluation by a script ends; the worker has ended then."""
    worker = misbehaving.workers(script).take(MONTY, SYSTEM_CLOCK)
    with pytest.raises(raised) as caught:
        worker.evaluate(Request("1", -0.9, 10, files=False) if script is misbehaving.SILENT else REQUEST, refuse)
    worker.close()
    assert look(worker.pid) is None
    return str(caught.value)


def test_worker_that_misbehaves_is_lost(wording: Wording) -> None:
    """Whatever it does instead of answering."""
    assert lost(misbehaving.ENDS_LATER, WorkerLostError) == wording
    assert lost(misbehaving.SILENT, WorkerOvertimeError) == wording
    assert lost(misbehaving.sending({"result": 5}), WorkerLostError) == wording
    assert lost(misbehaving.sending({"call": 5}), WorkerLostError) == wording
    assert lost(misbehaving.sending({"call": "f", "arguments": 5}), WorkerLostError) == "f 5"


def test_worker_that_cannot_be_ready_is_not_started(wording: Wording) -> None:
    """The text says why: the end of what Python wrote, or the reason that the worker gives."""
    for script, reason in (
        ("import missing_module", "ModuleNotFoundError: No module named 'missing_module'"),
        ("", wording),
        (misbehaving.ENDS.replace('"ready": []', '"unavailable": "no seccomp"'), "no seccomp"),
    ):
        with pytest.raises(WorkerStartError) as caught:
            misbehaving.workers(script).take(MONTY, SYSTEM_CLOCK)
        assert str(caught.value) == reason
    nothing = PythonWorkers(lambda _engine, _memory: ("/nowhere/python",))
    with pytest.raises(WorkerStartError):
        nothing.take(MONTY, SYSTEM_CLOCK)


def test_process_that_was_forked_off_starts_its_own(workers: PythonWorkers) -> None:
    """The workers of the parent stay the parent's."""
    worker = workers.take(MONTY, SYSTEM_CLOCK)
    workers.put(worker)

    def body() -> object:
        workers.forked()
        other = workers.take(MONTY, SYSTEM_CLOCK)
        value = other.evaluate(REQUEST, refuse)["value"]
        other.close()
        return [value, other.pid]

    value, pid = in_fork(body)
    assert (value, pid != worker.pid) == ("2", True)
    assert workers.take(MONTY, SYSTEM_CLOCK) is worker
    assert worker.evaluate(REQUEST, refuse)["value"] == "2"
    worker.close()
