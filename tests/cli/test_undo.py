"""`handrail undo`: the plan as a table and as JSON, what a person is asked, and what is undone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.runtime import Session, ToolInvoked
from handrail.session.conversation import ConversationPart
from tests.cli.agent_folders import call, script, write
from tests.cli.desk import Command, Run
from tests.wording import Wording

AGENT = """\
---
name: desk
tools: [pay, mail]
toolsets: [files]
---
You pay.
"""

TOOLS = """\
from pathlib import Path
from handrail import ToolExecutor, tool

def refund(params, result, before):
    if Path("closed").exists():
        raise ConnectionRefusedError("the bank is closed")
    Path("book").write_text(Path("book").read_text().replace(params.order, ""))

@tool(effect="external", undo=refund)
def pay(order: str) -> str:
    "Pays."
    with Path("book").open("a") as book:
        book.write(order)
    return "paid"

@tool(effect="external")
def mail(to: str) -> str:
    "Sends a mail."
    return "sent"

TOOLS = [pay, mail]

def desk(session):
    return ToolExecutor([pay, mail], session=session)

def clerk(session):
    return "nobody"
"""

STORE = ("--store", "sqlite:///pay.db")


@pytest.fixture
def desk(folder: Path, run: Run) -> Path:
    """A folder in which an agent has paid, and written a file."""
    write(folder, desk__agent=AGENT, tools__py=TOOLS, kept__txt="as it was\n")
    calls = [
        call("pay", "c1", order="A-1"),
        call("write_file", "c2", path="new.txt", content="new"),
        call("pay", "c3", order="B-2"),
    ]
    model = script(folder, {"calls": calls}, {"text": "Done."})
    ran = run("pay it", "--model", model, *STORE, "--session", "monday", "--approve", "approve-all")
    assert ran.out == "Done.\n", ran.err
    assert (folder / "book").read_text() == "A-1B-2"
    return folder


def test_what_an_agent_has_done_is_undone(desk: Path, handrail: Command, wording: Wording) -> None:
    """With the tools, the rules and the folder of its run; its conversation says what was undone."""
    plan = handrail("undo", "monday", *STORE, "--dry-run")
    assert (plan.code, plan.err) == (0, "")
    assert plan.out == wording
    assert (desk / "book").read_text() == "A-1B-2"
    done = handrail("undo", "monday", *STORE, "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith("Undone: ")
    assert (desk / "book").read_text() == ""
    assert not (desk / "new.txt").exists()
    with stores.open(STORE[1]) as store, Session.open(store, "monday") as session:
        assert "have been undone" in str(session[ConversationPart].all()[-1].messages)
        assert session[ConversationPart].all()[-1].ended
    again = handrail("undo", "monday", *STORE, "--yes")
    assert (again.code, again.out) == (0, wording)


def test_a_session_goes_on_after_an_undo(desk: Path, handrail: Command, run: Run) -> None:
    """The model reads what was undone with the next input."""
    assert handrail("undo", "monday", *STORE, "--yes").code == 0
    model = script(desk, {"calls": [call("pay", "c9", order="C-3")]}, {"text": "Paid again."})
    ran = run("pay again", "--model", model, *STORE, "--session", "monday", "--approve", "approve-all")
    assert ran.out == "Paid again.\n"
    assert (desk / "book").read_text() == "C-3"


def test_a_plan_that_leaves_calls_is_refused(desk: Path, handrail: Command, run: Run, wording: Wording) -> None:
    """Unless it may be partial."""
    model = script(desk, {"calls": [call("mail", "m1", to="x")]}, {"text": "Done."})
    run("mail it", "--model", model, *STORE, "--session", "monday", "--approve", "approve-all")
    refused = handrail("undo", "monday", *STORE, "--yes")
    assert refused.code == 1
    assert refused.err == wording
    plan = handrail("undo", "monday", *STORE, "--dry-run", "--format", "json")
    document = json.loads(plan.out)
    assert plan.code == 1
    assert not document["complete"]
    assert [step["outcome"] for step in document["steps"]] == ["impossible", "compensated", "restored", "compensated"]
    part = handrail("undo", "monday", *STORE, "--yes", "--partial", "--format", "json")
    assert part.code == 0
    assert len(json.loads(part.out)["undone"]) == 3


def test_an_undo_that_fails_is_named(desk: Path, handrail: Command) -> None:
    """And continues when it is asked again."""
    (desk / "closed").touch()
    failed = handrail("undo", "monday", *STORE, "--yes")
    assert failed.code == 1
    assert "was not undone" in failed.err
    (desk / "closed").unlink()


def test_calls_of_a_program_are_undone_with_its_executor(
    desk: Path, handrail: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of the function that makes it; from a call on."""
    monkeypatch.delitem(sys.modules, "tools", raising=False)  # that of another test
    with stores.open(STORE[1]) as store, Session.open(store, "monday") as session:
        first = session[ToolInvoked].all()[-1].ref
    done = handrail("undo", "monday", *STORE, "--yes", "--tools", "tools:desk", "--to", str(first))
    assert (done.code, done.err) == (0, "")
    assert (desk / "book").read_text() == "A-1"
    assert handrail("undo", "monday", *STORE, "--yes", "--tools", "tools:clerk").code == 2
    assert handrail("undo", "tuesday", *STORE, "--yes", "--tools", "tools:desk").code == 1
    with stores.open(STORE[1]) as store, Session.open(store, "wednesday"):
        pass
    assert handrail("undo", "wednesday", *STORE, "--yes").code == 2
