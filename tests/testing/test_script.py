"""`handrail.testing.script`: scripts as data."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from handrail.errors import ScriptError
from handrail.testing import Call, Expect, Reply, Script
from tests.wording import Wording


def ids(script: Script) -> list[list[str]]:
    """The ids of the calls of each reply."""
    return [[call.id for call in reply.calls] for reply in script.replies]


def test_calls_are_numbered_by_their_place_in_the_script() -> None:
    """A run gets the same ids each time; an id that is given counts as a place all the same."""
    script = Script([Reply(calls=[Call("a"), Call("b", id="mine")]), Reply(text="Hm."), Reply(calls=[Call("c")])])
    assert ids(script) == [["call-1", "mine"], [], ["call-3"]]


def test_two_calls_of_one_id_are_refused(wording: Wording) -> None:
    """The error says in which reply the second one stands."""
    with pytest.raises(ScriptError) as caught:
        Script([Reply(calls=[Call("a", id="x")]), Reply(calls=[Call("b", id="x")])], name="desk")
    assert str(caught.value) == wording
    assert caught.value.step == 2


def test_a_reply_within_a_call_that_nobody_has_made_is_refused(wording: Wording) -> None:
    """It could never be played where it stands; the call itself may not be in the same reply."""
    within = Reply(calls=[Call("a", id="x")], within="x")
    with pytest.raises(ScriptError) as caught:
        Script([Reply(text="Hm."), within], name="desk")
    assert str(caught.value) == wording
    assert caught.value.step == 2


def test_arguments_are_sent_as_text() -> None:
    """As a provider sends them; text goes as it is, so that it need not be JSON."""
    assert Call("a", {"path": "é"}).arguments_text == '{"path": "\\u00e9"}'
    assert Call("a", '{"path": ').arguments_text == '{"path": '
    assert Call("a").arguments_text == "{}"


def test_arguments_that_are_no_json_are_refused(wording: Wording) -> None:
    """A model could not have sent them."""
    with pytest.raises(ScriptError) as caught:
        Script([Reply(calls=[Call("a", {"at": datetime(2026, 1, 1, tzinfo=UTC)})])])
    assert str(caught.value) == wording
    assert isinstance(caught.value.__cause__, TypeError)


def test_what_is_no_reply_is_refused(wording: Wording) -> None:
    """A bare text is a common slip."""
    replies: list[Any] = [Reply(text="Hm."), "Done."]
    with pytest.raises(ScriptError) as caught:
        Script(replies)
    assert str(caught.value) == wording
    assert caught.value.step == 2


@pytest.mark.parametrize("name", ["instructions", "tools", "texts"])
def test_a_text_where_a_list_is_due_is_refused(name: str, wording: Wording) -> None:
    """Each of its characters would be looked for."""
    given: dict[str, Any] = {name: "read_file"}
    with pytest.raises(ScriptError) as raised:
        Expect(**given)
    assert str(raised.value) == wording
