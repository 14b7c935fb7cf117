"""Mistakes that a developer makes with agents and the command line: where each is met, and what it is told as.

The tests of this folder hold each of them to the code; the table of all mistakes of a developer has them as rows.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.agents import RunOptions, load_agent
from handrail.agents.approval.rules import read_rules
from handrail.cli import main
from handrail.errors import (
    AgentFileError,
    ApprovalRulesError,
    DiscoveryError,
    ModelUnreachableError,
    ProjectError,
    ResolutionError,
    ScriptError,
    UnknownModelError,
)
from handrail.testing import Reply, ScriptedModel
from tests.adapters.closed_ports import closed_port, openai_at

AGENT = "---\nname: desk\ntools: [look, note]\n---\nYou keep notes.\n"
"""The agent file of a sound project."""

FUNCTIONS = '''\
def look() -> str:
    """Look at the notes."""
    return "no notes"


def note(text: str) -> str:
    """Note something."""
    raise OSError("no ink")
'''
"""The tools of a sound project, without the line that exports them; the second one raises in its third line."""

SOUND: Mapping[str, str] = {
    "desk.agent": AGENT,
    "tools.py": f"{FUNCTIONS}\n\nTOOLS = [look, note]\n",
    "rules.yaml": "allow: [note]\n",
    "script.yaml": "replies: [{calls: [{name: note, arguments: {text: milk}}]}, {text: Done.}]\n",
}
"""The files of a sound project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A mistake at a function of Python.

    Attributes:
        what: the mistake.
        door: the function where it is met.
        act: makes the mistake, in the folder of a project.
        kind: the exception.
        attributes: what the exception says beside its message; `FOLDER` stands for the folder, `PORT` for a port.
        told: its message, in the same way.
        files: the files of the folder that differ from a sound project.
    """

    what: str
    door: str
    act: Callable[[Path], object]
    kind: type[Exception]
    attributes: Mapping[str, object]
    told: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """A mistake on the command line.

    Attributes:
        what: the mistake.
        door: the command where it is met.
        words: what is typed behind `handrail`, in the folder of a project.
        code: the exit code.
        told: what standard error says; `FOLDER` stands for the folder, and `N s` for a time.
        files: the files of the folder that differ from a sound project.
    """

    what: str
    door: str
    words: Sequence[str]
    code: int
    told: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """A sound project with some files of its own."""
    for name, text in {**SOUND, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def typed(*words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command; standard input is the caller's."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def _loaded(folder: Path) -> object:
    return load_agent(folder / "desk.agent")


def _run_at_a_closed_port(folder: Path) -> object:
    with closed_port() as port:
        return load_agent(folder / "desk.agent").run("Note milk.", RunOptions(model=openai_at(port)))


def _played_twice(folder: Path) -> object:
    options = RunOptions(model=ScriptedModel([Reply(text="Done.")]))
    agent = load_agent(folder / "desk.agent")
    return [agent.run("Note milk.", options) for _ in range(2)]


MISTAKES: tuple[Mistake, ...] = (
    Mistake(
        what="a `tools.py` without `TOOLS`",
        door="load_agent",
        act=_loaded,
        kind=ResolutionError,
        attributes={"agent": "desk", "names": ("look", "note"), "unexported": ("tools.py",)},
        told=(
            "agent desk (FOLDER/desk.agent) names what it cannot have:\n"
            "  - `tools:` has 'look', but that tool does not exist. Available tools: none.\n"
            "  - `tools:` has 'note', but that tool does not exist. Available tools: none.\n"
            "tools.py defines look, note, and has no TOOLS; add the line: TOOLS = [look, note]"
        ),
        files={"tools.py": FUNCTIONS},
    ),
    Mistake(
        what="`TOOLS` without a function that an agent names",
        door="load_agent",
        act=_loaded,
        kind=ResolutionError,
        attributes={"agent": "desk", "names": ("note",), "unexported": ("tools.py",)},
        told=(
            "agent desk (FOLDER/desk.agent) names what it cannot have: `tools:` has 'note', but that tool "
            "does not exist. Available tools: look. tools.py defines note, and its TOOLS does not list it; "
            "add it to TOOLS."
        ),
        files={"tools.py": f"{FUNCTIONS}\n\nTOOLS = [look]\n"},
    ),
    Mistake(
        what="a factory of toolsets in a module without `TOOLSETS`",
        door="load_agent",
        act=_loaded,
        kind=ResolutionError,
        attributes={"agent": "desk", "names": ("bells",), "unexported": ("tools.py",)},
        told=(
            "agent desk (FOLDER/desk.agent) names what it cannot have: `toolsets:` has 'bells', but that toolset "
            "does not exist. Available toolsets: desk, dynamic_agents, files, files_ro, planning, project_files, "
            "project_files_ro, python, sandbox, shell. tools.py defines bells, and has no TOOLSETS; add the line: "
            "TOOLSETS = [bells]"
        ),
        files={
            "desk.agent": "---\nname: desk\ntoolsets: [bells]\n---\nYou ring.\n",
            "tools.py": "def bells(ctx):\n    return None\n",
        },
    ),
    Mistake(
        what="an import from a library that it does not have",
        door="load_agent",
        act=_loaded,
        kind=DiscoveryError,
        attributes={"module": "tools.py", "offenders": ()},
        told=(
            "tools.py cannot be imported: ImportError: cannot import name 'curent_run' from 'handrail.agents' "
            "(tools.py:1)"
        ),
        files={"tools.py": "from handrail.agents import curent_run\n"},
    ),
    Mistake(
        what="a path that is nearly right",
        door="load_agent",
        act=lambda folder: load_agent(folder / "dsk.agent"),
        kind=AgentFileError,
        attributes={"file": "FOLDER/dsk.agent", "line": None, "field": None},
        told="FOLDER/dsk.agent: the file does not exist. Did you mean FOLDER/desk.agent?",
    ),
    Mistake(
        what="a folder for an agent file",
        door="load_agent",
        act=load_agent,
        kind=AgentFileError,
        attributes={"file": "FOLDER", "line": None, "field": None},
        told="FOLDER: this is a folder; an agent file is a text file. Name one of those in it: FOLDER/desk.agent",
    ),
    Mistake(
        what="a file of approval rules whose path is nearly right",
        door="read_rules",
        act=lambda folder: read_rules(folder / "ruls.yaml"),
        kind=ApprovalRulesError,
        attributes={"file": "FOLDER/ruls.yaml", "line": None},
        told="FOLDER/ruls.yaml: the file does not exist. Did you mean FOLDER/rules.yaml?",
    ),
    Mistake(
        what="a path in `pyproject.toml` that is nearly right",
        door="load_agent",
        act=_loaded,
        kind=ProjectError,
        attributes={"problems": ()},
        told=(
            "pyproject.toml: [tool.handrail]: approval is 'ruls.yaml', but the file does not exist. Did you mean "
            "'rules.yaml'?"
        ),
        files={"pyproject.toml": "[tool.handrail]\napproval = 'ruls.yaml'\n"},
    ),
    Mistake(
        what="a misspelt provider",
        door="RunOptions",
        act=lambda _: RunOptions(model="openia:gpt-5"),
        kind=UnknownModelError,
        attributes={"name": "openia:gpt-5", "nearest": "openai:gpt-5"},
        told=(
            "the model openia:gpt-5 (RunOptions(model=...)) cannot be used: no such model is known, because "
            "there is no provider 'openia'; a name is provider:model, such as openai:gpt-5.2. Did you mean "
            "openai:gpt-5?"
        ),
    ),
    Mistake(
        what="a misspelt provider in an agent file",
        door="LoadedAgent.run",
        act=lambda folder: load_agent(folder / "desk.agent").run("Note milk."),
        kind=UnknownModelError,
        attributes={"name": "antropic:claude", "nearest": "anthropic:claude"},
        told=(
            "the model antropic:claude (for agent desk) cannot be used: no such model is known, because there is "
            "no provider 'antropic'; a name is provider:model, such as openai:gpt-5.2. Did you mean "
            "anthropic:claude?"
        ),
        files={"desk.agent": AGENT.replace("name: desk", "name: desk\nmodel: antropic:claude")},
    ),
    Mistake(
        what="a misspelt provider in the file of an agent that is called",
        door="LoadedAgent.run",
        act=lambda folder: load_agent(folder / "desk.agent").run("Note milk."),
        kind=UnknownModelError,
        attributes={"name": "openia:gpt-5", "nearest": "openai:gpt-5"},
        told=(
            "the model openia:gpt-5 (for agent clerk) cannot be used: no such model is known, because there is "
            "no provider 'openia'; a name is provider:model, such as openai:gpt-5.2. Did you mean openai:gpt-5?"
        ),
        files={
            "desk.agent": "---\nname: desk\nmodel: test\ntoolsets: [clerk]\n---\nAsk the clerk.\n",
            "clerk.agent": "---\nname: clerk\nmodel: openia:gpt-5\n---\nBe kind.\n",
        },
    ),
    Mistake(
        what="a model without its provider",
        door="PydanticAIAdapter",
        act=lambda _: PydanticAIAdapter("gpt-5"),
        kind=UnknownModelError,
        attributes={"name": "gpt-5", "nearest": "openai:gpt-5"},
        told=(
            "the model gpt-5 cannot be used: no such model is known; a name is provider:model, such as "
            "openai:gpt-5.2. Did you mean openai:gpt-5?"
        ),
    ),
    Mistake(
        what="a provider that cannot be reached",
        door="LoadedAgent.run",
        act=_run_at_a_closed_port,
        kind=ModelUnreachableError,
        attributes={
            "model": "gpt-5",
            "host": "127.0.0.1:PORT",
            "reason": "Connection refused",
            "phase": "request",
            "tool": None,
        },
        told=(
            "the evaluation of desk stopped: no answer from 127.0.0.1:PORT for the model gpt-5: Connection "
            "refused. Look at the network, at a proxy, and at the base URL of the provider: OPENAI_BASE_URL, say"
        ),
    ),
    Mistake(
        what="a folder for a script",
        door="ScriptedModel.from_file",
        act=lambda folder: ScriptedModel.from_file(folder / "scripts"),
        kind=ScriptError,
        attributes={"step": None},
        told="scripts: this is a folder; a script is a text file. Name one of those in it: FOLDER/scripts/one.yaml",
        files={"scripts/one.yaml": ""},
    ),
    Mistake(
        what="a model that has played its script, in another run",
        door="LoadedAgent.run",
        act=_played_twice,
        kind=ScriptError,
        attributes={"step": 2},
        told=(
            "the script has ended with reply 1, but the run asks for another. It was sent no messages. A script "
            "is played once; make another model for another run."
        ),
    ),
)
"""Mistakes at functions of Python."""

_SCRIPT = ("--model", "script:script.yaml", "--approve", "approve-all")

SLIPS: tuple[Slip, ...] = (
    Slip(
        what="INPUT without quotes",
        door="handrail run",
        words=("run", "desk", "refund", "my", "order"),
        code=2,
        told=(
            "handrail: the file desk does not exist. Did you mean desk.agent? INPUT is 3 words for the "
            "shell; put it in "
            "quotes: handrail run desk.agent 'refund my order' (see handrail run --help)\n"
        ),
    ),
    Slip(
        what="a path that is nearly right",
        door="handrail run",
        words=("run", "dsk.agent", "Note milk."),
        code=2,
        told="handrail: the file dsk.agent does not exist. Did you mean desk.agent? (see handrail run --help)\n",
    ),
    Slip(
        what="a folder on the way that is nearly right",
        door="handrail run",
        words=("run", "dsk/desk.agent", "Note milk."),
        code=2,
        told=(
            "handrail: the file dsk/desk.agent does not exist. Did you mean desk/desk.agent? (see handrail run "
            "--help)\n"
        ),
        files={"desk/desk.agent": AGENT},
    ),
    Slip(
        what="a path like no other",
        door="handrail run",
        words=("run", "other.agent", "Note milk."),
        code=2,
        told=(
            "handrail: the file other.agent does not exist; the agent files there: desk.agent. (see handrail "
            "run --help)\n"
        ),
    ),
    Slip(
        what="a path like no other, and INPUT without quotes",
        door="handrail run",
        words=("run", "other", "refund", "my", "order"),
        code=2,
        told=(
            "handrail: the file other does not exist; the agent files there: desk.agent. INPUT is 3 words "
            "for the shell; put "
            "it in quotes: handrail run AGENT_FILE 'refund my order' (see handrail run --help)\n"
        ),
    ),
    Slip(
        what="a folder for an agent file",
        door="handrail run",
        words=("run", ".", "Note milk."),
        code=2,
        told="handrail: . is a folder; name one of its agent files: desk.agent. (see handrail run --help)\n",
    ),
    Slip(
        what="a path that is nearly right",
        door="handrail check",
        words=("check", "desk"),
        code=2,
        told="handrail: the file desk does not exist. Did you mean desk.agent? (see handrail check --help)\n",
    ),
    Slip(
        what="a misspelt provider",
        door="handrail run",
        words=("run", "desk.agent", "Note milk.", "--model", "openia:gpt-5"),
        code=2,
        told=(
            "handrail: the model openia:gpt-5 (--model) cannot be used: no such model is known, because there is "
            "no provider 'openia'; a name is provider:model, such as openai:gpt-5.2. Did you mean openai:gpt-5? "
            "(see handrail run --help)\n"
        ),
    ),
    Slip(
        what="a slash for the colon",
        door="handrail run",
        words=("run", "desk.agent", "Note milk.", "--model", "openai/gpt-5"),
        code=2,
        told=(
            "handrail: the model openai/gpt-5 (--model) cannot be used: no such model is known; a name is "
            "provider:model, such as openai:gpt-5.2. Did you mean openai:gpt-5? (see handrail run --help)\n"
        ),
    ),
    Slip(
        what="a misspelt provider in an agent file",
        door="handrail check",
        words=("check", "desk.agent"),
        code=1,
        told=(
            "handrail: the model openia:gpt-5 (the agent file) cannot be used: no such model is known, because "
            "there is no provider 'openia'; a name is provider:model, such as openai:gpt-5.2. Did you mean "
            "openai:gpt-5?\n"
            "desk cannot run: 1 problem.\n"
        ),
        files={"desk.agent": AGENT.replace("name: desk", "name: desk\nmodel: openia:gpt-5")},
    ),
    Slip(
        what="a misspelt provider in the file of an agent that is called",
        door="handrail check",
        words=("check", "desk.agent"),
        code=1,
        told=(
            "handrail: the model openia:gpt-5 (for agent clerk) cannot be used: no such model is known, because "
            "there is no provider 'openia'; a name is provider:model, such as openai:gpt-5.2. Did you mean "
            "openai:gpt-5?\n"
            "desk cannot run: 1 problem.\n"
        ),
        files={
            "desk.agent": "---\nname: desk\nmodel: test\ntoolsets: [clerk]\n---\nAsk the clerk.\n",
            "clerk.agent": "---\nname: clerk\nmodel: openia:gpt-5\n---\nBe kind.\n",
        },
    ),
    Slip(
        what="a script whose path is nearly right",
        door="handrail run",
        words=("run", "desk.agent", "Note milk.", "--model", "script:scrip.yaml"),
        code=2,
        told=(
            "handrail: the script scrip.yaml (--model) cannot be read: No such file or directory. Did you mean "
            "script.yaml? (see handrail run --help)\n"
        ),
    ),
    Slip(
        what="a folder for approval rules",
        door="handrail run",
        words=("run", "desk.agent", "Note milk.", *_SCRIPT, "--rules", "."),
        code=2,
        told=(
            "handrail: --rules . is a folder; name a file in it: rules.yaml, script.yaml (see handrail run --help)\n"
        ),
    ),
    Slip(
        what="approval rules whose path is nearly right",
        door="handrail check",
        words=("check", "desk.agent", "--rules", "rule.yml"),
        code=2,
        told=(
            "handrail: --rules rule.yml is not a file; check the path. Did you mean rules.yaml? (see handrail "
            "check --help)\n"
        ),
    ),
    Slip(
        what="a folder to work on whose path is nearly right",
        door="handrail run",
        words=("run", "desk.agent", "Note milk.", *_SCRIPT, "--root", "wrk"),
        code=2,
        told=(
            "handrail: --root wrk is not a folder; create it, or name an existing one. Did you mean work? (see "
            "handrail run --help)\n"
        ),
        files={"work/note.md": ""},
    ),
    Slip(
        what="a database whose path is nearly right",
        door="handrail sessions list",
        words=("sessions", "list", "--store", "sqlite:///dsk.db"),
        code=1,
        told=(
            "handrail: the database dsk.db does not exist; check --store, and the current folder (FOLDER). Did "
            "you mean desk.db?\n"
        ),
        files={"desk.db": ""},
    ),
    Slip(
        what="a `tools.py` without `TOOLS`",
        door="handrail check",
        words=("check", "desk.agent"),
        code=1,
        told=(
            "handrail: agent desk (FOLDER/desk.agent) names what it cannot have:\n"
            "    - `tools:` has 'look', but that tool does not exist. Available tools: none.\n"
            "    - `tools:` has 'note', but that tool does not exist. Available tools: none.\n"
            "  tools.py defines look, note, and has no TOOLS; add the line: TOOLS = [look, note]\n"
            "desk cannot run: 1 problem.\n"
        ),
        files={"tools.py": FUNCTIONS},
    ),
    Slip(
        what="a factory that raises",
        door="handrail check",
        words=("check", "desk.agent"),
        code=1,
        told=(
            "handrail: the tools of desk cannot be made: JSONDecodeError: Expecting property name enclosed in "
            "double quotes: line 1 column 2 (char 1) (toolset bells (tools.py) was being made by the factory "
            "bells.) [tools.py:5]\n"
            "desk cannot run: 1 problem.\n"
        ),
        files={
            "desk.agent": "---\nname: desk\ntoolsets: [bells]\n---\nYou ring.\n",
            "tools.py": "import json\n\n\ndef bells(ctx):\n    return json.loads('{')\n\n\nTOOLSETS = [bells]\n",
        },
    ),
    Slip(
        what="a tool that raises",
        door="handrail run",
        words=("run", "desk.agent", "Note milk.", *_SCRIPT),
        code=0,
        told=(
            "desk: started on scripted\n"
            'desk: note(text="milk")\n'
            'desk: note(text="milk") failed, rolled back, N s: OSError: no ink [tools.py:8]\n'
            "desk: done, 100 tokens in, 6 out\n"
        ),
    ),
)
"""Mistakes on the command line."""
