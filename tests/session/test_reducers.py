"""Reducers and the rules of slices."""

from __future__ import annotations

from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any

import pytest

from handrail.errors import ReducerError, SessionError
from handrail.session import (
    Append,
    Replace,
    Session,
    SlicePolicy,
    SliceView,
    Unchanged,
    append_all,
    reducer,
    replace_latest,
    upsert_by,
)
from handrail.session.reducers import collect_methods
from handrail.session.slices import SliceOwner, Version
from tests.kit import refusal
from tests.session.samples import A, Add, B, Happened, Note, Reset, Task, Total
from tests.transaction.notebooks import call
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


class Plain:
    """Not a dataclass."""


NO_DATACLASSES: list[Any] = [Plain, str, 3, A, list[Note], None]


@pytest.mark.parametrize("kind", NO_DATACLASSES, ids=repr)
def test_a_slice_is_of_a_dataclass(kind: type[Any], wording: Wording) -> None:
    """The message names what was given, and what to give."""
    with pytest.raises(SessionError) as raised:
        Session()[kind]
    assert str(raised.value) == wording


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

    with pytest.raises(SessionError) as raised:
        Session()[Torn]
    assert str(raised.value) == wording


@pytest.mark.parametrize("event", [A, Happened("a")])
def test_a_session_says_otherwise_by_declaring(event: Note | Happened) -> None:
    """For itself, and for its forks."""
    session, kind = Session(), type(event)
    session.declare(kind, SlicePolicy.LOG if kind is Note else SlicePolicy.STATE)
    fork = session.fork()
    for each in (session, fork):
        with call(each):
            each.dispatch(event)
        assert each[kind].all() == ((event,) if kind is Note else ())
        with call(each) as transaction:
            each[kind].append(event)
            transaction.commit()
        assert each[kind].latest() == event


def test_a_slice_in_use_keeps_its_policy(wording: Wording) -> None:
    """Also one that only an open call has written to, which nobody else sees yet."""
    session = Session()
    session.dispatch(Happened("a"))
    assert str(refusal(SessionError, session.declare, Happened, SlicePolicy.STATE)) == wording
    with call(session):
        session.dispatch(A)
    session.declare(Note, SlicePolicy.LOG)


def test_a_slice_that_an_open_call_has_written_to_is_in_use(wording: Wording) -> None:
    """Whoever asks: the call itself, or somebody who does not see what it wrote."""
    session = Session()
    with call(session):
        session.dispatch(A)
        for context in (copy_context(), Context()):
            assert str(refusal(SessionError, context.run, session.declare, Note, SlicePolicy.LOG)) == wording


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
    """It gets every event of its own type; neither registering nor declaring brings the two together."""
    session = Session()
    assert str(refusal(ReducerError, session[Happened].register, Happened, replace_latest)) == wording
    session[Note].register(Note, replace_latest)
    assert str(refusal(ReducerError, session.declare, Note, SlicePolicy.LOG)) == wording
    session.declare(Note, SlicePolicy.STATE)


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
