"""Random histories of sessions, holds, units and decisions on every store, against a model of a page."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from handrail.errors import SessionLockedError, SessionLostError, SessionNotFoundError
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import Checkpoint, SessionAppend, SessionEntry, SessionLock
from handrail.store import EffectRow
from handrail.store.protocol import EffectChange
from handrail.testing import FakeClock
from handrail.transaction import RecordCommit, UnitOfWork
from tests.extent import examples
from tests.store.kit import (
    NOW,
    append,
    delete,
    entry,
    fork_row,
    insert,
    record_commit,
    replace,
    running_row,
    session_row,
)
from tests.store.stores import ALL_STORES, MakeStore

EXAMPLES = {"memory": 200, "sqlite": 60, "postgres": 20, "third": 20}
IDS, KEYS = ("a", "b", "c"), ("k1", "k2")
EFFECTS = {"k1": ("1" * 32, "2" * 32), "k2": ("3" * 32, "4" * 32)}
REFS = (CallRef(None, "c1"), CallRef("r1", "c1"), CallRef("r1", "c2"))

ids, keys, refs = st.sampled_from(IDS), st.sampled_from(KEYS), st.sampled_from(REFS)


@dataclass
class Kept:
    """What one session holds."""

    entries: list[SessionEntry] = field(default_factory=list[SessionEntry])
    checkpoints: list[int] = field(default_factory=list[int])


@dataclass
class Model:
    """Everything that counts in a store."""

    sessions: dict[str, Kept] = field(default_factory=dict[str, Kept])
    rows: dict[str, EffectRow] = field(default_factory=dict[str, EffectRow])
    decided: set[str] = field(default_factory=set[str])


class StoreMachine(RuleBasedStateMachine):
    """Does at random what sessions, ledgers and journals do to a store."""

    make_store: MakeStore

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.store = type(self).make_store(self.clock)
        self.model = Model()
        self.holds: dict[str, SessionLock] = {}
        self.old_holds: list[SessionLock] = []

    # ------------------------------------------------------------------------------------------------------- units

    @rule(session_id=ids, journal=st.sampled_from(["j1", "j2"]), refused=st.booleans())
    def unit(self, session_id: str, journal: str, *, refused: bool) -> None:
        hold = self.holds.get(session_id)
        writes: list[object] = [RecordCommit(journal)]
        if hold is not None:
            head = len(self.model.sessions[session_id].entries)
            writes.append(SessionAppend(hold, head, (entry(head + 1, "unit"),)))
        if refused:
            writes.append(EffectChange(running_row(self.clock, "no such key"), None))
        assert (self.store.apply(UnitOfWork(tuple(writes))) is not None) == refused
        if refused:
            return
        self.model.decided.add(journal)
        if hold is not None:
            session = self.model.sessions[session_id]
            session.entries.append(entry(len(session.entries) + 1, "unit"))

    # ---------------------------------------------------------------------------------------------------- sessions

    @rule(session_id=ids)
    def create(self, session_id: str) -> None:
        assert self.store.create(session_row(self.clock, session_id)) == (session_id not in self.model.sessions)
        self.model.sessions.setdefault(session_id, Kept())

    @rule(source=ids, session_id=ids, head=st.integers(0, 6))
    def fork(self, source: str, session_id: str, head: int) -> None:
        session = self.model.sessions.get(source)
        try:
            is_new = self.store.create(fork_row(self.clock, session_id, source, head))
        except SessionNotFoundError:
            assert session is None or head > len(session.entries)
            return
        assert session is not None
        assert is_new == (session_id not in self.model.sessions)
        if is_new:
            covered = [number for number in session.checkpoints if number <= head]
            self.model.sessions[session_id] = Kept(session.entries[:head], covered)

    @rule(session_id=ids)
    def hold(self, session_id: str) -> None:
        try:
            hold = self.store.acquire(session_id, wait=NOW)
        except SessionNotFoundError:
            assert session_id not in self.model.sessions
        except SessionLockedError:
            assert session_id in self.holds
        else:
            assert session_id not in self.holds
            self.holds[session_id] = hold

    @rule(session_id=ids)
    def release(self, session_id: str) -> None:
        hold = self.holds.pop(session_id, None)
        if hold is not None:
            self.store.release(hold)
            self.old_holds.append(hold)

    @rule(session_id=ids, count=st.integers(0, 3), call=refs, late=st.integers(0, 2), covered=st.booleans())
    def append(self, session_id: str, count: int, call: CallRef, late: int, *, covered: bool) -> None:
        hold = self.holds.get(session_id)
        if hold is None:
            return
        session = self.model.sessions[session_id]
        head = max(len(session.entries) - late, 0)
        reply = call.reply or ""
        added = [entry(number, call.call_id, reply=reply) for number in range(head + 1, head + count + 1)]
        checkpoint = Checkpoint(head + count, b"%d" % (head + count)) if covered else None
        try:
            append(self.store, hold, head, added, checkpoint)
        except SessionLostError:
            assert head != len(session.entries)
            return
        if head != len(session.entries):
            assert head + count == len(session.entries)  # taken for a repetition
            return
        session.entries += added
        if checkpoint is not None and checkpoint.number not in session.checkpoints:
            session.checkpoints.append(checkpoint.number)

    @precondition(lambda self: self.old_holds)
    @rule(which=st.integers(0, 9))
    def zombie(self, which: int) -> None:
        hold = self.old_holds[which % len(self.old_holds)]
        head = len(self.model.sessions[hold.session_id].entries)
        with pytest.raises(SessionLostError):
            append(self.store, hold, head, [entry(head + 1, "zombie")], None)
        with pytest.raises(SessionLostError):
            self.store.check_lock(hold, head)

    # -------------------------------------------------------------------------------------------- ledger, decisions

    @rule(key=keys, fence=st.integers(1, 3), again=st.booleans())
    def write_row(self, key: str, fence: int, *, again: bool) -> None:
        row = running_row(self.clock, key, effect_id=EFFECTS[key][again])._replace(fence=fence)
        present = self.model.rows.get(key)
        assert insert(self.store, row) == present
        if present is not None:
            assert replace(self.store, present, row)
            assert replace(self.store, present, row) == (present[:3] == row[:3] and present.fence == fence)
        self.model.rows[key] = row

    @rule(key=keys)
    def delete_row(self, key: str) -> None:
        row = self.model.rows.pop(key, None)
        if row is not None:
            assert delete(self.store, row)
            assert not delete(self.store, row)

    @rule(journal=st.sampled_from(["j1", "j2"]), forgotten=st.booleans())
    def decide(self, journal: str, *, forgotten: bool) -> None:
        (self.store.delete_commit_record if forgotten else partial(record_commit, self.store))(journal)
        (self.model.decided.discard if forgotten else self.model.decided.add)(journal)

    # ------------------------------------------------------------------------------------------ what is always true

    @invariant()
    def store_holds_what_the_model_holds(self) -> None:
        assert {row.session_id: row.head for row in self.store.sessions()} == {
            session_id: len(session.entries) for session_id, session in self.model.sessions.items()
        }
        for session_id, session in self.model.sessions.items():
            assert list(self.store.entries(session_id)) == session.entries
            checkpoint = self.store.checkpoint(session_id)
            assert (checkpoint and checkpoint.number) == max(session.checkpoints, default=None)
            records = [(CallRef(one.reply or None, one.call_id), one.number) for one in session.entries]
            assert self.store.recorded_calls(session_id, limit=99) == records[::-1]
            for call in REFS:
                assert self.store.record_of_call(session_id, call) == dict(records).get(call)
        assert {row.key: row for row in self.store.rows()} == self.model.rows
        assert {call.key for call in self.store.open_claims("s1")} == set(self.model.rows)
        assert {journal for journal in ("j1", "j2") if self.store.is_committed(journal)} == self.model.decided

    @invariant()
    def holds_are_valid(self) -> None:
        for session_id, hold in self.holds.items():
            if session_id in self.model.sessions:
                self.store.check_lock(hold, len(self.model.sessions[session_id].entries))


@pytest.mark.parametrize("name", ALL_STORES)
def test_every_history_leaves_what_counts(name: str) -> None:
    """Whatever is created, written, forked, undone and held in whatever order, the store holds what the model does."""
    machine = type("Machine", (StoreMachine,), {"make_store": staticmethod(ALL_STORES[name])})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(EXAMPLES[name]), stateful_step_count=30))
