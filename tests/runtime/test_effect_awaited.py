"""What a session's subscribers are notified of while a call waits for an effect that another owner has claimed."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import Deadline, EffectAwaited, EffectLedger, IdempotencyConfig, Session, ToolMessage
from handrail.runtime.effects import Claimed, ClaimRequest
from handrail.store import MemoryStore
from handrail.store.protocol import ClaimOwner
from tests.runtime.bench import BOTH_WAYS, Note, call, executor, tool

both_ways = pytest.mark.parametrize("way", BOTH_WAYS, ids=lambda way: way.__name__)
BY_TEXT = IdempotencyConfig(strategy="custom", key_fn=lambda params: params.text, scope="shop")
OWNER = ClaimOwner("night", "resp_1", "call_0")
SOON = timedelta(milliseconds=50)


def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Pay."""
    return ToolResult.ok(params, "paid")


def desk(ledger: EffectLedger, handler: Any = pay, *, session: Session | None = None, **options: Any) -> ToolExecutor:
    """An executor with one external tool under a key that all sessions share."""
    deadline = options.pop("deadline", None)
    paying = tool("pay", handler, effect="external", idempotency=options.pop("idempotency", BY_TEXT))
    return executor(paying, effect_ledger=ledger, session=session or Session(session_id="s"), deadline=deadline)


def waits_of(door: ToolExecutor) -> list[EffectAwaited]:
    """The waits that the subscribers of its session are notified of."""
    heard: list[EffectAwaited] = []
    door.environment.session.dispatcher.subscribe(EffectAwaited, heard.append)
    return heard


def claimed(ledger: EffectLedger) -> Claimed:
    """The claim of a handler that was left behind."""
    key = BY_TEXT.effect_key("pay", Note("A-1"), session_id="")
    assert key is not None
    answer = ledger.claim(ClaimRequest(key.partition, key.key, "pay", key.params_hash, OWNER, on_orphan="retry"))
    assert isinstance(answer, Claimed)
    ledger.give_up(answer)
    return answer


@both_ways
def test_wait_is_said_once_with_owner_and_end(way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """At once, as a warning and as an event, which no slice keeps."""
    ledger = EffectLedger()
    claim = claimed(ledger)
    door = desk(ledger, deadline=Deadline.after(SOON))
    heard = waits_of(door)
    with caplog.at_level(logging.WARNING, "handrail.runtime"):
        message: ToolMessage = way(door, call("pay", "A-1", id="call_7"))
    assert "is being carried out by another call" in message.content
    until = claim.row.lease_until
    assert isinstance(until, datetime)
    expected = EffectAwaited("s", None, "call_7", "pay", claim.key, claim.row.owner, until)
    assert heard == [expected]
    assert door.environment.session[EffectAwaited].all() == ()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        f"session s: {expected}"
    ]
    assert "night/resp_1/call_0" in str(expected)


def test_wait_is_said_again_for_another_owner() -> None:
    """Or for another end of the lease, if the call has to ask again; not while the owner only renews its lease."""
    ledger = EffectLedger(MemoryStore())
    claim = claimed(ledger)
    key_of_second: list[Claimed] = []
    door = desk(ledger, deadline=Deadline.after(timedelta(seconds=0.5)))
    heard = waits_of(door)

    def pass_on(_: EffectAwaited) -> None:
        if not key_of_second:
            assert ledger.fail(claim)  # the row passes to another owner before the wait begins
            key_of_second.append(claimed(ledger))

    door.environment.session.dispatcher.subscribe(EffectAwaited, pass_on)
    assert not door.execute(call("pay", "A-1")).success
    assert [wait.until for wait in heard] == [claim.row.lease_until, key_of_second[0].row.lease_until]


def test_call_of_this_process_that_runs_is_waited_for_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """That is how two calls with one key always go; it is logged for who debugs."""
    caplog.set_level(logging.DEBUG, "handrail.runtime")
    ledger = EffectLedger()
    inside, leave = threading.Event(), threading.Event()

    def slow(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        inside.set()
        leave.wait(20)
        return ToolResult.ok(params, "paid")

    first = threading.Thread(target=desk(ledger, slow, session=Session()).execute, args=(call("pay", "A-1"),))
    first.start()
    assert inside.wait(20)

    class Leaves(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "waits for effect" in record.getMessage():
                leave.set()

    handler = Leaves()
    logging.getLogger("handrail.runtime").addHandler(handler)
    try:
        door = desk(ledger)
        heard = waits_of(door)
        assert door.execute(call("pay", "A-1")).replayed
    finally:
        logging.getLogger("handrail.runtime").removeHandler(handler)
        leave.set()
        first.join()
    assert heard == []
    assert [record.levelno for record in caplog.records if "waits for effect" in record.getMessage()] == [logging.DEBUG]


def test_call_that_does_not_wait_says_nothing() -> None:
    """With `on_busy="reject"` it is refused at once."""
    ledger = EffectLedger()
    claimed(ledger)
    config = IdempotencyConfig(strategy="custom", key_fn=lambda params: params.text, scope="shop", on_busy="reject")
    door = desk(ledger, idempotency=config)
    heard = waits_of(door)
    assert not door.execute(call("pay", "A-1")).success
    assert heard == []


def test_subscriber_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The wait is not its call; the failure is logged."""
    ledger = EffectLedger()
    claim = claimed(ledger)
    door = desk(ledger)

    def fails(_: EffectAwaited) -> None:
        ledger.fail(claim)
        raise RuntimeError("not today")

    door.environment.session.dispatcher.subscribe(EffectAwaited, fails)
    assert asyncio.run(door.execute_async(call("pay", "A-1"))).success
    assert "a subscriber of the wait of pay failed" in caplog.text
