"""Reading the items of a slice from its end: what is read, what is left for later, and which damage is noticed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handrail.errors import StoreCorruptError, StoreUnavailableError
from handrail.session import Session
from handrail.session.persistence.loading import ItemReader
from handrail.session.persistence.protocol import Checkpoint, EntryIndex, SessionEntry, SessionRow
from handrail.session.persistence.stored_types import stored_type
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import refusal
from tests.session.faulty_stores import FaultyStore
from tests.session.samples import Happened, Note
from tests.store.units import append
from tests.wording import Wording

NOTE = stored_type(Note)


def entry(number: int, texts: list[str], *, start: int, removed: int = 0, role: Any = "state") -> SessionEntry:
    """An entry of notes."""
    items = NOTE.dump(tuple(map(Note, texts)))
    return SessionEntry(number, "", "", role, NOTE.name, 1, start, removed, len(texts), items)


def write(store: FaultyStore, *entries: SessionEntry, checkpoint: Checkpoint | None = None) -> None:
    """Put entries into session `s`."""
    store.create(SessionRow("s", {}, None, store.now()))
    lock = store.acquire("s", wait=timedelta(0))
    append(store, lock, 0, entries, checkpoint)
    store.release(lock)


def reader(store: FaultyStore, *entries: SessionEntry) -> tuple[ItemReader, EntryIndex]:
    """A reader of the notes of these entries, which are written, and their layout."""
    write(store, *entries)
    layout = EntryIndex("state")
    for each in entries:
        if each.role != "event":
            layout = layout.after(each)
    return ItemReader(store, "s", layout, NOTE), layout


@pytest.fixture
def memory() -> FaultyStore:
    """A store in memory."""
    return FaultyStore(MemoryStore(clock=FakeClock()))


def grown(count: int) -> list[SessionEntry]:
    """Entries of one note each, with an event between each two."""
    entries: list[SessionEntry] = []
    for place in range(count):
        entries.append(entry(2 * place + 1, [str(place)], start=place))
        entries.append(entry(2 * place + 2, ["event"], start=0, role="event"))
    return entries


def test_the_end_of_a_slice_costs_what_its_items_cost(store: FaultyStore) -> None:
    """In every store, and however many there are before them; each is read once."""
    with Session.open(store, "s") as session:
        for number in range(50):
            session.dispatch(Happened(str(number)))
            session[Note].append(Note(str(number)))
    with Session.open(store, "s") as session:
        store.rows_read = 0
        assert session[Note].latest() == Note("49")
        assert store.rows_read == 1
        assert session[Happened][-10:] == tuple(Happened(str(number)) for number in range(40, 50))
        assert store.rows_read == 11
        assert session[Happened][-20:] == tuple(Happened(str(number)) for number in range(30, 50))
        assert session[Happened][-1:-20:-9] == (Happened("49"), Happened("40"), Happened("31"))
        assert store.rows_read == 21
        assert session[Happened][60:] == session[Happened][5:5] == ()
        assert session.kinds == (Note, Happened)
        assert store.rows_read == 21
        assert session[Happened].all() == tuple(Happened(str(number)) for number in range(50))
        assert len(session[Happened].where(lambda event: event.what == "3")) == 1
        assert store.rows_read >= 51


def test_what_is_appended_later_stands_behind_what_was_stored(store: FaultyStore) -> None:
    """Nothing of the store is read for it."""
    with Session.open(store, "s") as session:
        session[Note].seed(*(Note(str(number)) for number in range(9)))
    with Session.open(store, "s") as session:
        store.rows_read = 0
        session[Note].append(Note("9"))
        assert session[Note][-1:] == (Note("9"),)
        assert store.rows_read == 0
        assert session[Note][-3:] == (Note("7"), Note("8"), Note("9"))
        assert store.rows_read == 1
        assert session[Note][0] == Note("0")  # of the same entry
        assert store.rows_read == 1


def test_more_entries_than_are_asked_for_at_once_are_read_in_pages(
    memory: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long end of a slice."""
    monkeypatch.setattr("handrail.session.persistence.loading._MOST_AT_ONCE", 3)
    read, layout = reader(memory, *grown(20))
    assert read(12, layout.length) == [Note(str(place)) for place in range(12, 20)]
    assert read(0, 12) == [Note(str(place)) for place in range(12)]
    assert read(0, 0) == []


CHANGES = st.lists(
    st.none() | st.tuples(st.integers(0, 12), st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=25
)


@example(changes=[(0, 0, 3, False), (3, 0, 1, False), (1, 1, 0, False)], ends=[1], fails=[])  # two runs of one entry
@example(changes=[(0, 0, 2, False)], ends=[0, 1], fails=[])  # an end of no items
@given(changes=CHANGES, ends=st.lists(st.integers(0, 9), max_size=6), fails=st.lists(st.booleans(), max_size=6))
def test_the_ends_of_any_slice_make_up_the_whole(
    changes: list[tuple[int, int, int, bool] | None], ends: list[int], fails: list[bool]
) -> None:
    """Whatever has become of the slice, in whichever steps it is read, whether or not the store fails between."""
    store = FaultyStore(MemoryStore(clock=FakeClock()))
    items: list[str] = []
    entries: list[SessionEntry] = []
    for number, change in enumerate(changes, 1):
        if change is None:
            entries.append(entry(number, ["event"], start=0, role="event"))
            continue
        start, removed, come, at_end = change
        start = len(items) if at_end else min(start, len(items))
        removed = min(removed, len(items) - start)
        new = [f"{number}-{place}" for place in range(come)]
        items[start : start + removed] = new
        entries.append(entry(number, new, start=start, removed=removed))
    read, layout = reader(store, *entries)
    found: list[Note] = []
    for end, fail in zip([*ends, len(items)], [*fails, *[False] * 7], strict=False):
        stop = layout.length - len(found)
        if fail and stop:
            store.go_down("read")
            refusal(StoreUnavailableError, read, max(stop - end - 1, 0), stop)
            store.come_back()
        more = read(max(stop - end, 0), stop)
        assert len(more) >= min(end, stop)
        found = [*more, *found]
    assert [note.text for note in found] == items


@pytest.mark.parametrize("place", [0, 8, 12, 14, 16])
@pytest.mark.parametrize("first", [3, 6, 9])
def test_an_entry_that_is_lost_is_noticed_when_it_is_due(place: int, first: int) -> None:
    """Whether what is read begins or ends with it; the entries before it are not read to find that out."""
    entries = grown(9)
    _, layout = reader(FaultyStore(MemoryStore(clock=FakeClock())), *entries)
    entries[place] = entry(place + 1, ["event"], start=0, role="event")
    damaged = FaultyStore(MemoryStore(clock=FakeClock()))
    write(damaged, *entries)
    read = ItemReader(damaged, "s", layout, NOTE)

    def read_all() -> list[list[Note]]:
        return [read(start, stop) for start, stop in ((first - 1, 9), (first - 3, first - 1), (0, first - 3))]

    refusal(StoreCorruptError, read_all)


@pytest.mark.parametrize("kind", ["lost", "shortened", "emptied"])
def test_damage_within_what_is_read_names_the_entries(memory: FaultyStore, kind: str, wording: Wording) -> None:
    """An entry that is lost, or has other items than it should."""
    entries = grown(9)
    _, layout = reader(memory, *entries)
    damaged = FaultyStore(MemoryStore(clock=FakeClock()))
    if kind == "lost":
        entries[14] = entry(15, ["event"], start=0, role="event")
    elif kind == "shortened":
        entries[14] = entries[14]._replace(items=b"[]")
    else:
        entries = [each._replace(role="event") for each in entries]
    write(damaged, *entries)
    assert str(refusal(StoreCorruptError, ItemReader(damaged, "s", layout, NOTE), 5, 9)) == wording
