"""Records against plain dicts that are copied: nested calls, snapshots and changes in any order."""

from __future__ import annotations

import json
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from handrail.errors import ReadOnlyViolation, ResourceBusyError
from handrail.resources import Records
from handrail.resources.records.changes import RecordsSnapshot
from handrail.transaction import Transaction
from handrail.turns import Ticket, draw_ticket
from tests.extent import examples
from tests.resources.records.edits import DATA, edit

picks = st.lists(st.integers(0, 5), max_size=4)
ways = st.integers(0, 60)


def text_of(data: Any) -> str:
    """The data with the order of its keys."""
    return json.dumps(data)


@dataclass(eq=False)
class OpenCall:
    """A call, and what the records held when it began."""

    transaction: Transaction
    ticket: Ticket
    found: str


@dataclass(eq=False)
class Calls:
    """Calls inside each other, the outermost first."""

    context: Context = field(default_factory=Context)
    open: list[OpenCall] = field(default_factory=list[OpenCall])


class RecordsMachine(RuleBasedStateMachine):
    """Records, and the same data as JSON: as the calls see it, and as everybody else does."""

    def __init__(self) -> None:
        super().__init__()
        self.records = Records(DATA)
        self.inside = self.outside = text_of(DATA)
        self.calls = Calls()
        self.snapshots: list[tuple[RecordsSnapshot, str]] = []

    def run(self, act: Any, *args: Any) -> Any:
        """Call something inside the innermost call, or outside where there is none."""
        return self.calls.context.run(act, *args) if self.calls.open else Context().run(act, *args)

    def become(self, text: str) -> None:
        """Note what is there now; where there is no call, it is committed."""
        self.inside = text
        if not self.calls.open:
            self.outside = text

    @rule(picks=picks, way=ways)
    def change(self, picks: list[int], way: int) -> None:
        """One change, inside the innermost call, or alone."""
        data = json.loads(self.inside)
        edit(data, picks, way)
        self.run(edit, self.records, picks, way)
        self.become(text_of(data))

    @precondition(lambda self: self.calls.open)
    @rule(picks=picks, way=ways)
    def change_from_outside(self, picks: list[int], way: int) -> None:
        """A write from outside of the call is refused."""
        with pytest.raises(ResourceBusyError):
            Context().run(self.records.update, {"outside": [way, picks]})

    @rule()
    def call(self) -> None:
        """A call begins, inside the innermost one if there is any."""
        if self.calls.open:
            outer = self.calls.open[-1]
            ticket = draw_ticket((outer.transaction.inner_turn,), exclusive=True, inside=outer.ticket)
            transaction = Transaction("inner", ticket=ticket, writes=True, parent=outer.transaction)
        else:
            self.calls.context = Context()
            ticket = draw_ticket((self.records.turn,), exclusive=True)
            transaction = Transaction("outer", ticket=ticket, writes=True)
        self.calls.context.run(transaction.__enter__)
        self.calls.open.append(OpenCall(transaction, ticket, self.inside))

    @precondition(lambda self: self.calls.open)
    @rule(commits=st.booleans())
    def end(self, commits: bool) -> None:
        """The innermost call ends; what it changed is there, or is not."""
        ended = self.calls.open.pop()
        if commits:
            self.calls.context.run(ended.transaction.commit)
        self.calls.context.run(ended.transaction.__exit__, None, None, None)
        ended.ticket.release()
        self.become(self.inside if commits else ended.found)

    @precondition(lambda self: not self.calls.open)
    @rule(picks=picks, way=ways)
    def call_that_reads(self, picks: list[int], way: int) -> None:
        """It cannot change anything."""
        ticket = draw_ticket((self.records.turn,), exclusive=False)

        def read() -> None:
            with Transaction("read", ticket=ticket, writes=False), pytest.raises(ReadOnlyViolation):
                self.records["c"] = [picks, way]

        Context().run(read)
        ticket.release()

    @rule()
    def snapshot(self) -> None:
        """A snapshot of a program's own."""
        self.snapshots.append((self.run(self.records.snapshot), self.inside))

    @precondition(lambda self: self.snapshots)
    @rule(pick=st.integers(0, 5), drops=st.booleans())
    def restore(self, pick: int, drops: bool) -> None:
        """Any snapshot can be restored at any time, also an older one, and then a later one again."""
        place = pick % len(self.snapshots)
        snapshot, text = self.snapshots[place]
        self.run(self.records.restore, snapshot)
        self.become(text)
        if drops:
            del self.snapshots[place]

    @invariant()
    def each_reader_sees_what_it_may(self) -> None:
        """The calls see their changes, everybody else what was there before them, in the same order."""
        assert self.run(text_of, self.records) == self.inside
        assert self.run(self.records.plain) == json.loads(self.inside)
        assert Context().run(str, self.records) == str(json.loads(self.outside))
        assert text_of(Context().run(self.records.plain)) == self.outside


TestRecords = RecordsMachine.TestCase
TestRecords.settings = settings(max_examples=examples(200), stateful_step_count=40)
