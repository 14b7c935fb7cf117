"""What a session is made with is checked before anything is written."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from handrail.errors import InvalidArgumentError
from handrail.session import Session
from handrail.store import Store
from handrail.testing import FakeClock
from tests.kit import refusal
from tests.store.stores import STORES
from tests.wording import Wording

WRONG: dict[str, dict[str, Any]] = {
    "a number as id": {"session_id": 7},
    "a lone surrogate": {"session_id": "s\ud800"},
    "a lone surrogate as tag": {"tags": {"customer": "\ud800"}},
    "a lone surrogate in the name of a tag": {"tags": {"a\ud800": "7"}},
    "a number as tag": {"tags": {"customer": 7}},
    "no tag at all": {"tags": {"customer": None}},
    "a number as the name of a tag": {"tags": {7: "a"}},
    "a list of tags": {"tags": ["urgent"]},
    "an id as parent": {"parent": "s"},
    "a function as dispatcher": {"dispatcher": print},
}


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> Generator[Store]:
    """Each kind of store."""
    with STORES[request.param](FakeClock()) as made:
        yield made


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_it_is_refused_for_a_session_in_memory(given: dict[str, Any], wording: Wording) -> None:
    """The message has what was given, and what is expected."""
    with pytest.raises(InvalidArgumentError) as caught:
        Session(**given)
    assert caught.value.function == "Session"
    assert str(caught.value) == wording


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_it_is_refused_before_a_store_has_the_session(store: Store, given: dict[str, Any]) -> None:
    """A tag that was no text was written, and the session could never be opened again. It is refused as in memory."""
    with pytest.raises(InvalidArgumentError) as in_memory:
        Session(**given)
    arguments: dict[str, Any] = {"session_id": "desk", **given}
    with pytest.raises(InvalidArgumentError) as caught:
        Session.open(store, **arguments)
    assert caught.value.argument == in_memory.value.argument
    assert caught.value.expected == in_memory.value.expected
    assert caught.value.given is in_memory.value.given
    assert store.find("desk") is None
    with Session.open(store, "desk", tags={"customer": "7"}) as session:
        assert session.tags == {"customer": "7"}


def test_children_and_forks_are_held_to_the_same(store: Store, wording: Wording) -> None:
    """They are stored beside their session."""
    wrong: Any = 7
    with Session.open(store, "desk") as session:
        assert str(refusal(InvalidArgumentError, session.child, session_id="child", tags={"a": wrong})) == wording
        for session_id in (wrong, "", "a\0b"):
            assert str(refusal(InvalidArgumentError, session.fork, session_id=session_id)) == wording
        assert store.find("child") is None


def test_a_stored_session_is_opened_by_its_id(store: Store, wording: Wording) -> None:
    """In memory a session may make one; a stored one could not be found again."""
    wrong: Any = None
    assert str(refusal(InvalidArgumentError, Session.open, store, wrong)) == wording


STORES_GIVEN: dict[str, Any] = {"a URL": "sqlite:///desk.db", "a path": Path("desk.db"), "nothing": None}


@pytest.mark.parametrize("given", STORES_GIVEN.values(), ids=STORES_GIVEN)
def test_what_is_not_a_store_is_refused(given: Any, wording: Wording) -> None:
    """The message says how to open one."""
    with pytest.raises(InvalidArgumentError) as caught:
        Session.open(given, "desk")
    assert str(caught.value) == wording
    assert (caught.value.argument, caught.value.given) == ("store", type(given))


@pytest.mark.parametrize(
    "options",
    [{"wait": 5}, {"types": ["Plan"]}, {"types": 7}, {"types": [complex]}],
    ids=["number as wait", "name of a type", "number as types", "no type of data"],
)
def test_how_it_is_opened_is_checked_too(store: Store, options: dict[str, Any], wording: Wording) -> None:
    """Before the session is begun."""
    assert str(refusal(InvalidArgumentError, Session.open, store, "desk", **options)) == wording
    assert store.find("desk") is None
