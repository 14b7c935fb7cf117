"""Calls whose tools take or return secrets: what handlers get, what is recorded, and what a repeat finds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr

from handrail.adapters.loop import session_ledger
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.errors import CallIdReusedError
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    External,
    IdempotencyConfig,
    PolicyDecision,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.redaction import MASK
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.runtime.ledger.effects import AppliedByHand, EffectResult
from handrail.store import MemoryStore, Store
from tests.kit import Decides, prompt
from tests.wording import Wording


@dataclass(frozen=True)
class Login:
    """Parameters with a secret that hides itself, and one that shows itself."""

    user: str
    password: SecretStr
    pin: int = field(default=0, metadata={"secret": True})


@dataclass(frozen=True)
class Ticket:
    """A result with a secret that shows itself."""

    user: str
    code: str = field(metadata={"secret": True})


@dataclass(frozen=True)
class Picky:
    """Its own code refuses the mask."""

    pin: int = field(metadata={"secret": True})

    def __post_init__(self) -> None:
        if self.pin.bit_length() > 20:
            raise ValueError("too long")


@dataclass(slots=True)
class Gate:
    """Sessions of one store, each as in another process, with tools that take a login."""

    store: Store
    got: list[Login] = field(default_factory=list[Login])
    fails: list[Exception] = field(default_factory=list[Exception])

    def log_in(self, params: Login, *, context: ToolContext) -> ToolResult[Ticket]:
        """Take note of what the handler gets."""
        self.got.append(params)
        if self.fails:
            raise self.fails.pop()
        return ToolResult.ok(Ticket(params.user, "1234567"), "in")

    def book(self, params: Login, result: ToolResult[Ticket], *, context: ToolContext) -> None:
        """Nothing belongs to the effect."""

    def executor(self, session: Session, **options: Any) -> ToolExecutor:
        """The tools, on a session."""

        def made(name: str, **said: Any) -> Tool[Login, Ticket]:
            return Tool[Login, Ticket](name=name, description="Logs in.", handler=self.log_in, **said)

        applied = External(apply=self.book)
        asks = Decides(lambda tool, _: PolicyDecision.ask("?") if tool.name == "ask" else PolicyDecision.allow())
        stored = () if session.store is None else (made("book", effect=applied),)
        once = made("once", idempotency=IdempotencyConfig(scope="app"))
        tools = (made("login"), once, made("pay", effect="external"), made("ask"), *stored)
        return ToolExecutor(prompt=prompt(*tools, policies=[asks]), session=session, **options)

    def session(self) -> Session:
        """The session, opened anew."""
        return Session.open(self.store, "gate", types=[Ticket, Login])


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate over a store in memory."""
    with MemoryStore() as store:
        yield Gate(store)


def asked(name: str = "login", call_id: str = "1", **changed: Any) -> ToolCall:
    """A call with secrets."""
    arguments = {"user": "ada", "password": "hunter2", "pin": 1234, **changed}
    return ToolCall(call_id, name, json.dumps(arguments))


def ask(executor: ToolExecutor, *calls: ToolCall, reply: str = "r1") -> tuple[ToolMessage, ...]:
    """The messages of a reply that the conversation has, as a program makes its calls."""
    executor.environment.session.conversation.append({"role": "assistant"}, calls=calls, reply=reply)
    answered = executor.answer()
    assert not isinstance(answered, PendingAnswers)
    return answered


SHOWN = {"user": "ada", "password": MASK, "pin": MASK}


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "stored"])
def test_handlers_get_the_secrets_and_records_do_not(gate: Gate, stored: bool) -> None:
    """The caller has the value of the result; the model, the record and its listeners have the mask."""
    session = gate.session() if stored else Session()
    heard: list[ToolInvoked] = []
    session.dispatcher.subscribe(ToolInvoked, heard.append)
    (message,) = ask(gate.executor(session), asked())
    assert (gate.got[0].password.get_secret_value(), gate.got[0].pin) == ("hunter2", 1234)
    assert message.result.value == Ticket("ada", "1234567")
    assert "1234567" not in message.content
    assert heard == [*session[ToolInvoked]]
    assert json.loads(str(heard[0].call.arguments)) == SHOWN
    assert vars(heard[0].params) == {"user": "ada", "password": SecretStr(MASK), "pin": MASK}
    assert heard[0].result.value == Ticket("ada", MASK)
    assert session.conversation.messages == [{"role": "assistant"}]
    session.close()


def test_a_repeat_is_answered_from_the_record(gate: Gate) -> None:
    """With the secrets, or as it was resumed; another secret belongs to another call."""
    with gate.session() as session:
        (first,) = ask(gate.executor(session), asked())
    with gate.session() as session:
        executor = gate.executor(session)
        (resumed,) = session.conversation.calls
        assert json.loads(str(resumed.arguments)) == SHOWN
        for repeated in (resumed, asked()):
            message = executor.execute(repeated, reply="r1")
            assert (message.content, message.replayed) == (first.content, True)
        assert message.result.value == Ticket("ada", MASK)
        for other in (asked(password="hunter3"), asked(pin=4321), asked(user="eve")):  # noqa: S106 - of nothing
            with pytest.raises(CallIdReusedError):
                executor.execute(other, reply="r1")
    assert len(gate.got) == 1


def test_a_resumed_call_lacks_its_secrets_and_is_not_run(gate: Gate, wording: Wording) -> None:
    """The refusal is final; asked for again, with the values, it runs."""
    with gate.session() as session:
        gate.executor(session)
        session.conversation.append({"role": "assistant"}, calls=[asked()], reply="r1")
    with gate.session() as session:
        executor = gate.executor(session)
        answered = executor.answer()
        assert not isinstance(answered, PendingAnswers)
        assert answered[0].content == wording
        assert session.open_calls == ()
        (again,) = ask(executor, asked(call_id="2"), reply="r2")
        assert again.success
    assert [login.pin for login in gate.got] == [1234]


@pytest.mark.parametrize("applied", [False, True], ids=["unknown", "unapplied"])
def test_a_resumed_call_that_was_started_is_left_to_a_person(gate: Gate, applied: bool, wording: Wording) -> None:
    """Its secrets are not there to settle it with; it stays open."""
    name = "book" if applied else "pay"
    with gate.session() as session:
        gate.fails.append(TimeoutError())
        ask(gate.executor(session), asked(name))
        if applied:
            (row,) = gate.store.rows()
            assert session_ledger(session).resolve(row, EffectResult("paid", b'{"user":"ada","code":"1"}'))
    with gate.session() as session:
        executor = gate.executor(session)
        (resumed,) = session.conversation.calls
        message = executor.execute(resumed, reply="r1")
        assert message.content == wording
        (still_open,) = session.open_calls
        assert still_open.state == ("unapplied" if applied else "unknown")
    assert len(gate.got) == 1


def test_a_resumed_call_whose_result_was_applied_by_hand_is_not_asked_for_again(gate: Gate, wording: Wording) -> None:
    """It has taken effect, so the model is not told to send it again with its secrets; the refusal is final."""
    with gate.session() as session:
        gate.fails.append(TimeoutError())
        ask(gate.executor(session), asked("book"))
        (row,) = gate.store.rows()
        ledger = session_ledger(session)
        assert ledger.resolve(row, EffectResult("paid", b'{"user":"ada","code":"1"}'))
        (row,) = gate.store.rows()
        assert ledger.resolve(row, AppliedByHand("ada has booked it"))
    with gate.session() as session:
        executor = gate.executor(session)
        (resumed,) = session.conversation.calls
        message = executor.execute(resumed, reply="r1")
        assert message.content == wording
        assert session.open_calls == ()
    assert len(gate.got) == 1


def test_a_question_about_a_resumed_call_is_not_asked(gate: Gate) -> None:
    """The call will not run, whatever the answer; in the process that has the secrets it does."""
    about: list[ApprovalRequest] = []

    def postpone(_request: ApprovalRequest) -> Approval:
        return Approval.later("later")

    def approve(request: ApprovalRequest) -> bool:
        about.append(request)
        return True

    with gate.session() as session:
        session.conversation.append({"role": "assistant"}, calls=[asked("ask")], reply="r1")
        assert isinstance(gate.executor(session, approver=postpone).answer(), PendingAnswers)
        answered = gate.executor(session, approver=approve).answer()
        assert not isinstance(answered, PendingAnswers)
        assert answered[0].success
        session.conversation.append({"role": "tool"})
        session.conversation.append({"role": "assistant"}, calls=[asked("ask", "2")], reply="r2")
        assert isinstance(gate.executor(session, approver=postpone).answer(), PendingAnswers)
    with gate.session() as session:
        answered = gate.executor(session, approver=approve).answer()
        assert not isinstance(answered, PendingAnswers)
        assert not answered[0].success
    assert [request.call_id for request in about] == ["1"]


def test_the_value_of_an_effect_is_unavailable_if_it_had_secrets(gate: Gate) -> None:
    """It is replayed with the mask in their place, and the ledger says that."""
    with gate.session() as session:
        executor = gate.executor(session)
        (first,) = ask(executor, asked("once"))
        (again,) = ask(executor, asked("once", "2"), reply="r2")
        assert (again.content, again.replayed, again.result.value) == (first.content, True, Ticket("ada", MASK))
        (row,) = gate.store.rows()
        found = executor.environment.effect_ledger.lookup(row.key)
    assert found is not None
    assert (found.result_value, found.value_unavailable) == ({"user": "ada", "code": MASK}, True)


def test_parameters_that_refuse_the_mask_are_not_recorded(caplog: pytest.LogCaptureFixture) -> None:
    """The call has succeeded; that is logged."""
    session, got = Session(), list[int]()

    def take(params: Picky, *, context: ToolContext) -> ToolResult[None]:
        got.append(params.pin)
        return ToolResult.ok(None)

    picky = Tool[Picky, None](name="take", description="Takes.", handler=take)
    executor = ToolExecutor(prompt=prompt(picky), session=session)
    assert executor.execute(ToolCall("1", "take", {"pin": 7})).success
    assert (got, session[ToolInvoked][0].params) == ([7], None)
    assert [record.name for record in caplog.records] == ["handrail.runtime"]
