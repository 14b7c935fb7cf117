"""What the end of an external handler says of its effect: when unsure, it is unknown. Also in random histories.

What is checked after every step of those:

- Under `on_orphan="unknown"` and `"reconcile"` no effect happens twice: not under a declared key, and not under a slot.
- While a slot is unknown, no call with equal arguments has its effect.
- An effect that was answered as done stays done: the same call is answered from it, with the same result.
- The ledger never says of an effect that has happened that it failed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pydantic_ai import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UsageLimitExceeded

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    BudgetExceededError,
    CallPostponed,
    EffectNotApplied,
    EffectUncertain,
    PromptEvaluationError,
    ReadOnlyViolation,
    RunAbortedError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.prompt.idempotency import OnOrphan
from handrail.runtime import EffectLedger, Session, ToolCall, ToolInvoked, ToolMessage
from handrail.runtime.ledger.effects import EffectResult, NotApplied
from handrail.session.calls import CallRef
from handrail.store import EffectRow
from handrail.testing import FakeClock
from tests.extent import examples
from tests.kit import Note, Run, both_ways, call, echo, executor, tool
from tests.store.stores import STORES, MakeStore
from tests.wording import Wording

KEYS = pytest.mark.parametrize("idempotency", [None, IdempotencyConfig()], ids=["slot", "key"])


class Refused(ConnectionError):
    """The connection was refused, so nothing was sent."""


class Broken(ConnectionError):
    """The connection broke; nothing is known."""


class Bank:
    """The world outside: what was done to it, and what the handler raises then."""

    def __init__(self, *raises: BaseException | None) -> None:
        self.charges: list[str] = []
        self.raises = list(raises)

    def __call__(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Charge, and raise what comes next."""
        self.charges.append(params.text)
        error = self.raises.pop(0) if self.raises else None
        if error is not None:
            raise error
        return ToolResult.ok(params)

    async def later(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Charge on an event loop."""
        await asyncio.sleep(0)
        return self(params, context=context)


class Unready:
    """A participant of which no snapshot can be taken."""

    def snapshot(self) -> object:
        """Fail."""
        raise RuntimeError("not now")

    def restore(self, snapshot: object) -> None:
        """Never called."""


def door_of(handler: Any, **options: Any) -> ToolExecutor:
    """An executor of one external tool."""
    return executor(tool("pay", handler, **{"effect": "external"} | options), effect_ledger=EffectLedger())


def row_of(door: ToolExecutor) -> EffectRow:
    """The only effect that the ledger knows of."""
    (row,) = door.environment.find_ledger().rows()
    return row


def ask(way: Run, door: ToolExecutor, request: ToolCall) -> ToolMessage | None:
    """Carry a call out; `None` if it raises."""
    try:
        return way(door, request)
    except (RunAbortedError, CallPostponed, asyncio.CancelledError):
        return None


UNSURE = [
    TimeoutError("read timed out"),
    ValueError("what the bank answered is not JSON"),
    Broken("reset by peer"),
    OSError("no route"),
    EffectUncertain("the line went dead"),
    ReadOnlyViolation("pay", "write"),
    BudgetExceededError(dimension="tokens", usage=2, limit=1),
    ExceptionGroup("both", [ToolValidationError("no"), TimeoutError()]),
    asyncio.CancelledError(),
]
NOT_APPLIED = [
    ToolValidationError("no such account"),
    EffectNotApplied("the bank is closed"),
    Refused("refused"),
    ModelRetry("once more"),
    ToolFailed("not today"),
    ApprovalRequired(),
    CallDeferred(),
    CallPostponed("later"),
    VisibilityExpansionRequired("more", requested_overrides={}, section_keys=()),
    ExceptionGroup("both", [ToolValidationError("no"), ExceptionGroup("inner", [Refused()])]),
]


@both_ways
@KEYS
@pytest.mark.parametrize("error", UNSURE, ids=lambda error: type(error).__name__)
def test_effect_is_unknown_after_any_other_exception(
    way: Run, idempotency: IdempotencyConfig | None, error: BaseException
) -> None:
    """The handler has charged and raises: asked three times, it is started once."""
    bank = Bank(*[error] * 3)
    door = door_of(bank, effect=External(not_applied_on=(Refused,)), idempotency=idempotency)
    for _ in range(3):
        ask(way, door, call("pay", "A"))
    assert bank.charges == ["A"]
    row = row_of(door)
    assert (row.status, row.fence) == ("unknown", 2)
    assert str(error) in row.note or type(error).__name__ in row.note


@both_ways
@KEYS
@pytest.mark.parametrize("error", NOT_APPLIED, ids=lambda error: type(error).__name__)
def test_effect_is_not_applied_where_the_exception_proves_it(
    way: Run, idempotency: IdempotencyConfig | None, error: BaseException
) -> None:
    """The call failed and may run again."""
    bank = Bank(error)
    door = door_of(bank, effect=External(not_applied_on=(Refused,)), idempotency=idempotency)
    ask(way, door, call("pay", "A"))
    assert row_of(door).status == "failed"
    assert way(door, call("pay", "A")).success
    assert bank.charges == ["A", "A"]


@both_ways
@pytest.mark.parametrize("error", [ApprovalRequired(), CallDeferred(), UsageLimitExceeded("too many")])
def test_handler_may_postpone_a_call_or_end_the_run_by_an_exception_of_pydantic_ai(way: Run, error: Exception) -> None:
    """The caller gets Handrail's, raised from it; a postponed call is not recorded."""
    door = door_of(Bank(error), effect="state")
    is_over = isinstance(error, UsageLimitExceeded)
    with pytest.raises(PromptEvaluationError if is_over else CallPostponed) as caught:
        way(door, call("pay", "A"))
    assert caught.value.__cause__ is error
    assert len(door.environment.session[ToolInvoked]) == is_over


@both_ways
def test_handler_that_cannot_be_called_so_has_done_nothing(way: Run, wording: Wording) -> None:
    """The exception is raised before its first line."""

    class Wrong:
        __signature__ = inspect.signature(echo)

        def __call__(self, params: Note) -> ToolResult[Note]:
            raise AssertionError

    door = door_of(Wrong())
    assert way(door, call("pay", "A")).content == wording
    assert row_of(door).status == "failed"


def test_state_tool_has_done_nothing_whatever_it_raises() -> None:
    """Its changes are undone, so the same call runs again; unless it says that it cannot tell."""
    bank = Bank(TimeoutError(), EffectUncertain("the line went dead"))
    door = door_of(bank, effect="state", idempotency=IdempotencyConfig())
    assert not door.execute(call("pay", "A")).success
    assert row_of(door).status == "failed"
    assert not door.execute(call("pay", "A")).success
    assert (row_of(door).status, bank.charges) == ("unknown", ["A", "A"])


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(External(), id="not run again"),
        pytest.param(External(on_orphan="retry"), id="retried"),
        pytest.param(External(reconcile=lambda params, key: None), id="reconciled"),
        pytest.param(External(repeat_unknown="allow"), id="repeat allowed"),
    ],
)
def test_model_reads_that_the_outcome_is_unknown_and_what_happens_next(said: External, wording: Wording) -> None:
    """And not the traceback."""
    door = door_of(Bank(TimeoutError("read timed out")), effect=said)
    content = door.execute(call("pay", "A")).content
    assert content == wording
    assert "Traceback" not in content


def test_people_find_the_traceback_in_log_and_ledger(caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """The note of the effect names the exception in one line."""
    door = door_of(Bank(TimeoutError("read\ntimed out")))
    with caplog.at_level(logging.ERROR):
        door.execute(call("pay", "A"))
    assert row_of(door).note == "TimeoutError: read timed out"
    assert "Traceback" in caplog.text
    content = door.execute(call("pay", "A")).content
    assert content == wording
    assert "Traceback" not in content


@both_ways
@pytest.mark.parametrize("proof", [*NOT_APPLIED, ToolResult.error("no money")], ids=lambda proof: type(proof).__name__)
def test_retried_attempt_proves_nothing_of_the_one_before(
    way: Run, proof: BaseException | ToolResult[Any], wording: Wording
) -> None:
    """That one may have been applied, so the effect stays unknown, and the same call runs again."""
    ends = [TimeoutError(), proof, ToolResult.ok(Note("A"))]

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        end = ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        return end

    session = Session(session_id="s")
    said = External(on_orphan="retry", not_applied_on=(Refused,))
    paying = tool("pay", pay, effect=said, idempotency=IdempotencyConfig())
    door = executor(paying, session=session, effect_ledger=EffectLedger())
    request = call("pay", "A")
    assert ask(way, door, request) is not None
    told = ask(way, door, request)
    assert (row_of(door).status, row_of(door).fence, row_of(door).note) == ("unknown", 4, wording)
    assert told is None or told.content == wording
    assert not any(event.final for event in session[ToolInvoked])
    last = ask(way, door, request)
    assert last is not None
    assert (last.success, row_of(door).status, row_of(door).fence) == (True, "done", 5)


def test_attempt_after_one_that_was_found_not_applied_is_believed() -> None:
    """What the earlier attempts did is known."""
    bank = Bank(TimeoutError(), ToolValidationError("no such account"))
    door = door_of(bank, effect=External(on_orphan="reconcile", reconcile=lambda params, key: None))
    for _ in range(2):
        door.execute(call("pay", "A"))
    assert row_of(door).status == "failed"


def test_retried_attempt_that_was_not_started_proves_nothing_either() -> None:
    """A resource that cannot be snapshotted ends the call before its handler."""
    bank = Bank(TimeoutError())
    said = External(on_orphan="retry")
    ledger = EffectLedger()
    paying = tool("pay", bank, effect=said, idempotency=IdempotencyConfig())
    executor(paying, effect_ledger=ledger).execute(call("pay", "A"))
    door = executor(paying, effect_ledger=ledger, resources={Unready: Unready()})
    assert not door.execute(call("pay", "A")).success
    assert (row_of(door).status, bank.charges) == ("unknown", ["A"])


def test_reconciler_that_writes_finds_nothing_out(wording: Wording) -> None:
    """It may only read."""

    def find_out(params: Note, key: str, *, context: ToolContext) -> ToolResult[Note] | None:
        context.session[Note].append(params)
        return ToolResult.ok(params)

    door = door_of(Bank(TimeoutError()), effect=External(reconcile=find_out))
    door.execute(call("pay", "A"))
    message = door.execute(call("pay", "A"))
    assert (message.content, row_of(door).status, door.environment.session[Note].all()) == (wording, "unknown", ())


# ---------------------------------------------------------------------------------------------------- repeated slots


@pytest.mark.parametrize("said", [External(repeat_unknown="allow"), External(on_orphan="retry")])
def test_repeat_runs_where_the_tool_allows_it(said: External) -> None:
    """It is an effect of its own."""
    bank = Bank(TimeoutError())
    door = door_of(bank, effect=said)
    assert not door.execute(call("pay", "A", id="one")).success
    assert door.execute(call("pay", "A", id="two")).success
    assert bank.charges == ["A", "A"]


# ------------------------------------------------------------------------------------------------------------- nested


@pytest.mark.parametrize("outer_ends", [None, TimeoutError(), ToolValidationError("no"), RunAbortedError("over")])
@pytest.mark.parametrize("inner_ends", [None, TimeoutError(), ToolValidationError("no")])
def test_nested_external_call_settles_by_its_own_claim(
    outer_ends: Exception | None, inner_ends: Exception | None
) -> None:
    """Whatever becomes of its parent."""
    bank = Bank(inner_ends)

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        door.execute(call("pay", "inner", id="inner"))
        if outer_ends is not None:
            raise outer_ends
        return ToolResult.ok(params)

    door = executor(
        tool("outer", outer, effect="external"), tool("pay", bank, effect="external"), effect_ledger=EffectLedger()
    )
    ask(lambda door, request: door.execute(request), door, call("outer", "outer", id="outer"))
    by_tool = {row.tool: row.status for row in door.environment.find_ledger().rows()}
    ends: dict[type, str] = {type(None): "done", ToolValidationError: "failed"}
    assert by_tool == {"outer": ends.get(type(outer_ends), "unknown"), "pay": ends.get(type(inner_ends), "unknown")}


EXAMPLES = {"memory": 60, "sqlite": 25, "postgres": 10}  # a step costs that much more
FOREVER = IdempotencyConfig(ttl=None)
POLICIES: tuple[OnOrphan, ...] = ("unknown", "reconcile", "retry")


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
