"""What a tool of an agent file finds by `current_run()`: the run, with views that are bound to its call."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.agents import Answer, RunOptions, load_agent
from handrail.runtime import Session, ToolInvoked
from handrail.testing import Call, Reply, ScriptedModel
from tests.agents import active_run_notes
from tests.agents.active_run_notes import Note

TOOLS = """
from handrail import tool
from tests.agents.active_run_notes import plain, path_of_run

decorated = tool(name="decorated")(plain)
TOOLS = [plain, decorated, path_of_run]
"""


@pytest.mark.parametrize("name", ["plain", "decorated"])
@pytest.mark.parametrize("fails", [True, False])
def test_session_and_files_that_a_tool_keeps_are_fenced(tmp_path: Path, name: str, *, fails: bool) -> None:
    """Its thread writes as part of the call, whose failure undoes it, and is refused when the call has ended."""
    (tmp_path / "desk.agent").write_text("---\nname: desk\ntools: [plain, decorated, path_of_run]\n---\nHello.\n")
    (tmp_path / "tools.py").write_text(TOOLS)
    session, root = Session(), tmp_path / "root"
    root.mkdir()
    calls = [Call(name, {"fails": fails}), Call("path_of_run", {})]
    model = ScriptedModel([Reply(calls=calls), Reply(text="Done.")])
    options = RunOptions(session=session, model=model, root=root, asker=lambda _: Answer("yes"))
    load_agent(tmp_path / "desk.agent").run("Note it.", options)
    assert [event.success for event in session[ToolInvoked]] == [not fails, True]
    assert session[ToolInvoked].all()[1].result.render() == "desk"
    kept = [] if fails else [Note("in a thread")]
    assert [*session[Note]] == kept
    assert sorted(path.name for path in root.iterdir()) == [note.text for note in kept]
    assert active_run_notes.late() == ["TransactionClosedError", "TransactionClosedError"]
    assert [*session[Note]] == kept
