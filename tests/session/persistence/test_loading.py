"""Going on with a stored session: what is read, what is refused, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import Random
from string import printable
from typing import Any

import pytest

from handrail.errors import SessionLockedError, SessionNotFoundError, StoreCorruptError, UnknownTypeError
from handrail.session import Session
from handrail.session.persistence.protocol import Checkpoint, SessionEntry, SessionRow
from handrail.session.persistence.recorder import MOST_UNCOVERED_BYTES
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import refusal
from tests.session.faulty_stores import FaultyStore
from tests.session.samples import Add, Happened, Note, Total
from tests.store.units import append
from tests.wording import Wording

NOW = timedelta(0)
NOTE = f"{Note.__module__}:Note"
HAPPENED = f"{Happened.__module__}:Happened"


@pytest.fixture
def memory() -> FaultyStore:
    """A store in memory, for what no store has a part in."""
    return FaultyStore(MemoryStore(clock=FakeClock()))


def write(store: FaultyStore, *entries: SessionEntry, checkpoint: Checkpoint | None = None) -> None:
    """Put entries into session `s`, as somebody who knows no rules."""
    store.create(SessionRow("s", {}, None, store.now()))
    hold = store.acquire("s", wait=NOW)
    row = store.find("s")
    assert row is not None
    append(store, hold, row.head, entries, checkpoint)
    store.release(hold)


def note(
    number: int, start: int, *, removed: int = 0, items: bytes = b'[{"text":"x"}]', role: Any = "state"
) -> SessionEntry:
    """An entry of notes."""
    return SessionEntry(number, "", "", role, NOTE, 1, start, removed, 1, items)


def test_a_session_that_is_not_there_is_begun(store: FaultyStore) -> None:
    """With its tags and its parent; one that is there keeps its own."""
    with store.session("p") as parent, Session.open(store, "s", tags={"a": "b"}, parent=parent) as session:
        assert (session.session_id, dict(session.tags), session.parent) == ("s", {"a": "b"}, parent)
    row = store.find("s")
    assert row is not None
    assert (dict(row.tags), row.parent, row.head) == ({"a": "b"}, "p", 0)
    with Session.open(store, "s", tags={"c": "d"}) as again:
        assert dict(again.tags) == {"a": "b"}


def test_nothing_is_begun_where_that_is_not_wished(store: FaultyStore, wording: Wording) -> None:
    """The error says where to look."""
    with pytest.raises(SessionNotFoundError) as caught:
        Session.open(store, "s", create=False)
    assert str(caught.value).removeprefix(f"{store.url} ") == wording
    assert caught.value.session_id == "s"
    assert store.find("s") is None


def test_a_session_has_one_writer(store: FaultyStore) -> None:
    """The second one is told; when the first has closed it, it is free."""
    with Session.open(store, "s"), pytest.raises(SessionLockedError):
        Session.open(store, "s", wait=NOW)
    Session.open(store, "s", wait=NOW).close()


def test_a_checkpoint_covers_one_entry_at_least(memory: FaultyStore, wording: Wording) -> None:
    """Anything else is a mistake of the program, told before anything is done."""
    assert str(refusal(ValueError, Session.open, memory, "s", checkpoint_every=0)) == wording
    assert memory.find("s") is None


def test_opening_reads_nothing_that_a_checkpoint_covers() -> None:
    """A session of 100,000 entries costs what came after its newest checkpoint; items are read when asked for."""
    store = FaultyStore(MemoryStore(clock=FakeClock()))
    with Session.open(store, "s", checkpoint_every=1000) as session:
        session.dispatch(Happened("first"))
        session[Note].append(Note("state"))
    _log(store, first=3, last=99_999)
    with Session.open(store, "s", checkpoint_every=1000) as session:  # this one has read them all, and notes it
        session.dispatch(Happened("last"))
    store.rows_read = 0
    with Session.open(store, "s") as session:
        assert store.rows_read == 0
        assert len(session[Happened]) == 99_999
        session.dispatch(Happened("more"))
        session[Note].append(Note("more"))
        assert store.rows_read == 0
        assert session[Note].all() == (Note("state"), Note("more"))
        assert store.rows_read == 1
    store.rows_read = 0
    with Session.open(store, "s"):
        assert store.rows_read == 2


def test_there_is_a_checkpoint_when_entries_are_many_bytes(store: FaultyStore) -> None:
    """Also if they are few, and if the session was opened anew for each of them."""
    random, checkpoints = Random(7), list[int | None]()  # noqa: S311 - no secret
    for _ in range(5):
        with Session.open(store, "s") as session:
            session[Note].append(Note("".join(random.choices(printable[:94], k=MOST_UNCOVERED_BYTES * 2 // 5))))
        checkpoint = store.checkpoint("s")
        checkpoints.append(None if checkpoint is None else checkpoint.number)
    assert checkpoints == [None, None, 3, 3, 3]
    with Session.open(store, "s") as session:
        session[Note].append(Note("5"))
        session[Note].append(Note("x" * MOST_UNCOVERED_BYTES))
        session[Note].append(Note("6"))
        assert len(session[Note].all()) == 8
    checkpoint = store.checkpoint("s")
    assert checkpoint is not None
    assert checkpoint.number == 7


def _log(store: FaultyStore, *, first: int, last: int) -> None:
    hold = store.acquire("s", wait=NOW)
    entries = [
        SessionEntry(number, "", "", "log", HAPPENED, 1, number - 2, 0, 1, b'[{"what":"x"}]')
        for number in range(first, last + 1)
    ]
    append(store, hold, first - 1, entries, None)
    store.release(hold)


def test_a_slice_scattered_over_many_entries_is_read_in_few_stretches(memory: FaultyStore) -> None:
    """Whatever has become of it."""
    with Session.open(memory, "s", checkpoint_every=7) as session:
        session[Note].seed(*(Note(str(number)) for number in range(50)))
        for place in range(0, 50, 2):
            notes = session[Note].all()
            session[Note].seed(*notes[:place], Note(f"new {place}"), *notes[place + 1 :])
            session.dispatch(Happened("between"))
        held = session[Note].all()
    with Session.open(memory, "s") as again:
        assert again[Note].all() == held


def test_a_slice_in_very_many_pieces_is_written_whole(memory: FaultyStore) -> None:
    """So that what a checkpoint says of it stays small."""
    with Session.open(memory, "s") as session:
        notes: tuple[Note, ...] = ()
        for number in range(600):
            notes = (Note(str(number)), *notes)
            session[Note].seed(*notes)
        session[Note].seed(*notes[1:])
    rows = list(memory.entries("s"))
    assert [row.number for row in rows if row.removed] == [514, 601]
    with Session.open(memory, "s") as again:
        assert again[Note].all() == notes[1:]


def test_a_slice_in_very_many_pieces_may_go_back_to_nothing(memory: FaultyStore) -> None:
    """A snapshot from before its first item does not know it."""
    with Session.open(memory, "s") as session:
        empty = session.snapshot()
        notes: tuple[Note, ...] = ()
        for number in range(514):
            notes = (Note(str(number)), *notes)
            session[Note].seed(*notes)
        session.restore(empty)
        assert session[Note].all() == ()
    with Session.open(memory, "s") as again:
        assert again[Note].all() == ()


def test_an_event_that_reducers_took_is_no_item_of_its_slice(store: FaultyStore) -> None:
    """It is kept for people, between the items of a slice of the same type."""
    with Session.open(store, "s") as session:
        session.install(Total, initial=lambda: Total(0))
        session[Add].append(Add(1))
        session.dispatch(Add(2))
        session[Add].append(Add(3))
    assert [entry.role for entry in store.entries("s")] == ["state", "state", "event", "state"]
    with Session.open(store, "s") as again:
        assert again[Add].all() == (Add(1), Add(3))
        assert again[Total].all() == (Total(2),)


def test_an_unknown_type_names_itself(store: FaultyStore) -> None:
    """Until it is given, or gone: of an empty slice nobody needs the class. The session stays free."""

    @dataclass(frozen=True)
    class Local:
        text: str

    with Session.open(store, "s") as session:
        session[Local].seed(Local("x"))
    with pytest.raises(UnknownTypeError, match=r"<locals>\.Local"):
        Session.open(store, "s")
    with Session.open(store, "s", types=(Note, Local), wait=NOW) as known:
        assert known[Local].all() == (Local("x"),)
        known[Local].clear()
    with Session.open(store, "s", wait=NOW) as again:
        assert again.kinds == ()
        again[Local].append(Local("y"))
        assert again[Local].all() == (Local("y"),)


def test_a_checkpoint_that_cannot_be_read_says_which(memory: FaultyStore, wording: Wording) -> None:
    """And that nothing is lost with it."""
    write(memory, note(1, 0), checkpoint=Checkpoint(1, b"{"))
    with pytest.raises(StoreCorruptError) as caught:
        Session.open(memory, "s")
    assert str(caught.value) == wording
    assert caught.value.store == "memory:"


@pytest.mark.parametrize(
    "entries",
    [(note(1, 1),), (note(1, 0), note(2, 0, removed=2)), (note(1, 0), note(2, 1, role="log"))],
    ids=["a gap", "more taken than there is", "of another role"],
)
def test_an_entry_that_does_not_fit_is_named(
    memory: FaultyStore, entries: tuple[SessionEntry, ...], wording: Wording
) -> None:
    """The session is not opened as something that it was not."""
    write(memory, *entries)
    assert str(refusal(StoreCorruptError, Session.open, memory, "s")) == wording


class Forgetful(MemoryStore):
    """Loses an entry in the middle, and tells nobody."""

    def entries(self, session_id: str, **options: Any) -> Any:
        return (entry for entry in super().entries(session_id, **options) if entry.number != 2)


@pytest.mark.parametrize("last", [2, 3])
def test_a_missing_entry_is_named(last: int, wording: Wording) -> None:
    """In the middle or at the end."""
    store = FaultyStore(Forgetful(clock=FakeClock()))
    write(store, *(note(number, number - 1) for number in range(1, last + 1)))
    assert str(refusal(StoreCorruptError, Session.open, store, "s")) == wording


@pytest.mark.parametrize("items", [b"[{", b"{}", b"\xff"])
def test_items_that_are_no_json_are_named(memory: FaultyStore, items: bytes, wording: Wording) -> None:
    """When somebody asks for them."""
    write(memory, note(1, 0, items=items))
    with Session.open(memory, "s") as session, pytest.raises(StoreCorruptError) as raised:
        session[Note].all()
    assert str(raised.value) == wording


def test_items_of_another_number_are_named(memory: FaultyStore, wording: Wording) -> None:
    """A slice is never shorter than it was."""
    write(memory, note(1, 0), note(2, 1, items=b"[]"))
    with (
        Session.open(memory, "s") as session,
        pytest.raises(StoreCorruptError) as raised,
    ):
        session[Note].all()
    assert str(raised.value) == wording


def test_items_that_no_longer_fit_say_so(memory: FaultyStore, wording: Wording) -> None:
    """They are no fault of the store, and are as they were when the class is mended."""
    write(memory, note(1, 0, items=b'[{"words":"x"}]'))
    with Session.open(memory, "s") as session, pytest.raises(UnknownTypeError) as raised:
        session[Note].all()
    assert str(raised.value) == wording
