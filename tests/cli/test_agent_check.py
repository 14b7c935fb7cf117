"""`handrail check`: everything that can be known of an agent without a model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from handrail.contrib.tools import python as section
from tests.agents.kit import agent
from tests.cli.agent_folders import PRINTING, PRINTING_AGENT, write
from tests.cli.desk import Command, Ran, Terminal
from tests.wording import Wording

Check = Callable[..., Ran]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], folder: Path) -> Check:
    """Check the agent, with the output in a pipe."""
    command = Command("", capsys)
    return lambda *words: command("check", "desk.agent", *words)


def test_the_tools_are_shown_with_what_is_known_of_them(check: Check, wording: Wording) -> None:
    """What they do to the world, whether rules let them run, and where they are from; no model is needed."""
    ran = check()
    assert ran.code == 0
    assert [line.split() for line in ran.out.splitlines()] == [
        ["tool", "effect", "approval", "from", "section", "policies"],
        ["look", "read", "allow", "tool", "look", "(tools.py)", "-", "-"],
        ["note", "state", "ask", "tool", "note", "(tools.py)", "-", "-"],
    ]
    assert ran.err == wording


def test_for_programs_there_is_one_document(check: Check, wording: Wording) -> None:
    """With the schemas of the tools."""
    told = json.loads(check("--format", "json").out)
    tool = told["tools"].pop()
    assert tool.pop("approval")["verdict"] == "ask"
    assert tool.pop("parameters")["required"] == ["text"]
    assert tool == {
        "name": "note",
        "description": "Notes something.",
        "effect": "state",
        "source": wording,
        "section": "",
        "policies": [],
        "on_arguments": [],
        "hints": [],
        "untrusted": False,
    }
    assert [one["name"] for one in told.pop("tools")] == ["look"]
    assert told.pop("estimated_tokens_saved") == 0
    assert told.pop("taint") == []
    assert told == {"file": "desk.agent", "agent": "desk", "model": None, "ok": True, "problems": [], "warnings": []}


def test_what_closed_sections_save_is_estimated(check: Check, folder: Path, wording: Wording) -> None:
    """In a line of its own."""
    section = 'MarkdownSection(title="Guide", template="word " * 1000, summary="A guide.")'
    module = f"from handrail.prompt import MarkdownSection\nTOOLSETS = [{section}]\n"
    desk = "---\nname: desk\ntoolsets: [guide]\n---\nWork.\n"
    (folder / "tools.py").write_text(module, encoding="utf-8")
    (folder / "desk.agent").write_text(desk, encoding="utf-8")
    ran = check()
    assert ran.code == 0
    assert ran.err == wording
    assert 1_000 < json.loads(check("--format", "json").out)["estimated_tokens_saved"] < 1_250


MARKED = """
from pydantic_ai import Tool

from handrail import tool


@tool(effect="read", untrusted=True)
def read_mail() -> str:
    "Read a mail."
    return ""


@tool(effect="external")
def pay() -> str:
    "Pay."
    return ""


def _mail() -> str:
    "Mail."
    return ""


mailer = Tool(_mail, name="mailer")
reading = Tool(_mail, name="reading", metadata={"effect": "read"})


TOOLS = [read_mail, pay, mailer, reading]
"""


@pytest.mark.parametrize("tainted", ["ask", "deny", "allow"])
def test_agents_that_can_be_tainted_and_act_are_named(
    check: Check, folder: Path, wording: Wording, tainted: str
) -> None:
    """The answer of a reader taints its caller, and the caller's task its reader."""
    write(
        folder,
        tools__py=MARKED,
        desk__agent="---\nname: desk\ntools: [pay, mailer, reading]\ntoolsets: [reader]\n---\nWork.\n",
        reader__agent="---\nname: reader\ntools: [read_mail]\n---\nRead.\n",
        rules__yaml=f"tainted: {tainted}\n",
        pyproject__toml="[tool.handrail]\napproval = 'rules.yaml'\n",
    )
    told = json.loads(check("--format", "json").out)
    assert told["problems"] == []
    (remark,) = told["taint"]
    assert remark == wording
    assert [tool["untrusted"] for tool in told["tools"]] == [False] * 4
    assert f"taint: {remark[:20]}" in check().err


RULES = """
allow:
  - {tool: note, arguments: {text: "buy *"}}
ask:
  - {tool: look, agent: desk}
deny:
  - {tool: "*", arguments: {text: "**secret**"}}
  - {tool: note, arguments: {text: "x"}, agent: other}
"""


def test_rules_on_arguments_are_shown_for_each_tool(
    check: Check, folder: Path, terminal: Terminal, wording: Wording
) -> None:
    """Those that can say something else than what holds without them; at 80 columns too, and for programs."""
    other = "---\nname: other\n---\nHello.\n"
    write(folder, other__agent=other, rules__yaml=RULES, pyproject__toml="[tool.handrail]\napproval = 'rules.yaml'\n")
    ran = check()
    assert ran.code == 0, ran.err
    assert [line.split() for line in ran.out.splitlines()[4:]] == [
        ["tool", "says", "where", "its", "arguments", "are", "rule"],
        ["note", "deny", "text:", "**secret**", "rules.yaml:7"],
        ["note", "allow", "text:", "buy", "*", "rules.yaml:3"],
    ]
    (_, note) = json.loads(check("--format", "json").out)["tools"]
    assert note["approval"]["verdict"] == "ask"
    assert note["on_arguments"] == [
        {"verdict": "deny", "arguments": {"text": "**secret**"}, "rule": "rules.yaml:7"},
        {"verdict": "allow", "arguments": {"text": "buy *"}, "rule": "rules.yaml:3"},
    ]
    assert terminal.run("check", "desk.agent", width=80) == 0
    assert terminal.lines == wording
    assert all(len(line) <= 80 for line in terminal.lines if "rules.yaml" in line)


def test_keys_that_may_not_mean_what_they_say_are_hinted_at(check: Check, folder: Path) -> None:
    """One that does not say what its calls do, and one of a state tool that is made of all arguments."""
    tools = """
    from pydantic_ai import Tool
    from handrail.prompt import IdempotencyConfig

    def move(address: str) -> str:
        "Moves."
        return address

    once, by_name = IdempotencyConfig(), IdempotencyConfig(strategy="params", param_keys=("address",))
    TOOLS = [
        Tool(move, name="silent", metadata={"idempotency": by_name}),
        Tool(move, name="auto", metadata={"effect": "state", "idempotency": once}),
        Tool(move, name="fine", metadata={"effect": "external", "idempotency": once}),
    ]
    """
    write(folder, desk__agent="---\nname: desk\ntools: [silent, auto, fine]\n---\nHello.\n", tools__py=dedent(tools))
    ran = check()
    assert ran.code == 0
    hints = [line.split(":")[1].strip() for line in ran.err.splitlines() if line.startswith("hint:")]
    assert hints == ["silent", "auto", "fine"]  # the last because its calls run one by one
    told = json.loads(check("--format", "json").out)["tools"]
    assert {tool["name"]: len(tool["hints"]) for tool in told} == {"silent": 1, "auto": 1, "fine": 0}


_BOX = """
from handrail.agents import SandboxOptions, sandbox_toolset
from handrail.contrib.tools import Podman

ENGINE = Podman(image="x", command=("podman-of-no-machine",))
TOOLSETS = {"box": sandbox_toolset(options=SandboxOptions(engine=ENGINE))}
"""


def test_interpreter_that_is_not_installed_is_named(
    check: Check, folder: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """With the command that installs it; if it is installed, the tool is shown."""
    write(folder, desk__agent="---\nname: desk\ntoolsets: [python]\n---\nHello.\n", tools__py=_BOX)
    ran = check("--format", "json")
    assert (ran.code, [tool["name"] for tool in json.loads(ran.out)["tools"]]) == (0, ["evaluate_python"])

    def missing(_module: str) -> None:
        """As for a module that is not installed."""

    monkeypatch.setattr(section, "find_spec", missing)
    ran = check()
    assert ran.code == 1
    assert ran.err == wording
    # With another toolset that cannot be made: each is named.
    write(folder, desk__agent="---\nname: desk\ntoolsets: [box, python]\n---\nHello.\n", tools__py=_BOX)
    ran = check()
    assert ran.code == 1
    assert ran.err == wording


def test_sandbox_that_is_not_installed_is_named(
    check: Check, folder: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """With the command that installs it; if it is installed, the tool is shown."""
    git = shutil.which("git")
    assert git is not None
    write(folder, desk__agent="---\nname: desk\ntoolsets: [sandbox]\n---\nHello.\n")
    ran = check("--format", "json")
    assert (ran.code, [tool["name"] for tool in json.loads(ran.out)["tools"]]) == (0, ["shell_execute"])
    (folder / "bin").mkdir()
    (folder / "bin" / "git").symlink_to(git)
    monkeypatch.setenv("PATH", str(folder / "bin"))
    ran = check()
    assert ran.code == 1
    assert ran.err == wording


UNBOUND = """
from handrail import tool
from handrail.prompt import Section
from handrail.resources import Resource
from handrail.filesystem import Filesystem
from typing import Annotated

class Rates: ...
class Clerk: ...

@tool
def note(text: str, files: Filesystem, rates: Annotated[Rates, Resource]) -> str:
    "Notes something."
    return text

@tool
def look(clerk: Annotated[Clerk, Resource], rates: Annotated[Rates | None, Resource] = None) -> str:
    "Looks."
    return ""

TOOLS = [note]
TOOLSETS = {"looks": Section(title="Looks", tools=[look])}
"""


def settings(lines: str) -> str:
    """The settings of a project."""
    return f"[tool.handrail]\n{lines}\n"


BELLS = """
from pydantic_ai.toolsets import FunctionToolset

def ring() -> str:
    "Rings."
    return ""

def bells(ctx):
    return FunctionToolset([ring])

TOOLSETS = [bells]
"""
TWICE = """
from pydantic_ai.toolsets import FunctionToolset

def look() -> str:
    "Looks."
    return ""

TOOLS = [look]
TOOLSETS = {"eyes": FunctionToolset([look])}
"""
BROKEN = "def broken(ctx):\n    raise KeyError('no such shelf')\n\nTOOLSETS = [broken]\n"
MISSPELT = """
deny:
  - noet
  - {tool: note, arguments: {txet: x}}
  - {tool: note, agent: dsk}
"""
RINGS = {"desk__agent": agent("desk", toolsets="[bells]"), "tools__py": BELLS}
CALLS = {"desk__agent": agent("desk", toolsets="[other]"), "other__agent": agent("other", toolsets="[bells]")}
STORE_INSIDE = settings("store = 'sqlite:///data/desk.db'")

FOLDERS: dict[str, tuple[int, dict[str, str]]] = {
    "rules and model of the project": (
        0,
        {"pyproject__toml": settings("approval = 'rules.yaml'\nmodel = 'groq:knows'"), "rules__yaml": "deny: [note]"},
    ),
    "rules on arguments that never speak": (
        0,
        {"rules__yaml": "ask: [note]\nallow: [{tool: note, arguments: {text: a}}]\n"},
    ),
    "rules that name what there is not": (1, {"rules__yaml": MISSPELT}),
    "rules of the project that name what there is not": (
        1,
        {"rules__yaml": MISSPELT, "pyproject__toml": settings("approval = 'rules.yaml'")},
    ),
    "a rule that may match nothing": (0, {"rules__yaml": "deny: [{tool: refund, expect: unmatched}]\n"}),
    "a file of rules with a fault": (1, {"rules__yaml": "deny: note"}),
    "a module that cannot be imported": (1, {"tools__py": "1 / 0", "rules__yaml": "deny: [note]"}),
    "a module of an agent that is called": (
        1,
        {
            "desk__agent": agent("desk", toolsets="[clerk]"),
            "clerk__agent": agent("clerk", tools="[note]"),
            "tools__py": "1 / 0",
        },
    ),
    "the tools of a factory": (0, {**RINGS, "rules__yaml": "deny: [ring]"}),
    "the tools of agents that are called": (0, {**CALLS, "tools__py": BELLS, "rules__yaml": "deny: [ring]"}),
    "a name that no factory has": (1, {**RINGS, "rules__yaml": "deny: [rnig]"}),
    "every problem at once": (
        1,
        {
            "desk__agent": agent("desk", tools="[look, fly]", toolsets="[swim]"),
            "other__agent": "---\nname: other\ntoolz: []\n---\nHello.\n",
            "pyproject__toml": settings("modle = 'x'"),
        },
    ),
    "names that are taken twice": (
        1,
        {"desk__agent": agent("desk", tools="[look]", toolsets="[eyes]"), "tools__py": TWICE},
    ),
    "a factory of an agent that is called": (
        1,
        {
            "desk__agent": agent("desk", toolsets="[other]"),
            "other__agent": agent("other", toolsets="[desk, broken]"),
            "tools__py": BROKEN,
        },
    ),
    "an agent file without front matter": (1, {"desk__agent": "Hello.\n"}),
    "an unknown model": (1, {"pyproject__toml": settings("model = 'nobody:knows'")}),
    "a script as the model of a project": (1, {"pyproject__toml": settings("model = 'script:play.yaml'")}),
    "an unknown store": (1, {"pyproject__toml": settings("store = 'mysql://ada:secret@host/db'")}),
    "a store without a scheme": (1, {"pyproject__toml": settings("store = 'desk.db'")}),
    "resources that nothing binds": (
        1,
        {
            "desk__agent": agent("desk", tools="[note]", toolsets="[other]"),
            "other__agent": agent("other", toolsets="[looks]"),
            "tools__py": UNBOUND,
        },
    ),
    "broken neighbours": (
        0,
        {"other__agent": "nothing", "first__agent": agent("same"), "second__agent": agent("same")},
    ),
    "a broken agent that is called": (
        1,
        {"desk__agent": agent("desk", tools="[look]", toolsets="[other]"), "other__agent": "nothing"},
    ),
    "a store that file tools can reach": (
        0,
        {"desk__agent": agent("desk", toolsets="[files]"), "pyproject__toml": STORE_INSIDE},
    ),
    "a store that the shell can reach": (
        0,
        {"desk__agent": agent("desk", toolsets="[shell]"), "pyproject__toml": STORE_INSIDE},
    ),
    "a store that no tool reaches": (
        0,
        {"desk__agent": agent("desk", toolsets="[planning]"), "pyproject__toml": STORE_INSIDE},
    ),
    "a store beside the folder": (
        0,
        {
            "desk__agent": agent("desk", toolsets="[files]"),
            "pyproject__toml": settings("store = 'sqlite:///../desk.db'"),
        },
    ),
    "modules and factories that print": (0, {"desk__agent": PRINTING_AGENT, "tools__py": PRINTING}),
}
"""Folders by what is in them: the exit code, and the files that are written beside those of the fixture."""


@pytest.mark.parametrize("what", FOLDERS)
def test_findings_of_a_folder(check: Check, folder: Path, wording: Wording, what: str) -> None:
    """Every problem once, with file and place, as text and for programs; nothing is opened, and no password shown."""
    code, files = FOLDERS[what]
    write(folder, **files)
    words = ("--rules", "rules.yaml") if "rules__yaml" in files and "pyproject__toml" not in files else ()
    ran = check(*words)
    assert (ran.code, ran.err) == (code, wording)
    told = json.loads(check(*words, "--format", "json").out)
    assert (told["ok"], bool(told["problems"])) == (code == 0, code == 1)
    assert "secret" not in ran.err
    assert not list(folder.rglob("*.db"))
