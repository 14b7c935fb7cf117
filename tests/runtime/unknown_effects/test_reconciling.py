"""A reconciler is asked about the parameters that the effect was begun with, or not at all."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import SecretStr

from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import EffectLedger, Session
from handrail.store import EffectRow
from tests.runtime.bench import executor
from tests.runtime.payments import Card, ask, paying
from tests.wording import Wording


@dataclass(frozen=True)
class Euros:
    """Euros come in, cents are inside: parsing its own result makes something else of it."""

    to: str
    amount: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", self.amount * 100)


@dataclass(frozen=True)
class Letter:
    """A text as long as it may be."""

    text: str


class Desk:
    """A tool whose handler fails after the deed, and whose reconciler notes what it is asked about."""

    def __init__(self, params: type[Any]) -> None:
        self.began: list[Any] = []
        self.asked: list[Any] = []

        def pay(params: Any, *, context: ToolContext) -> ToolResult[str]:
            self.began.append(params)
            raise TimeoutError("no answer")

        def find(params: Any, key: str) -> ToolResult[str] | None:
            self.asked.append(params)
            return ToolResult.ok("the bank says: paid")

        self.ledger = EffectLedger()
        self.door = executor(
            paying(params, pay, reconcile=find), session=Session(session_id="s"), effect_ledger=self.ledger
        )

    def ask(self, ref: str, arguments: Any, written: Any = None) -> str:
        """Ask for a call, `reply/id`; returns what the model reads."""
        return ask(self.door, ref, arguments, written).content

    def row(self) -> EffectRow:
        """The only effect."""
        (row,) = self.ledger.rows()
        return row


def test_parameters_that_parsing_would_change_again_are_those_of_the_call() -> None:
    """They are not parsed a second time."""
    desk = Desk(Euros)
    for _ in range(2):
        desk.ask("r1/c1", {"to": "ann", "amount": 5})
    assert desk.asked == desk.began
    assert desk.asked[0].amount == 500


def test_reconciler_is_not_asked_about_parameters_that_nobody_knows(caplog: pytest.LogCaptureFixture) -> None:
    """A person changed the first call, and its record makes other parameters."""
    desk = Desk(Euros)
    words = {"to": "ann", "amount": 9}
    desk.ask("r1/c1", {"to": "ann", "amount": 5}, written=words)
    with caplog.at_level(logging.ERROR):
        told = desk.ask("r1/c1", words)
    assert desk.asked == []
    assert desk.row().status == "unknown"
    for text in (told, caplog.text):
        assert "the parameters that it started with cannot be restored from their record" in text


def test_parameters_of_a_call_that_a_person_changed_are_made_of_the_record() -> None:
    """The model asks again without the change."""
    desk = Desk(Letter)
    words = {"text": "dear ann"}
    desk.ask("r1/c1", {"text": "dear bob"}, written=words)
    assert "paid" in desk.ask("r1/c1", words)
    assert desk.asked == [Letter("dear bob")]


def test_mask_is_not_taken_for_the_secret_that_it_hides(wording: Wording) -> None:
    """A person changed what is beside the secret, so the repeat has other parameters, and the record has none."""
    desk = Desk(Card)
    words = {"card": "4111", "cents": 10_000}
    desk.ask("r1/c1", {"card": "4111", "cents": 100}, written=words)
    assert desk.ask("r2/c2", words) == wording
    assert desk.asked == []


def test_secret_parameters_of_an_equal_call_are_its_own() -> None:
    """What would be recorded of them is what was recorded."""
    desk = Desk(Card)
    for ref in ("r1/c1", "r2/c2"):
        desk.ask(ref, {"card": "4111"})
    assert desk.asked == [Card(SecretStr("4111"))]


@pytest.mark.parametrize("begins", ["a", "b"])
def test_parameters_that_were_cut_are_those_of_a_call_in_the_same_words(begins: str) -> None:
    """They cannot be made of the record; a person's change of them shows in what is recorded."""
    desk = Desk(Letter)
    words = {"text": "a" * 70_000}
    desk.ask("r1/c1", {"text": begins + "a" * 69_999}, written=words)
    desk.ask("r1/c1", words)
    assert desk.asked == ([Letter(words["text"])] if begins == "a" else [])
