"""`handrail run --plan` and `handrail apply`: a plan is written, shown, and executed as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.runtime import ToolInvoked
from tests.cli.agent_folders import call, script
from tests.cli.desk import Command, Run, Terminal
from tests.wording import Wording

TOOLS = """\
from pathlib import Path
from handrail import tool
from handrail.prompt import ToolResult
def preview(params):
    return ToolResult.ok("written")
@tool(effect="external", preview=preview)
def note(text: str) -> str:
    "Notes something."
    with Path("notes").open("a") as notes:
        notes.write(f"{text};")
    return "written"
@tool(effect="external")
def look() -> str:
    "Looks outside."
    return "seen"
TOOLS = [note, look]
"""
URL = "sqlite:///notes.db"


@pytest.fixture
def model(folder: Path) -> str:
    """A model that notes one thing."""
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")
    return script(folder, {"calls": [call("note", text="milk")]}, {"text": "Noted."})


@pytest.fixture
def handrail(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command."""
    return Command("", capsys)


def notes(folder: Path) -> str:
    """What was noted."""
    return (folder / "notes").read_text(encoding="utf-8") if (folder / "notes").exists() else ""


def test_plan_is_written_and_executed(run: Run, handrail: Command, folder: Path, model: str, wording: Wording) -> None:
    """Nothing is changed before it is applied, and it is applied once."""
    planned = run("Note milk.", "--model", model, "--plan", "plan.json", "--store", URL, "--session", "today")
    assert (planned.code, planned.out, notes(folder)) == (0, wording, "")
    with stores.open(URL) as store:
        assert [*store.sessions()] == []
    applied = handrail("apply", "plan.json", "--yes")
    assert (applied.code, applied.out, notes(folder)) == (0, "Noted.\n", "milk;")
    with stores.open(URL) as store, store.session("today") as session:
        assert [event.name for event in session[ToolInvoked]] == ["note"]
    again = handrail("apply", "plan.json", "--yes")
    assert (again.code, again.err, notes(folder)) == (1, wording, "milk;")


def test_person_is_asked_once(run: Run, folder: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the table of the calls; a no executes nothing."""
    assert run("Note milk.", "--model", model, "--plan", "plan.json", "--store", URL).code == 0
    terminal = Terminal(monkeypatch)
    assert terminal.run("apply", "plan.json", typed="n\n") == 1
    assert notes(folder) == ""
    assert terminal.run("apply", "plan.json", typed="y\n") == 0
    assert notes(folder) == "milk;"


def test_plan_that_ends_early_is_not_executed(run: Run, handrail: Command, folder: Path, wording: Wording) -> None:
    """Exit code 1, and where it ends."""
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")
    model = script(folder, {"calls": [call("note", text="milk"), call("look", "two")]}, {"text": "Noted."})
    planned = run("Note milk.", "--model", model, "--plan", "plan.json", "--store", URL, "--session", "today")
    assert (planned.code, planned.out) == (1, wording)
    assert handrail("apply", "plan.json", "--yes").code == 1
    assert notes(folder) == ""


def test_plan_is_executed_only_where_it_was_made(
    run: Run, handrail: Command, folder: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths mean the same there; without a terminal there is a yes; a store is needed."""
    assert run("Note milk.", "--model", model, "--plan", "plan.json").code == 2
    assert run("Note milk.", "--model", model, "--plan", "plan.json", "--store", URL).code == 0
    assert handrail("apply", "plan.json").code == 2
    assert handrail("apply", "plan.json", "--yes", "--store", URL).code == 0
    monkeypatch.chdir(folder.parent)
    assert handrail("apply", str(folder / "plan.json"), "--yes", "--store", URL).code == 1
    assert notes(folder) == "milk;"


def test_file_that_is_not_a_plan_is_refused(handrail: Command, folder: Path, run: Run, model: str) -> None:
    """Nor is one that a person has edited, or that a program has made."""
    for text in ("", "{}", "[]", '{"format": "handrail.plan/9"}', '{"format": "handrail.plan/1"}'):
        (folder / "plan.json").write_text(text, encoding="utf-8")
        assert handrail("apply", "plan.json", "--yes").code == 1
    assert run("Note milk.", "--model", model, "--plan", "plan.json", "--store", URL).code == 0
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    plan["calls"][0]["arguments"]["text"] = "beer"
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    assert handrail("apply", "plan.json", "--yes").code == 1
    assert notes(folder) == ""
