"""How a call has ended, as a span and the metrics say it; each row of the table of `handrail.runtime.observation`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, get_args

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    CallIdReusedError,
    CallPostponed,
    CommitInDoubtError,
    InvalidReturnError,
    LeaseLostError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.prompt import (
    Approval,
    IdempotencyConfig,
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    ToolContext,
    ToolResult,
)
from handrail.runtime import EffectLedger, Session, ToolCall, ToolInvoked
from handrail.runtime.observation import CallEnd
from handrail.store import open as open_store
from handrail.testing import FakeClock
from tests.kit import ASKS, Decides, Note, Run, both_ways, call, echo, executor, refusal, tool
from tests.session.faulty_stores import faulty
from tests.store.kit import replace
from tests.telemetry.kit import DURATION, UNKNOWN, Traces, attributes, ended, events, own


def _raising(error: BaseException) -> Callable[..., Any]:
    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise error

    return handler


def _failing(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    return ToolResult.error("no")


def _yes(_request: object) -> bool:
    return True


def _no(_request: object) -> bool:
    return False


def _broken(_tool: object, _params: object) -> PolicyDecision:
    raise LookupError("no list")


DENIES = Decides(lambda _tool, _params: PolicyDecision.deny("never"))
BREAKS = Decides(_broken)
ERROR = "handler", "ERROR"
PAY = call("pay")


@dataclass(frozen=True)
class Row:
    """A call, and how it ends: outcome, step, status, type of the error; and the events of its span."""

    end: tuple[CallEnd, str | None, str, str | None]
    events: tuple[str, ...] = ()
    handler: Any = echo
    tool: dict[str, Any] = field(default_factory=dict[str, Any])
    run: dict[str, Any] = field(default_factory=dict[str, Any])
    call: ToolCall = PAY


ROWS = {
    "success": Row(("committed", None, "UNSET", None), ("committed",)),
    "effect": Row(
        ("committed", None, "UNSET", None), ("claimed", "recorded", "committed"), tool={"effect": "external"}
    ),
    "failed result": Row(("rolled_back", *ERROR, "tool_error"), ("rolled_back",), _failing),
    "exception": Row(("rolled_back", *ERROR, "LookupError"), ("rolled_back",), _raising(LookupError("x"))),
    "refused by handler": Row(
        ("rolled_back", *ERROR, "ToolValidationError"), ("rolled_back",), _raising(ToolValidationError("x"))
    ),
    "effect in doubt": Row(
        ("unknown", *ERROR, "unknown_outcome"),
        ("claimed", "rolled_back"),
        _raising(ConnectionError("x")),
        {"effect": "external"},
    ),
    "invalid": Row(("refused", "parse", "UNSET", None), call=ToolCall("call-1", "pay", {"text": 1})),
    "unknown tool": Row(("refused", "look_up", "UNSET", None), call=call("pau")),
    "denied": Row(("denied", "policy", "UNSET", None), run={"policies": (DENIES,)}),
    "policy fails": Row(("denied", "policy", "UNSET", None), run={"policies": (BREAKS,)}),
    "no approver": Row(("denied", "approval", "UNSET", None), run={"policies": (ASKS,)}),
    "not approved": Row(
        ("denied", "approval", "UNSET", None),
        ("question_opened", "question_answered"),
        run={"policies": (ASKS,), "approver": _no},
    ),
    "approved": Row(
        ("committed", None, "UNSET", None),
        ("question_opened", "question_answered", "committed"),
        run={"policies": (ASKS,), "approver": _yes},
    ),
}


@both_ways
@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_span_and_metrics_say_how_a_call_has_ended(traces: Traces, row: Row, way: Run) -> None:
    """A refusal that the model reads is not an error; what is rolled back or unknown is one."""
    way(executor(tool("pay", row.handler, **row.tool), **row.run), row.call)
    span = traces.call()
    assert (ended(span), tuple(events(span))) == (row.end, row.events)
    outcome, _, _, error = row.end
    name = "pay" if row.call.name == "pay" else "_OTHER"
    about = {"gen_ai.tool.name": name} | ({} if name == "_OTHER" else {"handrail.effect": own(span)["effect"]})
    ending = {"handrail.outcome": outcome} | ({} if error is None else {"error.type": error})
    assert traces.points(DURATION) == [(about | ending, 1)]
    assert traces.points(UNKNOWN) == ([(about, 1)] if outcome == "unknown" else [])


def test_each_outcome_has_a_test() -> None:
    """The rows above have all but those of calls that are made again, or wait."""
    assert {row.end[0] for row in ROWS.values()} | {"replayed", "postponed"} == {*get_args(CallEnd)}


@both_ways
@pytest.mark.parametrize("succeeds", [True, False])
def test_call_that_is_answered_from_its_record_is_replayed(traces: Traces, way: Run, succeeds: bool) -> None:
    """A failure, too: nothing of it has run."""
    with open_store("memory:") as store, Session.open(store, "s") as session:
        door = executor(tool("pay", echo if succeeds else _failing), session=session)
        for _ in range(2):
            asyncio.run(door.execute_async(call("pay"), reply="r"))
    first, second = traces.calls()
    assert own(first)["outcome"] == ("committed" if succeeds else "rolled_back")
    assert (ended(second), events(second)) == (("replayed", None, "UNSET", None), [])


@both_ways
def test_call_that_is_answered_from_the_ledger_is_replayed(traces: Traces, way: Run) -> None:
    """It is committed: what it applies is written."""
    door = executor(tool("pay", effect="external", idempotency=IdempotencyConfig()))
    for number in (1, 2):
        way(door, call("pay", id=f"call-{number}"))
    first, second = traces.calls()
    assert (own(first)["outcome"], own(first)["ledger"], own(first)["attempt"]) == ("committed", "done", 1)
    assert (ended(second), events(second)) == (("replayed", None, "UNSET", None), ["committed"])
    assert own(second)["ledger"] == "done"


def test_place_of_the_commit_is_on_the_span(traces: Traces) -> None:
    """In memory, in the store, or into the call that it is nested in."""

    def nest(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        inner = executor(tool("inner"), session=context.session)
        return ToolResult.ok(Note(inner.execute(call("inner", id="i")).content))

    executor(tool("pay", nest)).execute(call("pay"))
    with open_store("memory:") as store, Session.open(store, "s") as session:
        executor(tool("pay"), session=session).execute(call("pay"))
    assert [own(span)["commit"] for span in traces.calls()] == ["parent", "memory", "store"]


def test_question_that_is_left_open_postpones_the_call(traces: Traces) -> None:
    """Made again, and approved, it is committed; both spans name the same call."""
    answers: list[Approval | bool] = [Approval.later("ask Ada"), True]

    def answer(_request: object) -> Approval | bool:
        return answers.pop(0)

    with open_store("memory:") as store, Session.open(store, "s") as session:
        door = executor(tool("pay"), policies=(ASKS,), approver=answer, session=session)
        refusal(CallPostponed, door.execute, call("pay"), reply="r")
        door.execute(call("pay"), reply="r")
    first, second = traces.calls()
    assert (ended(first), events(first)) == (("postponed", "approval", "UNSET", None), ["question_opened"])
    assert events(second) == ["question_opened", "question_answered", "committed"]
    assert [own(span)["approval"] for span in (first, second)] == ["waiting", "approved"]
    assert [own(span)["call"] for span in (first, second)] == ["s/r/call-1"] * 2


def test_interrupt_while_a_person_is_asked_leaves_the_question_open(traces: Traces) -> None:
    """The call is made again later."""

    def interrupt(_request: object) -> bool:
        raise KeyboardInterrupt

    door = executor(tool("pay"), policies=(ASKS,), approver=interrupt)
    refusal(KeyboardInterrupt, door.execute, call("pay"))
    assert ended(traces.call()) == ("postponed", "approval", "UNSET", None)
    assert own(traces.call())["approval"] == "waiting"


def test_refusal_that_the_program_gets_is_an_error(traces: Traces) -> None:
    """The identity of another call, and a policy that decides nothing."""
    with open_store("memory:") as store, Session.open(store, "s") as session:
        door = executor(tool("pay"), session=session)
        door.execute(call("pay"), reply="r")
        refusal(CallIdReusedError, door.execute, call("pay", "other"), reply="r")
    mute: Any = Decides(lambda _tool, _params: None)  # type: ignore[arg-type,return-value]
    refusal(InvalidReturnError, executor(tool("pay"), policies=(mute,)).execute, call("pay"))
    assert [ended(span) for span in traces.calls()[1:]] == [
        ("refused", "look_up", "ERROR", "CallIdReusedError"),
        ("denied", "policy", "ERROR", "InvalidReturnError"),
    ]


def test_commit_in_doubt_is_unknown(traces: Traces) -> None:
    """Nothing is restored, so the call is not rolled back; it has no effect in the ledger."""
    with faulty("sqlite", FakeClock()) as store, Session.open(store, "s") as session:
        door = executor(tool("note"), session=session)
        store.lose("committed")
        store.at("begin", lambda: None)
        store.go_down("begin")
        refusal(CommitInDoubtError, door.execute, call("note"))
        store.come_back()
    span = traces.call()
    assert ended(span) == ("unknown", "commit", "ERROR", "unknown_outcome")
    assert not {"committed", "rolled_back"} & {*events(span)}
    assert [count for _, count in traces.points(UNKNOWN)] == [1]


def test_effect_that_is_unknown_since_an_earlier_attempt_is_unknown(traces: Traces) -> None:
    """Of the same call, as after a kill, also if its tool is gone; a call that only equals it is refused."""
    with open_store("memory:") as store, Session.open(store, "s") as session:
        paying = executor(tool("pay", _raising(ConnectionError("x")), effect="external"), session=session)
        for door, call_id in ((paying, "a"), (paying, "a"), (executor(session=session), "a"), (paying, "b")):
            door.execute(call("pay", id=call_id), reply="r")
    assert [(*ended(span)[:2], own(span).get("ledger")) for span in traces.calls()] == [
        ("unknown", "handler", "unknown"),
        ("unknown", "claim", "unknown"),
        ("unknown", "look_up", None),
        ("refused", "claim", None),
    ]
    assert sum(count for _, count in traces.points(UNKNOWN)) == 3


def test_call_that_opens_sections_is_committed(traces: Traces) -> None:
    """A tool that was to do more is undone, and says so."""

    def needs(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise VisibilityExpansionRequired("it needs the guide", section_keys=["guide"], reason="to know more")

    guide = MarkdownSection(title="Guide", key="guide", template="Read it.", summary="A guide.", tools=[tool("more")])
    desk = MarkdownSection(title="Desk", key="desk", template="Work.", tools=[tool("needs", needs)])
    prompt = Prompt(PromptTemplate(ns="tests", key="telemetry", sections=[desk, guide]))
    for name, arguments in (("needs", {"text": "x"}), ("open_sections", {"paths": ["guide"], "reason": "x"})):
        door = ToolExecutor(prompt=prompt, session=Session())
        door.execute_all([ToolCall("c", name, arguments)], reply="r")
    needing, opening = traces.calls()
    assert ended(needing) == ("rolled_back", "handler", "ERROR", "VisibilityExpansionRequired")
    assert ended(opening) == ("committed", "handler", "UNSET", None)
    assert events(opening) == ["rolled_back", "committed"]


def test_lost_lease_is_an_event(traces: Traces) -> None:
    """Another owner has claimed the effect, which is unknown here."""
    ledger = EffectLedger()

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        (row,) = ledger.rows()
        replace(ledger.store, row, row._replace(fence=row.fence + 1))
        refusal(LeaseLostError, context.beat)
        return ToolResult.ok(params)

    executor(tool("pay", pay, effect="external"), effect_ledger=ledger).execute(call("pay"))
    span = traces.call()
    assert ended(span) == ("unknown", "handler", "ERROR", "unknown_outcome")
    assert events(span) == ["claimed", "rolled_back", "lease_lost"]


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Lets a handler end that was left behind."""
    event = threading.Event()
    yield event
    event.set()


@both_ways
def test_handler_that_overruns_is_rolled_back(traces: Traces, way: Run, release: threading.Event) -> None:
    """With the type of the timeout."""

    def hang(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        release.wait()
        return ToolResult.ok(params)

    way(executor(tool("hang", hang, timeout=timedelta(milliseconds=20))), call("hang"))
    assert ended(traces.call()) == ("rolled_back", "handler", "ERROR", "HandlerTimeoutError")


@pytest.mark.anyio
async def test_wait_for_the_turn_is_on_the_span(traces: Traces) -> None:
    """Of two calls that write, the second waits."""

    async def write(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        await asyncio.sleep(0)
        return ToolResult.ok(params)

    door = executor(tool("write", write))
    await door.execute_all_async([call("write", id="a"), call("write", id="b")], reply="r")
    first, second = traces.calls()
    assert ["turn_seconds" in own(span) for span in (first, second)] == [False, True]
    assert [events(span) for span in (first, second)] == [["committed"], ["turn_acquired", "committed"]]


@pytest.mark.anyio
async def test_cancelled_call_is_rolled_back(traces: Traces) -> None:
    """Its span ends with it, in the task that is cancelled."""
    begun = asyncio.Event()

    async def wait(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        begun.set()
        await asyncio.Event().wait()
        return ToolResult.ok(params)

    task = asyncio.ensure_future(executor(tool("wait", wait)).execute_async(call("wait")))
    await begun.wait()
    task.cancel()
    await asyncio.wait((task,))
    assert ended(traces.call()) == ("rolled_back", "handler", "ERROR", "CancelledError")
    assert "gen_ai.tool.call.id" in attributes(traces.call())


@pytest.mark.anyio
async def test_call_that_is_interrupted_after_its_commit_is_committed(traces: Traces) -> None:
    """Its message is not given, and nothing is undone."""

    def cancel(_event: ToolInvoked) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    session = Session()
    session.dispatcher.subscribe(ToolInvoked, cancel)
    task = asyncio.ensure_future(executor(tool("pay", effect="external"), session=session).execute_async(PAY))
    await asyncio.wait((task,))
    assert task.cancelled()
    assert (ended(traces.call()), own(traces.call())["ledger"]) == (("committed", None, "UNSET", None), "done")
