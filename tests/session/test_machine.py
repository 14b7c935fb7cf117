"""A session against a model, by Hypothesis: calls, rollbacks, forks and snapshots in any order."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from handrail.errors import SessionBusyError, SessionUseError
from handrail.session import Append, Change, Session, SessionSnapshot, SliceView, replace_latest
from handrail.transaction import Transaction
from handrail.turns import Ticket, draw_ticket, find_turn
from tests.extent import examples
from tests.kit import refusal
from tests.session.samples import Add, Happened, Note, Task

Items = dict[type[Any], tuple[Any, ...]]
"""What the STATE slices of a session hold, as the model knows it."""

KINDS = (Note, Task)
picks = st.integers(0, 2)


@dataclass(eq=False)
class OpenCall:
    """A call, and what the sessions held when it began or first reached them."""

    transaction: Transaction
    ticket: Ticket
    found: dict[Modelled, Items]


@dataclass(eq=False)
class Group:
    """Calls inside each other, the outermost first, and the sessions that they have reached."""

    context: Context
    calls: list[OpenCall] = field(default_factory=list[OpenCall])
    members: list[Modelled] = field(default_factory=list[Any])


@dataclass(eq=False)
class Modelled:
    """A session, and what it should hold: as everybody sees it, and as the calls do that have reached it."""

    session: Session
    outside: Items
    inside: Items
    log: tuple[Happened, ...]
    group: Group | None = None
    snapshots: list[tuple[SessionSnapshot, Items]] = field(default_factory=list[Any])

    def run(self, act: Callable[..., Any], *args: Any, within: bool) -> Any:
        """Call something inside the innermost call, or outside of all."""
        context = self.group.context if within and self.group else Context()
        return context.run(act, *args)

    def items(self, *, within: bool) -> Items:
        """What is seen from there."""
        return self.inside if within else self.outside

    def become(self, items: Items) -> None:
        """Note a write; where there is no call, it is committed."""
        self.inside = {**self.inside, **items}
        if self.group is None:
            self.outside = self.inside


def fail(_view: SliceView[Task], _event: Add) -> Change[Task]:
    """A reducer that raises."""
    raise ValueError("no")


class SessionMachine(RuleBasedStateMachine):
    """A few sessions that are forks of each other; each may have calls open, inside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Modelled] = []
        self.count = 0

    @initialize(length=st.integers(0, 3))
    def begin_with_one(self, length: int) -> None:
        """A session whose reducers replace tasks, and fail at one event after another reducer has answered."""
        session = Session()
        session[Task].register(Task, replace_latest)
        session[Note].register(Add, lambda _view, event: Append(Note(str(event.amount))))
        session[Task].register(Add, fail)
        notes = tuple(Note(str(number)) for number in range(length))
        session[Note].seed(*notes)
        items: Items = {Note: notes, Task: ()}
        self.all.append(Modelled(session, items, items, ()))

    @rule(pick=picks, way=st.sampled_from(["dispatch", "append"]))
    def append(self, pick: int, way: str) -> None:
        """A note more, inside the innermost call, or alone."""
        one, note = self.all[pick % len(self.all)], Note(self.name())
        one.run(one.session.dispatch if way == "dispatch" else one.session[Note].append, note, within=True)
        one.become({Note: (*one.inside[Note], note)})

    @rule(pick=picks, way=st.sampled_from(["seed", "seed iterable", "clear", "clear where", "replace"]))
    def replace(self, pick: int, way: str) -> None:
        """Other items, inside the innermost call, or alone."""
        one, note, task = self.all[pick % len(self.all)], Note(self.name()), Task("k", self.name())
        if way == "replace":
            one.run(one.session.dispatch, task, within=True)
            one.become({Task: (task,)})
        elif way == "clear where":
            # Every third note by its name, which is a number.
            one.run(partial(one.session[Note].clear, where=lambda note: int(note.text) % 3 == 0), within=True)
            one.become({Note: tuple(note for note in one.inside[Note] if int(note.text) % 3)})
        elif way == "seed iterable":
            one.run(one.session[Note].seed, iter([note, note]), within=True)
            one.become({Note: (note, note)})
        else:
            items = (note, note) if way == "seed" else ()
            one.run(getattr(one.session[Note], way), *items, within=True)
            one.become({Note: items})

    @rule(pick=picks, within=st.booleans())
    def reset(self, pick: int, within: bool) -> None:
        """Everything goes, the LOG too; a session that a call writes to is not reset, from inside or from outside."""
        one = self.all[pick % len(self.all)]
        if one.group is not None:
            refusal(SessionUseError if within else SessionBusyError, one.run, one.session.reset, within=within)
            return
        one.session.reset()
        one.become({Note: (), Task: ()})
        one.log = ()

    @rule(pick=picks, within=st.booleans())
    def what_leaves_no_state(self, pick: int, within: bool) -> None:
        """An event that is logged, from anywhere; one whose reducer fails; a write from outside of the call."""
        one, event = self.all[pick % len(self.all)], Happened(self.name())
        one.run(one.session.dispatch, event, within=within)
        one.log = (*one.log, event)
        with pytest.raises(SessionBusyError if one.group and not within else ValueError):
            one.run(one.session.dispatch, Add(1), within=within)

    @rule(pick=picks)
    def call(self, pick: int) -> None:
        """A call begins, inside the innermost one if there is any."""
        one = self.all[pick % len(self.all)]
        group = one.group
        if group is None:
            one.group = group = Group(Context(), members=[one])
            ticket = draw_ticket((one.session.turn,), exclusive=True)
            transaction = Transaction("outer", ticket=ticket, writes=True)
        else:
            outer = group.calls[-1]
            ticket = draw_ticket((find_turn(outer.transaction),), exclusive=True, inside=outer.ticket)
            transaction = Transaction("inner", ticket=ticket, writes=True, parent=outer.transaction)
        group.context.run(transaction.__enter__)
        group.calls.append(OpenCall(transaction, ticket, {member: member.inside for member in group.members}))

    @rule(
        pick=picks,
        acts=st.lists(st.sampled_from(["append", "replace", "snapshot", "restore", "fork"]), max_size=4),
        commits=st.booleans(),
    )
    def whole_call(self, pick: int, acts: list[str], commits: bool) -> None:
        """A call from its beginning to its end."""
        self.call(pick)
        for act in acts:
            if act == "append":
                self.append(pick, "dispatch")
            elif act == "replace":
                self.replace(pick, "seed")
            elif act == "snapshot":
                self.snapshot(pick, within=True)
            elif act == "fork" and len(self.all) < 3:
                self.fork(pick, within=True)
            elif act == "restore" and any(one.snapshots for one in self.all):
                self.restore(pick, len(acts))
        self.end(pick, commits)

    @precondition(lambda self: 0 < len(self.calling()) < len(self.all))
    @rule(pick=picks, which=picks)
    def reach(self, pick: int, which: int) -> None:
        """A call writes to one more session, by closure: from there on it is the call's."""
        idle = [one for one in self.all if one.group is None]
        reached, caller = idle[which % len(idle)], self.calling()[pick % len(self.calling())]
        reached.group = group = caller.group
        assert group is not None
        group.members.append(reached)
        for call in group.calls:
            call.found[reached] = reached.inside
        note = Note(self.name())
        reached.run(reached.session.dispatch, note, within=True)
        reached.become({Note: (*reached.inside[Note], note)})

    @precondition(lambda self: self.calling())
    @rule(pick=picks, commits=st.booleans())
    def end(self, pick: int, commits: bool) -> None:
        """The innermost call ends."""
        group = self.calling()[pick % len(self.calling())].group
        assert group is not None
        if commits:
            group.context.run(group.calls[-1].transaction.commit)
        leave(group, keeps=commits)

    @precondition(lambda self: self.calling())
    @rule(pick=picks)
    def end_from_outside(self, pick: int) -> None:
        """The outermost call is undone while those inside it are still open; they undo nothing more."""
        group = self.calling()[pick % len(self.calling())].group
        assert group is not None
        group.calls[0].transaction.rollback()
        for call in group.calls:
            call.found = group.calls[0].found
        while group.calls:
            leave(group, keeps=False)

    @rule(pick=picks, within=st.booleans())
    def snapshot(self, pick: int, within: bool) -> None:
        """Somebody holds what is seen from there."""
        one = self.all[pick % len(self.all)]
        taken: SessionSnapshot = one.run(one.session.snapshot, within=within)
        one.snapshots.append((taken, one.items(within=within)))

    @precondition(lambda self: any(one.snapshots for one in self.all))
    @rule(pick=picks, which=picks)
    def restore(self, pick: int, which: int) -> None:
        """Back to any snapshot, older or newer, of what was committed or undone."""
        holding = [one for one in self.all if one.snapshots]
        one = holding[pick % len(holding)]
        taken, items = one.snapshots[which % len(one.snapshots)]
        one.run(one.session.restore, taken, within=True)
        one.become(items)

    @precondition(lambda self: len(self.all) < 3)
    @rule(pick=picks, within=st.booleans())
    def fork(self, pick: int, within: bool) -> None:
        """One more session, that begins with what is seen from there."""
        one = self.all[pick % len(self.all)]
        items = one.items(within=within)
        self.all.append(Modelled(one.run(one.session.fork, within=within), items, items, one.log))

    @invariant()
    def each_holds_what_its_model_holds(self) -> None:
        """Seen from inside and from outside; and every snapshot holds what it held."""
        for one in self.all:
            for within in (True, False):
                seen = {kind: one.run(one.session[kind].all, within=within) for kind in KINDS}
                assert seen == one.items(within=within)
            assert one.session[Happened].all() == one.log
            for taken, items in one.snapshots:
                assert {kind: SliceView(taken.slices.get(kind)).all() for kind in KINDS} == items

    def teardown(self) -> None:
        """Whatever is still open is undone."""
        for one in self.all:
            while one.group is not None:
                leave(one.group, keeps=False)
            assert one.session.turn.queue == []
        self.each_holds_what_its_model_holds()

    def calling(self) -> list[Modelled]:
        return [one for one in self.all if one.group is not None]

    def name(self) -> str:
        self.count += 1
        return str(self.count)


def leave(group: Group, *, keeps: bool) -> None:
    """Leave the innermost call's block; with the outermost one, its sessions are everybody's again."""
    call = group.calls.pop()
    group.context.run(call.transaction.__exit__, None, None, None)
    call.ticket.release()
    for member in group.members:
        if not keeps:
            member.inside = call.found[member]
        if not group.calls:
            member.outside = member.inside
            member.group = None


TestSessions = SessionMachine.TestCase
TestSessions.settings = settings(max_examples=examples(300), stateful_step_count=40)
