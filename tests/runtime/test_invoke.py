"""The thirteen steps: what each does, what a refusal there looks like, and who hears of a call that is over."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed, PromptEvaluationError
from handrail.filesystem import Filesystem
from handrail.prompt import Approval, ApprovalRequest, PolicyDecision, Tool, ToolContext, ToolExample, ToolResult
from handrail.resources import Binding, Scope
from handrail.runtime import (
    Deadline,
    EffectLedger,
    IdempotencyConfig,
    Session,
    Step,
    ToolCall,
    ToolInvoked,
    ToolMessage,
)
from handrail.runtime import invoke as pipeline
from handrail.serde import canonical_json, digest
from handrail.session import Append, SliceView
from handrail.store import EffectRow, LedgerStore
from handrail.testing import FakeClock
from handrail.transaction import current
from tests.kit import (
    ASKS,
    BOTH_WAYS,
    Kept,
    Note,
    Run,
    both_ways,
    call,
    echo,
    events,
    executor,
    files,
    raises,
    scribble,
    soon,
    tool,
)
from tests.runtime.kit import Login, present
from tests.wording import Wording


@dataclass
class Rule:
    """A policy that answers the same every time, and remembers what it was told."""

    decision: PolicyDecision
    name: str = "rule"

    def __post_init__(self) -> None:
        self.seen: list[str] = []

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        self.seen.append(f"check {tool.name} {params.text}")
        return self.decision

    def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None:
        self.seen.append(f"on_result {tool.name} {result.value.text}")


@both_ways
@pytest.mark.requirement("S-01", "S-02", "S-09", "S-13")
def test_a_call_is_answered_with_what_the_handler_returned(way: Run) -> None:
    """The straight way: looked up, parsed, run, answered."""
    message = way(executor(tool("echo")), call("echo", "hi", id="c7"))
    assert message == ToolMessage("c7", "hi", True, ToolResult.ok(Note("hi")), replayed=False)


@both_ways
@pytest.mark.requirement("S-01a", "M-06c")
@pytest.mark.parametrize("asked", ["readfile", "READ_FILE", "Read-File"])
def test_an_unknown_tool_is_told_with_the_names_there_are(way: Run, asked: str, wording: Wording) -> None:
    """The model reads which names exist, and the nearest one, whatever the case."""
    door = executor(tool("read_file"), tool("write_file"))
    message = way(door, call(asked))
    assert (message.content, message.success) == (wording, False)
    assert events(door)[0].refused_at is Step.LOOK_UP


@pytest.mark.short(2)
@pytest.mark.requirement("S-01a")
@pytest.mark.parametrize(
    "asked", ["read_flie_0500", "zzz", "x" * 1_000_000, "\U0001f600" * 200], ids=["near", "far", "long", "emoji"]
)
def test_an_unknown_tool_among_a_thousand_is_told_in_under_a_kilobyte(asked: str, wording: Wording) -> None:
    """With the nearest names first: the list of all of them took 18 kB of the model's context."""
    names = [f"read_file_{number:04}" for number in range(1000)]
    told = executor(*map(tool, names)).execute(call(asked)).content
    assert len(told.encode()) < 1000
    assert told == wording


@pytest.mark.requirement("S-01a")
def test_a_prompt_without_tools_says_so(wording: Wording) -> None:
    """There are no names to list."""
    assert executor().execute(call("echo")).content == wording


@both_ways
@pytest.mark.requirement("S-01b")
def test_a_tool_without_a_handler_is_a_failed_message(way: Run, wording: Wording) -> None:
    """A tool may be declared for another process to run; here its calls fail."""
    door = executor(tool("later", None))
    message = way(door, call("later"))
    assert message.content == wording
    assert events(door)[0].refused_at is Step.HANDLER


@both_ways
@pytest.mark.requirement("S-02a")
def test_bad_arguments_are_told_with_every_fault_and_an_example(way: Run, wording: Wording) -> None:
    """One reply is enough to mend the call."""
    example = ToolExample(description="Says hi", input=Note("hi"), output=Note("hi"))
    door = executor(tool("echo", examples=(example,)))
    message = way(door, ToolCall("c", "echo", '{"txt": "hi"}'))
    assert message.content == wording
    assert "$.txt" in message.content
    assert "$.text" in message.content
    assert message.content == wording
    assert events(door)[0].refused_at is Step.PARSE
    assert events(door)[0].params is None


@both_ways
@pytest.mark.requirement("S-04", "S-04a")
def test_every_policy_must_allow(way: Run, wording: Wording) -> None:
    """All are asked, in their order. The model reads which one denies and why; the handler has not run."""
    first, second = Rule(PolicyDecision.allow(), "first"), Rule(PolicyDecision.deny("not today"), "second")
    door = executor(tool("scribble", scribble), policies=(first, second))
    message = way(door, call("scribble"))
    assert (message.success, message.content) == (False, wording)
    assert first.seen == second.seen == ["check scribble hello"]
    assert door.environment.session[Kept].all() == ()
    assert events(door)[0].refused_at is Step.POLICY


@both_ways
@pytest.mark.requirement("S-04b")
def test_a_policy_that_raises_denies(way: Run, caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """A guard that breaks lets nothing through."""

    class Broken(Rule):
        def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
            raise KeyError("rules")

    message = way(executor(tool("echo"), policies=(Broken(PolicyDecision.allow()),)), call("echo"))
    assert message.content == wording
    assert caplog.messages == wording


@both_ways
@pytest.mark.requirement("S-05")
def test_approval_is_asked_only_for_and_with_nothing_open(way: Run) -> None:
    """The approver sees the call and the questions, and no transaction is open while it thinks."""
    asked: list[tuple[ApprovalRequest, object]] = []

    def approver(request: ApprovalRequest) -> bool:
        asked.append((request, current()))
        return True

    door = executor(tool("echo"), policies=(Rule(PolicyDecision.ask("sure?")),), approver=approver)
    assert way(door, call("echo")).success
    [(request, transaction)] = asked
    assert (request.call_id, request.params, request.questions[0].text) == ("call-1", Note("hello"), "sure?")
    assert transaction is None
    free = executor(tool("echo"), policies=(Rule(PolicyDecision.allow()),), approver=approver)
    assert way(free, call("echo")).success
    assert len(asked) == 1


@both_ways
@pytest.mark.requirement("S-05a")
@pytest.mark.parametrize("answer", [False, Approval(approved=False, reason="too much")])
def test_a_refused_approval_is_a_failed_message(way: Run, answer: Any) -> None:
    """Only a clear yes lets the call run."""

    def approver(request: ApprovalRequest) -> Any:
        return answer

    door = executor(tool("scribble", scribble), policies=(Rule(PolicyDecision.ask("sure?")),), approver=approver)
    message = way(door, call("scribble"))
    assert not message.success
    assert "scribble" in message.content
    assert door.environment.session[Kept].all() == ()
    assert events(door)[0].refused_at is Step.APPROVAL


@both_ways
@pytest.mark.requirement("S-05a")
def test_an_approver_that_fails_refuses(way: Run, wording: Wording) -> None:
    """An error is no yes."""

    async def approver(request: ApprovalRequest) -> bool:
        raise ConnectionError("no line")

    door = executor(tool("echo"), policies=(Rule(PolicyDecision.ask("sure?")),), approver=approver)
    assert way(door, call("echo")).content == wording


@both_ways
@pytest.mark.requirement("S-05b")
def test_ask_without_an_approver_denies(way: Run, wording: Wording) -> None:
    """Nobody there is a no, and says so."""
    message = way(executor(tool("echo"), policies=(Rule(PolicyDecision.ask("sure?")),)), call("echo"))
    assert message.content == wording


@both_ways
@pytest.mark.requirement("S-06")
def test_a_passed_deadline_ends_the_run_before_the_handler(way: Run, wording: Wording) -> None:
    """The handler is not started, and the call is recorded."""
    clock = FakeClock()
    door = executor(tool("scribble", scribble), deadline=Deadline.after(timedelta(0), clock=clock), clock=clock)
    with pytest.raises(PromptEvaluationError) as caught:
        way(door, call("scribble"))
    assert (str(caught.value), caught.value.phase, door.environment.session[Kept].all()) == (wording, "tool", ())
    assert events(door)[0].refused_at is Step.DEADLINE


@both_ways
@pytest.mark.requirement("S-07", "S-07a")
def test_an_effect_runs_once_and_is_replayed(way: Run) -> None:
    """The key is claimed before the handler; the second call gets the stored result."""
    keys: list[str] = []
    ledger = EffectLedger()

    def charge(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        row = present(ledger.row(context.idempotency_key or "", partition="s"))
        keys.append(f"{context.idempotency_key} {row.status} {context.fence}")
        return ToolResult.ok(Note("charged"), message="done")

    door = executor(tool("charge", charge, effect="external", idempotency=IdempotencyConfig()), effect_ledger=ledger)
    first, second = way(door, call("charge", id="a")), way(door, call("charge", id="b"))
    assert ([first.replayed, second.replayed], first.result) == ([False, True], second.result)
    [key] = keys
    assert re.fullmatch(r"session:charge:[0-9a-f]{12} running 1", key)
    assert [event.effect_key for event in events(door)] == [key.split()[0]] * 2


@pytest.mark.requirement("S-08")
def test_a_transaction_and_a_call_scope_are_open_in_the_handler() -> None:
    """TOOL_CALL resources are fresh for each call, and closed with it."""
    seen: list[Any] = []

    class Connection:
        closed = False

        def close(self) -> None:
            self.closed = True

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        connection = context.resources.get(Connection)
        assert connection is context.resources.get(Connection)
        seen.append((current() is not None, connection, connection.closed))
        return ToolResult.ok(params)

    binding = Binding(Connection, lambda _: Connection(), scope=Scope.TOOL_CALL)
    door = executor(tool("use", handler), resources={Connection: binding})
    assert door.execute(call("use")).success
    assert door.execute(call("use")).success
    (open_1, first, was_1), (open_2, second, was_2) = seen
    assert first is not second
    assert (open_1, open_2, was_1, was_2) == (True, True, False, False)
    assert first.closed
    assert second.closed


@both_ways
@pytest.mark.requirement("S-10", "S-11")
def test_a_success_goes_through_policies_reducers_and_subscribers(way: Run, wording: Wording) -> None:
    """In this order, inside the call; then it is committed and the turn is free."""
    rule = Rule(PolicyDecision.allow())
    door = executor(tool("echo"), policies=(rule,))
    session = door.environment.session
    heard: list[tuple[Note, int]] = []
    session.dispatcher.subscribe(Note, lambda note: heard.append((note, len(session[Note]))))
    assert way(door, call("echo")).success
    assert (rule.seen, heard) == (["check echo hello", wording], [(Note("hello"), 1)])
    assert (session[Note].all(), session.turn.queue) == ((Note("hello"),), [])


@both_ways
@pytest.mark.requirement("S-11a", "S-12")
def test_a_failed_result_is_rolled_back_and_recorded(way: Run) -> None:
    """A handler that reports failure has changed nothing, and its value is no event."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        scribble(params, context=context)
        return ToolResult.error("no", params)

    store = files(note="before")
    door = executor(tool("fail", handler), resources={Filesystem: store})
    message = way(door, call("fail"))
    assert (message.content, message.success, store.read_text("note.txt")) == ("no\nhello", False, "before")
    session = door.environment.session
    assert (session[Kept].all(), session[Note].all(), session.turn.queue) == ((), (), [])
    [event] = events(door)
    assert (event.success, event.refused_at, event.name) == (False, Step.HANDLER, "fail")


@pytest.mark.requirement("S-12")
def test_the_record_has_times_from_the_clock() -> None:
    """How long the handler took, how long the whole call, and when it ended."""
    clock = FakeClock()

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        clock.advance(timedelta(seconds=2))
        return ToolResult.ok(params)

    door = executor(tool("slow", handler), policies=(Slow(clock),), clock=clock)
    door.execute(call("slow"))
    [event] = events(door)
    assert (event.handler_seconds, event.total_seconds, event.at) == (2.0, 5.0, clock.now())


class Slow(Rule):
    """A policy that takes three seconds."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(PolicyDecision.allow())
        self.clock = clock

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        self.clock.advance(timedelta(seconds=3))
        return self.decision


@pytest.mark.requirement("S-12")
def test_a_listener_of_the_record_that_fails_changes_nothing(
    caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The call is over when it is recorded; the failure is logged."""
    session = Session()
    session.dispatcher.subscribe(object, _raise_for_record)
    door = executor(tool("echo"), session=session)
    assert door.execute(call("echo")).success
    assert len(events(door)) == 1
    assert caplog.messages == wording


def _raise_for_record(event: object) -> None:
    if type(event).__name__ == "ToolInvoked":
        raise RuntimeError("deaf")


def test_the_table_of_the_docstring_is_the_pipeline() -> None:
    """The docstring's steps and the enum's are the same thirteen, and the pipeline enters them in order."""
    source = Path(pipeline.__file__).read_text(encoding="utf-8")
    table = [int(number) for number in re.findall(r"^\| (\d+) \|", source, flags=re.MULTILINE)]
    entered = re.findall(r"^ +step = (\w+)$", source, flags=re.MULTILINE)
    assert table == list(range(1, 14)) == [step.number for step in Step]
    assert [step.value for step in Step] == [step.name.lower() for step in Step]
    assert entered == [step.name for step in Step if step not in {Step.RECORD, Step.RENDER}]
    assert all(getattr(pipeline, name) is Step[name] for name in entered)


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
    assert (heard, session[Kept].all()) == (["2", "1"], (Kept("1"),))


def noting(session: Session) -> list[str]:
    """Have a reducer of the session note each call in `Kept`, and a subscriber in the list that is returned."""
    heard: list[str] = []

    def note(view: SliceView[Kept], event: ToolInvoked) -> Append[Kept]:
        return Append(Kept(event.call_id))

    session[Kept].register(ToolInvoked, note)
    session.dispatcher.subscribe(ToolInvoked, lambda event: heard.append(event.call_id))
    return heard


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
        with raises(CallPostponed, wording):
            way(door, call("pay"))
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
    assert (slot.key, declared.key) == ("call:call-1", f"session:log_in:{declared.params_hash[:12]}")


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
