"""What the ledger records of the arguments of a call."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, ToolCall
from handrail.runtime.ledger.records import (
    MOST_BYTES,
    RecordedArguments,
    is_recorded_as,
    read_arguments,
    recorded_arguments,
    started_params,
)
from handrail.serde import MASK, Masking, parse, type_masking
from handrail.session.persistence.stored_types import stored_as
from handrail.store import EffectRow
from tests.kit import Note, call, events, executor
from tests.runtime.test_secrets import MaskedRecordsLogin as Login
from tests.store.kit import replace
from tests.wording import Wording


@dataclass(frozen=True)
class Pair:
    arguments: str
    written: str = ""


@dataclass(frozen=True)
class Sly:
    text: str

    def __post_init__(self) -> None:
        if self.text == "half":
            object.__setattr__(self, "text", "\ud800")


def recorded(params: object, written: str | bytes | Mapping[str, Any] | None = None) -> RecordedArguments:
    """What is recorded of a call with these parameters, read again."""
    kind = type(params)
    data = recorded_arguments(ToolCall("c1", "do", "{}", written), params, type_masking(kind))
    assert len(data) <= MOST_BYTES
    return read_arguments(data)


def test_what_the_model_wrote_is_not_recorded_twice() -> None:
    """Only where it differs as JSON; `1` and `true` do."""
    assert recorded(Note("to"), '{ "text": "to" }') == ({"text": "to"}, None)
    assert recorded({"a": 1, "b": 2}, {"b": 2, "a": 1}) == ({"a": 1, "b": 2}, None)
    assert recorded({"a": 1}, {"a": True}).words == {"a": True}


@pytest.mark.parametrize("written", ["no JSON", '{"text": "\\ud800"', "\ud800", {"text": float("inf")}, {"text": {1}}])
def test_words_that_are_not_json_are_recorded_as_text(written: Any) -> None:
    """Nothing that a model writes keeps a call from being recorded."""
    shown = recorded(Note("to"), written)
    assert shown.arguments == {"text": "to"}
    assert isinstance(shown.words, str)


def test_secrets_are_masked_in_both() -> None:
    """In what the model wrote too, and what does not fit the tool is masked there."""
    login = parse(Login, {"user": "ada", "password": "hunter2", "pin": 7})
    shown = {"user": "ada", "password": MASK, "pin": MASK}
    assert recorded(login) == (shown, None)
    assert recorded(login, {"user": "bob", "password": "hunter3", "pin": 8}).words == {**shown, "user": "bob"}
    assert recorded(login, {"user": "ada", "pasword": "hunter3"}).words == {"user": "ada", "pasword": MASK}
    assert recorded(login, {"user": "ada", "password": "hunter3", "pin": 8}) == (shown, None)


def test_parameters_with_secrets_are_not_restored_from_their_record() -> None:
    """The mask would be used as the secret; without a secret they are, also where another call asks."""
    ada, bob = (Login(user, SecretStr("hunter2")) for user in ("ada", "bob"))
    login = Tool[Login, None](name="do", description="Logs in.", handler=None)
    call = ToolCall("c1", "do")
    record = recorded_arguments(call, ada, login.masking)
    assert started_params(record, call, ada, login) == (ada,)
    assert started_params(record, call, bob, login) is None
    changed = recorded_arguments(ToolCall("c1", "do", "{}", {"user": "eve"}), ada, login.masking)
    assert started_params(changed, call, ada, login) == (ada,)
    note = Tool[Note, None](name="do", description="Notes.", handler=None)
    assert started_params(b'{"text":"a"}', call, Note("b"), note) == (Note("a"),)


@pytest.mark.parametrize("written", ['{"user": "ada", "password": "hunter3', '["hunter3"]', '"hunter3"'])
def test_words_that_cannot_be_masked_are_left_out(written: str, wording: Wording) -> None:
    """Where they are not an object, it is not known which part of them is the secret; the record says so."""
    shown = recorded(Login("ada", SecretStr("hunter2")), written)
    assert shown.words == wording


@pytest.mark.parametrize("params", [Pair("a", "b"), Pair("a"), {"arguments": 1}, {"arguments": 1, "other": 2}])
def test_arguments_that_look_like_a_pair_are_read_as_arguments(params: Any) -> None:
    """A tool may have parameters of these names."""
    plain = {"arguments": params.arguments, "written": params.written} if isinstance(params, Pair) else params
    assert recorded(params) == (plain, None)
    assert recorded(params, {"arguments": 0}) == (plain, {"arguments": 0})


@given(st.text(st.characters(codec="utf-8")), st.none() | st.dictionaries(st.text(max_size=9), st.integers()))
def test_whatever_is_recorded_is_read_again(text: str, written: dict[str, int] | None) -> None:
    """It is one JSON document, with both parts."""
    assert recorded(Note(text), written) == ({"text": text}, written)


HUGE = 100_000


@pytest.mark.parametrize(
    "part", ["a", '"', "\\", "\x1b", "ü", "🙂"], ids=["letter", "quote", "backslash", "control", "umlaut", "emoji"]
)
def test_what_is_too_long_is_cut_visibly(part: str, wording: Wording) -> None:
    """What is stored is JSON: the beginning as a string, with a mark and the full length."""
    text = part * HUGE
    whole = type_masking(Note).json(Note(text))
    cut = recorded(Note(text)).arguments
    beginning, dots, mark = str(cut).rpartition("... (")
    assert dots + mark == wording
    assert whole.decode().startswith(beginning)
    assert len(json.dumps(cut, ensure_ascii=False).encode()) > MOST_BYTES * 0.9


def test_parameters_that_cannot_be_written_do_not_fail_the_call(
    caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The record says why it does not show them; no text of theirs is in it."""
    assert recorded(Sly("half")).arguments == wording
    assert caplog.messages == wording

    def refuse(_value: object) -> bytes:
        raise RuntimeError("hunter2")

    class Broken(Masking):
        """One whose serializer, which may be the program's, fails."""

        def __init__(self) -> None:
            """Take over the parts of another."""
            self.hides, self.json = False, refuse

    assert recorded_arguments(ToolCall("c", "do"), Note("a"), Broken()).decode() == wording
    caplog.clear()
    assert not is_recorded_as(b'{"text":"a"}', Note("a"), Broken())
    assert caplog.messages == wording


def test_what_is_not_json_was_recorded_by_something_else() -> None:
    """Reading says so."""
    with pytest.raises(ValueError, match="Expecting"):
        read_arguments(b"{")
    assert read_arguments(b'{"arguments":1,"written":2,"more":3}').arguments == {
        "arguments": 1,
        "written": 2,
        "more": 3,
    }


@dataclass(frozen=True)
class Denied:
    """The other member of a union of results."""

    reason: str


def receipt(fields: Mapping[str, Any], version: int = 1) -> Any:
    """The class of a receipt in one of its versions."""
    upgrades: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
        1: lambda item: {"text": item["body"], "cents": 0},
        2: lambda item: {"text": item["text"], "euros": item["cents"] // 100},
    }
    made: Any = dataclasses.make_dataclass("Receipt", list(fields.items()), frozen=True)
    before = {number: upgrade for number, upgrade in upgrades.items() if number < version}
    return stored_as("tests.recorded_results.receipt", version=version, upgrades=before)(made)


FIRST = {"body": str}


SECOND = {"text": str, "cents": int}


THIRD = {"text": str, "euros": int}


def paying(result: Any, value: object) -> Any:
    """A tool whose result is of a type."""

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult.ok(value)

    made = cast("Any", Tool)[Note, result]
    return made(
        name="pay", description="Pays.", handler=pay, effect="external", idempotency=IdempotencyConfig(scope="shop")
    )


def paid(kind: Any, value: object, ledger: EffectLedger | None = None) -> tuple[EffectLedger, EffectRow]:
    """A ledger in which a value is recorded, and its row."""
    ledger = ledger or EffectLedger()
    assert executor(paying(kind, value), effect_ledger=ledger).execute(call("pay")).success
    [row] = ledger.rows()
    return ledger, row


def replayed(ledger: EffectLedger, result: Any) -> Any:
    """The recorded value as a program with the type reads it."""
    door = executor(paying(result, None), effect_ledger=ledger)
    message = door.execute(call("pay", id="again"))
    assert (message.success, message.replayed) == (True, True), message.content
    return events(door)[-1].result.value


@pytest.mark.parametrize("united", [False, True], ids=["alone", "in a union"])
@pytest.mark.parametrize(
    "fields, version, values",
    [(FIRST, 1, ("paid",)), (SECOND, 2, ("paid", 900)), (THIRD, 3, ("paid", 9))],
    ids=["of the first version", "of the second", "of the present"],
)
def test_a_result_of_an_older_version_is_upgraded(
    fields: Mapping[str, Any], version: int, values: tuple[object, ...], united: bool
) -> None:
    """As an item of a slice is, and by the version that was recorded with it."""
    old = receipt(fields, version)
    ledger, _ = paid(old | Denied if united else old, old(*values))
    new = receipt(THIRD, 3)
    value = replayed(ledger, new | Denied if united else new)
    assert type(value) is new
    assert value == new("paid", 0 if version == 1 else 9)


@pytest.mark.parametrize("data, cents", [(b'{"body":"paid"}', 0), (b'{"text":"paid","euros":9}', 9)])
def test_a_value_without_a_version_is_of_the_present_one_or_the_first(data: bytes, cents: int) -> None:
    """It was given by a person, or recorded while the class had one version."""
    new = receipt(THIRD, 3)
    ledger, row = paid(new, new("paid", 1))
    assert replace(ledger.store, row, row._replace(value=data))
    assert replayed(ledger, new) == new("paid", cents)


def test_a_result_of_a_newer_version_stays_done_and_is_not_shown(wording: Wording) -> None:
    """An older program that runs beside a newer one does not repeat the effect."""
    new = receipt(THIRD, 3)
    ledger, row = paid(new, new("paid", 1))
    message = executor(paying(receipt(SECOND, 2), None), effect_ledger=ledger).execute(call("pay", id="again"))
    assert message.content == wording
    assert not message.success
    assert list(ledger.rows()) == [row]
