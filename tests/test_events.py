"""Who hears of an event, in which order, and what becomes of those who fail."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import DispatchError
from handrail.events import Dispatcher
from tests.kit import raises
from tests.wording import Wording


@dataclass(frozen=True, slots=True)
class Seen:
    number: int = 0


@dataclass(frozen=True, slots=True)
class SeenTwice(Seen):
    pass


@dataclass(frozen=True, slots=True)
class Other:
    pass


@given(st.lists(st.sampled_from([object, Seen, SeenTwice, Other]), max_size=8), st.data())
def test_subscribers_are_called_in_the_order_of_subscribing(types: list[type[object]], data: st.DataObject) -> None:
    """Types match as `isinstance` does; the order is that of subscribing, and those who left are not called."""
    dispatcher, event = Dispatcher(), data.draw(st.sampled_from([Seen(), SeenTwice(), Other()]))
    heard: list[int] = []

    def hears(number: int, _: object) -> None:
        heard.append(number)

    subscriptions = [dispatcher.subscribe(kind, partial(hears, number)) for number, kind in enumerate(types)]
    dispatcher.dispatch(event)
    left = data.draw(st.sets(st.sampled_from(range(len(types))))) if types else set[int]()
    for number in left:
        subscriptions[number].close()
    before = [number for number, kind in enumerate(types) if isinstance(event, kind)]
    dispatcher.dispatch(event)
    assert heard == before + [number for number in before if number not in left]


def test_subscription_ends_by_close_or_with_its_block() -> None:
    """There are two ways to end a subscription, and ending it twice is no fault."""
    dispatcher = Dispatcher()
    heard: list[Seen] = []
    closed = dispatcher.subscribe(Seen, heard.append)
    with dispatcher.subscribe(Seen, heard.append):
        dispatcher.dispatch(Seen(1))
    dispatcher.dispatch(Seen(2))
    closed.close()
    closed.close()
    dispatcher.dispatch(Seen(3))
    assert [event.number for event in heard] == [1, 1, 2]


def test_every_subscriber_is_called_even_if_one_fails(wording: Wording) -> None:
    """Failures are collected in the order of the calls; the first one is the cause."""
    dispatcher = Dispatcher()
    heard: list[Seen] = []

    def fails_first(_: Seen) -> None:
        raise OSError("disk full")

    def fails_later(_: Seen) -> None:
        raise LookupError("no such key")

    for subscriber in (fails_first, heard.append, fails_later, heard.append):
        dispatcher.subscribe(Seen, subscriber)
    with raises(DispatchError, wording) as caught:
        dispatcher.dispatch(Seen())
    assert heard == [Seen(), Seen()]
    failures = [(name.rpartition(".")[2], type(error)) for name, error in caught.value.failures]
    assert failures == [("fails_first", OSError), ("fails_later", LookupError)]
    assert caught.value.event == Seen()
    assert caught.value.__cause__ is caught.value.failures[0][1]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, asyncio.CancelledError, SystemExit])
def test_what_is_no_exception_passes_at_once(stop: type[BaseException]) -> None:
    """A cancellation is not collected, and does not wait for the other subscribers."""
    dispatcher = Dispatcher()
    heard: list[Seen] = []

    def stops(_: Seen) -> None:
        raise stop

    dispatcher.subscribe(Seen, stops)
    dispatcher.subscribe(Seen, heard.append)
    with pytest.raises(stop):
        dispatcher.dispatch(Seen())
    assert heard == []


async def awaits(event: Seen) -> None:
    """Stands for a subscriber that is not awaited."""


def test_subscriber_that_returns_a_coroutine_fails(wording: Wording) -> None:
    """It would not be awaited; the first event says so, and what to subscribe instead."""
    dispatcher = Dispatcher()
    dispatcher.subscribe(Seen, lambda event: awaits(event))  # noqa: PLW0108 - so that its name is short
    dispatcher.subscribe(Seen, lambda _: "what a subscriber returns is ignored")
    with raises(DispatchError, wording) as caught:
        dispatcher.dispatch(Seen())
    assert len(caught.value.failures) == 1


@runtime_checkable
class HasNumber(Protocol):
    number: int


@pytest.mark.parametrize("event_type", [HasNumber, list[int], 5], ids=["protocol", "alias", "no type"])
def test_type_that_cannot_be_matched_is_refused(event_type: type[object]) -> None:
    """A type that cannot be asked for its subclasses would fail every dispatch, so it fails the subscribing."""
    dispatcher = Dispatcher()
    with pytest.raises(TypeError, match="issubclass"):
        dispatcher.subscribe(event_type, print)
    dispatcher.dispatch(Seen())


def test_dispatcher_says_whether_anybody_listens() -> None:
    """Whoever would have to build an event first can ask; the answer follows every change, asked before or not."""
    dispatcher = Dispatcher()
    assert not dispatcher.listens(SeenTwice)
    assert not dispatcher.listens(SeenTwice)
    subscription = dispatcher.subscribe(Seen, print)
    assert (dispatcher.listens(SeenTwice), dispatcher.listens(Seen), dispatcher.listens(Other)) == (True, True, False)
    subscription.close()
    assert not dispatcher.listens(SeenTwice)


def test_changes_during_a_dispatch_count_from_the_next_one() -> None:
    """The subscribers of an event are those there were when its dispatch began; no lock is held while one runs."""
    dispatcher = Dispatcher()
    heard: list[str] = []

    def changes(_: Seen) -> None:
        heard.append("changes")
        leaving.close()
        dispatcher.subscribe(Seen, lambda _: heard.append("new"))
        dispatcher.dispatch(Other())

    changing = dispatcher.subscribe(Seen, changes)
    leaving = dispatcher.subscribe(Seen, lambda _: heard.append("leaving"))
    dispatcher.subscribe(Other, lambda _: heard.append("other"))
    dispatcher.dispatch(Seen())
    assert heard == ["changes", "other", "leaving"]
    changing.close()
    dispatcher.dispatch(Seen())
    assert heard == ["changes", "other", "leaving", "new"]


def test_subscribing_and_dispatching_threads_miss_nothing() -> None:
    """Once `subscribe` has returned, every later event is heard, whatever other threads do meanwhile."""
    dispatcher = Dispatcher()
    missed: list[int] = []

    def work(number: int) -> None:
        for _ in range(100):
            heard: list[Seen] = []
            with dispatcher.subscribe(Seen, heard.append):
                dispatcher.dispatch(Seen(number))
            if Seen(number) not in heard:
                missed.append(number)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert missed == []
