"""Reducers by name, by key, and as methods of a state slice."""

from __future__ import annotations

from dataclasses import dataclass

from handrail.errors import ReducerError
from handrail.session import Append, Replace, SliceView, Unchanged, reducer, upsert_by
from handrail.session.reducers import collect_methods
from handrail.session.slices import SliceOwner, Version
from tests.kit import refusal
from tests.session.samples import Add, Note, Reset, Task, Total
from tests.wording import Wording


def view_of(*items: Task) -> SliceView[Task]:
    """A slice that holds the items."""
    return SliceView(Version(SliceOwner("me"), list(items), len(items)))


def key_of(task: Task) -> str:
    """What a task is known by."""
    return task.key


def test_upsert_appends_an_event_with_a_new_key() -> None:
    """It is the newest of its key."""
    upsert = upsert_by(key_of)
    assert upsert(view_of(Task("a", "1")), Task("b", "2")) == Append(Task("b", "2"))
    assert upsert(view_of(), Task("b", "2")) == Append(Task("b", "2"))


def test_upsert_puts_an_event_in_the_place_of_its_key() -> None:
    """Of several with its key, the place of the first."""
    upsert = upsert_by(key_of)
    view = view_of(Task("a", "1"), Task("b", "2"), Task("c", "3"), Task("b", "4"))
    assert upsert(view, Task("b", "5")) == Replace((Task("a", "1"), Task("b", "5"), Task("c", "3")))


def test_upsert_leaves_items_of_other_keys_as_they_are() -> None:
    """Also several of one key, as a seed may have them; those of its own key become one."""
    view = view_of(Task("a", "1"), Task("b", "1"), Task("a", "2"), Task("c", "1"), Task("b", "2"))
    assert upsert_by(key_of)(view, Task("b", "3")) == Replace(
        (Task("a", "1"), Task("b", "3"), Task("a", "2"), Task("c", "1"))
    )


def test_a_state_slice_becomes_what_its_method_returns() -> None:
    """An instance of the class, or a change."""
    methods = collect_methods(Total, None)
    view = SliceView(Version(SliceOwner("me"), [Total(2)], 1))
    assert list(methods) == [Add, Reset]
    assert methods[Add](view, Add(3)) == Replace((Total(5),))
    assert methods[Reset](view, Reset()) == Append(Total(0))


def test_an_empty_state_slice_passes_events_over() -> None:
    """Until it is seeded, or if it says what it begins with, from there."""
    empty = SliceView[Total](None)
    assert collect_methods(Total, None)[Add](empty, Add(3)) == Unchanged()
    assert collect_methods(Total, lambda: Total(10))[Add](empty, Add(3)) == Replace((Total(13),))


def test_a_method_may_take_several_events() -> None:
    """One mark for each."""

    @dataclass(frozen=True)
    class Count:
        seen: int = 0

        @reducer(on=Add)
        @reducer(on=Reset)
        def count(self, _event: Add | Reset) -> Count:
            return Count(self.seen + 1)

    methods = collect_methods(Count, Count)
    assert list(methods) == [Add, Reset]
    assert methods[Reset](SliceView(None), Reset()) == Replace((Count(1),))


def test_methods_are_inherited_and_overridden() -> None:
    """As methods are: what a subclass writes anew counts, marked or not."""

    @dataclass(frozen=True)
    class Doubled(Total):
        @reducer(on=Add)
        def add(self, event: Add) -> Doubled:
            return Doubled(self.amount + 2 * event.amount)

        def reset(self, _event: Reset) -> Unchanged:
            return Unchanged()

    methods = collect_methods(Doubled, lambda: Doubled(0))
    assert list(methods) == [Add]
    assert methods[Add](SliceView(None), Add(3)) == Replace((Doubled(6),))


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
