"""A run that ends while an effect is unknown, and the command that asks the tools what happened."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from handrail import store as stores
from handrail.session import Session
from tests.cli.agent_folders import call, script, write
from tests.cli.desk import Command, Run
from tests.wording import Wording

AGENT = "---\nname: desk\ntools: [pay, open_bank]\n---\nYou pay.\n"

TOOLS = """
    from pathlib import Path
    from handrail import tool
    from handrail.adapters.tool_executor import ToolExecutor
    from handrail.prompt import External, Prompt, PromptTemplate, ToolResult, ToolsSection

    def bank(params, key):
        if not Path("open").exists():
            raise ConnectionError("the bank is closed")
        return ToolResult.ok("paid, says the bank") if Path("paid").exists() else None

    @tool(effect=External(reconcile=bank))
    def pay(order: str) -> str:
        "Pays."
        with Path("paid").open("a") as book:
            book.write(order)
        raise TimeoutError("no answer")

    @tool
    def open_bank() -> str:
        "Opens the bank."
        Path("open").touch()
        return "open"

    TOOLS = [pay, open_bank]

    def desk(session):
        section = ToolsSection(title="Till", tools=[pay])
        return ToolExecutor(prompt=Prompt(PromptTemplate(ns="t", key="t", sections=[section])), session=session)

    def clerk(session):
        return "nobody"
    """

KEPT = ("--store", "sqlite:///pay.db", "--session", "monday", "--approve", "approve-all")
STORE = ("--store", "sqlite:///pay.db")


@pytest.fixture
def pays(folder: Path) -> Path:
    """A folder with an agent that pays, and a bank that is closed."""
    write(folder, desk__agent=AGENT, tools__py=TOOLS)
    return folder


def pay(folder: Path, run: Run, *kept: str) -> tuple[int, str]:
    """Have the agent pay once; the exit code, and what is reported."""
    model = script(folder, {"calls": [call("pay", order="A")]}, {"text": "Done."})
    ran = run("pay it", "--model", model, *(kept or KEPT))
    assert ran.out == "Done.\n"
    return ran.code, ran.err


@pytest.mark.parametrize("kept", [KEPT, ("--approve", "approve-all")], ids=["stored", "not stored"])
def test_a_run_that_leaves_an_effect_unknown_ends_with_3(
    pays: Path, run: Run, kept: tuple[str, ...], wording: Wording
) -> None:
    """It names the effect, and the command that settles it."""
    code, said = pay(pays, run, *kept)
    assert code == 3
    assert "\n".join(line for line in said.splitlines() if "may have" in line or "ledger" in line) == wording


@pytest.mark.parametrize("name", ["desk.agent", "tools:desk"])
def test_the_tools_are_asked_by_a_command(pays: Path, run: Run, handrail: Command, name: str) -> None:
    """What has happened answers the next equal call, once."""
    key = pay(pays, run)[1].split("ledger reconcile ")[1].split()[0]
    asked = handrail("ledger", "reconcile", key, "--ask", name, *STORE)
    assert asked.code == 1
    assert asked.out.startswith(f"{key} is still unknown")
    (pays / "open").touch()
    with stores.open(STORE[1]) as store, Session.open(store, "monday"):
        asked = handrail("ledger", "reconcile", "--all", "--ask", name, *STORE, "--format", "json")
    assert (asked.code, json.loads(asked.out)["status"]) == (1, "unknown")
    assert "session monday" in asked.err
    asked = handrail("ledger", "reconcile", "--all", "--ask", name, *STORE)
    assert (asked.code, asked.out) == (0, f"{key} has happened.\n")
    code, said = pay(pays, run)
    assert (code, (pays / "paid").read_text()) == (0, "A")
    assert 'pay(order="A") ok' in said


def test_a_run_asks_before_its_first_request(pays: Path, run: Run) -> None:
    """The model that repeats the call is answered with what was found out."""
    assert pay(pays, run)[0] == 3
    (pays / "open").touch()
    assert pay(pays, run)[0] == 0
    assert (pays / "paid").read_text() == "A"


def test_an_effect_that_did_not_happen_may_run_again(pays: Path, run: Run, handrail: Command) -> None:
    """The bank has no record of it."""
    pay(pays, run)
    (pays / "open").touch()
    (pays / "paid").unlink()
    asked = handrail("ledger", "reconcile", "--all", "--ask", "desk.agent", *STORE)
    assert asked.code == 0
    assert "has not happened" in asked.out
    asked = handrail("ledger", "reconcile", "--all", "--ask", "desk.agent", *STORE)
    assert (asked.code, asked.out) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ("--all",),
        ("--ask", "desk.agent"),
        ("key", "--all", "--ask", "desk.agent"),
        ("key", "--ask", "desk.agent", "--happened"),
        ("--all", "--ask", "tools:nothing"),
        ("--all", "--ask", "tools:clerk"),
    ],
)
def test_what_cannot_be_asked_is_a_fault_of_the_command_line(
    pays: Path, run: Run, handrail: Command, words: tuple[str, ...], wording: Wording
) -> None:
    """It says what would be right."""
    pay(pays, run)
    asked = handrail("ledger", "reconcile", *words, *STORE)
    assert asked.code == 2
    assert asked.err == wording


@pytest.mark.parametrize("kept", [KEPT, ("--approve", "approve-all")], ids=["stored", "not stored"])
def test_an_effect_that_the_run_has_settled_itself_is_not_reported(pays: Path, run: Run, kept: tuple[str, ...]) -> None:
    """The model repeats the call, and is answered with what the bank says; the run has left nothing to settle."""
    replies = [
        {"calls": [one]} for one in (call("pay", order="A"), call("open_bank", "two"), call("pay", "three", order="A"))
    ]
    ran = run("pay it", "--model", script(pays, *replies, {"text": "Done."}), *kept)
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert "ledger" not in ran.err
    assert (pays / "paid").read_text() == "A"


BOSS = "---\nname: boss\ntoolsets: [desk]\n---\nYou lead.\n"


def paid_by_the_called(number: str) -> tuple[dict[str, Any], ...]:
    """The replies of a boss who has the desk pay."""
    return (
        {"calls": [call("desk", number, input="pay A")]},
        {"within": number, "calls": [call("pay", f"{number}-pay", order="A")]},
        {"within": number, "text": "It may be paid."},
    )


@pytest.mark.parametrize(
    "kept", [KEPT, ("--store", "memory:", "--approve", "approve-all")], ids=["stored", "not stored"]
)
def test_an_unknown_effect_of_a_called_agent_is_reported(pays: Path, handrail: Command, kept: tuple[str, ...]) -> None:
    """With the command that asks the tools of the called agent, which has a session of its own."""
    write(pays, desk__agent=AGENT, tools__py=TOOLS, boss__agent=BOSS)
    ran = handrail(
        "run", "boss.agent", "pay it", "--model", script(pays, *paid_by_the_called("one"), {"text": "Done."}), *kept
    )
    assert (ran.code, ran.out) == (3, "Done.\n")
    printed = [shlex.split(line) for line in ran.err.splitlines() if line.startswith("  handrail ledger")]
    assert len(printed) == (kept == KEPT)
    if kept == KEPT:
        (pays / "open").touch()
        asked = handrail(*printed[0][1:])
        assert (asked.code, asked.out) == (0, f"{printed[0][3]} has happened.\n")


def test_an_effect_of_a_called_agent_that_the_run_has_settled_is_not_reported(pays: Path, handrail: Command) -> None:
    """Another call of the agent has found out."""
    write(
        pays, desk__agent=AGENT, tools__py=TOOLS, boss__agent=BOSS.replace("toolsets", "tools: [open_bank]\ntoolsets")
    )
    opened = {"calls": [call("open_bank", "opens")]}
    replies = (*paid_by_the_called("one"), opened, *paid_by_the_called("two"), {"text": "Done."})
    ran = handrail("run", "boss.agent", "pay it", "--model", script(pays, *replies), *KEPT)
    assert (ran.code, ran.out, (pays / "paid").read_text()) == (0, "Done.\n", "A")
    assert "ledger" not in ran.err
