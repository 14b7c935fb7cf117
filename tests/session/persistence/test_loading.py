"""Opening a stored session: indexes, items on demand, damage."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from random import Random
from string import printable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handrail import errors
from handrail.session import Session
from handrail.session.persistence import protocol
from handrail.session.persistence.loading import ItemReader
from handrail.session.persistence.recorder import MOST_UNCOVERED_BYTES
from handrail.session.persistence.stored_types import stored_type
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import raises, refusal
from tests.session.faulty_stores import FaultyStore, kept
from tests.session.samples import Add, Happened, Note, Total
from tests.store.kit import append
from tests.wording import Wording

NOW = timedelta(0)
NOTE = f"{Note.__module__}:Note"
HAPPENED = f"{Happened.__module__}:Happened"


def write(store: FaultyStore, *entries: protocol.SessionEntry, checkpoint: protocol.Checkpoint | None = None) -> None:
    """Put entries into session `s`, as somebody who knows no rules."""
    store.create(protocol.SessionRow("s", {}, None, store.now()))
    hold = store.acquire("s", wait=NOW)
    row = store.find("s")
    assert row is not None
    append(store, hold, row.head, entries, checkpoint)
    store.release(hold)


def note(
    number: int, start: int, *, removed: int = 0, items: bytes = b'[{"text":"x"}]', role: Any = "state"
) -> protocol.SessionEntry:
    """An entry of notes."""
    return protocol.SessionEntry(number, "", "", role, NOTE, 1, start, removed, 1, items)


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
    with pytest.raises(errors.SessionNotFoundError) as caught:
        Session.open(store, "s", create=False)
    assert str(caught.value).removeprefix(f"{store.url} ") == wording
    assert caught.value.session_id == "s"
    assert store.find("s") is None


def test_a_session_has_one_writer(store: FaultyStore) -> None:
    """The second one is told; when the first has closed it, it is free."""
    with Session.open(store, "s"), pytest.raises(errors.SessionLockedError):
        Session.open(store, "s", wait=NOW)
    Session.open(store, "s", wait=NOW).close()


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
        protocol.SessionEntry(number, "", "", "log", HAPPENED, 1, number - 2, 0, 1, b'[{"what":"x"}]')
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
    assert kept(memory)[Note] == held


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
    assert kept(memory) == {Note: notes[1:]}


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
    assert kept(memory) == {}


def test_an_event_that_reducers_took_is_not_stored(store: FaultyStore) -> None:
    """The store has what they made of it."""
    with Session.open(store, "s") as session:
        session.install(Total, initial=lambda: Total(0))
        session[Add].append(Add(1))
        session.dispatch(Add(2))
        session[Add].append(Add(3))
    assert [entry.role for entry in store.entries("s")] == ["state"] * 3
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
    with pytest.raises(errors.UnknownTypeError, match=r"<locals>\.Local"):
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
    write(memory, note(1, 0), checkpoint=protocol.Checkpoint(1, b"{"))
    error = refusal(errors.StoreCorruptError, Session.open, memory, "s")
    assert str(error) == wording
    assert error.store == "memory:"


@pytest.mark.parametrize(
    "entries",
    [(note(1, 1),), (note(1, 0), note(2, 0, removed=2)), (note(1, 0), note(2, 1, role="log"))],
    ids=["a gap", "more taken than there is", "of another role"],
)
def test_an_entry_that_does_not_fit_is_named(
    memory: FaultyStore, entries: tuple[protocol.SessionEntry, ...], wording: Wording
) -> None:
    """The session is not opened as something that it was not."""
    write(memory, *entries)
    assert str(refusal(errors.StoreCorruptError, Session.open, memory, "s")) == wording


class Forgetful(MemoryStore):
    """Loses an entry in the middle, and tells nobody."""

    def entries(self, session_id: str, **options: Any) -> Any:
        return (entry for entry in super().entries(session_id, **options) if entry.number != 2)


@pytest.mark.parametrize("last", [2, 3])
def test_a_missing_entry_is_named(last: int, wording: Wording) -> None:
    """In the middle or at the end."""
    store = FaultyStore(Forgetful(clock=FakeClock()))
    write(store, *(note(number, number - 1) for number in range(1, last + 1)))
    assert str(refusal(errors.StoreCorruptError, Session.open, store, "s")) == wording


@pytest.mark.parametrize(
    "entries",
    [*((note(1, 0, items=items),) for items in (b"[{", b"{}", b"\xff")), (note(1, 0), note(2, 1, items=b"[]"))],
    ids=count(),
)
def test_items_that_are_no_json_or_of_another_number_are_named(
    memory: FaultyStore, entries: Any, wording: Wording
) -> None:
    """When somebody asks for them: a slice is never shorter than it was."""
    write(memory, *entries)
    with Session.open(memory, "s") as session, raises(errors.StoreCorruptError, wording):
        session[Note].all()


NOTE_TYPE = stored_type(Note)


def entry(number: int, texts: list[str], *, start: int, removed: int = 0, role: Any = "state") -> protocol.SessionEntry:
    """An entry of notes."""
    items = NOTE_TYPE.dump(tuple(map(Note, texts)))
    return protocol.SessionEntry(number, "", "", role, NOTE_TYPE.name, 1, start, removed, len(texts), items)


def foreign(number: int) -> protocol.SessionEntry:
    """An entry of another slice."""
    return protocol.SessionEntry(number, "", "", "log", "tests.other", 1, 0, 0, 1, b"[{}]")


def reader(store: FaultyStore, *entries: protocol.SessionEntry) -> tuple[ItemReader, protocol.EntryIndex]:
    """A reader of the notes of these entries, which are written, and their layout."""
    write(store, *entries)
    layout = protocol.EntryIndex("state")
    for each in entries:
        if each.type_name == NOTE_TYPE.name:
            layout = layout.after(each)
    return ItemReader(store, "s", layout, NOTE_TYPE), layout


def grown(count: int) -> list[protocol.SessionEntry]:
    """Entries of one note each, with another slice between each two."""
    entries: list[protocol.SessionEntry] = []
    for place in range(count):
        entries.append(entry(2 * place + 1, [str(place)], start=place))
        entries.append(foreign(2 * place + 2))
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
    entries: list[protocol.SessionEntry] = []
    for number, change in enumerate(changes, 1):
        if change is None:
            entries.append(foreign(number))
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
            refusal(errors.StoreUnavailableError, read, max(stop - end - 1, 0), stop)
            store.come_back()
        more = read(max(stop - end, 0), stop)
        assert len(more) >= min(end, stop)
        found = [*more, *found]
    assert [note.text for note in found] == items
    assert protocol.load_indexes(protocol.dump_indexes({"T": layout})) == {"T": layout}


@pytest.mark.parametrize("place", [0, 8, 12, 14, 16])
@pytest.mark.parametrize("first", [3, 6, 9])
def test_an_entry_that_is_lost_is_noticed_when_it_is_due(place: int, first: int) -> None:
    """Whether what is read begins or ends with it; the entries before it are not read to find that out."""
    entries = grown(9)
    _, layout = reader(FaultyStore(MemoryStore(clock=FakeClock())), *entries)
    entries[place] = foreign(place + 1)
    damaged = FaultyStore(MemoryStore(clock=FakeClock()))
    write(damaged, *entries)
    read = ItemReader(damaged, "s", layout, NOTE_TYPE)

    def read_all() -> list[list[Note]]:
        return [read(start, stop) for start, stop in ((first - 1, 9), (first - 3, first - 1), (0, first - 3))]

    refusal(errors.StoreCorruptError, read_all)


@pytest.mark.parametrize("kind", ["lost", "shortened", "emptied"])
def test_damage_within_what_is_read_names_the_entries(memory: FaultyStore, kind: str, wording: Wording) -> None:
    """An entry that is lost, or has other items than it should."""
    entries = grown(9)
    _, layout = reader(memory, *entries)
    damaged = FaultyStore(MemoryStore(clock=FakeClock()))
    if kind == "lost":
        entries[14] = foreign(15)
    elif kind == "shortened":
        entries[14] = entries[14]._replace(items=b"[]")
    else:
        entries = [foreign(each.number) for each in entries]
    write(damaged, *entries)
    assert str(refusal(errors.StoreCorruptError, ItemReader(damaged, "s", layout, NOTE_TYPE), 5, 9)) == wording


WRONG = {
    "no JSON": b"{",
    "of another format": b'{"format":"handrail.checkpoint/2","slices":{}}',
    "without slices": b'{"format":"handrail.checkpoint/1"}',
    "with a slice of too few fields": b'{"format":"handrail.checkpoint/1","slices":{"T":["state",1]}}',
    "with a slice of another role": b'{"format":"handrail.checkpoint/1","slices":{"T":["event",1,[]]}}',
    "with a number below zero": b'{"format":"handrail.checkpoint/1","slices":{"T":["state",1,[[1,1,-1,1,1]]]}}',
    "with more items than there are": b'{"format":"handrail.checkpoint/1","slices":{"T":["log",1,[[1,1,1,1,1]]]}}',
    "with a run that ends too early": b'{"format":"handrail.checkpoint/1","slices":{"T":["log",2,[[2,1,0,1,1]]]}}',
}


@pytest.mark.parametrize("data", WRONG.values(), ids=list(WRONG))
def test_what_is_no_checkpoint_is_refused(data: bytes) -> None:
    """It is never taken for one that says something else."""
    with pytest.raises(ValueError, match=r"checkpoint|format|Expecting"):
        protocol.load_indexes(data)
