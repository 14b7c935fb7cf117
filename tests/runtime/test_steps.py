"""Step 12: who hears of a call that is over, and when."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pytest
from pydantic import SecretStr

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed
from handrail.prompt import ApprovalRequest, Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, ToolCall, ToolInvoked
from handrail.serde import canonical_json, digest
from handrail.session import Append, SliceView
from handrail.store import EffectRow, LedgerStore
from tests.kit import ASKS, BOTH_WAYS, Kept, Note, Run, call, echo, events, executor, soon, tool
from tests.wording import Wording


@pytest.mark.anyio
async def test_a_refusal_past_the_deadline_is_recorded_out_of_its_order(wording: Wording) -> None:
    """Better so than not at all."""
    started, release = asyncio.Event(), asyncio.Event()

    async def hold(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        started.set()
        await release.wait()
        return ToolResult.ok(params)

    session = Session()
    holder = executor(tool("hold", hold), session=session)
    hurried = executor(session=session, deadline=soon())
    holding = asyncio.ensure_future(holder.execute_async(call("hold", id="1")))
    await started.wait()
    assert (await hurried.execute_async(call("nothing", id="2"))).content == wording
    release.set()
    assert (await holding).success
    assert [event.call_id for event in session[ToolInvoked]] == ["2", "1"]


@pytest.mark.anyio
async def test_subscribers_of_a_call_that_left_the_queue_hear_of_it_while_others_hold_the_session() -> None:
    """Reducers would need the turn; subscribers are told without it."""
    started = asyncio.Event()

    async def hold(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        started.set()
        await asyncio.Event().wait()
        return ToolResult.ok(params)

    door = executor(tool("hold", hold), tool("echo", echo))
    session = door.environment.session
    heard = noting(session)
    holding = asyncio.ensure_future(door.execute_async(call("hold", id="1")))
    await started.wait()
    waiting = asyncio.ensure_future(door.execute_async(call("echo", id="2")))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert heard == ["2"]
    holding.cancel()
    await asyncio.wait([holding])
    assert heard == ["2", "1"]
    assert session[Kept].all() == (Kept("1"),)


def noting(session: Session) -> list[str]:
    """Have a reducer of the session note each call in `Kept`, and a subscriber in the list that is returned."""
    heard: list[str] = []

    def note(view: SliceView[Kept], event: ToolInvoked) -> Append[Kept]:
        return Append(Kept(event.call_id))

    session[Kept].register(ToolInvoked, note)
    session.dispatcher.subscribe(ToolInvoked, lambda event: heard.append(event.call_id))
    return heard


def test_reducers_hear_of_a_call_that_was_interrupted_before_it_was_first() -> None:
    """It has left its turn, and no other call holds the session: it takes the event in on its own."""

    def interrupted(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise KeyboardInterrupt

    door = executor(tool("look", interrupted, effect="read"))
    session = door.environment.session
    heard = noting(session)
    with pytest.raises(KeyboardInterrupt):
        door.execute(call("look", id="1"))
    assert (heard, session[Kept].all(), session.turn.queue) == (["1"], (Kept("1"),), [])


def test_only_subscribers_hear_of_a_nested_call_that_was_refused_its_turn() -> None:
    """What reducers made of it would be a change by its caller, which may only read."""
    inside: list[tuple[list[str], tuple[Kept, ...]]] = []

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        assert not door.execute(call("echo", id="inner")).success
        inside.append((list(heard), context.session[Kept].all()))
        return ToolResult.ok(params)

    door = executor(tool("outer", outer, effect="read"), tool("echo"))
    heard = noting(door.environment.session)
    assert door.execute(call("outer", id="outer")).success
    assert inside == [(["inner"], ())]
    assert (heard, door.environment.session[Kept].all()) == (["inner", "outer"], (Kept("outer"),))


class Away:
    """An approver that is not there until it is."""

    there = False

    def __call__(self, request: ApprovalRequest) -> bool:
        if not self.there:
            raise CallPostponed("nobody is there")
        return True


@pytest.mark.requirement("S-12a")
@pytest.mark.parametrize("way", BOTH_WAYS)
def test_a_call_that_an_approver_puts_off_is_recorded_when_it_is_carried_out(way: Run, wording: Wording) -> None:
    """Nobody hears of it before, its effect is free, and its place is given up."""
    away, heard = Away(), list[str]()
    pay = tool("pay", effect="external")
    door = executor(pay, policies=[ASKS], approver=away)
    door.environment.session.dispatcher.subscribe(ToolInvoked, lambda event: heard.append(event.call_id))
    for _ in range(2):
        with pytest.raises(CallPostponed) as raised:
            way(door, call("pay"))
        assert str(raised.value) == wording
    assert (heard, events(door), door.environment.session.turn.queue) == ([], (), [])
    away.there = True
    assert not way(door, call("pay")).replayed
    assert heard == [event.call_id for event in events(door)] == ["call-1"]


@pytest.mark.requirement("S-12a")
def test_a_call_made_inside_puts_its_caller_off_too() -> None:
    """What waits for an answer waits as a whole; a caller that can do without goes on, and is recorded alone."""

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept(params.text))
        try:
            door.execute(call("inner", id="inner"))
        except CallPostponed:
            if params.text != "without":
                raise
        return ToolResult.ok(params)

    def inner(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("inner"))
        raise CallPostponed("it waits")

    door = executor(tool("outer", outer), tool("inner", inner))
    with pytest.raises(CallPostponed):
        door.execute(call("outer"))
    assert (events(door), door.environment.session[Kept].all()) == ((), ())
    assert door.execute(call("outer", "without")).success
    assert [event.call_id for event in events(door)] == ["call-1"]
    assert door.environment.session[Kept].all() == (Kept("without"),)


AUTO = IdempotencyConfig()


BY_USER = IdempotencyConfig(strategy="params", param_keys=("user",))


@dataclass(frozen=True)
class Login:
    user: str
    password: SecretStr
    pin: int = field(default=0, metadata={"secret": True})


class Bank:
    """The world outside: remembers with what passwords it was asked."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.fails = False

    def __call__(self, params: Login, *, context: ToolContext) -> ToolResult[str]:
        self.seen.append(params.password.get_secret_value())
        return ToolResult.error("closed") if self.fails else ToolResult.ok(f"{params.user} is logged in")


def desk(bank: Bank, store: LedgerStore, **options: Any) -> ToolExecutor:
    """An executor with one external tool, `log_in`."""
    log_in = Tool[Login, str](name="log_in", description="Logs in.", handler=bank, effect="external", **options)
    return executor(log_in, effect_ledger=EffectLedger(store), session=Session(session_id="s"))


def log_in(password: str, *, id: str = "call-1", user: str = "ada") -> ToolCall:
    """A call of it."""
    return ToolCall(id, "log_in", json.dumps({"user": user, "password": password, "pin": 7}))


def rows_of(store: LedgerStore) -> list[EffectRow]:
    """What the ledger holds, by key."""
    return sorted(store.rows())


@pytest.mark.parametrize("config", [AUTO, BY_USER], ids=["auto", "params"])
def test_calls_with_different_secrets_are_different_calls(store: LedgerStore, config: IdempotencyConfig) -> None:
    """The second is not answered with the result of the first: it is another effect, or a conflict of its key."""
    bank = Bank()
    door = desk(bank, store, idempotency=config)
    assert door.execute(log_in("one")).success
    assert door.execute(log_in("one", id="call-2")).replayed
    message = door.execute(log_in("two", id="call-3"))
    assert not message.replayed
    assert message.success is (config is AUTO)
    assert bank.seen == (["one", "two"] if config is AUTO else ["one"])


def test_no_secret_can_be_found_out_from_a_row(store: LedgerStore) -> None:
    """Neither the arguments nor the hashes, in a slot and under a declared key, tell it to whoever tries them all."""
    bank = Bank()
    desk(bank, store).execute(log_in("hunter2"))
    desk(bank, store, idempotency=AUTO).execute(log_in("hunter2", id="call-2"))
    slot, declared = rows_of(store)
    words = {"user": "ada", "password": "hunter2", "pin": 7}
    assert "hunter2" not in repr((slot, declared))
    assert slot.arguments == declared.arguments == b'{"user":"ada","password":"**********","pin":"**********"}'
    for row in (slot, declared):
        assert row.params_hash == digest(words, key=store.hash_key())
        assert row.params_hash != sha256(canonical_json(words)).hexdigest()
    assert slot.key == "call:call-1"
    assert declared.key == f"session:log_in:{declared.params_hash[:12]}"


def test_a_reclaim_stores_the_new_arguments(store: LedgerStore) -> None:
    """After a failure the key may be claimed with other arguments."""
    bank = Bank()
    door = desk(bank, store, idempotency=BY_USER)
    bank.fails = True
    assert not door.execute(log_in("one")).success
    bank.fails = False
    assert door.execute(ToolCall("c2", "log_in", {"user": "ada", "password": "two"}, {"user": "a"})).success
    (row,) = store.rows()
    assert row.status == "done"
    assert json.loads(row.arguments or b"") == {
        "arguments": {"user": "ada", "password": "**********", "pin": "**********"},
        "written": {"user": "a"},
    }
