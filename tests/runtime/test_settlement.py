"""What is settled of the open calls of a session, with which arguments, and what keeps a result waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from handrail.adapters.loop import session_ledger
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import UnboundResourceError
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall
from handrail.runtime.ledger.effects import EffectResult
from handrail.session.calls import CallRef
from handrail.store import EffectRow, MemoryStore
from handrail.testing import FakeClock
from tests.kit import Note, executor, tool
from tests.store.kit import delete, replace
from tests.wording import Wording


@dataclass
class Till:
    """A session with calls of `charge`, whose effects a person has found done.

    Attributes:
        applied: what `apply` was given.
        meets: what happens while `apply` runs, the last one first.
        fails: what `apply` raises, the last one first.
    """

    store: MemoryStore
    clock: FakeClock
    session: Session
    applied: list[Any] = field(default_factory=list[Any])
    meets: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    fails: list[BaseException] = field(default_factory=list[BaseException])

    def book(self, params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Note the parameters."""
        self.applied.append(params)
        if self.meets:
            self.meets.pop()()
        if self.fails:
            raise self.fails.pop()

    def door(self, key: IdempotencyConfig | None = None, *, apply: Any = None) -> ToolExecutor:
        """An executor of the tool."""
        effect = External(apply=apply or self.book)
        made = tool("charge", lost, effect=effect, idempotency=key)
        return executor(made, session=self.session, clock=self.clock)

    def owe(self, *texts: str, key: IdempotencyConfig | None = None) -> list[EffectRow]:
        """Make these calls, and resolve their effects; the rows."""
        door, ledger = self.door(key), session_ledger(self.session, clock=self.clock)
        for text in texts:
            assert not door.execute(ToolCall(text, "charge", {"text": text}), reply="r1").success
        for row in self.store.rows():
            assert ledger.resolve(row, EffectResult("paid"))
        return list(self.store.rows())


def lost(params: Any, *, context: ToolContext) -> ToolResult[Any]:
    """Fail after the deed."""
    raise TimeoutError


@pytest.fixture
def till() -> Generator[Till]:
    """A session without calls."""
    clock = FakeClock()
    with MemoryStore(clock=clock) as store, store.session("till", types=(Note,)) as session:
        yield Till(store, clock, session)


def test_a_session_in_memory_has_nothing_to_settle() -> None:
    """Its effects end with its process."""
    assert executor(session=Session()).settle_open() == ()


def test_an_effect_that_is_shared_with_other_sessions_is_settled(till: Till) -> None:
    """Its row is not among those of the session."""
    (row,) = till.owe("lamp", key=IdempotencyConfig(scope="shop"))
    assert row.partition == ""
    (settled,) = till.door(IdempotencyConfig(scope="shop")).settle_open()
    assert (settled.message.success, till.applied) == (True, [Note("lamp")])


def test_an_effect_that_a_person_removes_while_another_is_settled_is_not_applied(till: Till, wording: Wording) -> None:
    """Its message says so, and no handler runs."""
    _, second = till.owe("lamp", "desk")
    till.meets.append(lambda: delete(till.store, second))
    first, removed = till.door().settle_open()
    assert (first.message.success, removed.message.success) == (True, False)
    assert removed.message.content == wording
    assert till.applied == [Note("lamp")]


def test_an_interrupt_ends_the_settling_with_the_mistakes_as_notes(till: Till) -> None:
    """The program learns of both."""
    till.owe("lamp", "desk", "vase")
    till.fails += [KeyboardInterrupt(), UnboundResourceError(int)]
    with pytest.raises(KeyboardInterrupt) as caught:
        till.door().settle_open()
    assert [note.split(":")[1].strip() for note in caught.value.__notes__] == ["UnboundResourceError"]
    assert till.applied == [Note("lamp"), Note("desk")]


def test_the_recorded_parameters_count_where_a_person_has_changed_them(till: Till) -> None:
    """The record of the call has what the model wrote."""
    (row,) = till.owe("lamp")
    assert replace(till.store, row, row._replace(arguments=b'{"text":"desk"}'))
    (settled,) = till.door().settle_open()
    assert (settled.message.success, till.applied) == (True, [Note("desk")])


@dataclass(frozen=True)
class Bill:
    """Parameters that the arguments of before do not fit."""

    amount: int


@pytest.mark.parametrize("recorded", [None, b'{"text":"lamp"}'])
def test_a_result_whose_parameters_cannot_be_restored_waits(
    till: Till, recorded: bytes | None, wording: Wording
) -> None:
    """They were not recorded, or the tool has other ones since."""
    (row,) = till.owe("lamp")
    assert replace(till.store, row, row._replace(arguments=recorded))
    changed = Tool[Bill, None](name="charge", description="Charges.", handler=lost, effect=External(apply=till.book))
    (waits,) = executor(changed, session=till.session, clock=till.clock).settle_open()
    assert not waits.message.success
    assert waits.message.content == wording
    assert (till.applied, [each.state for each in till.session.open_calls]) == ([], ["unapplied"])


def test_the_conversation_has_the_arguments_of_a_call_that_was_not_recorded(till: Till) -> None:
    """The process died before; what the ledger has of them was cut."""
    (row,) = till.owe("lamp")
    owner = row.owner._replace(reply="r2", call_id="gone")
    asked = ToolCall("gone", "charge", {"text": "lamp"})
    till.session.conversation.append("Charge.", reply="r2", calls=[asked])
    assert replace(till.store, row, row._replace(owner=owner))
    (settled,) = till.door().settle_open()
    assert (settled.call, settled.message.success, till.applied) == (CallRef("r2", "gone"), True, [Note("lamp")])


@pytest.mark.parametrize("before_run", [False, True])
@pytest.mark.parametrize("happened", [True, False])
def test_the_reconciler_is_asked_about_what_is_unknown(till: Till, *, happened: bool, before_run: bool) -> None:
    """What it does not know stays open; what has happened is applied, and what has not is failed and no longer open."""
    answers: list[ToolResult[Note] | None] = [ToolResult.ok(Note("lamp"), "found") if happened else None]

    def find(_params: object, key: str) -> ToolResult[Note] | None:
        if till.fails:
            raise till.fails.pop()
        return answers.pop()

    door = executor(tool("charge", lost, effect=External(reconcile=find)), session=till.session, clock=till.clock)
    till.fails += [ConnectionError("closed"), ConnectionError("closed")]
    assert not door.execute(ToolCall("c1", "charge", {"text": "lamp"}), reply="r1").success
    assert door.settle_open() == ()
    assert [each.state for each in till.session.open_calls] == ["unknown"]
    if before_run:
        asyncio.run(door.settle_before_run_async())
    else:
        (settled,) = door.settle_open()
        assert (settled.call, settled.message.success) == (CallRef("r1", "c1"), happened)
    assert till.session.open_calls == ()
    assert [row.status for row in till.store.rows()] == ["done" if happened else "failed"]
    assert till.session[Note].all() == ((Note("lamp"),) if happened else ())
    assert door.settle_open() == ()
