"""A recording: what a file has, and files that are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import SessionError, SessionNotFoundError
from handrail.replay import Recording, replay
from handrail.runtime import Session, ToolCall
from handrail.store import Store
from tests.kit import executor, raises, tool
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def loop(session: Session) -> ToolExecutor:
    """What carries the calls out."""
    return executor(tool("note"), tool("send", effect="external"), session=session)


def fill(store: Store) -> None:
    """A session with a fork, which is answered with an effect of it, and a session below that."""
    asked = [ToolCall("c0", "note", {"text": "a"}), ToolCall("c1", "send", {"text": "b"})]
    with Session.open(store, "s", tags={"for": "tests"}) as session:
        for number in range(2):
            loop(session).execute_all(asked, reply=f"r{number}")
        with session.fork(session_id="f", at=("r0", "c1")) as fork, fork.child(session_id="f/child") as child:
            for one in (fork, child):
                loop(one).execute_all(asked, reply="r1")


async def test_fork_is_recorded_with_its_origin(tmp_path: Path) -> None:
    """With the effects that answer it, and the sessions below it; of no process."""
    with stores.open("memory:") as store:
        fill(store)
        recording = Recording.of(store, "f")
    recording.save(tmp_path / "f.json")
    assert Recording.load(tmp_path / "f.json") == recording
    assert [row.session_id for row in recording.rows] == ["s", "f", "f/child"]
    assert {row.owner.process for row in recording.effects} == {""}
    outcome = await replay(recording, loop)
    assert (outcome.equal, [call.name for call in outcome.calls]) == (True, ["r1/c0", "r1/c1"]), outcome.differences


@pytest.mark.parametrize("text", ["", "{}", '{"session_id": "s", "rows": [], "entries": [], "format": "other/1"}'])
def test_other_file_is_refused(tmp_path: Path, text: str, wording: Wording) -> None:
    """Whatever it has."""
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SessionError) as refused:
        Recording.load(path)
    assert str(refused.value).replace(str(path), "FILE") == wording


def test_recording_that_was_cut_is_refused(tmp_path: Path, wording: Wording) -> None:
    """It would be equal to everything."""
    path = tmp_path / "s.json"
    with stores.open("memory:") as store:
        fill(store)
        recording = Recording.of(store, "s")
    replace(recording, entries=recording.entries[:3]).save(path)
    with pytest.raises(SessionError) as refused:
        Recording.load(path)
    assert str(refused.value).replace(str(path), "FILE") == wording


def test_session_that_does_not_exist_is_refused(wording: Wording) -> None:
    """There is nothing to record."""
    with stores.open("memory:") as store, raises(SessionNotFoundError, wording):
        Recording.of(store, "none")
