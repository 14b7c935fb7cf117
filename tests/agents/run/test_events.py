"""The events of a run: in which order, of which agents, and where a tool raised."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import pytest

from handrail.agents import CallEnded, CallWaits, RunEnded, RunEvent, RunStarted
from handrail.errors import ToolValidationError
from handrail.prompt import Tool as HandrailTool
from handrail.prompt import ToolContext, ToolResult
from handrail.prompt.idempotency import IdempotencyConfig
from handrail.runtime import EffectLedger
from handrail.runtime.ledger.effects import Claimed, ClaimRequest, NotApplied
from handrail.session import Session
from handrail.store import MemoryStore
from handrail.store import open as open_store
from handrail.store.protocol import ClaimOwner
from handrail.testing import Call, Outcome, Reply
from tests.agents.kit import DONE, CallLog, Heard, Person, agent, called, desk, inside, play, write_line
from tests.wording import Wording

pytestmark = pytest.mark.anyio


async def jot(text: str) -> str:
    """Leave a line."""
    write_line(text)
    return f"jotted {text}"


async def test_a_run_tells_of_itself_its_questions_its_calls_and_its_end_in_order(
    tmp_path: Path, wording: Wording
) -> None:
    """Those of nested agents stand between, each with its path."""
    heard, session = Heard(), Session()
    others = {"child.agent": agent("child", tools="[jot]")}
    loaded = desk(tmp_path, tools=[jot], also=["child"], others=others)
    first, last = called(Call("child", {"input": "Go."}), c1=Outcome.ok("found"))
    inner = Reply(calls=[Call("jot", {"text": "x"}, id="n1")], within="c1")
    script = [first, inner, Reply(text="found", within="c1"), last]
    await play(loaded, script, mode="ask", asker=Person(), listener=heard, session=session)
    assert heard.story == wording
    started, ended = heard.events[0], heard.events[-1]
    assert started == RunStarted(("desk",), "scripted", session.session_id)
    assert isinstance(ended, RunEnded)
    assert ended.output == "Done."


@dataclass(frozen=True)
class Order:
    number: str


def pay(params: Order, *, context: ToolContext) -> ToolResult[None]:
    """Pay."""
    return ToolResult.ok(None, f"paid {params.number}")


async def test_a_call_that_waits_for_another_process_is_told(tmp_path: Path, wording: Wording) -> None:
    """At once, with the owner of the effect and the end of its lease; the run goes on when that has ended."""
    once = IdempotencyConfig(strategy="custom", key_fn=lambda order: order.number, scope="shop")
    paying = HandrailTool[Order, None](
        name="pay", description="Pays.", handler=pay, effect="external", idempotency=once
    )
    key = once.effect_key("pay", Order("7"), session_id="")
    assert key is not None
    store = MemoryStore()
    ledger = EffectLedger(store)
    claim = ledger.claim(ClaimRequest(*key[:2], "pay", key.params_hash, ClaimOwner("night", "resp_1", "call_0")))
    assert isinstance(claim, Claimed)
    heard = Heard()

    def listen(event: RunEvent) -> None:
        heard(event)
        if isinstance(event, CallWaits):
            assert ledger.end(claim, NotApplied())

    with Session.open(store, "day") as session:
        script = called(Call("pay", {"number": "7"}), c1=Outcome.ok("paid 7"))
        await play(desk(tmp_path, tools=[paying]), script, mode="approve-all", listener=listen, session=session)
    assert heard.story[:4] == ["desk RunStarted", wording, wording, wording]
    (wait,) = [event for event in heard.events if isinstance(event, CallWaits)]
    assert (wait.call_id, wait.key, wait.owner) == ("c1", key.key, "night/resp_1/call_0")
    assert claim.row.lease_until is not None
    assert wait.until == claim.row.lease_until.isoformat()


def breaks(params: Order, *, context: ToolContext) -> ToolResult[None]:
    """Fail in a way that leaves open whether anything was paid."""
    raise OSError("the line is dead")


def refuses(params: Order, *, context: ToolContext) -> ToolResult[None]:
    """Fail before anything is paid."""
    raise ToolValidationError("there is no such order")


async def test_a_failed_call_whose_effect_may_have_happened_says_so(tmp_path: Path) -> None:
    """Not one that was refused; neither is read from the store, which would hold the event loop."""
    heard = Heard()
    tools = [
        HandrailTool[Order, None](name=handler.__name__, description="Pays.", handler=handler, effect="external")
        for handler in (breaks, refuses)
    ]
    calls = [Call("breaks", {"number": "7"}), Call("refuses", {"number": "8"})]
    with open_store(f"sqlite:///{tmp_path}/desk.db") as store:
        session = await Session.open_async(store, "day")
        script = called(*calls, c1=Outcome.failed(), c2=Outcome.failed())
        await play(desk(tmp_path, tools=tools), script, mode="approve-all", listener=heard, session=session)
        await session.close_async()
    ended = {event.call_id: event.outcome_unknown for event in heard.events if isinstance(event, CallEnded)}
    assert ended == {"c1": True, "c2": False}


async def test_a_listener_that_fails_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """It is logged with the event that it failed on."""

    def broken(event: RunEvent) -> None:
        raise OSError("no paper")

    loaded = desk(tmp_path, tools=[jot])
    with caplog.at_level(logging.ERROR, "handrail.agents"):
        result = await play(loaded, called(Call("jot", {"text": "x"}), c1=Outcome.ok("jotted x")), listener=broken)
    assert result.output == "Done."
    assert caplog.messages == wording


BROKEN = """
import json
from handrail import tool

def parse_broken(text: str) -> str:
    "Break."
    return str(json.loads(text))

@tool(effect="read")
def ours() -> str:
    "Break."
    raise OSError("no ink")

TOOLS = [parse_broken, ours]
"""


async def test_people_are_told_where_a_tool_raised_and_the_model_is_not(tmp_path: Path) -> None:
    """The line of the project, also of an agent that was called; nothing for what succeeded."""
    log = CallLog()
    others = {"clerk.agent": agent("clerk", tools="[parse_broken, ours]"), "tools.py": BROKEN}
    loaded = desk(tmp_path, also=["clerk"], others=others)
    calls = [*(Call("parse_broken", {"text": text}) for text in "{1"), Call("ours")]
    inner = inside("ask", called(*calls, c1=Outcome.failed("JSONDecodeError")))
    await play(loaded, [called(Call("clerk", {"input": "Go."}, id="ask"))[0], *inner, DONE], listener=log)
    places = {event.call_id: event.raised_at for event in log.ended}
    assert places == {"c1": "tools.py:7", "c2": "", "c3": "tools.py:12", "ask": ""}
    assert not any("tools.py" in event.content for event in log.ended)
