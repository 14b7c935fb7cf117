"""Random histories of external handlers that raise before their effect and after it, against the account of the world.

What is checked after every step:

- Under `on_orphan="unknown"` and `"reconcile"` no effect happens twice: not under a declared key, and not under a slot.
- While a slot is unknown, no call with equal arguments has its effect.
- An effect that was answered as done stays done: the same call is answered from it, with the same result.
- The ledger never says of an effect that has happened that it failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import EffectNotApplied, EffectUncertain, RunAbortedError, ToolValidationError
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.prompt.idempotency import OnOrphan
from handrail.runtime import EffectLedger, Session, ToolCall
from handrail.runtime.ledger.effects import EffectResult, NotApplied
from handrail.session.calls import CallRef
from handrail.testing import FakeClock
from tests.extent import examples
from tests.kit import Note, executor, tool
from tests.store.stores import STORES, MakeStore

EXAMPLES = {"memory": 60, "sqlite": 25, "postgres": 10}  # a step costs that much more
FOREVER = IdempotencyConfig(ttl=None)
POLICIES: tuple[OnOrphan, ...] = ("unknown", "reconcile", "retry")


class Refused(ConnectionError):
    """Nothing was sent."""


PROOFS: dict[str, Callable[[], Exception]] = {
    "ToolValidationError": lambda: ToolValidationError("no"),
    "EffectNotApplied": lambda: EffectNotApplied("no"),
    "Refused": lambda: Refused("no"),
    "group": lambda: ExceptionGroup("no", [Refused(), EffectNotApplied("no")]),
}
"""What is honestly raised only before the effect."""

DOUBTS: dict[str, Callable[[], BaseException]] = {
    "TimeoutError": lambda: TimeoutError("read timed out"),
    "ConnectionError": lambda: ConnectionError("reset"),
    "ValueError": lambda: ValueError("what it answered is not JSON"),
    "EffectUncertain": lambda: EffectUncertain("no answer"),
    "RunAbortedError": lambda: RunAbortedError("over"),
    "KeyboardInterrupt": KeyboardInterrupt,
    "group": lambda: ExceptionGroup("both", [Refused(), TimeoutError()]),
}
"""What may be raised before the effect, in it, or after it."""


class Plan(NamedTuple):
    """What the next handler does."""

    when: Literal["before", "in", "after"]
    raises: Callable[[], BaseException] | None


plans = st.one_of(
    st.builds(Plan, st.just("before"), st.sampled_from([*PROOFS.values()])),
    st.builds(Plan, st.sampled_from(["before", "in", "after"]), st.sampled_from([*DOUBTS.values()])),
    st.just(Plan("after", None)),
    st.just(Plan("before", None)),
)
names = st.sampled_from([f"{policy}_{kind}" for policy in POLICIES for kind in ("key", "slot")])
texts, calls = st.sampled_from("ab"), st.tuples(st.sampled_from(["r1", "r2"]), st.sampled_from(["c1", "c2"]))


class OutcomesMachine(RuleBasedStateMachine):
    """Does at random what models, handlers, kills and people do."""

    make_store: MakeStore

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.store = type(self).make_store(self.clock)
        self.world: Counter[str] = Counter()
        self.plan = Plan("after", None)
        self.answers: dict[tuple[str, CallRef, str], object] = {}
        self.begin()

    def begin(self) -> None:
        """Open the session, as a process does that comes after another."""
        self.session = Session.open(self.store, "s")
        self.ledger = EffectLedger(self.store, clock=self.clock)
        self.door: ToolExecutor = executor(
            *(self.tool(policy, keyed=keyed) for policy in POLICIES for keyed in (True, False)),
            session=self.session,
            effect_ledger=self.ledger,
            clock=self.clock,
        )

    def tool(self, policy: OnOrphan, *, keyed: bool) -> Tool[Any, Any]:
        """A tool that acts in the world under its policy."""
        said = External(
            not_applied_on=(Refused,), on_orphan=policy, reconcile=self.look if policy == "reconcile" else None
        )
        return tool(
            f"{policy}_{'key' if keyed else 'slot'}", self.act, effect=said, idempotency=FOREVER if keyed else None
        )

    def act(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Have the effect, and raise where the plan says."""
        plan, key = self.plan, str(context.idempotency_key)
        if plan.when == "before":
            if plan.raises is None:
                return ToolResult.error("refused")
            raise plan.raises()
        self.world[key] += 1
        if plan.when == "in" and plan.raises is not None:
            try:
                raise plan.raises()
            finally:
                context.beat()
        if plan.raises is not None:
            raise plan.raises()
        return ToolResult.ok(Note(f"{key} {self.world[key]}"))

    def look(self, params: Note, key: str) -> ToolResult[Note] | None:
        """Say what the world knows."""
        return ToolResult.ok(Note(f"{key} found")) if self.world[key] else None

    @rule(name=names, text=texts, call=calls, plan=plans)
    def call(self, name: str, text: str, call: tuple[str, str], plan: Plan) -> None:
        reply, number = call
        ref = CallRef(f"{reply}-{name}-{text}", number)  # so that one identity always asks for the same
        unknown = self.unknown_slots(name, text) - {f"call:{ref}"}
        before = self.world.copy()
        self.plan = plan
        try:
            message = self.door.execute(ToolCall(number, name, {"text": text}), reply=ref.reply)
        except (RunAbortedError, KeyboardInterrupt):
            return
        if name == "unknown_slot" and unknown:
            assert message.replayed or self.world == before
        answered, value = (name, ref, text), message.result.value
        if answered in self.answers:
            assert (message.success, message.replayed, value) == (True, True, self.answers[answered])
        elif message.success:
            self.answers[answered] = value

    def unknown_slots(self, name: str, text: str) -> set[str]:
        """The slots of a tool that are unknown and were asked for with that text."""
        return {
            row.key
            for row in self.ledger.rows()
            if row.tool == name and row.status == "unknown" and f"-{text}/" in row.key
        }

    @rule()
    def kill(self) -> None:
        """Begin anew; the store stays."""
        self.session.close()
        self.begin()

    @rule()
    def time_passes(self) -> None:
        self.clock.advance(timedelta(minutes=5))

    @rule(number=st.integers(0, 5))
    def a_person_decides(self, number: int) -> None:
        """And says what is true."""
        unknown = [row for row in self.ledger.rows() if row.status == "unknown"]
        if unknown:
            row = unknown[number % len(unknown)]
            found = EffectResult("found out", f'{{"text":"{row.key} found"}}'.encode())
            assert self.ledger.resolve(row, found if self.world[row.key] else NotApplied("not there"), ttl=None)

    @invariant()
    def nothing_happens_twice(self) -> None:
        rows = {row.key: row for row in self.ledger.rows()}
        for key, times in self.world.items():
            if not rows[key].tool.startswith("retry"):
                assert times <= 1, key

    @invariant()
    def nothing_that_happened_has_failed(self) -> None:
        for row in self.ledger.rows():
            if row.status == "failed":
                assert not self.world[row.key], row.key

    def teardown(self) -> None:
        self.session.close()


@pytest.mark.parametrize("name", STORES)
def test_no_effect_happens_twice_and_none_that_is_done_is_lost(name: str) -> None:
    """Whatever handlers raise, before their effect, in it or after it."""
    machine = type("Machine", (OutcomesMachine,), {"make_store": staticmethod(STORES[name])})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(EXAMPLES[name]), stateful_step_count=30))
