"""Claims and records: what is recorded when a call is undone, what is left to a lease, and what of the arguments."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from handrail.errors import (
    EffectNotApplied,
    LeaseLostError,
    TransactionClosedError,
)
from handrail.prompt import External, IdempotencyConfig, Tool, ToolResult
from handrail.runtime import ToolCall
from handrail.runtime.failures import HandlerTimeoutError
from handrail.runtime.ledger import claim as claim_module
from handrail.runtime.ledger.claim import ClaimState, EffectClaim
from handrail.runtime.ledger.effects import Unknown
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.runtime.ledger.records import (
    MOST_BYTES,
    RecordedArguments,
    is_recorded_as,
    read_arguments,
    recorded_arguments,
    started_params,
)
from handrail.serde import MASK, Masking, parse, type_masking
from handrail.testing import FakeClock
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.kit import Note, tool
from tests.runtime.kit import Login, present
from tests.runtime.ledger_calls import KEY, MINUTE, REQUEST, claimed, prove_nothing
from tests.session.faulty_stores import FaultyStore, faulty
from tests.wording import Wording

SHARED = IdempotencyConfig(scope="shop", ttl=None)


@pytest.fixture
def failing(clock: FakeClock) -> Generator[FaultyStore]:
    """A store that fails when it is told to."""
    with faulty("memory", clock) as store:
        yield store


def paying(*, accept: bool = False) -> Tool[Any, Any]:
    """An external tool; `accept` is whether a late result settles its effect."""
    return tool("pay", effect=External(accept_late_result=accept), idempotency=SHARED)


def granted(ledger: EffectLedger, pay: Tool[Any, Any] | None = None, *, in_unit: bool = True) -> EffectClaim:
    """The claim of a call of that tool, which records its effect with its commit if nothing else is said."""
    ticket = draw_ticket((), exclusive=True)
    return EffectClaim(ledger, claimed(ledger), pay or paying(), ticket, shares=False, in_unit=in_unit)


def lose(ledger: EffectLedger, clock: FakeClock) -> None:
    """Have another call find that the lease has expired."""
    prove_nothing(ledger.store)
    clock.advance(MINUTE)
    assert isinstance(ledger.claim(REQUEST), Unknown)


def end(claim: EffectClaim, outcome: str) -> None:
    """End the handler with an outcome, and undo the call."""
    with Transaction("pay", ticket=draw_ticket((), exclusive=True), writes=True, enlisted=claim.enlisted):
        claim.hand_over()
        if outcome == "failed":
            claim.take_error(EffectNotApplied("closed"))
        elif outcome == "done":
            claim.take_result(ToolResult.ok(Note("A"), "charged"))
        elif outcome == "unknown":
            claim.take_error(TimeoutError("no answer"))


def status(ledger: EffectLedger) -> str:
    """The status of the effect."""
    row = present(ledger.row(KEY))
    return row.status


OUTCOMES = ("failed", "done", "unknown")
ENDS = [
    *((outcome, lease, (outcome, outcome == "unknown")) for lease in ("held", "accepted") for outcome in OUTCOMES),
    *((outcome, "lost", ("unknown", True)) for outcome in OUTCOMES),
]
"""How the handler ends, what becomes of its lease, and then the status of the effect, and whether it is unsettled."""


@pytest.mark.parametrize("outcome, lease, settled", ENDS)
def test_a_claim_is_unsettled_unless_its_outcome_is_known_and_recorded(
    ledger: EffectLedger, clock: FakeClock, outcome: str, lease: str, settled: tuple[str, bool]
) -> None:
    """An owner that has lost its lease settles the effect only where its late result is accepted."""
    claim = granted(ledger, paying(accept=lease == "accepted"))
    assert not claim.unsettled
    if lease != "held":
        lose(ledger, clock)
    end(claim, outcome)
    assert (status(ledger), claim.unsettled) == settled


def generator() -> Generator[str]:
    """Pay, once somebody asks for the first item."""
    yield "paid"


@pytest.mark.parametrize("make", [generator, Future])
def test_work_that_has_perhaps_not_been_done_settles_nothing_late(
    ledger: EffectLedger, clock: FakeClock, make: Callable[[], object]
) -> None:
    """A handler that was left behind returns it at last."""
    claim = granted(ledger, paying(accept=True))
    with Transaction("pay", ticket=draw_ticket((), exclusive=True), writes=True, enlisted=claim.enlisted):
        claim.hand_over()
        claim.take_error(ERRORS["timeout"])
    ended: Future[Any] = Future()
    ended.set_result(ToolResult.ok(make()))
    claim.take_late_outcome(ended)
    assert status(ledger) == "unknown"


def table() -> list[tuple[str, str, str]]:
    """The cells of the first table in the docstring: state, how the call ends, what the row becomes."""
    text = str(claim_module.__doc__).partition("A call that is committed")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    endings, *rows = lines
    return [(state, ending, word) for state, *words in rows for ending, word in zip(endings[1:], words, strict=True)]


ERRORS: dict[str, BaseException] = {
    "refused": EffectNotApplied("closed"),
    "raised": ValueError("not JSON"),
    "timeout": HandlerTimeoutError("too slow"),
    "cancelled": asyncio.CancelledError(),
    "Ctrl-C": KeyboardInterrupt(),
    "aborted": GeneratorExit(),
    "store failed": ValueError("not JSON"),
}


@pytest.mark.short(28)
@pytest.mark.parametrize("state, ending, word", table(), ids=str)
def test_row_of_the_table(failing: FaultyStore, clock: FakeClock, state: str, ending: str, word: str) -> None:
    """What the docstring says of a state and an ending is what the row becomes when the call is undone."""
    ledger = EffectLedger(failing, clock=clock)
    claim = granted(ledger, in_unit=state != "recorded")
    with Transaction("pay", ticket=draw_ticket((), exclusive=True), writes=True, enlisted=claim.enlisted):
        if state != "claimed":
            claim.hand_over()
        if state == "handed over":
            claim.take_error(ERRORS[ending])
        elif state in {"returned", "recorded"}:
            refused = state == "returned" and ending == "refused"
            claim.take_result(ToolResult.error("no money") if refused else ToolResult.ok(Note("A")))
        assert claim.state == state
        if ending == "store failed":
            failing.go_down("replace", "begin")
    failing.come_back()
    assert status(ledger) == ("running" if word == "left" else word)
    assert claim.unsettled == (word in {"left", "unknown"})


def test_the_table_has_every_state_and_every_ending() -> None:
    """Each pair of them stands in it once."""
    pairs = [(state, ending) for state, ending, _ in table()]
    assert sorted(pairs) == sorted(product(get_args(ClaimState), ERRORS))


def test_a_body_that_was_kept_from_starting_never_starts(ledger: EffectLedger) -> None:
    """A thread that comes too late is refused, and the row that says that nothing has happened is right."""
    claim = granted(ledger)
    with Transaction("pay", ticket=draw_ticket((), exclusive=True), writes=True, enlisted=claim.enlisted):
        pass
    assert status(ledger) == "failed"
    with pytest.raises(TransactionClosedError):
        claim.hand_over()


@pytest.mark.parametrize("in_unit", [False, True], ids=["recorded", "not recorded"])
def test_the_end_of_the_run_says_whether_the_effect_is_recorded(ledger: EffectLedger, in_unit: bool) -> None:
    """One that could not be recorded is left to its lease."""
    claim = granted(ledger, in_unit=in_unit)
    with Transaction("pay", ticket=draw_ticket((), exclusive=True), writes=True, enlisted=claim.enlisted):
        claim.take_result(ToolResult.ok(Note("A")))
        claim.leave_unrecorded()
    assert (claim.unsettled, status(ledger)) == ((True, "running") if in_unit else (False, "done"))


@pytest.mark.parametrize("external", [False, True])
def test_an_effect_that_was_done_under_a_lost_claim_is_logged(
    ledger: EffectLedger, clock: FakeClock, caplog: pytest.LogCaptureFixture, external: bool
) -> None:
    """The row of another owner is not changed."""
    claim = granted(ledger, paying() if external else tool("pay", concurrent=True, idempotency=SHARED))
    lose(ledger, clock)
    with caplog.at_level(logging.ERROR):
        end(claim, "done")
    assert LeaseLostError in [record.exc_info[0] for record in caplog.records if record.exc_info is not None]
    assert claim.unsettled


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


def test_what_is_too_long_is_recorded_as_its_size_and_its_digest() -> None:
    """Two long arguments are told apart, and parameters are not restored from them."""
    long, other = Note("a" * MOST_BYTES), Note("b" * MOST_BYTES)
    assert "sha256" in recorded(long).arguments
    note, call = Tool[Note, None](name="do", description="Notes.", handler=None), ToolCall("c1", "do")
    record = recorded_arguments(call, long, note.masking)
    assert (started_params(record, call, long, note), started_params(record, call, other, note)) == ((long,), None)
