"""What a call has written is undone when the run ends in mid call, although its toolsets hear of no failure."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.toolsets import FunctionToolset
from typing_extensions import override

from handrail.adapters.pydantic_ai import tool_context
from handrail.agents import LoadedAgent, current_run
from handrail.errors import PromptEvaluationError
from handrail.session import Session
from handrail.testing import Call, Outcome, Reply
from tests.agents.desks import called, cut_off, desk, lines, outcomes, play, texts, write_line
from tests.agents.toolsets.traced import Trace
from tests.kit import soon
from tests.wording import Wording

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("A-28")]


class Committing(FunctionToolset[Any]):
    """A toolset that believes what it is told when it is left: without an exception, all went well."""

    def __init__(self, trace: Trace, end: Exception | None = None) -> None:
        super().__init__([self.change], id="committing")
        self.trace = trace
        self.end = end
        self.told: list[object] = []

    async def change(self, ctx: RunContext[Any]) -> str:
        """Write to the session and to a file, and then stay, or end the run."""
        write_line("half")
        await asyncio.to_thread(self._write_files)
        if self.end is not None:
            raise self.end
        await self.trace.at("written")
        return "written"

    def _write_files(self) -> None:
        root = current_run().filesystem(current_run().root)
        root.write_text("notes.txt", "half")
        root.write_text("new.txt", "half")

    @override
    async def __aexit__(self, *args: object) -> bool | None:
        self.told.append(args[0])
        return None


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that runs work on; the journal of its files is kept beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "notes.txt").write_text("before", encoding="utf-8")
    return folder


def ready(tmp_path: Path, toolset: Committing) -> tuple[LoadedAgent, Session]:
    """An agent with the toolset, and a session that holds a line."""

    async def keep() -> str:
        write_line("kept")
        return "kept"

    return desk(tmp_path / "project", tools=[keep], toolsets={"committing": toolset}), Session()


SCRIPT = [Reply(calls=[Call("keep")]), Reply(calls=[Call("change")])]


def check_undone(root: Path, session: Session, toolset: Committing) -> None:
    """What the call before has kept is there, and nothing of the one that was cut off, which is recorded as failed."""
    assert lines(session) == ["kept"]
    assert texts(root) == {"notes.txt": "before"}
    assert outcomes(session) == [("call-1", True), ("call-2", False)]
    assert toolset.told == [None]


async def test_a_run_that_is_cancelled_in_mid_call_undoes_the_call(tmp_path: Path, root: Path) -> None:
    """In session and files."""
    toolset = Committing(Trace(stays_at="written"))
    loaded, session = ready(tmp_path, toolset)
    await cut_off(toolset.trace, play(loaded, SCRIPT, session=session, root=root))
    check_undone(root, session, toolset)


async def test_a_call_that_ends_the_run_is_undone(tmp_path: Path, root: Path) -> None:
    """Its error reaches the caller unchanged."""
    end = PromptEvaluationError("that is enough", tool="change")
    toolset = Committing(Trace(), end)
    loaded, session = ready(tmp_path, toolset)
    with pytest.raises(PromptEvaluationError) as caught:
        await play(loaded, SCRIPT, session=session, root=root)
    assert caught.value is end
    check_undone(root, session, toolset)


async def test_a_call_that_the_deadline_cuts_off_is_undone(tmp_path: Path, root: Path, wording: Wording) -> None:
    """And the run ends with it."""
    toolset = Committing(Trace(stays_at="written"))
    loaded, session = ready(tmp_path, toolset)
    deadline = soon(timedelta(seconds=1))  # until then it has come to where it stays
    with pytest.raises(PromptEvaluationError) as caught:
        await play(loaded, SCRIPT, session=session, root=root, deadline=deadline)
    assert str(caught.value) == wording
    assert caught.value.phase == "tool"
    check_undone(root, session, toolset)


async def test_a_call_that_fails_is_undone_and_the_run_goes_on(tmp_path: Path, root: Path) -> None:
    """The model reads what went wrong."""
    toolset = Committing(Trace(), OSError("the disk is full"))
    loaded, session = ready(tmp_path, toolset)
    script = [SCRIPT[0], *called(Call("change"), c1=Outcome.failed("the disk is full"))]
    result = await play(loaded, script, session=session, root=root)
    assert result.status == "done"
    assert lines(session) == ["kept"]
    assert texts(root) == {"notes.txt": "before"}


async def test_what_a_nested_run_has_committed_stays_when_a_later_call_of_it_is_undone(
    tmp_path: Path, root: Path
) -> None:
    """The calls of an agent are transactions of their own; only the one that was cut off is undone."""
    toolset = Committing(Trace(stays_at="written"))
    kept: list[Session] = []

    async def keep() -> str:
        context = tool_context()
        assert context is not None
        kept.append(context.session)
        write_line("kept")
        return "kept"

    child = "---\nname: child\ntools: [keep]\ntoolsets: [committing]\n---\nWork.\n"
    loaded = desk(
        tmp_path / "project",
        tools=[keep],
        toolsets={"committing": toolset},
        also=["child"],
        others={"child.agent": child},
    )
    session = Session()
    script = [
        Reply(calls=[Call("child", {"input": "Go."}, id="c1")]),
        Reply(calls=[Call("keep", id="n1")], within="c1"),
        Reply(calls=[Call("change", id="n2")], within="c1"),
    ]
    await cut_off(toolset.trace, play(loaded, script, session=session, root=root))
    assert lines(kept[0]) == ["kept"]
    assert texts(root) == {"notes.txt": "before"}
    assert outcomes(kept[0]) == [("n1", True), ("n2", False)]
    assert outcomes(session) == [("c1", False)]
    assert toolset.told == [None, None]
