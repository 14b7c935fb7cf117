"""A developer's mistakes with agents and the command line are told with what was given and what would be right."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import handrail
from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.agents import RunOptions, load_agent
from handrail.cli import main
from handrail.errors import (
    ModelUnreachableError,
    UnknownModelError,
)
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
    "script.yaml": "replies: [{calls: [{name: note, arguments: {text: milk}}]}, {text: Done.}]\n",
}
"""The files of a sound project."""


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


def _run_at_a_closed_port(folder: Path) -> object:
    with closed_port() as port:
        return load_agent(folder / "desk.agent").run("Note milk.", RunOptions(model=openai_at(port)))


_CALLER = {
    "desk.agent": "---\nname: desk\nmodel: test\ntoolsets: [clerk]\n---\nAsk the clerk.\n",
    "clerk.agent": "---\nname: clerk\nmodel: openia:gpt-5\n---\nBe kind.\n",
}
MISTAKES: dict[str, tuple[Callable[[Path], object], type[Exception], dict[str, object], Mapping[str, str]]] = {
    "RunOptions: a misspelt provider": (lambda _: RunOptions(model="openia:gpt-5"), UnknownModelError,
        {"name": "openia:gpt-5", "nearest": "openai:gpt-5"}, {}),
    "LoadedAgent.run: a misspelt provider in an agent file": (
        lambda folder: load_agent(folder / "desk.agent").run("Note milk."), UnknownModelError,
        {"name": "antropic:claude", "nearest": "anthropic:claude"},
        {"desk.agent": AGENT.replace("name: desk", "name: desk\nmodel: antropic:claude")}),
    "LoadedAgent.run: a misspelt provider in the file of an agent that is called": (
        lambda folder: load_agent(folder / "desk.agent").run("Note milk."), UnknownModelError,
        {"name": "openia:gpt-5", "nearest": "openai:gpt-5"}, _CALLER),
    "PydanticAIAdapter: a model without its provider": (lambda _: PydanticAIAdapter("gpt-5"), UnknownModelError,
        {"name": "gpt-5", "nearest": "openai:gpt-5"}, {}),
    "LoadedAgent.run: a provider that cannot be reached": (_run_at_a_closed_port, ModelUnreachableError,
        {"model": "gpt-5", "host": "127.0.0.1:PORT", "reason": "Connection refused", "phase": "request", "tool": None},
        {}),
}  # fmt: skip
"""Mistakes at functions of Python: the function, the exception, its attributes, and files of the project."""

_RUN = ("run", "desk.agent", "Note milk.")
_SCRIPT = ("--model", "script:script.yaml", "--approve", "approve-all")
_BELLS = "import json\n\n\ndef bells(ctx):\n    return json.loads('{')\n\n\nTOOLSETS = [bells]\n"

SLIPS: dict[str, tuple[tuple[str, ...], int, Mapping[str, str]]] = {
    "handrail run: a folder on the way that is nearly right": (("run", "dsk/desk.agent", "Note milk."), 2,
        {"desk/desk.agent": AGENT}),
    "handrail run: a path like no other, and INPUT without quotes": (("run", "other", "refund", "my", "order"), 2, {}),
    "handrail run: a slash for the colon": ((*_RUN, "--model", "openai/gpt-5"), 2, {}),
    "handrail check: a misspelt provider in an agent file": (("check", "desk.agent"), 1,
        {"desk.agent": AGENT.replace("name: desk", "name: desk\nmodel: openia:gpt-5")}),
    "handrail check: a misspelt provider in the file of an agent that is called": (("check", "desk.agent"), 1,
        _CALLER),
    "handrail run: a folder for approval rules": ((*_RUN, *_SCRIPT, "--rules", "."), 2, {}),
    "handrail sessions list: a database whose path is nearly right": (
        ("sessions", "list", "--store", "sqlite:///dsk.db"), 1, {"desk.db": ""}),
    "handrail check: a `tools.py` without `TOOLS`": (("check", "desk.agent"), 1, {"tools.py": FUNCTIONS}),
    "handrail check: a factory that raises": (("check", "desk.agent"), 1,
        {"desk.agent": "---\nname: desk\ntoolsets: [bells]\n---\nYou ring.\n", "tools.py": _BELLS}),
    "handrail run: a tool that raises": ((*_RUN, *_SCRIPT), 0, {}),
}  # fmt: skip
"""Mistakes on the command line: the words behind `handrail`, the exit code, and files of the project."""


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


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_an_exception_with_a_message_and_attributes(
    mistake: str, tmp_path: Path, wording: Wording
) -> None:
    """Of its own type; what was given, and what would be right, stand in both, and no path of a library."""
    act, kind, attributes, files = MISTAKES[mistake]
    folder = written(tmp_path, files)
    with pytest.raises(kind) as caught:
        act(folder)
    assert type(caught.value) is kind
    found = {name: getattr(caught.value, name) for name in attributes}
    told = {name: comparable(value, folder) if isinstance(value, str) else value for name, value in found.items()}
    assert told == attributes
    assert comparable(str(caught.value), folder) == wording
    assert str(Path(handrail.__file__).parent) not in str(caught.value)


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_on_the_command_line(
    slip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Its exit code, and what is said of it word by word, on standard error; no path of a library, and no traceback."""
    words, expected, files = SLIPS[slip]
    monkeypatch.chdir(written(tmp_path, files))
    code, _, err = typed(*words)
    assert (code, comparable(err, tmp_path)) == (expected, wording)
    assert str(Path(handrail.__file__).parent) not in err
