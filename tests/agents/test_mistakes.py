"""A developer's mistakes with agents and the command line are told with what was given and what would be right."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import handrail
from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.agents import RunOptions, load_agent, read_rules
from handrail.cli import main
from handrail.errors import (
    AgentFileError,
    ApprovalRulesError,
    DiscoveryError,
    InvalidArgumentError,
    ModelUnreachableError,
    ProjectError,
    ResolutionError,
    ScriptError,
    UnknownModelError,
)
from handrail.testing import Reply, ScriptedModel
from tests.adapters.kit import closed_port, openai_at
from tests.wording import Wording

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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


_CALLER = {
    "desk.agent": "---\nname: desk\nmodel: test\ntoolsets: [clerk]\n---\nAsk the clerk.\n",
    "clerk.agent": "---\nname: clerk\nmodel: openia:gpt-5\n---\nBe kind.\n",
}
MISTAKES: tuple[Mistake, ...] = (
    Mistake("a `tools.py` without `TOOLS`", "load_agent", _loaded, ResolutionError,
        {"agent": "desk", "names": ("look", "note")}, {"tools.py": FUNCTIONS}),
    Mistake("an import from a library that it does not have", "load_agent", _loaded, DiscoveryError,
        {"module": "tools.py", "offenders": ()}, {"tools.py": "from handrail.agents import curent_run\n"}),
    Mistake("a path that is nearly right", "load_agent", lambda folder: load_agent(folder / "dsk.agent"),
        AgentFileError, {"file": "FOLDER/dsk.agent", "line": None, "field": None}),
    Mistake("a folder for an agent file", "load_agent", load_agent, AgentFileError,
        {"file": "FOLDER", "line": None, "field": None}),
    Mistake("a file of approval rules whose path is nearly right", "read_rules",
        lambda folder: read_rules(folder / "ruls.yaml"), ApprovalRulesError,
        {"file": "FOLDER/ruls.yaml", "line": None}),
    Mistake("a path in `pyproject.toml` that is nearly right", "load_agent", _loaded, ProjectError, {"problems": ()},
        {"pyproject.toml": "[tool.handrail]\napproval = 'ruls.yaml'\n"}),
    Mistake("a misspelt provider", "RunOptions", lambda _: RunOptions(model="openia:gpt-5"), UnknownModelError,
        {"name": "openia:gpt-5", "nearest": "openai:gpt-5"}),
    Mistake("a misspelt provider in an agent file", "LoadedAgent.run",
        lambda folder: load_agent(folder / "desk.agent").run("Note milk."), UnknownModelError,
        {"name": "antropic:claude", "nearest": "anthropic:claude"},
        {"desk.agent": AGENT.replace("name: desk", "name: desk\nmodel: antropic:claude")}),
    Mistake("a misspelt provider in the file of an agent that is called", "LoadedAgent.run",
        lambda folder: load_agent(folder / "desk.agent").run("Note milk."), UnknownModelError,
        {"name": "openia:gpt-5", "nearest": "openai:gpt-5"}, _CALLER),
    Mistake("a model without its provider", "PydanticAIAdapter", lambda _: PydanticAIAdapter("gpt-5"),
        UnknownModelError, {"name": "gpt-5", "nearest": "openai:gpt-5"}),
    Mistake("a provider that cannot be reached", "LoadedAgent.run", _run_at_a_closed_port, ModelUnreachableError,
        {"model": "gpt-5", "host": "127.0.0.1:PORT", "reason": "Connection refused", "phase": "request", "tool": None}),
    Mistake("a folder for a script", "ScriptedModel.from_file",
        lambda folder: ScriptedModel.from_file(folder / "scripts"), ScriptError, {"step": None},
        {"scripts/one.yaml": ""}),
    Mistake("a model that has played its script, in another run", "LoadedAgent.run", _played_twice, ScriptError,
        {"step": 2}),
)  # fmt: skip
"""Mistakes at functions of Python."""

_SCRIPT = ("--model", "script:script.yaml", "--approve", "approve-all")

SLIPS: tuple[Slip, ...] = (
    Slip("INPUT without quotes", "handrail run", ("run", "desk", "refund", "my", "order"), 2),
    Slip("a path that is nearly right", "handrail run", ("run", "dsk.agent", "Note milk."), 2),
    Slip("a path like no other", "handrail run", ("run", "other.agent", "Note milk."), 2),
    Slip("a path like no other, and INPUT without quotes", "handrail run", ("run", "other", "refund", "my", "order"),
        2), Slip("a folder for an agent file", "handrail run", ("run", ".", "Note milk."), 2),
    Slip("a path that is nearly right", "handrail check", ("check", "desk"), 2),
    Slip("a misspelt provider", "handrail run", ("run", "desk.agent", "Note milk.", "--model", "openia:gpt-5"), 2),
    Slip("a slash for the colon", "handrail run", ("run", "desk.agent", "Note milk.", "--model", "openai/gpt-5"), 2),
    Slip("a misspelt provider in an agent file", "handrail check", ("check", "desk.agent"), 1,
        {"desk.agent": AGENT.replace("name: desk", "name: desk\nmodel: openia:gpt-5")}),
    Slip("a misspelt provider in the file of an agent that is called", "handrail check", ("check", "desk.agent"), 1,
        _CALLER),
    Slip("a script whose path is nearly right", "handrail run",
        ("run", "desk.agent", "Note milk.", "--model", "script:scrip.yaml"), 2),
    Slip("a folder for approval rules", "handrail run", ("run", "desk.agent", "Note milk.", *_SCRIPT, "--rules", "."),
        2),
    Slip("approval rules whose path is nearly right", "handrail check", ("check", "desk.agent", "--rules", "rule.yml"),
        2),
    Slip("a folder to work on whose path is nearly right", "handrail run",
        ("run", "desk.agent", "Note milk.", *_SCRIPT, "--root", "wrk"), 2, {"work/note.md": ""}),
    Slip("a database whose path is nearly right", "handrail sessions list",
        ("sessions", "list", "--store", "sqlite:///dsk.db"), 1, {"desk.db": ""}),
    Slip("a `tools.py` without `TOOLS`", "handrail check", ("check", "desk.agent"), 1, {"tools.py": FUNCTIONS}),
    Slip("a factory that raises", "handrail check", ("check", "desk.agent"), 1,
        {"desk.agent": "---\nname: desk\ntoolsets: [bells]\n---\nYou ring.\n",
        "tools.py": "import json\n\n\ndef bells(ctx):\n    return json.loads('{')\n\n\nTOOLSETS = [bells]\n"}),
    Slip("a tool that raises", "handrail run", ("run", "desk.agent", "Note milk.", *_SCRIPT), 0),
)  # fmt: skip
"""Mistakes on the command line."""


_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")


def comparable(text: str, folder: Path) -> str:
    """A text without what time and place make of it."""
    return re.sub(r"\d+\.\d s\b", "N s", _PORT.sub("PORT", text.replace(str(folder), "FOLDER")))


@pytest.fixture(autouse=True)
def _nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes from the environment or from standard input."""
    for name in ("HANDRAIL_MODEL", "HANDRAIL_STORE", "HANDRAIL_DEBUG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.door}: {mistake.what}")
def test_a_mistake_is_an_exception_with_a_message_and_attributes(
    mistake: Mistake, tmp_path: Path, wording: Wording
) -> None:
    """Of its own type; what was given, and what would be right, stand in both, and no path of a library."""
    folder = written(tmp_path, mistake.files)
    with pytest.raises(mistake.kind) as caught:
        mistake.act(folder)
    assert type(caught.value) is mistake.kind
    found = {name: getattr(caught.value, name) for name in mistake.attributes}
    told = {name: comparable(value, folder) if isinstance(value, str) else value for name, value in found.items()}
    assert told == mistake.attributes
    assert comparable(str(caught.value), folder) == wording
    assert str(Path(handrail.__file__).parent) not in str(caught.value)
    assert "site-packages" not in str(caught.value)


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: f"{slip.door}: {slip.what}")
def test_a_slip_on_the_command_line(
    slip: Slip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Its exit code, and what is said of it word by word, on standard error; no path of a library, and no traceback."""
    monkeypatch.chdir(written(tmp_path, slip.files))
    code, _, err = typed(*slip.words)
    assert (code, comparable(err, tmp_path)) == (slip.code, wording)
    assert str(Path(handrail.__file__).parent) not in err
    assert "site-packages" not in err


def test_options_of_another_type_are_refused(tmp_path: Path) -> None:
    """Such as a model in their place."""
    (tmp_path / "desk.agent").write_text("---\nname: desk\n---\nYou work at the desk.\n")
    model: Any = ScriptedModel([Reply(text="Hello.")])
    with pytest.raises(InvalidArgumentError, match=r"RunOptions\(model=") as caught:
        load_agent(tmp_path / "desk.agent").run("Hello.", model)
    assert (caught.value.function, caught.value.argument, caught.value.value_type) == (
        "Agent.run",
        "options",
        ScriptedModel,
    )
