"""What `capture` reads before an effect, and undo gets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from handrail import undo
from handrail.prompt import External, ToolContext
from handrail.store import Store
from tests.undo.desk import KEYED, Book, Desk, Note, Order, desk_in_doubt
from tests.wording import Wording


def _capturing(value: Any) -> Any:
    """A function whose annotation does not say what it returns."""

    def capture(params: Order) -> Any:
        return value

    return capture


def test_what_is_captured_is_what_was_there_before_the_first_attempt(store: Store) -> None:
    """A repeat of a call whose effect has started does not capture again."""
    book = Book()
    desk = desk_in_doubt(store, book, id="c1")
    desk.resume()
    assert desk.ask("pay", order="A-1", id="c1").success
    assert asyncio.run(undo.apply(desk.plan())).complete
    assert book.order == ["payment-1 after 0"]


@pytest.mark.parametrize("idempotency", [None, KEYED])
def test_the_first_capture_stands_while_its_effect_may_have_happened(idempotency: Any, store: Store) -> None:
    """A tool that runs again after a crash captures once, also in a call with another id and the same declared key."""
    book = Book()
    pay = book.pays(effect=External(on_orphan="retry"), idempotency=idempotency)
    desk = Desk(store, pay, book=book)
    book.fails_after = TimeoutError("the line is dead")
    desk.ask("pay", order="A-1", id="c1")
    book.fails_after = None
    desk.resume()
    again = "c1" if idempotency is None else "c2"
    assert desk.ask("pay", order="A-1", id=again).success
    assert asyncio.run(undo.apply(desk.plan(("r", again)))).complete
    assert book.order == ["payment-2 after 0"]


def test_a_capture_of_another_session_is_not_replaced(store: Store) -> None:
    """What was there before its effect is not known here, so the call cannot be undone."""
    book = Book()
    pay = book.pays(effect=External(on_orphan="retry"), idempotency=replace(KEYED, scope="global"))
    first = Desk(store, pay, book=book, session_id="first")
    book.fails_after = TimeoutError("the line is dead")
    first.ask("pay", order="A-1")
    book.fails_after = None
    second = Desk(store, pay, book=book, session_id="second")
    assert second.ask("pay", order="A-1").success
    assert second.outcomes() == ["c1: impossible"]


@pytest.mark.parametrize(
    "value, runs", [({"a": [1.5, None, True]}, True), ((1, 2), False), ({1: 2}, False), (b"x", False)]
)
def test_a_capture_without_annotation_returns_what_json_brings_back(value: Any, runs: bool, memory: Store) -> None:
    """Another value is refused before the effect."""
    desk = Desk(memory, Book().pays(capture=_capturing(value)))
    message = desk.ask("pay", order="A-1")
    assert (message.success, desk.book.calls) == (runs, 0)


def test_a_capture_whose_types_would_be_lost_is_named(memory: Store, wording: Wording) -> None:
    """With the cure."""
    desk = Desk(memory, Book().pays(capture=_capturing((1, 2))))
    assert desk.ask("pay", order="A-1").content == wording


def test_a_call_whose_capture_fails_does_not_run(memory: Store, wording: Wording) -> None:
    """It could not be undone."""

    def capture(params: Order) -> int:
        raise OSError("no answer")

    desk = Desk(memory, Book().pays(capture=capture))
    message = desk.ask("pay", order="A-1")
    assert message.content == wording
    assert not message.success
    assert desk.plan().steps == ()


def test_a_capture_may_not_write(memory: Store) -> None:
    """It is a read."""

    def capture(params: Order, *, context: ToolContext) -> None:
        context.session[Note].append(Note("written"))

    desk = Desk(memory, Book().pays(capture=capture))
    assert not desk.ask("pay", order="A-1").success
    assert desk.book.paid == []
