"""The end of a transcript, and one that continues as a run does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from handrail.runtime import ToolCall
from handrail.transcript import TranscriptItem, TranscriptMessage, TranscriptReader
from handrail.transcript.following import end_of_transcript, follow_session
from tests.transcript.desks import Desk, desk, items_of, order, shown


@pytest.fixture
def at_desk() -> Iterator[Desk]:
    """A desk over a store in memory."""
    with desk() as opened:
        yield opened


def _every(_item: TranscriptItem) -> bool:
    return True


def _followed(at_desk: Desk, *steps: Callable[[], object]) -> Iterator[list[str]]:
    """What is yielded before each step, and after the last one; a step is made where a reader would wait."""
    left = iter(steps)
    waits = 0

    def wait() -> None:
        nonlocal waits
        waits += 1
        next(left)()

    reader = TranscriptReader(at_desk.store, at_desk.row)
    seen: list[str] = []
    before = 0
    for item in follow_session(at_desk.store, "desk", reader, wait):
        if waits > before:
            yield seen
            seen, before = [], waits
        seen += shown([item])
    yield seen


def test_a_run_is_followed_until_its_session_is_released(at_desk: Desk) -> None:
    """Calls are shown as soon as they have ended, in the order asked, and their answers are not shown again."""
    calls = at_desk.request(("pay", order("A-1")), ("doubt", order("A-2")), ("pay", order("A-3")), text="I pay.")
    at_desk.flush()
    seen = _followed(
        at_desk,
        lambda: at_desk.executor.execute(calls[0], reply="r1"),
        lambda: at_desk.executor.execute(calls[2], reply="r1"),
        lambda: at_desk.answer(calls),
        at_desk.flush,
        lambda: at_desk.say("Done."),
        at_desk.session.close,
    )
    assert list(seen) == [
        ["assistant: I pay."],
        ["pay ok"],
        ["doubt unknown", "pay ok", "assistant: Done."],
    ]


def test_a_session_that_no_process_holds_is_shown_once(at_desk: Desk) -> None:
    """There is no run to follow."""
    at_desk.ask("Pay.")
    at_desk.session.close()
    assert list(_followed(at_desk)) == [["user: Pay."]]


def test_a_session_that_is_deleted_adds_nothing(at_desk: Desk) -> None:
    """The end of the transcript is what was there."""
    at_desk.request(("pay", order("A-1")))
    at_desk.flush()

    def delete() -> None:
        at_desk.session.close()
        lock = at_desk.store.acquire("desk", wait=timedelta(0))
        at_desk.store.delete_session(lock)
        at_desk.store.release(lock)

    assert list(_followed(at_desk, delete)) == [["assistant: "], ["pay open"]]


@pytest.mark.parametrize("count", [1, 2, 30, 100, 1_000])
@pytest.mark.short(2)
def test_the_last_messages_are_those_at_the_end(count: int, at_desk: Desk) -> None:
    """With their calls; the calls of the last one are still held."""
    for number in range(60):
        at_desk.turn(("pay", order(f"A-{number}")), ("fail", order(f"A-{number}")), text=f"I pay {number}.")
    whole = items_of(at_desk.store, "desk")
    reader, items = end_of_transcript(at_desk.store, at_desk.row, count, _every)
    items += reader.finish()
    assert items == whole[-len(items) :]
    assert sum(isinstance(item, TranscriptMessage) for item in items) == min(count, 60)
    assert len(items) == 3 * min(count, 60)


def test_the_last_messages_are_of_those_that_are_wanted(at_desk: Desk) -> None:
    """Others do not count; what comes before the first message belongs to it."""
    at_desk.executor.execute(ToolCall("a", "pay", order("A-1")), reply="r")
    for number in range(150):
        at_desk.ask(f"{number}")
        at_desk.say("So.")
    reader, items = end_of_transcript(at_desk.store, at_desk.row, 2, lambda item: shown([item])[0].startswith("user"))
    assert shown([*items, *reader.finish()]) == ["user: 148", "user: 149"]
    reader, items = end_of_transcript(at_desk.store, at_desk.row, 1, lambda item: shown([item]) == ["user: 0"])
    assert shown(items) == ["user: 0"]
    reader, items = end_of_transcript(at_desk.store, at_desk.row, 1_000, _every)
    assert shown(items)[:2] == ["pay ok", "user: 0"]
