"""One script through every door: the same messages, and the same state, files, ledger and events after it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import PolicyDecision, ToolContext, ToolExample, ToolResult
from handrail.runtime import EffectApplied, EffectLedger, IdempotencyConfig, Session, ToolCall, ToolInvoked
from handrail.store import EffectRow
from handrail.testing import Call, Reply, Script
from tests.kit import Kept, Note, executor, scribble, tool
from tests.scenarios.doors import DOORS, Answer, Door, Waiting, every_door


@dataclass(frozen=True)
class NoSecrets:
    """Denies what is secret."""

    name: str = "no-secrets"

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.deny("secrets are not noted") if params.text == "secret" else PolicyDecision.allow()

    def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None:
        if tool.writes:  # what reads leave may be seen by the next reads or not, as they run beside each other or not
            context.session[Kept].append(Kept(f"{self.name} let {tool.name} pass"))


@dataclass
class Desk:
    """A world of one session, and the executor whose calls work on it."""

    session: Session = field(default_factory=lambda: Session(session_id="desk"))
    files: InMemoryFilesystem = field(default_factory=lambda: InMemoryFilesystem({"note.txt": "before"}))
    ledger: EffectLedger = field(default_factory=EffectLedger)
    charged: list[str] = field(default_factory=list[str])
    release: threading.Event = field(default_factory=threading.Event)
    waiting: Waiting = field(default_factory=Waiting)
    executor: ToolExecutor = field(init=False)

    def __post_init__(self) -> None:
        brief = timedelta(milliseconds=20)
        once: dict[str, Any] = {"effect": "external", "idempotency": IdempotencyConfig()}
        hint = ToolExample(description="Keeps hi", input=Note("hi"), output=Note("hi"))
        reads = tool("look", self._look, effect="read"), tool("peek", self._peek, effect="read")
        fails = tool("half", self._half), tool("burst", self._burst), tool("hang", self._hang, timeout=brief)
        acts = tool("charge", self._charge, **once), tool("hang_outside", self._hang, timeout=brief, **once)
        others = tool("wait", self._wait, effect="external"), tool("nest", self._nest)
        tools = tool("write", scribble, examples=(hint,)), *reads, *fails, *acts, *others
        options: dict[str, Any] = {"session": self.session, "effect_ledger": self.ledger}
        files: dict[type[Any], object] = {Filesystem: self.files}
        self.executor = executor(*tools, policies=(NoSecrets(),), resources=files, **options)

    def left(self) -> dict[str, object]:
        """All that the calls have left: slices, files, ledger and events, without times and ids that are drawn."""
        session = self.session
        slices = {kind.__name__: session[kind].all() for kind in session.kinds}
        slices[EffectApplied.__name__] = tuple(applied.key for applied in session[EffectApplied])
        slices[ToolInvoked.__name__] = tuple(_normal(event) for event in session[ToolInvoked])
        return {
            "slices": slices,
            "files": {entry.path: self.files.read_text(entry.path) for entry in self.files.list()},
            "ledger": [_normal_row(row) for row in self.ledger.rows()],
            "charged": self.charged,
            "waiting for the session": session.turn.queue,
        }

    def _look(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(Note(f"{params.text}: {len(context.session[Kept])}"))

    async def _peek(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        await asyncio.sleep(0)
        return self._look(params, context=context)

    def _half(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        scribble(params, context=context)
        return ToolResult.error("the pen broke", params)

    def _burst(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        scribble(params, context=context)
        raise LookupError(params.text)

    def _charge(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        self.charged.append(params.text)
        return scribble(params, context=context)

    def _hang(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        scribble(params, context=context)
        self.release.wait()
        return ToolResult.ok(params)

    async def _wait(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        scribble(params, context=context)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self.waiting.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        self.waiting.begun.set()
        await asyncio.Event().wait()
        return ToolResult.ok(params)

    def _nest(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Make a call inside this one; fail after it where the text says so."""
        inner = self.executor.execute(ToolCall(f"{context.call_id}/inner", "charge", {"text": params.text}))
        broken = self.executor.execute(ToolCall(f"{context.call_id}/broken", "half", {"text": params.text}))
        told = f"{inner.content}, {broken.content}"
        return ToolResult.ok(params, message=told) if params.text != "lost" else ToolResult.error(told)


def _normal(event: ToolInvoked) -> tuple[object, ...]:
    ran = event.handler_seconds is not None
    about = (event.call_id, event.name, event.params, event.result, event.refused_at, event.final)
    key = None if event.effect_key is None else _normal_key(event.effect_key)
    return (*about, event.reply is not None, ran, key, event.replayed, event.session_id)


def _normal_row(row: EffectRow) -> tuple[object, ...]:
    key, owner = _normal_key(row.key), row.owner
    about = (row.partition, key, *row[3:5], owner.session_id, owner.reply is not None, owner.call_id, *row[6:8])
    note = row.note.partition("\n")[0]  # the traceback shows the way that the call took
    return (*about, row.message, row.value, note.replace(str(owner.call), owner.call_id))


def _normal_key(key: str) -> str:
    """The key of a slot without the reply, which each door names in its own way."""
    scope, _, slot = key.partition(":")
    return f"call:{slot.rpartition('/')[2]}" if scope == "call" else key


_WRITES: tuple[Any, ...] = ({"text": "first"}, '{"text": ', {"text": 7}, {"txt": "x"}, {"text": "secret"})
_OTHERS = "half:half burst:burst charge:fee charge:fee chrage:fee hang:late hang_outside:late hang_outside:late"
_PAIRS = [each.split(":") for each in (*_OTHERS.split(), "nest:kept", "nest:lost", "look:seen")]
_ASKED = [*(Call("write", said) for said in _WRITES), *(Call(name, {"text": text}) for name, text in _PAIRS)]
ONE_OF_EACH = Reply(calls=_ASKED)
"""Success, malformed, invalid, unknown field, denied, failed, raised, done, replayed, unknown, timed out, nested."""

_KINDS = ("look", "peek", "write", "look", "half")
TWENTY = Reply(calls=[Call(_KINDS[number % 5], {"text": str(number)}) for number in range(20)])
"""A reply of twenty: reads beside each other between writers, some of which fail."""

SCRIPT = Script([ONE_OF_EACH, TWENTY, Reply(calls=[Call("charge", {"text": "fee"})]), Reply(text="Done.")])
"""Everything that a run can go on after."""

CANCELLED = Script([Reply(calls=[Call("write", {"text": "first"}), Call("wait", {"text": "never"})])])
"""A run that ends while its last call waits."""


def outcomes(answers: list[Answer]) -> dict[str, bool]:
    """Whether each call succeeded."""
    return {answer.call_id: answer.success for answer in answers}


REFERENCE = DOORS["own loop"]
CANCELLABLE = [name for name in DOORS if name != "own loop"]
"""A thread that waits cannot be cancelled."""


@every_door
@pytest.mark.requirement("M-02")
def test_one_script_leaves_the_same_through_every_door(door: Door) -> None:
    """What the model reads, every slice, every file, every row of the ledger, every event."""
    desk, reference = Desk(), Desk()
    answers, expected = door.play(SCRIPT, desk.executor), REFERENCE.play(SCRIPT, reference.executor)
    desk.release.set()
    reference.release.set()
    assert answers == expected
    assert desk.left() == reference.left()


@every_door
def test_the_script_meets_every_outcome(door: Door) -> None:
    """The comparison is worth something: the calls end as they were made to end, and leave what they should."""
    desk = Desk()
    succeeded = outcomes(door.play(SCRIPT, desk.executor))
    desk.release.set()
    first = [succeeded[f"call-{number}"] for number in range(1, 17)]
    assert [number for number, success in enumerate(first, start=1) if success] == [1, 8, 9, 14, 16]
    assert sum(event.replayed for event in desk.session[ToolInvoked]) == 2
    assert desk.charged == ["fee", "kept", "lost"]
    assert [row.status for row in desk.ledger.rows()] == ["done", "unknown", "done", "done"]
    written = ["first", "fee", "kept", "kept", "seen: 7"]
    assert [note.text for note in desk.session[Note].all()[:5]] == written
    assert desk.files.read_text("note.txt") == "17"
    assert len(desk.session[ToolInvoked]) == 16 + 4 + 20 + 1


@pytest.mark.parametrize("name", CANCELLABLE)
@pytest.mark.requirement("M-02", "M-03d")
def test_a_cancelled_run_leaves_the_same_through_every_door(name: str) -> None:
    """What had been committed stays; the call that waited is undone, recorded, and its effect unknown."""
    desk, reference = Desk(), Desk()
    assert DOORS[name].play_until_cancelled(CANCELLED, desk.executor, desk.waiting)
    assert DOORS["own loop, async"].play_until_cancelled(CANCELLED, reference.executor, reference.waiting)
    assert desk.left() == reference.left()
    assert desk.files.read_text("note.txt") == "first"
    assert [event.success for event in desk.session[ToolInvoked]] == [True, False]
    assert [row.status for row in desk.ledger.rows()] == ["unknown"]
