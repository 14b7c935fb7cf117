"""What is said of a call is searched for the secrets of its arguments and its result."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretBytes, SecretStr
from pydantic_ai import ModelRetry, ToolFailed

from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.errors import EffectUncertain, ToolValidationError
from handrail.prompt import Approval, IdempotencyConfig, PolicyDecision, Tool, ToolContext, ToolResult
from handrail.redaction import MASK, CallSecrets, current_call_secrets
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.store import MemoryStore, SqliteStore
from tests.kit import Decides, prompt
from tests.runtime.worlds import World

SECRETS = ("argpw-11223", "result-44556", "4711")


@dataclass(frozen=True)
class Login:
    """Parameters with secrets."""

    how: str
    password: SecretStr
    pin: int = field(default=0, metadata={"secret": True})


@dataclass(frozen=True)
class Ticket:
    """A result with a secret."""

    token: SecretStr


def log_in(params: Login, *, context: ToolContext) -> ToolResult[Ticket]:
    """End in a text that has the secrets of the call."""
    said = f"no {params.password.get_secret_value()} with {params.pin}"
    match params.how:
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
    if params.how == "denied":
        return PolicyDecision.deny(said)
    return PolicyDecision.ask(said) if params.how == "asked" else PolicyDecision.allow()


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
        arguments = {"how": how, "password": "argpw-11223", "pin": 4711}
        message = executor(session).execute(ToolCall("1", "pay", json.dumps(arguments)), reply="r1")
        left = [message.content, repr([*session[ToolInvoked]]), caplog.text]
    left.append(path.read_bytes().decode(errors="replace"))
    assert not message.success
    assert MASK in message.content
    # As whole words: a random id may have the digits of the pin.
    assert [secret for secret in SECRETS for text in left if re.search(rf"\b{secret}\b", text)] == []
    assert current_call_secrets() is None


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
    left = [message.content, repr([*session[ToolInvoked]]), session.to_json(), caplog.text]
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
    asked = ToolCall("1", "pay", {"how": "shown", "password": "argpw-11223"})
    message = ToolExecutor(prompt=prompt(pay), session=Session()).execute(asked)
    assert message.content == json.dumps({"token": MASK}, separators=(",", ":"))
    assert f"cannot show {MASK}" in caplog.text
    assert "argpw-11223" not in caplog.text


@pytest.mark.parametrize("kind", [ModelRetry, ToolFailed, ToolValidationError])
def test_the_refusal_of_a_message_has_no_secret_of_the_call(kind: type[Exception]) -> None:
    """A program logs its messages; without a secret the exception is the one that the handler raised."""
    raised: list[Exception] = []

    def handle(params: Login, *, context: ToolContext) -> ToolResult[None]:
        said = params.password.get_secret_value() if params.how == "secret" else "no"
        raised.append(kind(said))
        raise raised[-1] from KeyError(said)

    tool = Tool[Login, None](name="pay", description="Pays.", handler=handle)
    pay = ToolExecutor(prompt=prompt(tool), session=Session())
    for how in ("secret", "plain"):
        message = pay.execute(ToolCall(how, "pay", {"how": how, "password": "argpw-11223"}))
        refusal = message.refusal
        assert isinstance(refusal, ToolValidationError)
        assert kind is ToolValidationError or type(refusal.__cause__) is kind
        assert "argpw-11223" not in repr(message) + "".join(traceback.format_exception(refusal))
        assert str(refusal) == message.content == (MASK if how == "secret" else "no")
        if how == "plain":
            assert raised[-1] in (refusal, refusal.__cause__)


def test_a_question_has_no_secret_of_the_call() -> None:
    """Neither as the approver is asked nor as it is stored."""
    with MemoryStore() as store, Session.open(store, "desk", types=[Login, Ticket]) as session:
        pay = executor(session)
        call = ToolCall("1", "pay", json.dumps({"how": "asked", "password": "argpw-11223"}))
        session.conversation.append({"role": "assistant"}, calls=[call], reply="r1")
        waiting = pay.answer()
        assert isinstance(waiting, PendingAnswers)
        request = waiting.questions[0].request
        assert request is not None
        assert [question.text for question in request.questions] == [f"really with {MASK}"]
        assert "argpw-11223" not in session.to_json()


def test_a_reply_that_was_appended_before_the_executor_is_made_is_stored_without_secrets(tmp_path: Path) -> None:
    """It is stored with the first record of its calls, and the executor is known by then."""
    path = tmp_path / "desk.db"
    with SqliteStore(path) as store, Session.open(store, "desk", types=[Login, Ticket]) as session:
        call = ToolCall("1", "pay", json.dumps({"how": "denied", "password": "argpw-11223"}))
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
    arguments = json.dumps({"how": "once", "password": "argpw-11223"})
    with SqliteStore(path) as store, Session.open(store, "desk", types=[Login]) as session:
        pay = ToolExecutor(prompt=prompt(once), session=session)
        replayed = [pay.execute(ToolCall("1", "pay", arguments), reply=reply).replayed for reply in ("r1", "r2")]
    assert replayed == [False, True]
    assert len(keys) == 1
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
