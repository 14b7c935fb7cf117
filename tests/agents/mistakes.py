"""Mistakes that a developer makes with agents and the command line: where each is met, and which exception it is.

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
        files: the files of the folder that differ from a sound project.
    """

    what: str
    door: str
    act: Callable[[Path], object]
    kind: type[Exception]
    attributes: Mapping[str, object]
    files: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """A mistake on the command line.

    Attributes:
        what: the mistake.
        door: the command where it is met.
        words: what is typed behind `handrail`, in the folder of a project.
        code: the exit code.
        files: the files of the folder that differ from a sound project.
    """

    what: str
    door: str
    words: Sequence[str]
    code: int
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
        attributes={"agent": "desk", "names": ("look", "note")},
        files={"tools.py": FUNCTIONS},
    ),
    Mistake(
        what="an import from a library that it does not have",
        door="load_agent",
        act=_loaded,
        kind=DiscoveryError,
        attributes={"module": "tools.py", "offenders": ()},
        files={"tools.py": "from handrail.agents import curent_run\n"},
    ),
    Mistake(
        what="a path that is nearly right",
        door="load_agent",
        act=lambda folder: load_agent(folder / "dsk.agent"),
        kind=AgentFileError,
        attributes={"file": "FOLDER/dsk.agent", "line": None, "field": None},
    ),
    Mistake(
        what="a folder for an agent file",
        door="load_agent",
        act=load_agent,
        kind=AgentFileError,
        attributes={"file": "FOLDER", "line": None, "field": None},
    ),
    Mistake(
        what="a file of approval rules whose path is nearly right",
        door="read_rules",
        act=lambda folder: read_rules(folder / "ruls.yaml"),
        kind=ApprovalRulesError,
        attributes={"file": "FOLDER/ruls.yaml", "line": None},
    ),
    Mistake(
        what="a path in `pyproject.toml` that is nearly right",
        door="load_agent",
        act=_loaded,
        kind=ProjectError,
        attributes={"problems": ()},
        files={"pyproject.toml": "[tool.handrail]\napproval = 'ruls.yaml'\n"},
    ),
    Mistake(
        what="a misspelt provider",
        door="RunOptions",
        act=lambda _: RunOptions(model="openia:gpt-5"),
        kind=UnknownModelError,
        attributes={"name": "openia:gpt-5", "nearest": "openai:gpt-5"},
    ),
    Mistake(
        what="a misspelt provider in an agent file",
        door="LoadedAgent.run",
        act=lambda folder: load_agent(folder / "desk.agent").run("Note milk."),
        kind=UnknownModelError,
        attributes={"name": "antropic:claude", "nearest": "anthropic:claude"},
        files={"desk.agent": AGENT.replace("name: desk", "name: desk\nmodel: antropic:claude")},
    ),
    Mistake(
        what="a misspelt provider in the file of an agent that is called",
        door="LoadedAgent.run",
        act=lambda folder: load_agent(folder / "desk.agent").run("Note milk."),
        kind=UnknownModelError,
        attributes={"name": "openia:gpt-5", "nearest": "openai:gpt-5"},
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
    ),
    Mistake(
        what="a folder for a script",
        door="ScriptedModel.from_file",
        act=lambda folder: ScriptedModel.from_file(folder / "scripts"),
        kind=ScriptError,
        attributes={"step": None},
        files={"scripts/one.yaml": ""},
    ),
    Mistake(
        what="a model that has played its script, in another run",
        door="LoadedAgent.run",
        act=_played_twice,
        kind=ScriptError,
        attributes={"step": 2},
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
    ),
    Slip(
        what="a path that is nearly right",
        door="handrail run",
        words=("run", "dsk.agent", "Note milk."),
        code=2,
    ),
    Slip(
        what="a folder on the way that is nearly right",
        door="handrail run",
        words=("run", "dsk/desk.agent", "Note milk."),
        code=2,
        files={"desk/desk.agent": AGENT},
    ),
    Slip(
        what="a path like no other",
        door="handrail run",
        words=("run", "other.agent", "Note milk."),
        code=2,
    ),
    Slip(
        what="a path like no other, and INPUT without quotes",
        door="handrail run",
        words=("run", "other", "refund", "my", "order"),
        code=2,
    ),
    Slip(
        what="a folder for an agent file",
        door="handrail run",
        words=("run", ".", "Note milk."),
        code=2,
    ),
    Slip(
        what="a path that is nearly right",
        door="handrail check",
        words=("check", "desk"),
        code=2,
    ),
    Slip(
        what="a misspelt provider",
        door="handrail run",
        words=("run", "desk.agent", "Note milk.", "--model", "openia:gpt-5"),
        code=2,
    ),
    Slip(
        what="a slash for the colon",
        door="handrail run",
        words=("run", "desk.agent", "Note milk.", "--model", "openai/gpt-5"),
        code=2,
    ),
    Slip(
        what="a misspelt provider in an agent file",
        door="handrail check",
        words=("check", "desk.agent"),
        code=1,
        files={"desk.agent": AGENT.replace("name: desk", "name: desk\nmodel: openia:gpt-5")},
    ),
    Slip(
        what="a misspelt provider in the file of an agent that is called",
        door="handrail check",
        words=("check", "desk.agent"),
        code=1,
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
    ),
    Slip(
        what="a folder for approval rules",
        door="handrail run",
        words=("run", "desk.agent", "Note milk.", *_SCRIPT, "--rules", "."),
        code=2,
    ),
    Slip(
        what="approval rules whose path is nearly right",
        door="handrail check",
        words=("check", "desk.agent", "--rules", "rule.yml"),
        code=2,
    ),
    Slip(
        what="a folder to work on whose path is nearly right",
        door="handrail run",
        words=("run", "desk.agent", "Note milk.", *_SCRIPT, "--root", "wrk"),
        code=2,
        files={"work/note.md": ""},
    ),
    Slip(
        what="a database whose path is nearly right",
        door="handrail sessions list",
        words=("sessions", "list", "--store", "sqlite:///dsk.db"),
        code=1,
        files={"desk.db": ""},
    ),
    Slip(
        what="a `tools.py` without `TOOLS`",
        door="handrail check",
        words=("check", "desk.agent"),
        code=1,
        files={"tools.py": FUNCTIONS},
    ),
    Slip(
        what="a factory that raises",
        door="handrail check",
        words=("check", "desk.agent"),
        code=1,
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
    ),
)
"""Mistakes on the command line."""
