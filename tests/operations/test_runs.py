"""The runs of workers: from which state to which they go, what a submission is, and who may change one."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import get_args

import pytest

from handrail.errors import SessionError, SessionNotFoundError, StoreCorruptError
from handrail.operations import runs
from handrail.operations.runs import (
    MOVES,
    RunData,
    StoredRun,
    cancel_run,
    find_run,
    retry_run,
    store_run,
    wake_run,
    write_run,
)
from handrail.session.persistence.protocol import RunChange, RunStatus
from handrail.store import MemoryStore, Store
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.kit import raises
from tests.session.faulty_stores import FaultyStore
from tests.store.kit import append, entries, held, session_row
from tests.wording import Wording

STATES: tuple[RunStatus, ...] = get_args(RunStatus)
DATA = RunData(agent="desk", input="Pay A-1.")
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> FakeClock:
    """The clock of the store."""
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    """An empty store."""
    return MemoryStore(clock=clock)


def submitted(store: Store, status: RunStatus = "open", session_id: str = "s1") -> StoredRun:
    """A run that has come to a state."""
    run = store_run(store, session_id, DATA)
    if status != "open":
        run = run.change(status, attempts=3, text="so it was")
        assert write_run(store, run)
    return run


def now(store: Store, session_id: str = "s1") -> StoredRun:
    """The run as it is."""
    run = find_run(store, session_id)
    assert run is not None
    return run


# ------------------------------------------------------------------------------------------------------------ states


def documented_moves() -> set[tuple[str, str]]:
    """The rows of the table in the docstring of the module."""
    rows = [line.strip("| ").split(" | ") for line in str(runs.__doc__).splitlines() if line.startswith("| ")][1:]
    return {
        (before, after)
        for _, froms, to in rows
        for before, after in product(froms.split(", "), to.split("; "))
        if before != "nothing"
    }


@pytest.mark.parametrize("before, after", list(product(STATES, STATES)))
def test_run_goes_from_state_to_state_as_the_table_says(store: Store, before: RunStatus, after: RunStatus) -> None:
    """Each row of it, and no other; a refused change leaves the run as it was."""
    run = submitted(store, before)
    assert (after in MOVES[before]) == ((before, after) in documented_moves())
    if (before, after) in documented_moves():
        assert write_run(store, run.change(after))
        assert (now(store).row.status, now(store).row.version) == (after, run.row.version + 1)
    else:
        with pytest.raises(SessionError):
            run.change(after)
        assert now(store) == run


@pytest.mark.parametrize("status", STATES)
def test_cancelling_retrying_and_waking_act_on_their_states_alone(store: Store, status: RunStatus) -> None:
    """What has ended is not cancelled, what has not failed is not repeated, and an answer wakes what waits."""
    before = submitted(store, status)
    wake_run(store, "s1")
    assert now(store).row.status == ("open" if status == "waiting" else status)
    assert status == "waiting" or now(store) == before
    cancelled = cancel_run(store, "s1", by="Ada", reason="of the holidays")
    assert (cancelled is None) == (status in {"finished", "failed", "cancelled"})
    if status != "finished":
        retried = retry_run(store, "s1")
        assert retried is not None
        assert (retried.row.status, retried.data) == ("open", DATA)
    with pytest.raises(SessionError):
        retry_run(store, "s1")


def test_change_says_what_is_wrong_and_who_has_changed(store: Store, wording: Wording) -> None:
    """Where all runs are listed, and the state of this one; secrets are masked."""
    store.create(session_row(FakeClock(), "none"))
    for act in (retry_run, cancel_run):
        with raises(SessionNotFoundError, wording):
            act(store, "none")
    submitted(store, "finished", "paid")
    with raises(SessionError, wording):
        retry_run(store, "paid")
    submitted(store)
    reason = "the key sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789 leaked"
    cancelled = cancel_run(store, "s1", by="Ada", reason=reason)
    assert cancelled is not None
    assert cancelled.data.text == wording


def test_run_that_another_process_changes_meanwhile_is_read_again(store: MemoryStore) -> None:
    """The change is made to what is there then."""
    faulty = FaultyStore(store)
    submitted(store)
    faulty.at("begin", lambda: write_run(store, now(store).change("waiting")))
    cancelled = cancel_run(faulty, "s1")
    assert cancelled is not None
    assert cancelled.row.version == now(store).row.version == 3


# -------------------------------------------------------------------------------------------------------- submission


def test_session_submitted_twice_is_one_run(store: MemoryStore, clock: FakeClock) -> None:
    """Also after it has ended; what is said of the time and the order counts the first time."""
    first = store_run(store, "s1", DATA, at=clock.now() + HOUR, priority=7, queue="tenant", tags={"shop": "b"})
    assert (first.row.due_at, first.row.submitted_at) == (clock.now() + HOUR, clock.now())
    clock.advance(HOUR)
    assert store_run(store, "s1", DATA, at=clock.now(), priority=1) == first == now(store)
    row = store.find("s1")
    assert row is not None
    assert row.tags == {"agent": "desk", "shop": "b"}
    finished = first.change("finished", text="paid")
    assert write_run(store, finished)
    assert store_run(store, "s1", DATA) == finished


@pytest.mark.parametrize("agent, input", [("desk", "Pay A-2."), ("clerk", "Pay A-1."), ("desk", None)])
def test_session_has_no_second_run(store: Store, agent: str, input: str | None, wording: Wording) -> None:
    """Of another agent, or with another input: the first stays."""
    first = submitted(store)
    with raises(SessionError, wording):
        store_run(store, "s1", RunData(agent=agent, input=input))
    assert now(store) == first


def test_of_two_processes_that_submit_one_session_one_does(store: MemoryStore, clock: FakeClock) -> None:
    """Whether the other one has made the session, or the run too."""
    faulty = FaultyStore(store)
    faulty.at("begin", lambda: submitted(store))
    assert store_run(faulty, "s1", DATA) == now(store)
    assert now(store).row.version == 1
    store.create(session_row(clock, "s2"))
    assert store_run(store, "s2", DATA).row.status == "open"


def test_session_that_has_begun_is_finished_without_an_input(
    store: MemoryStore, clock: FakeClock, wording: Wording
) -> None:
    """With one, the model would read two inputs; and one that does not exist needs one."""
    append(store, held(store, clock), 0, entries(1, 1), None)
    with raises(SessionError, wording):
        store_run(store, "s1", DATA)
    run = store_run(store, "s1", RunData(agent="desk"))
    assert (run.data.input, run.row.status) == (None, "open")
    with raises(SessionNotFoundError, wording):
        store_run(store, "none", RunData(agent="desk"))
    assert store.find("none") is None


def test_answer_to_a_nested_session_wakes_the_run_above_it(store: MemoryStore, clock: FakeClock) -> None:
    """However deep it is; a session without a run above it is none of the workers' business."""
    submitted(store, "waiting")
    for session_id, parent in (("middle", "s1"), ("child", "middle")):
        store.create(session_row(clock, session_id, parent=parent))
    clock.advance(HOUR)
    for session_id in ("none", "child"):
        wake_run(store, session_id)
    assert (now(store).row.status, now(store).row.due_at) == ("open", clock.now())


def test_run_that_cannot_be_read_is_an_error(store: MemoryStore, wording: Wording) -> None:
    """It names the session and what is wrong."""
    run = submitted(store)
    damaged = run.row._replace(version=2, data=b'{"agent": 7}')
    assert store.apply(UnitOfWork((RunChange(damaged),))) is None
    with raises(StoreCorruptError, wording):
        find_run(store, "s1")
