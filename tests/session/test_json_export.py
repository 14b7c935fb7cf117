"""Sessions as JSON: what comes back, and what is told of data and values that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import SnapshotError
from handrail.session import Session, SlicePolicy, replace_latest
from tests.kit import refusal
from tests.session.samples import A, B, Happened, Mood, Note, Rich, Task
from tests.wording import Wording

TYPES = (Note, Happened, Rich, Task)
NOTE = "tests.session.samples:Note"

texts = st.text(st.characters(exclude_categories=["Cs"]))
notes = st.builds(Note, texts)
riches = st.builds(
    Rich,
    texts,
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(Mood),
    st.dates(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.lists(st.builds(Task, texts, texts)).map(tuple),
    st.dictionaries(texts, st.none() | notes),
)


@dataclass(frozen=True)
class Loose:
    """A value that may hold what JSON cannot say."""

    anything: Any


@dataclass(frozen=True)
class Special(Note):
    """A note, and more."""

    more: str = ""


@dataclass(frozen=True)
class Unsayable:
    """A class that has no form in JSON."""

    call: Callable[[], None]


def saved() -> dict[str, Any]:
    """A small saved session, decoded."""
    session = Session(session_id="s")
    session.dispatch(A)
    decoded: dict[str, Any] = json.loads(session.to_json())
    return decoded


@given(
    st.tuples(texts.filter(lambda text: text and "\0" not in text), st.dictionaries(texts, texts)),
    st.lists(notes),
    st.lists(riches),
    st.lists(st.builds(Happened, texts)),
)
def test_a_session_comes_back_as_it_was(
    name: tuple[str, dict[str, str]], some: list[Note], more: list[Rich], logged: list[Happened]
) -> None:
    """Its id, its tags, every item of every slice; and saved again it is the same text."""
    session = Session(session_id=name[0], tags=name[1])
    session[Note].seed(*some)
    session[Rich].seed(*more)
    for event in logged:
        session.dispatch(event)
    back = Session.from_json(session.to_json(), types=TYPES)
    assert (back.session_id, back.tags) == name
    assert back.kinds == session.kinds
    assert all(back[kind].all() == session[kind].all() for kind in session.kinds)
    assert back.to_json() == session.to_json()


def test_the_json_is_for_people() -> None:
    """Types stand in it by module and name, STATE and LOG apart, and empty slices not at all."""
    session = Session(session_id="s", tags={"run": "1"})
    session.dispatch(A)
    session.dispatch(Happened("h"))
    session[Task].seed(Task("k", "t"))
    session[Task].clear()
    assert json.loads(session.to_json()) == {
        "format": "handrail.session/1",
        "session_id": "s",
        "tags": {"run": "1"},
        "state": {NOTE: [{"text": "a"}]},
        "log": {"tests.session.samples:Happened": [{"what": "h"}]},
    }


def test_what_comes_back_is_a_session_like_any_other() -> None:
    """It grows in place, keeps to its policies, and takes reducers; the parent is given anew."""
    session, parent = Session(), Session()
    session.declare(Note, SlicePolicy.LOG)
    session.dispatch(A)
    session[Task].append(Task("k", "t"))
    back = Session.from_json(session.to_json().encode(), types=TYPES, parent=parent)
    back[Task].register(Task, replace_latest)
    before = back.snapshot()
    back.dispatch(B)
    back.dispatch(Task("k", "u"))
    back.restore(before)
    assert back[Note].all() == (A, B)
    assert back[Task].all() == (Task("k", "t"),)
    assert back.parent is parent


def test_a_type_that_was_not_passed_is_named(wording: Wording) -> None:
    """With what to do; nothing is imported to find it."""
    session = Session()
    session.dispatch(A)
    session.dispatch(Happened("h"))
    with pytest.raises(SnapshotError) as caught:
        Session.from_json(session.to_json(), types=(Happened,))
    assert NOTE in str(caught.value)
    assert "Happened" not in str(caught.value)
    assert str(caught.value) == wording


@pytest.mark.parametrize(
    "data", ["", "{", "null", "[]", "{}", "x", '{"format": "handrail.session/2"}', b"\xff", "\ud800", "[" * 100_000]
)
def test_what_is_no_saved_session_is_refused(data: str | bytes, wording: Wording) -> None:
    """The message says what to pass."""
    assert str(refusal(SnapshotError, Session.from_json, data, types=TYPES)) == wording


def test_data_that_was_cut_short_is_refused_wherever_it_was_cut() -> None:
    """No part of a session passes for the whole."""
    data = Session.to_json(Session(session_id="s", tags={"run": "1"}))
    for length in range(len(data)):
        refusal(SnapshotError, Session.from_json, data[:length], types=TYPES)


@pytest.mark.parametrize(
    "key,value",
    [
        pytest.param("session_id", 3, id="number as id"),
        pytest.param("session_id", None, id="no id"),
        pytest.param("tags", ["a"], id="list of tags"),
        pytest.param("tags", {"a": 1}, id="number as tag"),
        pytest.param("state", [], id="list of slices"),
        pytest.param("state", {NOTE: {}}, id="slice that is no list"),
        pytest.param("log", {NOTE: ["a"]}, id="text as item"),
        pytest.param("extra", 1, id="unknown key"),
    ],
)
def test_a_part_that_does_not_fit_is_named(key: str, value: object, wording: Wording) -> None:
    """By its path."""
    assert str(refusal(SnapshotError, Session.from_json, json.dumps({**saved(), key: value}), types=TYPES)) == wording


@pytest.mark.parametrize("item", [{}, {"text": 3}, {"text": "a", "more": 1}])
def test_an_item_that_does_not_fit_its_type_is_named(item: object, wording: Wording) -> None:
    """By slice and place, with what is wrong."""
    data = json.dumps({**saved(), "state": {NOTE: [{"text": "a"}, item]}})
    assert str(refusal(SnapshotError, Session.from_json, data, types=TYPES)) == wording


def test_two_types_of_one_name_are_refused(wording: Wording) -> None:
    """On either way: nothing would distinguish their slices."""

    def made() -> type[Any]:
        @dataclass(frozen=True)
        class Twin:
            text: str = ""

        return Twin

    one, other = made(), made()
    session = Session()
    session.dispatch(one())
    session.dispatch(other())
    assert str(refusal(SnapshotError, session.to_json)) == wording
    assert str(refusal(SnapshotError, Session.from_json, Session().to_json(), types=(one, other))) == wording
    Session.from_json(Session().to_json(), types=(one, one))


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", object()], ids=["nan", "inf", "half", "object"]
)
def test_an_item_that_json_cannot_say_is_named(value: object, wording: Wording) -> None:
    """By slice and place, with what is wrong."""
    session = Session()
    session[Loose].seed(Loose(1), Loose(value))
    assert str(refusal(SnapshotError, session.to_json)) == wording


def test_a_type_that_has_no_form_in_json_is_named(wording: Wording) -> None:
    """On either way."""
    session = Session()
    session.dispatch(Unsayable(print))
    assert str(refusal(SnapshotError, session.to_json)) == wording
    data = json.dumps({**saved(), "state": {"tests.session.test_json_export:Unsayable": [{}]}})
    assert str(refusal(SnapshotError, Session.from_json, data, types=(Unsayable,))) == wording


def test_an_item_that_would_come_back_as_less_is_refused(wording: Wording) -> None:
    """A subclass among the items of its base."""
    session = Session()
    session[Note].seed(A, Special("b", "c"))
    assert str(refusal(SnapshotError, session.to_json)) == wording
