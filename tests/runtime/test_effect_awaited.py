"""What a session's subscribers are notified of while a call waits for an effect that another owner has claimed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import handrail.store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.clock import SYSTEM_CLOCK
from handrail.errors import SessionUseError
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import EffectAwaited, EffectLedger, IdempotencyConfig, Session, ToolMessage
from handrail.runtime.ledger.effects import Claimed, ClaimRequest, EffectResult, NotApplied
from handrail.store import MemoryStore
from handrail.store.protocol import ClaimOwner
from handrail.testing import FakeClock
from tests.kit import Note, both_ways, call, executor, soon, tool
from tests.runtime.ledger_calls import stop_renewing
from tests.store.stores import STORES
from tests.wording import Wording

BY_TEXT = IdempotencyConfig(strategy="custom", key_fn=lambda params: params.text, scope="shop")
OWNER = ClaimOwner("night", "resp_1", "call_0")


def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Pay."""
    return ToolResult.ok(params, "paid")


def desk(ledger: EffectLedger, handler: Any = pay, *, session: Session | None = None, **options: Any) -> ToolExecutor:
    """An executor with one external tool under a key that all sessions share."""
    deadline = options.pop("deadline", None)
    options = {"effect": "external", "idempotency": BY_TEXT, **options}
    paying = tool("pay", handler, **options)
    return executor(paying, effect_ledger=ledger, session=session or Session(session_id="s"), deadline=deadline)


def waits_of(door: ToolExecutor) -> list[EffectAwaited]:
    """The waits that the subscribers of its session are notified of."""
    heard: list[EffectAwaited] = []
    door.environment.session.dispatcher.subscribe(EffectAwaited, heard.append)
    return heard


def claimed(ledger: EffectLedger, *, is_left: bool = True) -> Claimed:
    """The claim of a handler that was left behind, or runs."""
    key = BY_TEXT.effect_key("pay", Note("A-1"), session_id="")
    assert key is not None
    answer = ledger.claim(ClaimRequest(key.partition, key.key, "pay", key.params_hash, OWNER, on_orphan="retry"))
    assert isinstance(answer, Claimed)
    if is_left:
        stop_renewing(ledger, answer)
    return answer


@both_ways
def test_wait_is_said_once_with_owner_and_end(way: Any, caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """At once, as a warning and as an event, which no slice keeps."""
    ledger = EffectLedger()
    claim = claimed(ledger)
    door = desk(ledger, deadline=soon())
    heard = waits_of(door)
    with caplog.at_level(logging.WARNING, "handrail.runtime"):
        message: ToolMessage = way(door, call("pay", "A-1", id="call_7"))
    assert message.content == wording
    until = claim.row.lease_until
    assert isinstance(until, datetime)
    expected = EffectAwaited("s", None, "call_7", "pay", claim.key, claim.row.owner, until)
    assert heard == [expected]
    assert door.environment.session[EffectAwaited].all() == ()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        f"session s: {expected}"
    ]
    assert "night/resp_1/call_0" in str(expected)


def test_result_that_was_waited_for_answers_the_call_whatever_its_clock_says(tmp_path: Path) -> None:
    """By the clock of the one that waits, which is two days ahead, it has expired when it is recorded."""
    clock, url = FakeClock(SYSTEM_CLOCK.now() + timedelta(days=2)), f"sqlite:///{tmp_path / 'desk.db'}"
    with handrail.store.open(url) as store, handrail.store.open(url, clock=clock) as later:
        ledger = EffectLedger(store)
        claim = claimed(ledger, is_left=False)
        door = desk(EffectLedger(later), deadline=soon())
        paid = EffectResult("paid", b'{"text":"A-1"}')
        door.environment.session.dispatcher.subscribe(EffectAwaited, lambda _: ledger.end(claim, paid))
        message = door.execute(call("pay", "A-1", id="call_7"))
        row = EffectLedger(store).row(claim.key)
    assert (message.success, message.replayed) == (True, True)
    assert (row and row.fence, row and row.message) == (claim.fence, "paid")


@pytest.mark.parametrize("kind", list(STORES))
def test_a_wait_in_a_store_holds_no_event_loop(kind: str) -> None:
    """The row of the other owner is looked at on a thread; the loop guard, which is on in tests, would raise."""
    store = STORES[kind](FakeClock())
    with Session.open(store, "s") as session:
        ledger = EffectLedger(store)
        claim = claimed(ledger)
        door = desk(ledger, session=session, deadline=soon())
        heard = waits_of(door)
        message = asyncio.run(door.execute_async(call("pay", "A-1", id="call_7"), reply="resp_1"))
    assert (message.success, [event.key for event in heard]) == (False, [claim.key])


class Slow:
    """A handler that pays when it is allowed to leave."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()

    def __call__(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Pay."""
        self.entered.set()
        self.leave.wait(20)
        return ToolResult.ok(params, "paid")

    @contextmanager
    def at_work(self, door: ToolExecutor) -> Generator[None]:
        """A call of this handler that runs on another thread; it has ended when the block is left."""

        def execute() -> None:
            with suppress(SessionUseError):  # raised to the program, if it closes the session meanwhile
                door.execute(call("pay", "A-1"))

        thread = threading.Thread(target=execute)
        thread.start()
        try:
            assert self.entered.wait(20)
            yield
        finally:
            self.leave.set()
            thread.join()


def is_wait(record: logging.LogRecord) -> bool:
    """Whether what is logged is a wait."""
    return any(isinstance(each, EffectAwaited) for each in record.args or ())


@pytest.mark.parametrize("is_same_session", [False, True])
def test_call_of_this_process_that_runs_is_waited_for_without_a_word(
    caplog: pytest.LogCaptureFixture, is_same_session: bool
) -> None:
    """That is how two calls with one key always go; it is logged for who debugs."""
    caplog.set_level(logging.DEBUG, "handrail.runtime")
    ledger, slow, session = EffectLedger(), Slow(), Session(session_id="s")
    other = session if is_same_session else Session()

    class Leaves(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if is_wait(record):
                slow.leave.set()

    handler = Leaves()
    logging.getLogger("handrail.runtime").addHandler(handler)
    try:
        with slow.at_work(desk(ledger, slow, session=other, concurrent=is_same_session)):
            door = desk(ledger, session=session, concurrent=is_same_session)
            heard = waits_of(door)
            assert door.execute(call("pay", "A-1")).replayed
    finally:
        logging.getLogger("handrail.runtime").removeHandler(handler)
    assert heard == []
    assert [record.levelno for record in caplog.records if is_wait(record)] == [logging.DEBUG]


@both_ways
def test_wait_for_a_handler_that_a_closed_session_has_left_behind_is_said(
    way: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs in this process, and takes no turn of the session as it is open now."""
    store, slow = MemoryStore(), Slow()
    ledger = EffectLedger(store)
    closed = Session.open(store, "night")
    with slow.at_work(desk(ledger, slow, session=closed)):
        closed.close()
        (row,) = store.rows()
        with Session.open(store, "night") as session, caplog.at_level(logging.WARNING, "handrail.runtime"):
            door = desk(ledger, session=session, deadline=soon())
            heard = waits_of(door)
            assert not way(door, call("pay", "A-1")).success
            said = [record.getMessage() for record in caplog.records if record.name == "handrail.runtime"]
    assert [(wait.owner, wait.key, wait.until) for wait in heard] == [(row.owner, row.key, row.lease_until)]
    assert said == [f"session night: {heard[0]}"]


def test_subscriber_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """The wait is not its call; the failure is logged."""
    ledger = EffectLedger()
    claim = claimed(ledger)
    door = desk(ledger)

    def fails(_: EffectAwaited) -> None:
        ledger.end(claim, NotApplied())
        raise RuntimeError("not today")

    door.environment.session.dispatcher.subscribe(EffectAwaited, fails)
    assert asyncio.run(door.execute_async(call("pay", "A-1"))).success
    assert [record.getMessage() for record in caplog.records if not is_wait(record)] == wording
