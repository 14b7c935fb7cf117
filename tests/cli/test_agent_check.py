"""`handrail check`: everything that can be known of an agent without a model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from handrail.contrib.tools import python as section
from tests.agents.folders import agent
from tests.cli.agent_folders import PRINTING, PRINTING_AGENT, write
from tests.cli.desk import Command, Ran, Terminal
from tests.wording import Wording

Check = Callable[..., Ran]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], folder: Path) -> Check:
    """Check the agent, with the output in a pipe."""
    command = Command("", capsys)
    return lambda *words: command("check", "desk.agent", *words)


def write_caller(folder: Path, caller: str, other: str, tools: str) -> None:
    """An agent that calls another one, each with these lines of its front matter, and their module."""
    desk, other = (f"---\nname: {name}\n{front}\n---\nHello.\n" for name, front in (("desk", caller), ("other", other)))
    write(folder, desk__agent=desk, other__agent=other, tools__py=tools)


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


def test_rules_and_model_of_the_project_count(check: Check, folder: Path, wording: Wording) -> None:
    """As they would for a run; the model is not looked for."""
    settings = "[tool.handrail]\napproval = 'rules.yaml'\nmodel = 'groq:knows'\n"
    write(folder, pyproject__toml=settings, rules__yaml="deny: [note]")
    ran = check()
    assert ran.code == 0
    assert ran.out.splitlines()[2].split()[:3] == ["note", "state", "deny"]
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


def test_rules_on_arguments_that_never_speak_are_not_shown(check: Check, folder: Path) -> None:
    """A rule on the tool itself wins over those that stand below it."""
    write(folder, rules__yaml="ask: [note]\nallow: [{tool: note, arguments: {text: a}}]\n")
    assert len(check("--rules", "rules.yaml").out.splitlines()) == 3


MISSPELT = """
deny:
  - noet
  - {tool: note, arguments: {txet: x}}
  - {tool: note, agent: dsk}
"""


@pytest.mark.parametrize("typed", [True, False])
def test_rules_that_name_what_there_is_not_are_problems(
    check: Check, folder: Path, wording: Wording, *, typed: bool
) -> None:
    """With file, line and column and the nearest name; those of the project, and those that are typed instead."""
    write(folder, rules__yaml=MISSPELT, pyproject__toml="" if typed else "[tool.handrail]\napproval = 'rules.yaml'\n")
    words = ["--rules", "rules.yaml"] if typed else []
    ran = check(*words)
    assert ran.code == 1
    for place in ("rules.yaml:3:5", "rules.yaml:4:5", "rules.yaml:5:5"):
        (line,) = [line for line in ran.err.splitlines() if place in line]
        assert line.startswith("handrail: ")
    assert ran.err == wording
    told_json = json.loads(check(*words, "--format", "json").out)
    assert {problem["kind"] for problem in told_json["problems"]} == {"ApprovalRulesError"}


def test_warnings_are_no_problems(check: Check, folder: Path) -> None:
    """The agent can run."""
    write(folder, rules__yaml="deny: [{tool: refund, expect: unmatched}]\n", texts__json="{}")
    agent = (folder / "desk.agent").read_text(encoding="utf-8")
    write(folder, desk__agent=agent.replace("name:", "overrides: missing.json\nname:", 1))
    ran = check("--rules", "rules.yaml")
    assert ran.code == 0
    assert ran.err.count("warning: ") == 1


def test_the_tools_of_agents_that_can_be_called_are_known(check: Check, folder: Path, wording: Wording) -> None:
    """Their factories are called, so a name that none of them has is a problem."""
    made = (
        "\n\ndef ring() -> str:\n    'Rings.'\n    return ''\n\n\ndef bells(ctx):\n    return FunctionToolset([ring])\n"
    )
    write(
        folder,
        desk__agent="---\nname: desk\ntoolsets: [other]\n---\nHello.\n",
        other__agent="---\nname: other\ntoolsets: [bells]\n---\nHello.\n",
        tools__py=f"from pydantic_ai.toolsets import FunctionToolset\n{made}\nTOOLSETS = [bells]\n",
        rules__yaml="deny: [ring]",
    )
    assert check("--rules", "rules.yaml").code == 0
    write(
        folder,
        desk__agent="---\nname: desk\ntoolsets: [other]\n---\nHello.\n",
        tools__py=f"from pydantic_ai.toolsets import FunctionToolset\n{made}\nTOOLSETS = [bells]\n",
        rules__yaml="deny: [rnig]",
    )
    ran = check("--rules", "rules.yaml")
    assert ran.code == 1
    assert ran.err == wording


def test_rules_about_what_is_missing_for_another_fault_are_not_at_fault(
    check: Check, folder: Path, wording: Wording
) -> None:
    """A module that cannot be imported is told once, and not again for each rule about its tools."""
    write(folder, tools__py="1 / 0", rules__yaml="deny: [note]")
    ran = check("--rules", "rules.yaml")
    assert ran.code == 1
    assert "ZeroDivisionError" in ran.err
    assert ran.err == wording
    others = {"desk__agent": agent("desk", toolsets="[clerk]"), "clerk__agent": agent("clerk", tools="[note]")}
    write(folder, tools__py="1 / 0", **others)
    assert check("--rules", "rules.yaml").err == wording


def test_a_file_of_rules_with_a_fault_is_a_problem(check: Check, folder: Path, wording: Wording) -> None:
    """No tool is shown, because nothing is known of its approval."""
    write(folder, rules__yaml="deny: note")
    ran = check("--rules", "rules.yaml")
    assert (ran.code, ran.out) == (1, "")
    assert "rules.yaml" in ran.err
    assert ran.err.splitlines()[-1] == wording


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


def test_every_problem_is_told_at_once(check: Check, folder: Path, wording: Wording) -> None:
    """Of all files of the project: who mends them wants to mend them all."""
    write(
        folder,
        desk__agent="---\nname: desk\ntools: [look, fly]\ntoolsets: [swim]\n---\nHello.\n",
        other__agent="---\nname: other\ntoolz: []\n---\nHello.\n",
        pyproject__toml="[tool.handrail]\nmodle = 'x'\n",
    )
    ran = check()
    assert ran.code == 1
    for told in ("fly", "swim", "toolz", "modle"):
        assert told in ran.err
    assert ran.err.splitlines()[-1] == wording
    told = json.loads(check("--format", "json").out)
    assert not told["ok"]
    assert len(told["problems"]) >= 3
    assert {"ResolutionError", "AgentFileError", "ProjectError"} <= {problem["kind"] for problem in told["problems"]}


def test_names_that_are_taken_twice_are_told(check: Check, folder: Path, wording: Wording) -> None:
    """With both origins, though nothing is run."""
    tools = "from pydantic_ai.toolsets import FunctionToolset\n\n\ndef look() -> str:\n    'Looks.'\n    return ''\n\n"
    tools += "TOOLS = [look]\nTOOLSETS = {'eyes': FunctionToolset([look])}\n"
    write(folder, desk__agent="---\nname: desk\ntools: [look]\ntoolsets: [eyes]\n---\nHello.\n", tools__py=tools)
    ran = check()
    assert ran.code == 1
    assert ran.err == wording


def test_agents_that_can_be_called_are_checked_too(check: Check, folder: Path, wording: Wording) -> None:
    """A factory of theirs may fail; agents that call each other are checked once."""
    tools = "def broken(ctx):\n    raise KeyError('no such shelf')\n\nTOOLSETS = [broken]\n"
    write_caller(folder, "toolsets: [other]", "toolsets: [desk, broken]", tools)
    ran = check()
    assert ran.code == 1
    assert ran.err == wording
    assert ran.out.splitlines()[1].split()[0] == "other"


def test_a_problem_is_told_once(check: Check, folder: Path, wording: Wording) -> None:
    """Though the file is read as the agent, and as a part of the project."""
    write(folder, desk__agent="Hello.\n")
    ran = check()
    assert ran.err.count("handrail: ") == 1
    assert ran.err == wording


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param("model = 'nobody:knows'", id="model"),
        pytest.param("model = 'script:play.yaml'", id="script"),
        pytest.param("store = 'mysql://ada:secret@host/db'", id="store"),
        pytest.param("store = 'desk.db'", id="store without a scheme"),
    ],
)
def test_the_names_of_model_and_store_are_checked(check: Check, folder: Path, settings: str, wording: Wording) -> None:
    """No provider is asked, and nothing is opened."""
    write(folder, pyproject__toml=f"[tool.handrail]\n{settings}\n")
    ran = check()
    assert ran.code == 1
    assert ran.err == wording
    assert "secret" not in ran.err


def test_a_store_that_could_be_opened_is_not(check: Check, folder: Path) -> None:
    """Looking at an agent makes no database."""
    write(folder, pyproject__toml="[tool.handrail]\nstore = 'sqlite:///desk.db'\n")
    assert check().code == 0
    assert not (folder / "desk.db").exists()


def test_what_modules_and_factories_print_is_not_in_the_findings(check: Check, folder: Path, wording: Wording) -> None:
    """Programs read standard output."""
    write(folder, desk__agent=PRINTING_AGENT, tools__py=PRINTING)
    ran = check("--format", "json")
    assert json.loads(ran.out)["ok"]
    assert ran.err == wording


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


@pytest.mark.parametrize("toolset", ["files", "shell", "planning"])
def test_check_names_a_store_that_tools_can_reach(check: Check, folder: Path, wording: Wording, toolset: str) -> None:
    """As a warning, for an agent with tools over the folder."""
    write(
        folder,
        desk__agent=f"---\nname: desk\ntoolsets: [{toolset}]\n---\nHello.\n",
        pyproject__toml="[tool.handrail]\nstore = 'sqlite:///data/desk.db'\n",
    )
    reached = check()
    assert reached.code == 0
    assert reached.err == wording
    assert len(json.loads(check("--format", "json").out)["warnings"]) == (toolset != "planning")
    write(folder, pyproject__toml="[tool.handrail]\nstore = 'sqlite:///../desk.db'\n")
    assert not json.loads(check("--format", "json").out)["warnings"]


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


def test_every_resource_that_nothing_binds_is_a_problem(check: Check, folder: Path, wording: Wording) -> None:
    """A run binds the files of its folder; also of agents that can be called."""
    write_caller(folder, "tools: [note]\ntoolsets: [other]", "toolsets: [looks]", UNBOUND)
    ran = check()
    assert ran.code == 1
    assert ran.err == wording


def test_broken_neighbours_are_warnings(check: Check, folder: Path, wording: Wording) -> None:
    """Agent files and modules that the agent does not need; `handrail run` runs it, too."""
    same = "---\nname: same\n---\nHello.\n"
    write(folder, other__agent="nothing", first__agent=same, second__agent=same)
    (folder / "tools").mkdir()
    (folder / "tools" / "broken.py").write_text("1 / 0")
    ran = check()
    assert ran.code == 0
    assert ran.err == wording
    write(folder, desk__agent="---\nname: desk\ntools: [look]\ntoolsets: [other]\n---\nHello.\n")
    ran = check()
    assert ran.code == 1
    assert ran.err == wording
