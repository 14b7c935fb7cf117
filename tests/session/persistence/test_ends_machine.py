"""The ends of stored slices against plain lists: in whichever order a program reads, appends, rolls back and forks."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from handrail.errors import StoreUnavailableError
from handrail.session import Session
from handrail.testing import FakeClock
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.extent import examples
from tests.session.faulty_stores import FaultyStore
from tests.session.samples import Happened, Note
from tests.store.stores import STORES

NAMES = st.sampled_from("abcd")
PLACES = st.none() | st.integers(-12, 12)


@contextmanager
def call_of(session: Session, *, commits: bool) -> Generator[None]:
    """A call that is committed or rolled back."""
    ticket = draw_ticket((session.turn,), exclusive=True)
    with Transaction("call", ticket=ticket, writes=True) as transaction:
        yield
        if commits:
            transaction.commit()
    ticket.release()


class EndsMachine(RuleBasedStateMachine):
    """A session with a STATE slice and a LOG; what a rule reads is all that is read of it."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.store = FaultyStore(STORES[self.kind](FakeClock()))
        self.session = Session.open(self.store, "s", checkpoint_every=3)
        self.notes: list[str] = []
        self.log: list[str] = []
        self.forks = 0

    def notes_of(self, *place: int | None) -> list[str]:
        return [note.text for note in self.session[Note][slice(*place)]]

    def log_of(self, *place: int | None) -> list[str]:
        return [event.what for event in self.session[Happened][slice(*place)]]

    @rule(start=PLACES, stop=PLACES, step=st.sampled_from([None, 1, 2, -1, -3]), fails=st.booleans())
    def read_range(self, start: int | None, stop: int | None, step: int | None, *, fails: bool) -> None:
        """A range of both, which is the same once the store answers."""
        if fails:
            self.store.go_down("read")
            with suppress(StoreUnavailableError):
                self.notes_of(start, stop, step)
            with suppress(StoreUnavailableError):
                self.log_of(start, stop, step)
            self.store.come_back()
        assert self.notes_of(start, stop, step) == self.notes[start:stop:step]
        assert self.log_of(start, stop, step) == self.log[start:stop:step]

    @rule()
    def read_latest(self) -> None:
        """The newest item of both."""
        note, event = self.session[Note].latest(), self.session[Happened].latest()
        assert (note and note.text) == (self.notes[-1] if self.notes else None)
        assert (event and event.what) == (self.log[-1] if self.log else None)

    @rule()
    def read_backwards(self) -> None:
        """Item by item."""
        assert [event.what for event in reversed(self.session[Happened])] == self.log[::-1]

    @rule(names=st.lists(NAMES, min_size=1, max_size=3), commits=st.booleans(), looks=st.booleans())
    def append_in_a_call(self, names: list[str], *, commits: bool, looks: bool) -> None:
        """What a call has appended to STATE goes with it; a LOG keeps it."""
        with call_of(self.session, commits=commits):
            for name in names:
                self.session[Note].append(Note(name))
                self.session.dispatch(Happened(name))
            if looks:
                assert self.notes_of(-len(names) - 1, None) == [*self.notes, *names][-len(names) - 1 :]
        self.notes += names if commits else []
        self.log += names

    @rule(keep=st.integers(0, 9), name=NAMES, commits=st.booleans())
    def replace_the_end(self, keep: int, name: str, *, commits: bool) -> None:
        """The slice is cut in the middle; a rollback puts it back."""
        with call_of(self.session, commits=commits):
            self.session[Note].seed([*self.session[Note][:keep], Note(name)])
            self.session[Note].append(Note("end"))
        if commits:
            self.notes = [*self.notes[:keep], name, "end"]

    @rule(name=NAMES)
    def restore_a_snapshot(self, name: str) -> None:
        """Within a call, which is committed with what it has appended after that."""
        with call_of(self.session, commits=True):
            snapshot = self.session.snapshot()
            self.session[Note].append(Note("gone"))
            self.session.restore(snapshot)
            self.session[Note].append(Note(name))
        self.notes.append(name)

    @rule()
    def reset(self) -> None:
        """Nothing is left of either."""
        self.session.reset()
        self.notes, self.log = [], []

    @rule(every=st.integers(1, 5))
    def close_and_open(self, every: int) -> None:
        """Nothing of it has been read then."""
        self.session.close()
        self.session = Session.open(self.store, self.session.session_id, checkpoint_every=every)

    @rule()
    def go_on_with_a_fork(self) -> None:
        """It has what there was, whatever was read of the origin."""
        self.forks += 1
        fork = self.session.fork(session_id=f"fork-{self.forks}")
        self.session.close()
        self.session = fork

    @invariant()
    def lengths_are_known(self) -> None:
        """Without reading an item."""
        before = self.store.rows_read
        assert (len(self.session[Note]), len(self.session[Happened])) == (len(self.notes), len(self.log))
        assert self.store.rows_read == before

    def teardown(self) -> None:
        assert (self.notes_of(None), self.log_of(None)) == (self.notes, self.log)
        self.session.close()


@pytest.mark.parametrize("kind, number", [("memory", 150), ("sqlite", 20), ("postgres", 8)])
def test_a_part_of_a_stored_slice_is_that_part_of_a_list(kind: str, number: int) -> None:
    """Over every store."""

    class Machine(EndsMachine):
        pass

    Machine.kind = kind
    run_state_machine_as_test(Machine, settings=settings(max_examples=examples(number), stateful_step_count=25))
