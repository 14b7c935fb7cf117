"""Slices, their reducers and rules, their state for writers and readers, and items that stay in a store."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Barrier, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import ReducerError, SessionError, StoreUnavailableError
from handrail.session import (
    Append,
    Replace,
    Session,
    Unchanged,
    append_all,
    reducer,
    replace_latest,
    upsert_by,
)
from handrail.session.reducers import collect_methods
from handrail.session.slices import SliceOwner, SliceView, StateSlices, StoredItems, Version
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.kit import raises, refusal
from tests.session.samples import A, Add, B, C, D, Happened, Note, Reset, Task, Total
from tests.transaction.notebooks import call
from tests.wording import Wording

ME = SliceOwner("me")


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
    assert (view.latest(), view.all(), view.where(lambda item: item != "b")) == ("c", ("a", "b", "c"), ("a", "c"))


@pytest.mark.parametrize("index", [2, -3, 100])
def test_a_view_has_nothing_beyond_its_length(index: int, wording: Wording) -> None:
    """Also where the list goes on, because a newer version has grown it."""
    version = version_of("a", "b")
    version.append(ME, "c")
    with raises(IndexError, wording):
        SliceView(version)[index]


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
    """Two of one moment are one mapping, however much is in it; the next append grows the list that they look at."""
    session = filled()
    one, other = session.snapshot(), session.snapshot()
    items = items_of(session)
    assert one.slices is other.slices
    assert one.slices[Note].items is items
    session.dispatch(A)
    assert items_of(session) is items
    session.restore(one)
    assert session[Note].all() == MANY


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
def test_nothing_is_cut_off_that_is_held_outside_the_call(hold: Any) -> None:
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
            del items[7 + abs(one) :]
            del model[7 + abs(one) :]
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


def view_of(*items: Task) -> SliceView[Task]:
    """A slice that holds the items."""
    return SliceView(Version(SliceOwner("me"), list(items), len(items)))


def key_of(task: Task) -> str:
    """What a task is known by."""
    return task.key


def test_upsert_puts_an_event_in_the_place_of_its_key() -> None:
    """Of several with its key, the place of the first; a new one is the newest. Other keys stay as they are."""
    upsert = upsert_by(key_of)
    for before in (view_of(Task("a", "1")), view_of()):
        assert upsert(before, Task("b", "2")) == Append(Task("b", "2"))
    view = view_of(Task("a", "1"), Task("b", "1"), Task("a", "2"), Task("c", "1"), Task("b", "2"))
    left = (Task("a", "1"), Task("b", "3"), Task("a", "2"), Task("c", "1"))
    assert upsert(view, Task("b", "3")) == Replace(left)


def test_methods_are_inherited_and_overridden() -> None:
    """As methods are: what a subclass writes anew counts, marked or not, for each event of its marks."""

    @dataclass(frozen=True)
    class Doubled(Total):
        @reducer(on=Add)
        @reducer(on=Note)
        def add(self, event: Add | Note) -> Doubled:
            return Doubled(self.amount + 2)

        def reset(self, _event: Reset) -> Unchanged:
            return Unchanged()

    methods = collect_methods(Doubled, lambda: Doubled(0))
    assert list(methods) == [Add, Note]
    assert methods[Add](SliceView(None), Add(3)) == methods[Note](SliceView(None), A) == Replace((Doubled(2),))


def test_a_method_that_returns_nothing_is_told(wording: Wording) -> None:
    """The message names the method and what to return."""

    @dataclass(frozen=True)
    class Forgetful:
        @reducer(on=Add)
        def add(self, event: Add) -> None:
            pass

    reduce = collect_methods(Forgetful, Forgetful)[Add]
    assert str(refusal(ReducerError, reduce, SliceView(None), Add(1))) == wording


def test_two_methods_for_one_event_are_refused(wording: Wording) -> None:
    """Nothing would say which one decides."""

    @dataclass(frozen=True)
    class Torn:
        @reducer(on=Add)
        def one(self, _event: Add) -> Torn:
            return self

        @reducer(on=Add)
        def other(self, _event: Add) -> Torn:
            return self

    assert str(refusal(ReducerError, collect_methods, Torn, None)) == wording


def test_a_class_without_marked_methods_is_refused(wording: Wording) -> None:
    """There would be nothing to install."""
    assert str(refusal(ReducerError, collect_methods, Note, None)) == wording


class Plain:
    """Not a dataclass."""


NO_DATACLASSES: list[Any] = [Plain, str, 3, A, list[Note], None]


@pytest.mark.parametrize("kind", NO_DATACLASSES, ids=repr)
def test_a_slice_is_of_a_dataclass(kind: type[Any], wording: Wording) -> None:
    """The message names what was given, and what to give."""
    with raises(SessionError, wording):
        Session()[kind]


def test_only_instances_of_dataclasses_are_events(wording: Wording) -> None:
    """Nothing is taken in."""
    session = Session()
    for event in ("text", Note, Plain()):
        assert str(refusal(SessionError, session.dispatch, event)) == wording
    assert session.kinds == ()


def test_a_class_that_says_something_else_is_refused(wording: Wording) -> None:
    """The message says what to write."""

    @dataclass(frozen=True)
    class Torn:
        slice_policy = "log"

    with raises(SessionError, wording):
        Session()[Torn]


def test_reducers_of_one_event_decide_on_a_slice_each() -> None:
    """The event's own slice among them, if one is registered for it."""
    session = Session()
    session[Note].register(Note, replace_latest)
    session[Task].register(Note, lambda _view, note: Append(Task(note.text, "")))
    session.dispatch(A)
    session.dispatch(B)
    assert session[Note].all() == (B,)
    assert session[Task].all() == (Task("a", ""), Task("b", ""))


def test_registering_a_reducer_again_changes_nothing() -> None:
    """A section that is used by two prompts registers twice."""
    session = Session()
    for _ in range(2):
        session[Note].register(Note, append_all)
    session.dispatch(A)
    assert session[Note].all() == (A,)


def test_another_reducer_of_a_slice_for_the_same_event_is_refused(wording: Wording) -> None:
    """Nothing would say which one decides; the first stays."""
    session = Session()
    session[Note].register(Note, append_all)
    assert str(refusal(ReducerError, session[Note].register, Note, replace_latest)) == wording
    session.dispatch(A)
    session.dispatch(B)
    assert session[Note].all() == (A, B)


def test_events_and_slices_of_reducers_are_dataclasses() -> None:
    """Nothing is registered."""
    session = Session()
    with pytest.raises(SessionError, match="Plain"):
        session.register(Note, lambda _view, _event: Unchanged(), into=Plain)
    with pytest.raises(SessionError, match="Plain"):
        session.register(Plain, lambda _view, _event: Unchanged(), into=Note)
    assert not session.slices.listens(Plain)
    assert not session.slices.listens(Note)


def test_no_reducer_decides_on_a_log(wording: Wording) -> None:
    """It gets every event of its own type; and no other."""
    session = Session()
    assert str(refusal(ReducerError, session[Happened].register, Happened, replace_latest)) == wording


def test_an_installed_state_slice_follows_its_methods() -> None:
    """From what it is seeded with, or from what it says it begins with."""
    seeded, begun = Session(), Session()
    seeded.install(Total)
    begun.install(Total, initial=lambda: Total(100))
    for session in (seeded, begun):
        session.dispatch(Add(1))
    seeded[Total].seed(Total(10))
    for session in (seeded, begun):
        session.dispatch(Add(2))
    assert (seeded[Total].all(), begun[Total].all()) == ((Total(12),), (Total(103),))
    begun.dispatch(Reset())
    begun.dispatch(Reset())
    assert begun[Total].all() == (Total(103), Total(0))


def test_a_slice_with_reducers_is_not_installed(wording: Wording) -> None:
    """Neither twice nor beside others."""
    session = Session()
    session[Total].register(Add, lambda _view, _event: Unchanged())
    assert str(refusal(ReducerError, session.install, Total)) == wording
    assert not session.slices.listens(Reset)


def test_what_cannot_be_installed_whole_is_not_installed() -> None:
    """One of its events is not a dataclass."""

    @dataclass(frozen=True)
    class Half:
        @reducer(on=Add)
        def add(self, _event: Add) -> Half:
            return self

        @reducer(on=Plain)
        def plain(self, _event: Plain) -> Half:
            return self

    session = Session()
    with pytest.raises(SessionError, match="Plain"):
        session.install(Half)
    assert not session.slices.listens(Add)


def test_a_fork_takes_the_rules_with_it_and_goes_its_own_way() -> None:
    """What is registered later is registered with one of them."""
    session = Session()
    session[Note].register(Note, replace_latest)
    fork = session.fork()
    fork[Task].register(Note, lambda _view, note: Append(Task(note.text, "")))
    session[Total].register(Note, lambda _view, _event: Append(Total(1)))
    for each in (session, fork):
        each.dispatch(A)
        each.dispatch(B)
    assert (session.kinds, fork.kinds) == ((Note, Total), (Note, Task))
    assert session[Note].all() == fork[Note].all() == (B,)
