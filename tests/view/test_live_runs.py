"""A session that is read while it grows: a browser gets each part once, whoever has read the session before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from re import findall
from typing import Any

import pytest
from markupsafe import Markup

from handrail.errors import SessionNotFoundError, StoreUnavailableError
from handrail.runtime import Session
from handrail.session.persistence.protocol import Role, SessionEntry
from handrail.store import MemoryStore, Store
from handrail.testing import FakeClock
from handrail.transcript import reading
from handrail.view.live import LiveRun, LiveRuns, RunUpdate
from tests.kit import call, executor, tool
from tests.store.kit import append, stored
from tests.view.client import see, visit
from tests.wording import Wording

CALLS = [call("note", text, id=text) for text in ("one", "two", "three", "four")]


@pytest.fixture
def clock() -> FakeClock:
    """The time of the store."""
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Store:
    """A store."""
    return MemoryStore(clock=clock)


def write(store: Store) -> Iterator[LiveRun]:
    """What reads the session for the first time: after a question, after each call of the reply, and at the end."""
    with Session.open(store, "s1") as session:
        session.conversation.append({"role": "user", "content": "zero"})
        yield LiveRuns(store).open("s1")
        session.conversation.append({"role": "assistant"}, calls=CALLS, reply="r1")
        for one in CALLS:
            executor(tool("note"), session=session).execute(one, reply="r1")
            yield LiveRuns(store).open("s1")
        session.conversation.append({"role": "user", "content": "five"})
    yield LiveRuns(store).open("s1")


def write_all(store: Store) -> LiveRun:
    """What reads the session at its end."""
    return [*write(store)][-1]


def words(parts: Iterable[Markup]) -> list[str]:
    """What was said and noted, in the order of the page."""
    return [text or note for text, note in findall(r">(zero|five)<|text=&#34;(\w+)", "".join(parts))]


def test_browser_that_was_cut_off_gets_each_part_once(store: Store) -> None:
    """Its session was read by then for another browser, in other steps; the calls of a reply stand together."""
    updates: list[RunUpdate] = []
    for run in write(store):
        updates.append(run.update(updates[-1].place if updates else 0))
    calls = ["one", "two", "three", "four"]
    assert [words(update.parts) for update in updates] == [["zero"], [], [], [], [], [*calls, "five"]]
    assert [words([update.open_parts]) for update in updates] == [[], *[calls] * 4, []]
    late = LiveRuns(store).open("s1")
    assert words(late.update(updates[-2].place).parts) == [*calls, "five"]
    assert [words(late.update(place).parts) for place in (3, 5, 6)] == [["three", "four", "five"], ["five"], []]


def test_session_that_was_deleted_is_not_followed(store: Store, clock: FakeClock) -> None:
    """Nor is another one that has its id."""
    run = write_all(store)
    store.delete_session(store.acquire("s1", wait=timedelta(0)))
    with pytest.raises(SessionNotFoundError):
        run.update(0)
    clock.advance(timedelta(seconds=1))
    write_all(store)
    with pytest.raises(SessionNotFoundError):
        run.update(0)
    assert LiveRuns(store).open("s1").update(0).place == 6


@pytest.mark.parametrize("name", ["handrail.tool_invoked", "desk.kept"])
def test_page_says_which_entry_cannot_be_read(store: Store, name: str, wording: Wording) -> None:
    """In the place of what stands there."""
    write_all(store)
    lock = store.acquire("s1", wait=timedelta(0))
    head = stored(store).head
    role: Role = "log" if name.startswith("handrail.") else "state"
    append(store, lock, head, [SessionEntry(head + 1, "", "", role, name, 1, 0, 0, 1, b"[7")], None)
    store.release(lock)
    assert see(visit(store), "/run?session=s1").words.partition("Search")[2] == wording


def test_session_is_read_anew_after_a_failure_of_its_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is missing then."""
    run = write_all(store)
    read = store.entries
    answers = iter([True, True, False])  # all of it for the slices, a first page for the rest, and no second one

    def read_some(*place: Any, **options: Any) -> Iterator[SessionEntry]:
        if next(answers):
            return read(*place, **options)
        raise StoreUnavailableError("its disk is away", store=store.url)

    with monkeypatch.context() as patch:
        patch.setattr(reading, "_PAGE_ENTRIES", 2)
        patch.setattr(store, "entries", read_some)
        with pytest.raises(StoreUnavailableError):
            run.update(0)
    assert words(run.update(0).parts) == ["zero", "one", "two", "three", "four", "five"]
