"""Step 7: what the ledger's answers mean for a call, and what it is told in the end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from handrail import tool as tool_made_up_defaults
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed, EffectUncertain
from handrail.prompt import External, Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, ToolCall, ToolMessage
from handrail.session import Append, SliceView
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer, PostponedCall, postponed_call
from handrail.store.memory import MemoryStore
from tests.kit import ASKS, Kept, Note, Run, both_ways, call, executor, soon, tool
from tests.runtime.kit import later, present
from tests.wording import Wording

BY_TEXT = IdempotencyConfig(strategy="custom", key_fn=lambda params: params.text.split()[0])


"""The first word is the key, so that calls with other arguments can have the same."""


class Service:
    """The world outside: counts what was done to it."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.done: list[str] = []
        self.error = error

    def __call__(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        self.done.append(params.text)
        if self.error is not None:
            raise self.error
        return ToolResult.ok(Note(f"did {params.text}"), message="done")


def door_of(service: Any, ledger: EffectLedger | None = None, **options: Any) -> ToolExecutor:
    """An executor with one external tool, `pay`."""
    shared = {key: options.pop(key) for key in ("session", "deadline", "clock") if key in options}
    options = {"effect": "external", "idempotency": BY_TEXT} | options
    return executor(tool("pay", service, **options), effect_ledger=ledger or EffectLedger(), **shared)


@both_ways
@pytest.mark.requirement("S-07c")
def test_a_key_with_other_arguments_replays_its_result_and_names_them(way: Run, wording: Wording) -> None:
    """The key says that it is one effect, and the message which arguments it was done with."""
    service = Service()
    door = door_of(service)
    assert way(door, call("pay", "A 10")).success
    message = way(door, call("pay", "A 20"))
    assert (message.success, message.replayed, message.content) == (True, True, wording)
    assert way(door, call("pay", "A 10")).content == "did A 10"
    assert service.done == ["A 10"]


@both_ways
@pytest.mark.requirement("S-07c")
def test_a_key_with_other_arguments_is_refused_where_the_tool_says_so(way: Run, wording: Wording) -> None:
    """`on_other_arguments="refuse"`: the key stands for one set of arguments."""
    service = Service()
    door = door_of(service, idempotency=replace(BY_TEXT, on_other_arguments="refuse"))
    assert way(door, call("pay", "A 10")).success
    message = way(door, call("pay", "A 20"))
    assert (message.success, message.content, service.done) == (False, wording, ["A 10"])


@both_ways
def test_an_unknown_effect_of_other_arguments_is_asked_about_and_not_run_beside(way: Run) -> None:
    """The reconciler gets the recorded arguments; when it has not happened, the call runs with its own."""
    service, asked = Service(error=EffectUncertain("no answer")), list[str]()

    def reconcile(params: Note, key: str) -> ToolResult[Note] | None:
        asked.append(params.text)
        return None

    door = door_of(service, effect=External(reconcile=reconcile))
    assert not way(door, call("pay", "A 10")).success
    service.error = None
    assert way(door, call("pay", "A 20")).content == "did A 20"
    assert (asked[-1], service.done) == ("A 10", ["A 10", "A 20"])


@both_ways
@pytest.mark.requirement("S-07b")
@pytest.mark.parametrize("on_busy", ["reject", "wait"])
def test_a_busy_effect_is_told_at_once_or_when_the_deadline_passes(way: Run, on_busy: Any, wording: Wording) -> None:
    """The call waits for the other as long as it may, or not at all; the other goes on, and this one is not run."""
    started, release = threading.Event(), threading.Event()
    paid: list[str] = []

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        paid.append(context.call_id)
        started.set()
        release.wait()
        return ToolResult.ok(params)

    ledger = EffectLedger()
    once = IdempotencyConfig(scope="shop", on_busy=on_busy)
    first = door_of(pay, ledger, idempotency=once, session=Session())
    deadline = soon() if on_busy == "wait" else None
    second = door_of(pay, ledger, idempotency=once, session=Session(), deadline=deadline)
    with ThreadPoolExecutor(1) as thread:
        paying = thread.submit(first.execute, call("pay"))
        started.wait()
        message = way(second, call("pay", id="call-2"))
        release.set()
        assert paying.result().success
    assert (message.success, message.content, paid) == (False, wording, ["call-1"])


async def _found(params: Note, key: str) -> ToolResult[Note] | None:
    return ToolResult.ok(Note(f"found {key}"))


def _not_found(params: Note, key: str) -> None:
    return None


def _cannot_tell(params: Note, key: str) -> ToolResult[Note]:
    return ToolResult.error("no answer")


def _broken(params: Note, key: str) -> ToolResult[Note] | None:
    raise ConnectionError("no line")


@both_ways
@pytest.mark.parametrize(
    "reconcile, success, runs",
    [
        pytest.param(_found, True, 1, id="found"),
        pytest.param(_not_found, True, 2, id="not found"),
        pytest.param(_cannot_tell, False, 1, id="cannot tell"),
        pytest.param(_broken, False, 1, id="broken"),
    ],
)
@pytest.mark.requirement("S-07d")
def test_reconcile_asks_the_world(way: Run, reconcile: Any, success: bool, runs: int, wording: Wording) -> None:
    """It happened, it did not, or nobody can tell: only the second lets the handler run again."""
    service = Service(error=EffectUncertain("dead"))
    door = door_of(service, effect=External(reconcile=reconcile))
    way(door, call("pay", "A"))
    service.error = None
    message = way(door, call("pay", "A"))
    assert (message.success, message.content, len(service.done)) == (success, wording, runs)


@both_ways
@pytest.mark.requirement("S-10d")
def test_a_replay_is_applied_where_the_first_application_was_undone(way: Run) -> None:
    """The world has changed, the session has not: the stored result is applied, once."""
    service, failing = Service(), [True]

    def reduce(view: SliceView[Kept], event: Note) -> Append[Kept]:
        if failing.pop() if failing else False:
            raise ArithmeticError("not now")
        return Append(Kept(event.text))

    session = Session(session_id="s")
    session[Kept].register(Note, reduce)
    door = door_of(service, session=session)
    assert not way(door, call("pay", "A")).success
    assert session[Kept].all() == ()
    for _ in range(2):
        assert way(door, call("pay", "A")).replayed
        assert session[Kept].all() == (Kept("did A"),)
    assert service.done == ["A"]


def test_a_replay_that_fails_says_that_the_effect_was_done(wording: Wording) -> None:
    """As the first call did: the model must not think that the payment has failed."""
    service = Service()
    session = Session(session_id="s")

    def fail(_event: Note) -> None:
        raise ArithmeticError("not now")

    session.dispatcher.subscribe(Note, fail)
    door = door_of(service, session=session)
    first, again = door.execute(call("pay", "A", id="1")), door.execute(call("pay", "A", id="2"))
    assert (again.success, again.replayed, service.done) == (False, True, ["A"])
    assert again.content == first.content == wording


def test_a_result_that_cannot_be_kept_says_so_when_it_is_replayed(wording: Wording) -> None:
    """The effect has happened, so the key is never freed; only the value is gone."""

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(Note("\ud800"), message="paid")

    door = door_of(pay)
    assert door.execute(call("pay", "A", id="1")).success
    again = door.execute(call("pay", "A", id="2"))
    assert (again.replayed, again.content) == (True, wording)


def test_a_replay_says_what_json_can_say_of_a_result(wording: Wording) -> None:
    """A value that is not recorded is shown as it was."""

    def pay(params: Note, *, context: ToolContext) -> ToolResult[dict[str, Any]]:
        return ToolResult.ok({"paid": 5, "rate": float("inf")}, message="paid")

    one = Tool[Note, dict[str, Any]](
        name="pay", description="Pays.", handler=pay, effect="external", idempotency=BY_TEXT
    )
    door = executor(one)
    first, again = door.execute(call("pay", "A", id="1")), door.execute(call("pay", "A", id="2"))
    assert (first.success, again.success, again.replayed) == (True, True, True)
    assert [first.content, again.content] == wording


def test_a_result_of_the_wrong_type_is_done_all_the_same(wording: Wording) -> None:
    """The handler has run: its effect is not repeated because it answered badly."""
    runs: list[str] = []

    def pay(params: Note, *, context: ToolContext) -> Any:
        runs.append(params.text)
        return "paid"

    door = door_of(pay)
    assert not door.execute(call("pay", "A", id="1")).success
    assert door.execute(call("pay", "A", id="2")).content == wording
    assert runs == ["A"]


@both_ways
def test_an_idempotent_state_tool_that_timed_out_may_run_again(way: Run) -> None:
    """What it did has been undone, so nothing about it is unknown."""
    release = threading.Event()
    runs: list[str] = []

    def keep(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        runs.append(context.call_id)
        if len(runs) == 1:
            release.wait()
        return ToolResult.ok(params)

    door = door_of(keep, effect="state", timeout=timedelta(milliseconds=300))
    assert not way(door, call("pay", "A", id="1")).success
    release.set()
    assert way(door, call("pay", "A", id="2")).success
    assert runs == ["1", "2"]


_numbers = count()


def trace() -> str:
    """Another text each time."""
    return f"trace {next(_numbers)}"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an order."""

    sku: str
    trace: str = field(default_factory=trace)


class Order(BaseModel):
    """An order."""

    number: str
    trace: str = Field(default_factory=trace)


class Shop:
    """The world outside: what was sold, with the trace that the handler read."""

    def __init__(self, idempotency: IdempotencyConfig | None, **options: Any) -> None:
        """Begin with nothing sold."""
        self.sold: list[tuple[str, str]] = []
        self.fails = False

        @tool_made_up_defaults(effect="external", idempotency=idempotency)
        def sell(
            order: Order,
            ref: Annotated[str, Field(default_factory=trace)],
            lines: list[Line] | None = None,
            cents: int = 5,
        ) -> str:
            """Sell."""
            self.sold.append((order.trace, ref))
            if self.fails:
                raise TimeoutError("no answer")
            return f"sold for {cents}"

        self.desk = executor(sell, **options)

    def ask(self, id: str, **arguments: Any) -> ToolMessage:
        """Ask for order A-1, with other arguments if they are given."""
        arguments = {"order": {"number": "A-1"}} | arguments
        return self.desk.execute(ToolCall(id, "sell", arguments), reply="r1")


STRATEGIES = [
    IdempotencyConfig(),
    IdempotencyConfig(strategy="params", param_keys=("order", "lines", "ref")),
    IdempotencyConfig(strategy="custom", key_fn=lambda sale: f"{sale.order.number} {sale.order.trace} {sale.ref}"),
]


@pytest.mark.parametrize("config", STRATEGIES, ids=lambda config: config.strategy)
def test_an_equal_request_is_answered_once_whatever_its_defaults_are(config: IdempotencyConfig) -> None:
    """For each strategy; the handler gets what the factories made."""
    shop = Shop(config)
    lines = [{"sku": "a"}]
    assert [shop.ask(name, lines=lines).replayed for name in ("1", "2")] == [False, True]
    assert shop.ask("3", lines=lines, cents=5).replayed
    ((order, ref),) = shop.sold
    assert order.startswith("trace")
    assert ref.startswith("trace")


def test_an_equal_call_of_an_unknown_effect_is_refused_however_its_defaults_are_written() -> None:
    """Without a key the arguments identify a repeat: one call leaves a constant default out, and the other sends it."""
    shop = Shop(None)
    shop.fails = True
    assert not shop.ask("1").success
    shop.fails = False
    assert not shop.ask("2", cents=5).success
    assert len(shop.sold) == 1
    assert shop.ask("3", ref="sent").success
    assert shop.ask("4", cents=6).success


def test_an_approval_holds_when_the_call_is_made_again() -> None:
    """It is for what the model asked: the next attempt makes up other defaults."""
    session = Session.open(MemoryStore(), "s")
    with pytest.raises(CallPostponed):
        Shop(None, session=session, policies=[ASKS], approver=later).ask("1")
    asked = present(postponed_call(session[PostponedCall], CallRef("r1", "1")))
    answer = GivenAnswer(approved=True, reason="a person said so", by="ada", at=asked.at)
    session[PostponedCall].append(replace(asked, answer=answer))
    assert Shop(None, session=session, policies=[ASKS]).ask("1").success
