"""What is said of a call is searched for the secrets of its arguments and its result."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretBytes, SecretStr
from pydantic_ai import ModelRetry, ToolFailed

from handrail.adapters.loop import session_ledger
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.errors import CallIdReusedError, EffectUncertain, ToolValidationError
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
from handrail.redaction import CALL_SECRETS, MASK, CallSecrets
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.runtime.ledger.effects import AppliedByHand, EffectResult
from handrail.store import MemoryStore, SqliteStore, Store
from tests.kit import Decides, prompt
from tests.runtime.kit import Login, World, expect, present
from tests.wording import Wording

SECRETS = ("argpw-11223", "result-44556", "4711")


@dataclass(frozen=True)
class Ticket:
    """A result with a secret."""

    token: SecretStr


def log_in(params: Login, *, context: ToolContext) -> ToolResult[Ticket]:
    """End in a text that has the secrets of the call."""
    said = f"no {params.password.get_secret_value()} with {params.pin}"
    match params.user:
        case "returns":
            return ToolResult.error(said)
        case "subscriber":
            return ToolResult.ok(Ticket(SecretStr("result-44556")), "in")
        case "uncertain":
            raise EffectUncertain(said)
        case _:
            error = ValueError(said)
            error.add_note(said)
            raise error from KeyError({"password": params.password.get_secret_value()})


def fail(ticket: Ticket) -> None:
    """Fail on a result, in a text that has its secret."""
    raise ValueError(f"cannot take {ticket.token.get_secret_value()}")


def judge(_tool: Tool[Any, Any], params: Any) -> PolicyDecision:
    """Deny or ask in a text that has a secret."""
    said = f"really with {params.password.get_secret_value()}"
    if params.user == "denied":
        return PolicyDecision.deny(said)
    return PolicyDecision.ask(said) if params.user == "asked" else PolicyDecision.allow()


def executor(session: Session) -> ToolExecutor:
    """A tool with an effect, on a session."""
    session.dispatcher.subscribe(Ticket, fail)
    pay = Tool[Login, Ticket](name="pay", description="Pays.", handler=log_in, effect="external")
    later = Approval.later("later")
    return ToolExecutor(prompt=prompt(pay, policies=[Decides(judge)]), session=session, approver=lambda _request: later)


@pytest.mark.parametrize("how", ["raises", "uncertain", "returns", "subscriber", "denied"])
def test_texts_of_a_failure_have_no_secret_of_the_call(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither message, record and note of the effect, nor the log with notes, causes and tracebacks."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "desk.db"
    with SqliteStore(path) as store, Session.open(store, "desk", types=[Login, Ticket]) as session:
        arguments = {"user": how, "password": "argpw-11223", "pin": 4711}
        message = executor(session).execute(ToolCall("1", "pay", json.dumps(arguments)), reply="r1")
        left = [message.content, repr([*session[ToolInvoked]]), caplog.text]
    left.append(path.read_bytes().decode(errors="replace"))
    assert not message.success
    assert MASK in message.content
    # As whole words: a random id may have the digits of the pin.
    assert [secret for secret in SECRETS for text in left if re.search(rf"\b{secret}\b", text)] == []
    assert CALL_SECRETS.get() is None


@dataclass(frozen=True)
class Card:
    """Secrets that show themselves as more than their JSON."""

    how: str
    code: SecretBytes
    born: date = field(metadata={"secret": True})
    ident: UUID = field(metadata={"secret": True})
    raw: bytes = field(metadata={"secret": True})


SHOWN: dict[str, Callable[[Card], str]] = {
    "repr of bytes": lambda card: repr(card.code.get_secret_value()),
    "decoded bytes": lambda card: card.raw.decode(),
    "hexadecimal bytes": lambda card: card.raw.hex(),
    "repr of a date": lambda card: repr(card.born),
    "hexadecimal UUID": lambda card: card.ident.hex,
}


def show(params: Card, *, context: ToolContext) -> ToolResult[str]:
    """Fail in a text that has a secret as Python shows it."""
    raise ValueError(f"no {SHOWN[params.how](params)}")


@pytest.mark.parametrize("entry", ["blocking", "async"])
@pytest.mark.parametrize("how", SHOWN)
@pytest.mark.anyio
async def test_texts_of_a_failure_have_no_secret_as_python_shows_it(
    how: str, entry: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Their JSON is base64, or another text than `repr` has."""
    arguments = {"how": how, "code": "Ynl0ZXNjYW5hcnk0NzEx", "born": "1947-11-08", "raw": "cmF3Ynl0ZXM0NzEx"}
    arguments["ident"] = "47118899-4711-4711-8899-471188994711"
    call = ToolCall("1", "pay", json.dumps(arguments))
    pay = Tool[Card, str](name="pay", description="Pays.", handler=show, effect="external")
    session = await Session.open_async(world.store, "desk")
    executor = ToolExecutor(prompt=prompt(pay), session=session)
    blocking = entry == "blocking"
    message = await (
        asyncio.to_thread(executor.execute, call, reply="r1") if blocking else executor.execute_async(call, reply="r1")
    )
    left = [message.content, repr([*session[ToolInvoked]]), caplog.text]
    await session.close_async()
    left.append(str(await asyncio.to_thread(world.store.rows)))
    assert MASK in message.content
    assert MASK in caplog.text
    secrets = ("canary4711", "rawbytes4711", "726177627974657334373131", "1947, 11", "1947-11", "47118899")
    assert [secret for secret in secrets for text in left if secret in text] == []


@dataclass(frozen=True)
class Receipt:
    """A result whose own text cannot be made."""

    token: SecretStr

    def render(self) -> str:
        """Fail in a text that has the secret."""
        raise RuntimeError(f"cannot show {self.token.get_secret_value()}")


def test_a_result_that_cannot_be_shown_is_logged_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """The message is made after the call is over."""

    def handle(params: Login, *, context: ToolContext) -> ToolResult[Receipt]:
        return ToolResult.ok(Receipt(params.password))

    pay = Tool[Login, Receipt](name="pay", description="Pays.", handler=handle)
    asked = ToolCall("1", "pay", {"user": "shown", "password": "argpw-11223"})
    message = ToolExecutor(prompt=prompt(pay), session=Session()).execute(asked)
    assert message.content == json.dumps({"token": MASK}, separators=(",", ":"))
    assert f"cannot show {MASK}" in caplog.text
    assert "argpw-11223" not in caplog.text


@pytest.mark.parametrize("kind", [ModelRetry, ToolFailed, ToolValidationError])
def test_the_refusal_of_a_message_has_no_secret_of_the_call(kind: type[Exception]) -> None:
    """A program logs its messages."""

    def handle(params: Login, *, context: ToolContext) -> ToolResult[None]:
        said = params.password.get_secret_value() if params.user == "secret" else "no"
        raise kind(said) from KeyError(said)

    tool = Tool[Login, None](name="pay", description="Pays.", handler=handle)
    pay = ToolExecutor(prompt=prompt(tool), session=Session())
    for how in ("secret", "plain"):
        message = pay.execute(ToolCall(how, "pay", {"user": how, "password": "argpw-11223"}))
        refusal = message.refusal
        assert isinstance(refusal, ToolValidationError)
        assert kind is ToolValidationError or type(refusal.__cause__) is kind
        assert "argpw-11223" not in repr(message) + "".join(traceback.format_exception(refusal))
        assert str(refusal) == message.content == (MASK if how == "secret" else "no")


def test_a_question_has_no_secret_of_the_call() -> None:
    """Neither as the approver is asked nor as it is stored."""
    with MemoryStore() as store, Session.open(store, "desk", types=[Login, Ticket]) as session:
        pay = executor(session)
        call = ToolCall("1", "pay", json.dumps({"user": "asked", "password": "argpw-11223"}))
        session.conversation.append({"role": "assistant"}, calls=[call], reply="r1")
        waiting = expect(PendingAnswers, pay.answer())
        request = waiting.questions[0].request
        assert request is not None
        assert [question.text for question in request.questions] == [f"really with {MASK}"]
        assert "argpw-11223" not in str([*store.entries("desk")])


def test_a_reply_that_was_appended_before_the_executor_is_made_is_stored_without_secrets(tmp_path: Path) -> None:
    """It is stored with the first record of its calls, and the executor is known by then."""
    path = tmp_path / "desk.db"
    with SqliteStore(path) as store, Session.open(store, "desk", types=[Login, Ticket]) as session:
        call = ToolCall("1", "pay", json.dumps({"user": "denied", "password": "argpw-11223"}))
        session.conversation.append({"role": "assistant", "content": "argpw-11223"}, calls=[call], reply="r1")
        executor(session).answer()
        assert "argpw-11223" in str(session.conversation.messages)
    assert b"argpw-11223" not in path.read_bytes()


def test_a_key_that_has_a_secret_is_stored_as_its_hash(tmp_path: Path) -> None:
    """A repeat finds it all the same."""
    path = tmp_path / "desk.db"
    keys: list[str | None] = []

    def handle(params: Login, *, context: ToolContext) -> ToolResult[None]:
        keys.append(context.idempotency_key)
        return ToolResult.ok(None, "paid")

    config = IdempotencyConfig(strategy="custom", key_fn=lambda params: f"k-{params.password.get_secret_value()}")
    once = Tool[Login, None](name="pay", description="Pays.", handler=handle, effect="external", idempotency=config)
    arguments = json.dumps({"user": "once", "password": "argpw-11223"})
    with SqliteStore(path) as store, Session.open(store, "desk", types=[Login]) as session:
        pay = ToolExecutor(prompt=prompt(once), session=session)
        replayed = [pay.execute(ToolCall("1", "pay", arguments), reply=reply).replayed for reply in ("r1", "r2")]
    assert (replayed, len(keys)) == ([False, True], 1)
    assert "argpw-11223" not in str(keys)
    assert b"argpw-11223" not in path.read_bytes()


@pytest.mark.parametrize(
    "secret, said, shown",
    [
        ("abc", "abc", "abc"),
        ("1234", "1234 of 12345", f"{MASK} of 12345"),
        ("12345678", "x12345678y", f"x{MASK}y"),
        (MASK, MASK, MASK),
        ("****", f"{MASK} ****", f"{MASK} ****"),
    ],
)
def test_short_secrets_garble_no_words(secret: str, said: str, shown: str) -> None:
    """Below 4 characters nothing is replaced, below 8 whole words alone."""
    secrets = CallSecrets()
    secrets.add(lambda: [secret])
    assert secrets.text(said) == shown


def test_secrets_of_the_outer_call_count_in_the_inner_one() -> None:
    """A call that is made in another one has the secrets of both."""
    outer = CallSecrets()
    outer.add(lambda: ["outer-123"])
    inner = CallSecrets(outer)
    inner.add(lambda: ["inner-123"])
    assert inner.text("outer-123 inner-123") == f"{MASK} {MASK}"
    assert isinstance(inner.during(str, 1), str)


@dataclass(frozen=True)
class UserTicket:
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

    def log_in(self, params: Login, *, context: ToolContext) -> ToolResult[UserTicket]:
        """Take note of what the handler gets."""
        self.got.append(params)
        if self.fails:
            raise self.fails.pop()
        return ToolResult.ok(UserTicket(params.user, "1234567"), "in")

    def book(self, params: Login, result: ToolResult[UserTicket], *, context: ToolContext) -> None:
        """Nothing belongs to the effect."""

    def executor(self, session: Session, **options: Any) -> ToolExecutor:
        """The tools, on a session."""

        def made(name: str, **said: Any) -> Tool[Login, UserTicket]:
            return Tool[Login, UserTicket](name=name, description="Logs in.", handler=self.log_in, **said)

        applied = External(apply=self.book)
        asks = Decides(lambda tool, _: PolicyDecision.ask("?") if tool.name == "ask" else PolicyDecision.allow())
        stored = () if session.store is None else (made("book", effect=applied),)
        once = made("once", idempotency=IdempotencyConfig(scope="app"))
        tools = (made("login"), once, made("pay", effect="external"), made("ask"), *stored)
        return ToolExecutor(prompt=prompt(*tools, policies=[asks]), session=session, **options)

    def session(self) -> Session:
        """The session, opened anew."""
        return Session.open(self.store, "gate", types=[UserTicket, Login])


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


MASKED_RECORDS_SHOWN = {"user": "ada", "password": MASK, "pin": MASK}


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "stored"])
def test_handlers_get_the_secrets_and_records_do_not(gate: Gate, stored: bool) -> None:
    """The caller has the value of the result; the model, the record and its listeners have the mask."""
    session = gate.session() if stored else Session()
    heard: list[ToolInvoked] = []
    session.dispatcher.subscribe(ToolInvoked, heard.append)
    (message,) = ask(gate.executor(session), asked())
    assert (gate.got[0].password.get_secret_value(), gate.got[0].pin) == ("hunter2", 1234)
    assert message.result.value == UserTicket("ada", "1234567")
    assert "1234567" not in message.content
    assert (heard, json.loads(str(heard[0].call.arguments))) == ([*session[ToolInvoked]], MASKED_RECORDS_SHOWN)
    assert vars(heard[0].params) == {"user": "ada", "password": SecretStr(MASK), "pin": MASK}
    assert heard[0].result.value == UserTicket("ada", MASK)
    assert session.conversation.messages == [{"role": "assistant"}]
    session.close()


def test_a_repeat_is_answered_from_the_record(gate: Gate) -> None:
    """With the secrets, or as it was resumed; another secret belongs to another call."""
    with gate.session() as session:
        (first,) = ask(gate.executor(session), asked())
    with gate.session() as session:
        executor = gate.executor(session)
        (resumed,) = session.conversation.calls
        assert json.loads(str(resumed.arguments)) == MASKED_RECORDS_SHOWN
        for repeated in (resumed, asked()):
            message = executor.execute(repeated, reply="r1")
            assert (message.content, message.replayed) == (first.content, True)
        assert message.result.value == UserTicket("ada", MASK)
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
        assert (answered[0].content, session.open_calls) == (wording, ())
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
        assert (message.content, session.open_calls) == (wording, ())
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
        assert (again.content, again.replayed, again.result.value) == (first.content, True, UserTicket("ada", MASK))
        (row,) = gate.store.rows()
        found = present(executor.environment.find_ledger().lookup(row.key))
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
