"""A scripted model is run again on one session: its ids are taken there, and its script plays as it did before."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.errors import ScriptError
from handrail.runtime import ToolInvoked
from handrail.session import Session
from handrail.testing import Call, Expect, Outcome, Reply
from tests.agents.desks import Line, desk, lines, play, write_line
from tests.agents.folders import agent
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def jot(text: str) -> str:
    """Jot a line down."""
    write_line(text)
    return f"jotted {text}"


def script(text: str) -> list[Reply]:
    """Two calls of one reply, by ids of the script and by counted ones, and what is expected of them."""
    came = Expect(messages={"first": Outcome.ok(f"jotted {text}"), "call-2": Outcome.ok("jotted too")})
    calls = [Call("jot", {"text": text}, id="first"), Call("jot", {"text": "too"})]
    return [Reply(calls=calls), Reply(text="Done.", expect=came)]


async def test_a_script_is_run_again_on_one_session(tmp_path: Path) -> None:
    """Its calls are new ones: each run makes them, and expects what came of its own."""
    loaded, session = desk(tmp_path, tools=[jot]), Session()
    for text in ("milk", "bread", "milk"):
        assert (await play(loaded, script(text), session=session)).output == "Done."
    assert lines(session) == ["milk", "too", "bread", "too", "milk", "too"]
    assert len({event.call_id for event in session[ToolInvoked]}) == len(session[Line].all())


async def test_what_differs_is_told_by_the_ids_of_the_script(tmp_path: Path, wording: Wording) -> None:
    """Also where the session has taken them."""
    loaded, session = desk(tmp_path, tools=[jot]), Session()
    await play(loaded, script("milk"), session=session)
    wrong = [script("bread")[0], script("milk")[1]]
    with pytest.raises(ScriptError) as raised:
        await play(loaded, wrong, session=session)
    assert str(raised.value) == wording


async def test_a_script_with_called_agents_is_run_again_on_one_session(tmp_path: Path) -> None:
    """`within` names a call as the script does."""
    others = {"clerk.agent": agent("clerk", tools="[jot]")}
    loaded, session = desk(tmp_path, tools=[jot], also=["clerk"], others=others), Session()
    replies = [
        Reply(calls=[Call("clerk", {"input": "Jot."}, id="ask")]),
        Reply(calls=[Call("jot", {"text": "milk"}, id="note")], within="ask"),
        Reply(text="jotted", within="ask", expect=Expect(messages={"note": Outcome.ok("jotted milk")})),
        Reply(text="Done.", expect=Expect(messages={"ask": Outcome.ok("jotted")})),
    ]
    for _ in range(2):
        assert (await play(loaded, replies, session=session)).output == "Done."
