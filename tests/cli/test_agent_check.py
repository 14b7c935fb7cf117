"""`handrail new` makes a folder that runs as it is; `handrail check` says all that is known without a model."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from handrail.cli.agents import write_agent_folder
from handrail.errors import AgentError
from tests.agents.kit import agent
from tests.cli.agent_folders import PRINTING, PRINTING_AGENT, write
from tests.cli.desk import Command, Ran, Terminal
from tests.kit import hide_agents, raises
from tests.wording import Wording

Check = Callable[..., Ran]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], folder: Path) -> Check:
    """Check the agent, with the output in a pipe."""
    command = Command("", capsys)
    return lambda *words: command("check", "desk.agent", *words)


def test_for_programs_there_is_one_document(check: Check, wording: Wording) -> None:
    """With the schemas of the tools."""
    told = json.loads(check("--format", "json").out)
    tool = told["tools"].pop()
    assert tool.pop("approval")["verdict"] == "ask"
    assert tool.pop("parameters")["required"] == ["text"]
    names = {"name": "note", "description": "Notes something.", "effect": "state", "source": wording, "section": ""}
    assert tool == names | {"policies": [], "on_arguments": [], "hints": [], "untrusted": False}
    assert [one["name"] for one in told.pop("tools")] == ["look"]
    assert told.pop("taint") == []
    assert told == {"file": "desk.agent", "agent": "desk", "model": None, "ok": True, "problems": [], "warnings": []}


STRICT = """
from handrail import tool
@tool
def pay(number: str) -> str:
    "Pay an order."
    return number
@tool
def find(text: str, limit: int = 10) -> str:
    "Find."
    return text
TOOLS = [pay, find]
"""


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_the_schemas_that_a_provider_takes_as_strict(
    check: Check, folder: Path, wording: Wording, provider: str
) -> None:
    """A table for people, and a list for programs; without the option there is neither."""
    write(folder, tools__py=STRICT, desk__agent=agent("desk", tools="[pay, find]"))
    shown = check("--provider", provider).out
    assert shown.startswith(check().out)
    assert shown.removeprefix(check().out) == wording
    found = json.loads(check("--provider", provider, "--format", "json").out)["strict"]
    faults = ["$.limit has the keyword default", "$.limit is not required"] if provider == "openai" else []
    assert [one["name"] for one in found] == ["pay", "find"]
    assert [(one["strict"], sorted(one["because"])) for one in found] == [(True, []), (not faults, faults)]


MARKED = """
from pydantic_ai import Tool
from handrail import tool
@tool(effect="read", untrusted=True)
def read_mail() -> str:
    "Read a mail."
@tool(effect="external")
def pay() -> str:
    "Pay."
def _mail() -> str:
    "Mail."
TOOLS = [read_mail, pay, Tool(_mail, name="mailer"), Tool(_mail, name="reading", metadata={"effect": "read"})]
"""


@pytest.mark.parametrize("tainted", ["ask", "deny", "allow"])
def test_agents_that_can_be_tainted_and_act_are_named(
    check: Check, folder: Path, wording: Wording, tainted: str
) -> None:
    """The answer of a reader taints its caller, and the caller's task its reader."""
    write(
        folder,
        tools__py=MARKED,
        desk__agent=agent("desk", tools="[pay, mailer, reading]", toolsets="[reader]"),
        reader__agent=agent("reader", tools="[read_mail]"),
        rules__yaml=f"tainted: {tainted}\n",
        pyproject__toml=RULED,
    )
    told = json.loads(check("--format", "json").out)
    assert told["problems"] == []
    (remark,) = told["taint"]
    assert remark == wording
    assert [tool["untrusted"] for tool in told["tools"]] == [False] * 4
    assert f"taint: {remark[:20]}" in check().err


RULED = "[tool.handrail]\napproval = 'rules.yaml'\n"
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
    write(folder, other__agent=agent("other"), rules__yaml=RULES, pyproject__toml=RULED)
    assert check().code == 0
    (_, note) = json.loads(check("--format", "json").out)["tools"]
    assert note["approval"]["verdict"] == "ask"
    rules = [tuple(one.values()) for one in note["on_arguments"]]
    assert rules == [("deny", {"text": "**secret**"}, "rules.yaml:7"), ("allow", {"text": "buy *"}, "rules.yaml:3")]
    assert terminal.run("check", "desk.agent", width=80) == 0
    assert terminal.lines == wording
    assert all(len(line) <= 80 for line in terminal.lines if "rules.yaml" in line)


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


BELLS = """
from pydantic_ai.toolsets import FunctionToolset
def ring() -> str:
    "Rings."
    return ""
def bells(ctx):
    return FunctionToolset([ring])
TOOLSETS = [bells]
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


def case(
    code: int, *, rules: str = "", settings: str = "", toolsets: str = "", **files: str
) -> tuple[int, dict[str, str]]:
    """The exit code, and the files that are written beside those of the fixture."""
    made = {"rules__yaml": rules, "pyproject__toml": settings and f"[tool.handrail]\n{settings}\n"}
    made["desk__agent"] = toolsets and agent("desk", toolsets=toolsets)
    return code, {**{name: text for name, text in made.items() if text}, **files}


FOLDERS: dict[str, tuple[int, dict[str, str]]] = {
    "rules and model of the project": case(
        0, settings="approval = 'rules.yaml'\nmodel = 'groq:knows'", rules="deny: [note]"
    ),
    "rules that name what there is not": case(1, rules=MISSPELT),
    "rules of the project that name what there is not": case(1, rules=MISSPELT, settings="approval = 'rules.yaml'"),
    "a rule that may match nothing": case(0, rules="deny: [{tool: refund, expect: unmatched}]\n"),
    "a file of rules with a fault": case(1, rules="deny: note"),
    "a module that cannot be imported": case(1, tools__py="1 / 0", rules="deny: [note]"),
    "a module of an agent that is called": case(
        1, toolsets="[clerk]", clerk__agent=agent("clerk", tools="[note]"), tools__py="1 / 0"
    ),
    "the tools of agents that are called": case(0, rules="deny: [ring]", **CALLS, tools__py=BELLS),
    "a name that no factory has": case(0, rules="deny: [rnig]", **RINGS),
    "every problem at once": case(
        1,
        desk__agent=agent("desk", tools="[look, fly]", toolsets="[swim]"),
        other__agent="---\nname: other\ntoolz: []\n---\nHello.\n",
        settings="modle = 'x'",
    ),
    "a factory of an agent that is called": case(
        1, toolsets="[other]", other__agent=agent("other", toolsets="[desk, broken]"), tools__py=BROKEN
    ),
    "an agent file without front matter": case(1, desk__agent="Hello.\n"),
    "an unknown model": case(1, settings="model = 'nobody:knows'"),
    "a script as the model of a project": case(1, settings="model = 'script:play.yaml'"),
    "resources that nothing binds": case(
        1,
        desk__agent=agent("desk", tools="[note]", toolsets="[other]"),
        other__agent=agent("other", toolsets="[looks]"),
        tools__py=UNBOUND,
    ),
    "broken neighbours": case(0, other__agent="nothing", first__agent=agent("same"), second__agent=agent("same")),
    "a broken agent that is called": case(
        1, desk__agent=agent("desk", tools="[look]", toolsets="[other]"), other__agent="nothing"
    ),
    "modules and factories that print": case(0, desk__agent=PRINTING_AGENT, tools__py=PRINTING),
}
"""Folders by what is in them."""


@pytest.mark.parametrize("what", FOLDERS)
def test_findings_of_a_folder(check: Check, folder: Path, wording: Wording, what: str) -> None:
    """Every problem once, with file and place, as text and for programs; nothing is opened."""
    code, files = FOLDERS[what]
    write(folder, **files)
    words = ("--rules", "rules.yaml") if "rules__yaml" in files and "pyproject__toml" not in files else ()
    ran = check(*words)
    assert (ran.code, ran.err) == (code, wording)
    told = json.loads(check(*words, "--format", "json").out)
    assert (told["ok"], bool(told["problems"])) == (code == 0, code == 1)
    assert not list(folder.rglob("*.db"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are typed in."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def test_a_new_agent_passes_its_own_test(handrail: Command, place: Path) -> None:
    """By pytest, as generated."""
    assert handrail("new", "My-Desk_2").code == 0
    words = (sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "My-Desk_2")
    done = subprocess.run(words, capture_output=True, check=False, cwd=place, encoding="utf-8")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_new_agent_is_right(handrail: Command, place: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """It can be checked, and run by the command that is shown."""
    monkeypatch.delenv("HANDRAIL_STORE")
    ran = handrail("new", "jotter", "--folder", "agents")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == wording
    checked = handrail("check", "agents/jotter/jotter.agent")
    assert checked.code == 0, checked.err
    assert [line.split()[:3] for line in checked.out.splitlines()[1:]] == [
        ["list_notes", "read", "allow"],
        ["add_note", "state", "ask"],
    ]
    name, *words = shlex.split(ran.out.splitlines()[1])
    assert name == "handrail"
    done = handrail(*words)
    assert (done.code, done.out) == (0, wording), done.err


NO_NAMES = [
    *(pytest.param("a b", id="blank"), pytest.param("../x", id="path"), pytest.param("", id="empty")),
    *(pytest.param("é", id="not ASCII"), pytest.param("x" * 65, id="long")),
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_no_agent_may_have_is_told(handrail: Command, place: Path, name: str, wording: Wording) -> None:
    """Exit code 2, and nothing is written."""
    ran = handrail("new", name)
    assert (ran.code, ran.out, ran.err) == (2, "", wording)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("words", [("run", "x.agent", "hello"), ("check", "x.agent"), ("new", "x")])
def test_without_the_extra_agents_say_what_to_install(
    handrail: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], wording: Wording, place: Path
) -> None:
    """The commands over a store work all the same, and so does the help."""
    (place / "x.agent").touch()
    hide_agents(monkeypatch)
    ran = handrail(*words)
    assert (ran.code, ran.out, ran.err) == (1, "", wording)
    assert handrail(words[0], "--help").code == 0
    assert handrail("sessions", "list").code == 0


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str, wording: Wording) -> None:
    """Not even an empty folder, or a link to nothing."""
    there = tmp_path / "desk"
    if kind == "file":
        there.write_text("mine")
    elif kind == "folder":
        there.mkdir()
    else:
        there.symlink_to(tmp_path / "nowhere")
    with raises(AgentError, wording):
        write_agent_folder("desk", tmp_path)
    assert list(tmp_path.iterdir()) == [there]


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path, wording: Wording) -> None:
    """A file where a folder should be, say."""
    (tmp_path / "file").write_text("mine")
    with raises(AgentError, wording):
        write_agent_folder("desk", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
