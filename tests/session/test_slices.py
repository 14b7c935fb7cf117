"""Slices, their state for writers and readers, and items that stay in a store."""

from __future__ import annotations

from threading import Barrier, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import StoreUnavailableError
from handrail.session import Session
from handrail.session.slices import SliceOwner, SliceView, StateSlices, StoredItems, Version
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.session.samples import A, B, C, D, Note, Task
from tests.transaction.notebooks import call
from tests.wording import Wording

ME, OTHER = SliceOwner("me"), SliceOwner("other")


def version_of(*items: str) -> Version[str]:
    """The version of a list of its own."""
    return Version(ME, list(items), len(items))


def test_a_view_is_a_sequence() -> None:
    """It has a length, indices, ranges, an order, and a truth."""
    view = SliceView(version_of("a", "b", "c"))
    assert len(view) == 3
    assert (view[0], view[2], view[-1], view[-3]) == ("a", "c", "c", "a")
    assert (view[1:], view[::-1], view[5:]) == (("b", "c"), ("c", "b", "a"), ())
    assert list(view) == list(reversed(list(reversed(view)))) == ["a", "b", "c"]
    assert "b" in view
    assert view.index("b") == 1
    assert view


@pytest.mark.parametrize("index", [2, -3, 100])
def test_a_view_has_nothing_beyond_its_length(index: int, wording: Wording) -> None:
    """Also where the list goes on, because a newer version has grown it."""
    version = version_of("a", "b")
    version.append(ME, "c")
    with pytest.raises(IndexError) as raised:
        SliceView(version)[index]
    assert str(raised.value) == wording


def test_a_view_tells_the_newest_all_and_some() -> None:
    """Oldest first."""
    view = SliceView(version_of("a", "bb", "c"))
    assert view.latest() == "c"
    assert view.all() == ("a", "bb", "c")
    assert view.where(lambda item: len(item) == 1) == ("a", "c")


@pytest.mark.parametrize("version", [None, version_of()])
def test_a_view_of_nothing_is_empty(version: Version[str] | None, wording: Wording) -> None:
    """Whether nothing ever came in, or it was cleared."""
    view = SliceView(version)
    assert not view
    assert view.latest() is None
    assert view.all() == view[:] == view.where(bool) == ()
    with pytest.raises(IndexError) as raised:
        view[0]
    assert str(raised.value) == wording


MANY = tuple(Note(str(number)) for number in range(1_000))


def items_of(session: Session, kind: type[Any] = Note) -> list[Any]:
    """The list below a slice."""
    version = session[kind].version
    assert version is not None
    assert isinstance(version.items, list)
    return version.items


def filled() -> Session:
    """A session with a long slice."""
    session = Session()
    session[Note].seed(*MANY)
    return session


def test_a_snapshot_copies_nothing() -> None:
    """Two of one moment are one mapping, however much is in it."""
    session = filled()
    one, other = session.snapshot(), session.snapshot()
    assert one.slices is other.slices
    assert one.slices[Note].items is items_of(session)


def test_appending_grows_the_list_in_place() -> None:
    """Outside of calls, inside, and after a commit."""
    session = filled()
    items = items_of(session)
    session.dispatch(A)
    with call(session) as transaction:
        session.dispatch(B)
        session[Note].append(C)
        transaction.commit()
    session.dispatch(D)
    assert items_of(session) is items
    assert session[Note][len(MANY) :] == (A, B, C, D)


def test_undoing_cuts_off_what_the_call_appended() -> None:
    """So that the list is as it was, and the next append grows it in place."""
    session = filled()
    items = items_of(session)
    for _ in range(3):
        with call(session):
            session.dispatch(A)
            session.dispatch(B)
        assert items == list(MANY)
    session.dispatch(C)
    assert items_of(session) is items


@pytest.mark.parametrize("hold", [Session.snapshot, Session.fork])
def test_nothing_is_cut_off_that_somebody_inside_the_call_may_hold(hold: Any) -> None:
    """Then the next append copies the list once; after that calls are undone as before."""
    session = filled()
    items = items_of(session)
    with call(session):
        session.dispatch(A)
        held = hold(session)
    session.dispatch(B)
    assert items[len(MANY) :] == [A]
    assert items_of(session) is not items
    copied = items_of(session)
    with call(session):
        session.dispatch(C)
    session.dispatch(D)
    assert items_of(session) is copied
    assert session[Note][len(MANY) :] == (B, D)
    assert held is not None


def test_nothing_is_cut_off_that_a_call_has_gone_back_to() -> None:
    """A snapshot of an earlier call looks at the same list, further than what is committed."""
    session = filled()
    with call(session):
        session.dispatch(A)
        undone = session.snapshot()
    with call(session):
        session.restore(undone)
    session.restore(undone)
    assert session[Note][len(MANY) :] == (A,)


def test_a_reader_that_is_overtaken_by_a_commit_sees_all_of_the_call() -> None:
    """Between its two looks the call writes once more and commits: it sees that too, and not half of the call."""

    class Overtaking(Transaction):
        """Writes and commits when it is asked whether it has been committed."""

        @property
        def committed(self) -> bool:
            state.now = (self, {**state.now[1], Task: after}, state.now[2]) if Task not in state.now[1] else state.now
            return True

        @committed.setter
        def committed(self, _value: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
            pass

    owner = SliceOwner("me")
    half, after = Version(owner, [A], 1), Version(owner, [Task("k", "t")], 1)
    state = StateSlices(owner, {})
    state.now = (Overtaking("edit", ticket=draw_ticket((), exclusive=True), writes=True), {Note: half}, {})
    assert state.visible() == {Note: half, Task: after}


class Reading:
    """Reads from a list, in entries of some items; notes what was asked for, and fails when it is told to."""

    def __init__(self, items: str = "abc", *, per_entry: int = 1) -> None:
        self.asked: list[tuple[int, int]] = []
        self.fails = False
        self._items = list(items)
        self._per_entry = per_entry

    def __call__(self, start: int, stop: int) -> list[str]:
        self.asked.append((start, stop))
        if self.fails:
            raise StoreUnavailableError("down", store="memory:")
        return self._items[start - start % self._per_entry : stop]


def test_counting_and_adding_read_nothing() -> None:
    """What only grows costs nothing to those who never look."""
    read = Reading()
    items = StoredItems(3, read)
    items.append("d")
    assert (len(items), read.asked, items.is_loaded) == (4, [], False)


def test_what_stands_in_the_same_entry_is_taken_with_it() -> None:
    """The store returns more than was asked for, and it is not read again."""
    read = Reading("abcdefgh", per_entry=4)
    items = StoredItems(8, read)
    assert items[-1] == "h"
    assert items[4:6] == ["e", "f"]
    assert items[3] == "d"
    assert read.asked == [(7, 8), (0, 4)]


def test_going_back_item_by_item_asks_seldom() -> None:
    """Each question reads as many as have been read before."""
    read = Reading("abcdefghijklmnop")
    items = StoredItems(16, read)
    assert [items[place] for place in reversed(range(16))] == list("ponmlkjihgfedcba")
    assert read.asked == [(15, 16), (14, 15), (12, 14), (8, 12), (0, 8)]


def test_threads_that_ask_together_read_once() -> None:
    """One of them reads; the others wait for it, and get the same."""
    for _ in range(20):
        read = Reading("abcdefgh")
        items = StoredItems(8, read)
        together = Barrier(4)
        found: list[list[str]] = []

        def look(items: StoredItems[str] = items, together: Barrier = together, found: list[list[str]] = found) -> None:
            together.wait()
            found.append(items[4:])

        threads = [Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (found, read.asked) == ([list("efgh")] * 4, [(4, 8)])


@given(
    per_entry=st.integers(1, 3),
    acts=st.lists(
        st.tuples(st.sampled_from(["item", "range", "append", "cut", "fail"]), st.integers(-9, 9), st.integers(-9, 9)),
        max_size=12,
    ),
)
def test_they_are_what_a_list_is(per_entry: int, acts: list[tuple[str, int, int]]) -> None:
    """Whatever is read, appended and cut off, and however often the store fails."""
    read = Reading("abcdefg", per_entry=per_entry)
    items, model = StoredItems(7, read), list("abcdefg")
    for act, one, other in acts:
        read.fails = act == "fail"
        if act == "append":
            items.append(str(one))
            model.append(str(one))
        elif act == "cut":
            del items[abs(one) :]
            del model[abs(one) :]
        elif act == "range":
            assert items[one:other] == model[one:other]
        elif act == "item" and -len(model) <= one < len(model):
            assert items[one] == model[one]
        elif act == "item":
            with pytest.raises(IndexError):
                items[one]
        elif act == "fail" and not items.is_loaded:
            with pytest.raises(StoreUnavailableError):
                items[:]
        assert len(items) == len(model)
    read.fails = False
    assert items[:] == model
    asked = [place for start, stop in read.asked for place in range(start, stop)]
    assert all(start < stop for start, stop in read.asked)
    if not any(act in {"cut", "fail"} for act, _, _ in acts):
        assert len(asked) == len(set(asked))
