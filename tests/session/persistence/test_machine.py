"""Stored sessions do what sessions in memory do, in any order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from handrail.errors import StoreUnavailableError
from handrail.session import Append, Replace, Session, SessionSnapshot, stored_as
from handrail.session.calls import CallRef
from handrail.testing import FakeClock
from handrail.transaction import Transaction
from handrail.turns import draw_ticket, find_turn
from tests.extent import examples
from tests.session.faulty_stores import FaultyStore, Point
from tests.session.samples import Add, Happened, Note, Reset, Task, Total
from tests.store.stores import STORES

Act = tuple[Any, ...]
"""A word, and what it needs."""

Held = dict[type[Any], tuple[Any, ...]]
"""What a session holds."""


@stored_as("tests.call_ended")
@dataclass(frozen=True, slots=True)
class Ended(Happened):
    """What closes a call."""

    @property
    def call_id(self) -> str:
        """The call."""
        return self.what


KINDS: tuple[type[Any], ...] = (Note, Task, Total, Add, Happened, Ended)
NAMES = st.sampled_from("abcd")
ACTS: st.SearchStrategy[Act] = st.one_of(
    st.tuples(st.sampled_from(["append", "dispatch", "task", "log", "log outside"]), NAMES),
    st.tuples(st.just("clear where"), NAMES),
    st.tuples(st.just("add"), st.integers(1, 9)),
    st.tuples(st.just("seed"), st.lists(NAMES, max_size=4)),
    st.tuples(st.just("mend"), st.tuples(st.integers(0, 9), NAMES)),
    st.tuples(st.just("restore"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["reset", "clear", "snapshot"]), st.none()),
)
TODO: st.SearchStrategy[list[Act]] = st.recursive(
    st.lists(ACTS, max_size=4),
    lambda inner: st.lists(ACTS | st.tuples(st.just("call"), inner, st.booleans()), max_size=4),
    max_leaves=12,
)
WRITES: Mapping[str, Callable[[Session, Any], object]] = {
    "append": lambda session, name: session[Note].append(Note(name)),
    "dispatch": lambda session, name: session.dispatch(Note(name)),
    "task": lambda session, name: session.dispatch(Task("k", name)),
    "log": lambda session, name: session.dispatch(Happened(name)),
    "log outside": lambda session, name: Context().run(session.dispatch, Happened(name)),
    "add": lambda session, amount: session.dispatch(Add(amount)),
    "reset": lambda session, _: session.dispatch(Reset()),
    "seed": lambda session, names: session[Note].seed(*map(Note, names)),
    "clear": lambda session, _: session[Note].clear(),
    "clear where": lambda session, name: session[Note].clear(where=lambda note: note.text == name),
    "mend": lambda session, mended: mend(session, *mended),
}
"""What each word does, but those that a side does itself."""

FAULTS: tuple[Point | None, ...] = (None, "begin", "append", "commit", "committed")


@dataclass
class Side:
    """One of the two sessions, and the snapshots that were taken of it."""

    session: Session
    snapshots: list[SessionSnapshot] = field(default_factory=list[SessionSnapshot])

    def held(self) -> Held:
        """What it holds."""
        return {kind: self.session[kind].all() for kind in KINDS}

    def call(self, call_id: str, todo: Sequence[Act], *, commits: bool) -> None:
        """A call as the pipeline makes it; one that its store does not take is undone."""
        session = self.session
        ticket = draw_ticket((session.turn,), exclusive=True)
        recorded = False
        with suppress(StoreUnavailableError), Transaction("call", ticket=ticket, writes=True) as transaction:
            self.perform(todo, transaction)
            if commits:
                session.slices.record_with(Ended(call_id), CallRef(None, call_id), transaction)
                transaction.commit()
                recorded = session.store is not None
        if not recorded:
            session.slices.record(Ended(call_id), CallRef(None, call_id))
        ticket.release()

    def perform(self, todo: Sequence[Act], call: Transaction | None = None) -> None:
        """Do something, in a call or outside."""
        for word, *rest in todo:
            if word == "snapshot":
                self.snapshots.append(self.session.snapshot())
            elif word == "restore":
                if self.snapshots:
                    self.session.restore(self.snapshots[int(rest[0]) % len(self.snapshots)])
            elif word == "call":
                assert call is not None
                self.nested(call, rest[0], commits=rest[1])
            else:
                WRITES[word](self.session, rest[0])

    def nested(self, outer: Transaction, todo: Sequence[Act], *, commits: bool) -> None:
        """A call made inside another."""
        ticket = draw_ticket((find_turn(outer),), exclusive=True, inside=outer.ticket)
        with Transaction("inner", ticket=ticket, writes=True, parent=outer) as transaction:
            self.perform(todo, transaction)
            if commits:
                transaction.commit()
        ticket.release()
        self.session.slices.record(Ended("inner"), CallRef(None, "inner"))


def mend(session: Session, place: int, name: str) -> None:
    """Put a note in the place of another."""
    notes = session[Note].all()
    session[Note].seed(*notes[:place], Note(name), *notes[place + 1 :])


def with_rules(session: Session) -> Side:
    """A session whose notes make tasks, and whose totals are made of events that no slice keeps."""
    session.install(Total, initial=lambda: Total(0))
    session[Task].register(Note, lambda view, event: Append(Task("k", event.text)) if len(view) % 3 else Replace(()))
    session[Note].register(Note, lambda _view, event: Append(event))
    return Side(session)


class StoredSessionMachine(RuleBasedStateMachine):
    """Calls inside each other, faults of the store, forks, closing and opening again."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.store = FaultyStore(STORES[self.kind](FakeClock()))
        self.plain = with_rules(Session())
        self.stored = with_rules(Session.open(self.store, "s", checkpoint_every=2))
        self.after: dict[str, Held] = {}

    @initialize(todo=TODO)
    def begin(self, todo: list[Act]) -> None:
        """There is something to fork at."""
        self.call(todo, commits=True, fault=None)

    @rule(act=ACTS)
    def outside(self, act: Act) -> None:
        """A write or an event that is a transaction of its own."""
        for side in (self.plain, self.stored):
            side.perform([act])

    @rule(todo=TODO, commits=st.booleans(), fault=st.sampled_from(FAULTS))
    def call(self, todo: list[Act], commits: bool, fault: Point | None) -> None:
        """A call, whose store fails once: nobody notices."""
        call_id = f"call-{len(self.after)}"
        if fault is not None:
            self.store.lose(fault)
        for side in (self.plain, self.stored):
            side.call(call_id, todo, commits=commits)
        self.store.come_back()
        self.after[call_id] = self.plain.held()

    @rule(todo=TODO, point=st.sampled_from(["begin", "append", "commit"]))
    def call_that_cannot_be_recorded(self, todo: list[Act], point: Point) -> None:
        """The store is down for longer than it is tried: the call is undone, and known to have been made."""
        self.plain.call("lost", todo, commits=False)
        self.store.go_down(point)
        self.stored.call("lost", todo, commits=True)
        self.store.come_back()

    @rule(fault=st.sampled_from(FAULTS))
    def reset(self, fault: Point | None) -> None:
        """Everything goes, in one unit, whose store fails once: nobody notices."""
        if fault is not None:
            self.store.lose(fault)
        for side in (self.plain, self.stored):
            side.session.reset()
        self.store.come_back()

    @rule(every=st.integers(1, 5))
    def close_and_open(self, every: int) -> None:
        """Somebody else goes on with it; snapshots end with the session that they were taken of."""
        self.stored.session.close()
        self.stored = with_rules(Session.open(self.store, "s", checkpoint_every=every))
        self.plain.snapshots.clear()

    @rule(pick=st.integers(0, 99))
    def fork_at_a_call(self, pick: int) -> None:
        """The fork holds what there was when the call had been recorded, and is opened with what it got since."""
        call_id = list(self.after)[pick % len(self.after)]
        with self.stored.session.fork(at=(None, call_id)) as fork:
            assert Side(fork).held() == self.after[call_id]
            fork[Note].append(Note("more"))
            held = Side(fork).held()
        with Session.open(self.store, fork.session_id) as again:
            assert Side(again).held() == held

    @invariant()
    def both_hold_the_same(self) -> None:
        """In every slice."""
        assert self.stored.held() == self.plain.held()

    def teardown(self) -> None:
        """What was closed is what is opened, by a program that reads and does not write."""
        self.stored.session.close()
        with Session.open(self.store, "s", create=False) as again:
            assert Side(again).held() == self.plain.held()


@pytest.mark.parametrize("kind, number", [("memory", 100), ("sqlite", 20), ("postgres", 8)])
def test_a_stored_session_holds_what_one_in_memory_holds(kind: str, number: int) -> None:
    """Over every store."""

    class Machine(StoredSessionMachine):
        pass

    Machine.kind = kind
    run_state_machine_as_test(Machine, settings=settings(max_examples=examples(number), stateful_step_count=20))


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
