"""Any number of calls at once on one session, in any order of events, against a model that runs them one by one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from handrail.filesystem import Filesystem
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import ToolMessage
from tests.extent import examples
from tests.kit import Kept, Note, call, events, executor, files, tool

KINDS = ("write", "read", "concurrent")
FATES = ("succeed", "fail", "raise")


@dataclass(eq=False)
class Asked:
    """One call: what it is asked to do, and how far it has come."""

    name: str
    kind: str
    fate: str
    task: asyncio.Future[ToolMessage] = field(init=False)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    saw: tuple[str, ...] | None = None
    released: bool = False
    cancelled: bool = False

    @property
    def writes(self) -> bool:
        return self.kind == "write"


class SideBySide(RuleBasedStateMachine):
    """Calls arrive, are let go or cancelled; at every moment just those run that may, and what is due is visible."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.asked: dict[str, Asked] = {}
        self.unfinished: list[Asked] = []
        self.kept: list[str] = []
        self.ended: list[str] = []
        self.files = files(log="")
        options: dict[str, Any] = {"write": {}, "read": {"effect": "read"}, "concurrent": {"concurrent": True}}
        tools = [tool(kind, self._handler, **options[kind]) for kind in KINDS]
        self.door = executor(*tools, resources={Filesystem: self.files})

    async def _handler(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        own = self.asked[params.text]
        own.saw = tuple(kept.text for kept in context.session[Kept])
        if own.writes:
            self._write(own, context)
        await own.gate.wait()
        if own.writes:
            self._write(own, context)
        if own.fate == "raise":
            raise ValueError(own.name)
        return ToolResult.ok(params) if own.fate == "succeed" else ToolResult.error("no")

    def _write(self, own: Asked, context: ToolContext) -> None:
        context.session[Kept].append(Kept(own.name))
        store = context.resources.get(Filesystem)
        store.write_text("log.txt", store.read_text("log.txt") + own.name + "\n")

    @rule(kind=st.sampled_from(KINDS), fate=st.sampled_from(FATES))
    @precondition(lambda self: len(self.unfinished) < 20)
    def ask(self, kind: str, fate: str) -> None:
        own = Asked(f"c{len(self.asked)}", kind, fate)
        self.asked[own.name] = own
        self.unfinished.append(own)
        own.task = asyncio.ensure_future(self.door.execute_async(call(kind, own.name, id=own.name)), loop=self.loop)
        self._settle()

    @rule(data=st.data())
    @precondition(lambda self: bool(self.unfinished))
    def let_go(self, data: st.DataObject) -> None:
        own = data.draw(st.sampled_from(self.unfinished))
        own.released = True
        own.gate.set()
        self._settle()

    @rule(data=st.data())
    @precondition(lambda self: bool(self.unfinished))
    def cancel(self, data: st.DataObject) -> None:
        own = data.draw(st.sampled_from(self.unfinished))
        own.cancelled = True
        own.task.cancel()
        self._settle()

    def _settle(self) -> None:
        """Let the loop come to rest, and the model with it."""

        async def rest() -> None:
            for _ in range(200):
                await asyncio.sleep(0)

        self.loop.run_until_complete(rest())
        for own in [own for own in self.unfinished if own.cancelled]:
            self.unfinished.remove(own)
            self.ended.append(own.name)
        while self.unfinished and self.unfinished[0].released:
            own = self.unfinished.pop(0)
            self.ended.append(own.name)
            if own.writes and own.fate == "succeed":
                self.kept += [own.name, own.name]

    def _may_run(self) -> set[str]:
        running: set[str] = set()
        for place, own in enumerate(self.unfinished):
            if own.writes and place > 0:
                break
            running.add(own.name)
            if own.writes:
                break
        return running

    @invariant()
    def just_those_run_that_may(self) -> None:
        started = {own.name for own in self.unfinished if own.saw is not None}
        assert started == self._may_run()

    @invariant()
    def just_what_is_committed_is_visible(self) -> None:
        session = self.door.environment.session
        assert [kept.text for kept in session[Kept]] == self.kept
        succeeded = [name for name in self.ended if self._succeeded(name)]
        assert [note.text for note in session[Note]] == succeeded
        if not any(own.writes and own.saw is not None for own in self.unfinished):
            assert self.files.read_text("log.txt").split() == self.kept

    @invariant()
    def every_call_that_ended_is_recorded_in_its_order(self) -> None:
        assert [event.call_id for event in events(self.door)] == self.ended

    @invariant()
    def a_call_saw_what_those_before_it_had_committed(self) -> None:
        for own in self.unfinished:
            if own.saw is not None:
                assert list(own.saw) == self.kept

    def _succeeded(self, name: str) -> bool:
        own = self.asked[name]
        return own.fate == "succeed" and not own.cancelled

    def teardown(self) -> None:
        for own in list(self.unfinished):
            own.released = True
            own.gate.set()
        self._settle()
        for own in self.asked.values():
            assert own.task.done()
            if own.cancelled:
                assert own.task.cancelled()
            else:
                assert own.task.result().success is self._succeeded(own.name)
        assert self.door.environment.session.turn.queue == []
        self.loop.close()


@pytest.mark.requirement("M-04a", "M-04b", "M-04c", "S-03", "S-03a")
def test_twenty_calls_at_once_have_the_outcome_of_one_after_the_other() -> None:
    """Whatever the calls are, and in whatever order they arrive, go on and are cancelled."""
    run_state_machine_as_test(SideBySide, settings=settings(max_examples=examples(60), stateful_step_count=40))
