"""A reconciler is asked about the parameters that the effect was begun with, or not at all, and returns a result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import InvalidReturnError
from handrail.prompt import External, ToolContext, ToolResult
from handrail.runtime import EffectLedger, Session, ToolInvoked, ToolMessage
from handrail.session import stored_as
from handrail.store import EffectRow
from handrail.testing import Completed
from tests.crash.forks import fork_to_crash
from tests.crash.pages import REPEAT, rows
from tests.kit import Note, Run, both_ways, call, executor, raises, tool
from tests.runtime import payments
from tests.runtime.kit import MINUTE, Shop, expect, present
from tests.runtime.payments import Card, ask, later, paying
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
            paying(params, pay, reconcile=later(find)), session=Session(session_id="s"), effect_ledger=self.ledger
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
    assert (desk.asked, desk.asked[0].amount) == (desk.began, 500)


def test_reconciler_is_not_asked_about_parameters_that_nobody_knows(wording: Wording) -> None:
    """A person changed the first call, and its record makes other parameters."""
    desk = Desk(Euros)
    words = {"to": "ann", "amount": 9}
    desk.ask("r1/c1", {"to": "ann", "amount": 5}, written=words)
    told = desk.ask("r1/c1", words)
    assert desk.asked == []
    assert desk.row().status == "unknown"
    assert told == wording


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


WRONG: dict[str, object] = {
    "a plain value": Note("lost"),
    "False": False,
    "another value": ToolResult.ok(5),
    "a field of another type": ToolResult.ok(Note(cast("str", 5))),
    "what JSON cannot represent": ToolResult.ok(Note("\ud800")),
    "a message that is not text": ToolResult(cast("str", 5), Note("lost")),
}


"""What a reconciler may return by mistake."""


@both_ways
@pytest.mark.parametrize("returned", WRONG.values(), ids=list(WRONG))
def test_what_is_not_a_result_of_the_tool_is_raised_and_nothing_is_applied(
    returned: object, way: Run, shop: Shop, wording: Wording
) -> None:
    """The effect stays unknown; once the reconciler is right, the same call applies what it finds."""
    finds: list[object] = [ToolResult.ok(Note("lost"), "found"), returned]

    def find(params: Note, key: str) -> Any:
        return finds.pop()

    said = External(apply=shop.book, reconcile=find, lease=MINUTE)
    door = shop.door(shop.session(), tool("charge", shop.charge, effect=said))
    with raises(InvalidReturnError, wording) as raised:
        way(door, call("charge", "lost"))
    assert (raised.value.function, raised.value.tool, raised.value.value_type) == (
        "reconcile",
        "charge",
        type(returned),
    )
    assert (shop.row().status, shop.booked) == ("unknown", [])
    message = way(door, call("charge", "lost"))
    assert (message.success, message.result.value) == (True, Note("lost"))
    assert (shop.charged, shop.booked) == (["lost"], ["lost"])


def test_what_is_not_a_result_of_the_tool_is_raised_for_a_repeat(shop: Shop, wording: Wording) -> None:
    """The repeat is not run, and is not answered by a record when it is made again."""
    finds: list[object] = [ToolResult.ok(Note("lost"), "found"), "paid"]

    def find(params: Note, key: str) -> Any:
        return finds.pop()

    door = shop.door(shop.session(), tool("charge", shop.charge, effect=External(reconcile=later(find))))
    charge_lost(door, "r1")
    with raises(InvalidReturnError, wording):
        charge_lost(door, "r2")
    assert shop.row().status == "unknown"
    assert charge_lost(door, "r2").success
    assert shop.charged == ["lost"]


def test_a_value_that_json_cannot_represent_is_left_out_for_a_tool_without_apply(shop: Shop) -> None:
    """The effect has happened, and the message says so; nothing of the program reads the value."""
    find = ToolResult.ok(Note("\ud800"), "found")
    said = External(reconcile=lambda _params, _key: find)
    door = shop.door(shop.session(), tool("charge", shop.charge, effect=said))
    charge_lost(door, "r1")
    message = charge_lost(door, "r1")
    assert message.success
    assert message.result.value is None


def test_a_result_without_a_value_is_applied_as_what_a_person_finds_is(shop: Shop) -> None:
    """The service says that it happened, and not what it returned."""
    values: list[object] = []

    def book(params: Note, result: ToolResult[Note], *, context: ToolContext) -> None:
        values.append(result.value)

    said = External(apply=book, reconcile=lambda _params, _key: ToolResult.ok(None, "found"))
    door = shop.door(shop.session(), tool("charge", shop.charge, effect=said))
    charge_lost(door, "r1")
    assert charge_lost(door, "r1").success
    assert values == [None]


def test_a_failure_that_a_reconciler_returns_is_logged(
    shop: Shop, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """It could not determine it; the model does not read why."""
    said = External(reconcile=lambda _params, _key: ToolResult.error("the bank does not know the key"))
    door = shop.door(shop.session(), tool("charge", shop.charge, effect=said))
    charge_lost(door, "r1")
    assert charge_lost(door, "r1").content == wording
    assert shop.row().status == "unknown"
    assert caplog.messages == wording


def charge_lost(door: ToolExecutor, reply: str) -> ToolMessage:
    """Charge, or ask once more; the handler fails after the deed."""
    return door.execute(call("charge", "lost"), reply=reply)


@stored_as("tests.killed_repeats.payment")
@dataclass(frozen=True)
class Payment:
    """What is paid."""

    to: str


def door(folder: str, session: Session) -> ToolExecutor:
    """A bank that charges, and answers nothing the first time; asked from then on, it knows what it has charged."""
    book, asked = Path(folder, "bank.txt"), Path(folder, "asked.txt")

    def pay(params: Payment, *, context: ToolContext) -> ToolResult[str]:
        first = not book.exists()
        with book.open("a") as page:
            page.write(f"{context.idempotency_key}\n")
        if first:
            raise TimeoutError("no answer")
        return ToolResult.ok("paid")

    def find(_params: object, key: str) -> ToolResult[str] | None:
        if not asked.exists():
            asked.touch()
            raise ConnectionError("the line is dead")
        return ToolResult.ok("the bank says: paid") if key in book.read_text().split() else None

    return executor(payments.paying(Payment, pay, reconcile=find), session=session)


def ask_killed_repeats(folder: str, ref: str) -> ToolMessage:
    """Ask for the payment in the stored session."""
    with store.open(f"sqlite:///{folder}/s.db") as kept, Session.open(kept, "s") as session:
        return payments.ask(door(folder, session), ref, {"to": "ann"})


def repeat(folder: str) -> None:
    """Ask for it once more in another reply: the first one is found to have happened, which is the answer."""
    assert ask_killed_repeats(folder, "r2/c2").success


def begun(folder: Path) -> str:
    """A folder in which the first payment is unknown."""
    folder.mkdir()
    assert not ask_killed_repeats(str(folder), "r1/c1").success
    return str(folder)


def test_the_page_has_a_row_for_each_point_that_a_repeat_passes(tmp_path: Path) -> None:
    """In the order in which it passes them, each once; and one for a process that is not killed."""
    finished = expect(Completed, fork_to_crash(repeat, begun(tmp_path / "whole"), at=None))
    assert [*finished.reached, "nowhere"] == [row[0] for row in rows(REPEAT)]


@pytest.mark.parametrize("row", rows(REPEAT), ids=lambda row: row[0])
@pytest.mark.short(2)
def test_a_repeat_whose_process_dies_is_answered_again_when_it_is_resumed(row: tuple[str, ...], tmp_path: Path) -> None:
    """At whatever point it dies: the effect is answered once, by this call, and an equal call after it is a new one."""
    point, first, answer, told = row
    folder = begun(tmp_path / "desk")
    fork_to_crash(repeat, folder, at=None if point == "nowhere" else point)
    with store.open(f"sqlite:///{folder}/s.db") as kept, Session.open(kept, "s") as session:
        standing = present(kept.get("s", "call:r1/c1"))
        recorded = any(event.call_id == "c2" and event.final for event in session[ToolInvoked])
    assert (standing.status, "recorded" if recorded else "not recorded") == (first, answer)

    again = ask_killed_repeats(folder, "r2/c2")
    charges = Path(folder, "bank.txt").read_text().split()
    assert f"{'answered' if again.success else 'refused'}: {len(charges)}" == told
    assert again.content == "the bank says: paid"
    assert ask_killed_repeats(folder, "r3/c3").content == "paid"
    assert Path(folder, "bank.txt").read_text().split() == ["call:r1/c1", "call:r3/c3"]
