"""What happens at the edges of the steps: nested claims, clean-up that fails, waits that are broken off."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from handrail.errors import PromptEvaluationError, ToolValidationError
from handrail.prompt import ApprovalRequest, External, PolicyDecision, Tool, ToolContext, ToolResult
from handrail.resources import Binding, Scope
from handrail.runtime import EffectLedger, IdempotencyConfig, Step, ToolCall
from handrail.runtime.ledger.effects import ClaimRequest, NotKnown
from handrail.serde import digest
from tests.kit import Kept, Note, call, echo, events, executor, raises, soon, tool
from tests.store.kit import replace
from tests.wording import Wording


class Verdict:
    """A policy that answers with what a function says."""

    name = "verdict"

    def __init__(self, check: Callable[[], PolicyDecision]) -> None:
        self.answer = check

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        return self.answer()

    def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None:
        context.session[Kept].append(Kept(params.text))


def test_a_tool_without_parameters_says_what_to_send(wording: Wording) -> None:
    """Its example is the empty object."""

    def now(params: None, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(Note("noon"))

    clock_tool = Tool[None, Note](name="now", description="Tells the time.", handler=now, effect="read")
    door = executor(clock_tool)
    assert door.execute(ToolCall("1", "now", '{"zone": "UTC"}')).content == wording
    assert [door.execute(ToolCall("2", "now", text)).content for text in ("{}", "")] == ["noon", "noon"]


def test_an_inner_call_of_the_same_effect_gets_the_result_of_the_first() -> None:
    """It came of a call inside the same call, and is not recorded before that has ended."""
    runs: list[str] = []

    def keep(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        runs.append(context.call_id)
        return ToolResult.ok(params)

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        first, second = (door.execute(call("keep", id=name)) for name in ("a", "b"))
        assert (first.replayed, second.replayed) == (False, True)
        return ToolResult.ok(params)

    door = executor(tool("outer", outer), tool("keep", keep, idempotency=IdempotencyConfig()))
    assert door.execute(call("outer")).success
    assert (runs, door.environment.session[Note].all()) == (["a"], (Note("hello"), Note("hello")))


def test_a_call_that_asks_for_its_own_effect_does_not_wait_for_itself(wording: Wording) -> None:
    """It would wait for ever; it is told that the effect is being carried out."""

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(Note(door.execute(call("pay", id="inner")).content))

    door = executor(tool("pay", pay, effect="external", idempotency=IdempotencyConfig()))
    assert door.execute(call("pay")).content == wording


@dataclass(frozen=True)
class Picky:
    """A result whose type refuses what was recorded before it had this check, by what is not a `ValueError`."""

    text: str

    def __post_init__(self) -> None:
        if self.text == "hello":
            raise LookupError(self.text)


@pytest.mark.parametrize("value", [b'{"txt":1}', b'{"cut": ', b"\xff", b'{"text":"hello"}'])
def test_a_done_effect_whose_result_cannot_be_read_stays_done(
    value: bytes, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """It is not run again, its record is untouched; the model reads that it was done, the developer reads the cause."""
    ledger, runs = EffectLedger(), list[str]()

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Any]:
        runs.append(context.call_id)
        return ToolResult.ok(Picky("paid"))

    made: Any = Tool[Note, Picky]
    paying = made(
        name="pay", description="Pays.", handler=pay, effect="external", idempotency=IdempotencyConfig(scope="shop")
    )
    assert executor(paying, effect_ledger=ledger).execute(call("pay")).success
    [row] = ledger.rows()
    assert replace(ledger.store, row, row._replace(value=value))
    [changed] = ledger.rows()

    for name in ("again", "and-again"):
        door = executor(paying, effect_ledger=ledger)
        message = door.execute(call("pay", id=name))
        assert message.content == wording
        [event] = events(door)
        assert (message.success, event.refused_at, event.final) == (False, Step.CLAIM, False)
    assert (runs, list(ledger.rows())) == (["call-1"], [changed])
    said, _ = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert row.effect_id in said.getMessage()
    assert "pay" in said.getMessage()
    assert said.exc_info is not None
    assert isinstance(said.exc_info[1], ValueError | LookupError)


def test_a_result_that_can_be_read_again_answers_the_call() -> None:
    """Once the type is what it was: what the session was refused for is not final."""
    ledger = EffectLedger()
    door = executor(tool("pay", effect="external", idempotency=IdempotencyConfig()), effect_ledger=ledger)
    assert door.execute(call("pay")).success
    [row] = ledger.rows()
    assert replace(ledger.store, row, row._replace(value=b'{"txt":1}'))
    assert not door.execute(call("pay", id="again"), reply="r").success
    [changed] = ledger.rows()
    assert replace(ledger.store, changed, row)
    message = door.execute(call("pay", id="again"), reply="r")
    assert (message.success, message.replayed) == (True, True)


def test_a_reconciler_is_bounded_by_the_deadline_and_may_end_the_run(wording: Wording) -> None:
    """It is somebody else's service, after all."""
    ledger, release = EffectLedger(), threading.Event()
    once = IdempotencyConfig(scope="shop")

    def hang(params: Note, key: str) -> None:
        release.wait()

    def end(params: Note, key: str) -> None:
        raise PromptEvaluationError("enough")

    key = once.effect_key("pay", Note("hello"), session_id="s")
    assert key is not None
    lost = ledger.claim(ClaimRequest(key.partition, key.key, "pay", digest(Note("hello"))))
    assert ledger.end(lost, NotKnown("the line went dead"))  # type: ignore[arg-type]  # a first claim is granted
    deadline = soon()
    slow = executor(
        tool("pay", effect=External(reconcile=hang), idempotency=once), effect_ledger=ledger, deadline=deadline
    )
    assert slow.execute(call("pay")).content == wording
    release.set()
    ending = executor(tool("pay", effect=External(reconcile=end), idempotency=once), effect_ledger=ledger)
    with pytest.raises(PromptEvaluationError, match="enough"):
        ending.execute(call("pay"))


@pytest.mark.parametrize("error", [PromptEvaluationError("stop"), ToolValidationError("not on Sundays")])
def test_what_a_policy_raises_is_told_or_ends_the_run(error: Exception, wording: Wording) -> None:
    """As the table says, by the branch of the tree that it is from."""

    def check() -> PolicyDecision:
        raise error

    door = executor(tool("echo"), policies=(Verdict(check),))
    if isinstance(error, PromptEvaluationError):
        with pytest.raises(PromptEvaluationError, match="stop"):
            door.execute(call("echo"))
    else:
        assert door.execute(call("echo")).content == wording
    assert events(door)[0].refused_at is Step.POLICY


@pytest.mark.anyio
async def test_a_denied_read_is_judged_again_when_the_reads_before_it_have_ended() -> None:
    """The outcome is that of running the calls one by one, although they run beside each other."""
    both_judged = threading.Event()

    def look(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        if params.text == "a":
            both_judged.wait(20)
        return echo(params, context=context)

    def check() -> PolicyDecision:
        seen, expected = len(door.environment.session[Kept]), asked.pop(0)
        if expected:
            both_judged.set()
        return PolicyDecision.allow() if seen == len(events(door)) == expected else PolicyDecision.deny("early")

    asked = [0, 1, 1]
    door = executor(tool("look", look, effect="read"), policies=(Verdict(check),))
    messages = await door.execute_all_async([call("look", "a", id="1"), call("look", "b", id="2")])
    assert ([message.success for message in messages], asked) == ([True, True], [])


def test_an_approver_that_takes_too_long_ends_the_run_at_the_deadline(wording: Wording) -> None:
    """Nobody waits for a person past the deadline."""
    release = threading.Event()

    def approver(request: ApprovalRequest) -> bool:
        return release.wait()

    deadline = soon()
    ask = Verdict(lambda: PolicyDecision.ask("sure?"))
    door = executor(tool("echo"), policies=(ask,), approver=approver, deadline=deadline)
    with raises(PromptEvaluationError, wording):
        door.execute(call("echo"))
    release.set()


class Stuck:
    """A resource of one call that cannot be closed."""

    def close(self) -> None:
        raise OSError("stuck")


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_resource_that_cannot_be_closed_fails_a_success_and_is_logged_otherwise(
    succeeds: bool, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """What could not be closed may not have been written; a call that has failed anyway goes on failing."""

    def use(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.resources.get(Stuck)
        return ToolResult.ok(params) if succeeds else ToolResult.error("no")

    binding = Binding(Stuck, lambda _: Stuck(), scope=Scope.TOOL_CALL)
    door = executor(tool("use", use), resources={Stuck: binding})
    message = door.execute(call("use"))
    assert (message.success, "OSError: stuck" in message.content) == (False, succeeds)
    assert door.environment.session[Note].all() == ()
    assert succeeds or caplog.messages == wording


def test_a_concurrent_tool_may_use_what_nobody_takes_turns_on() -> None:
    """A client, say: it cannot be rolled back, so nothing is lost by sharing it."""

    class Client:
        name = "client"

    def fetch(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(Note(context.resources.get(Client).name))

    door = executor(tool("fetch", fetch, concurrent=True), resources={Client: Client()})
    assert door.execute(call("fetch")).content == "client"
