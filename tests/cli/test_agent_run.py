"""`handrail run`, from the command line to the answer, over agents that a scripted model plays."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from handrail.cli import main
from handrail.cli.agents.run import read_prompt
from handrail.cli.agents.settings import NamedModel, chosen_model, chosen_store, resolve_model, within
from handrail.testing import ScriptedModel
from tests.agents.kit import agent
from tests.cli.agent_folders import call, events, noting, script, write
from tests.cli.desk import Run
from tests.kit import raises
from tests.wording import Wording

HELLO = {"text": "Hello."}

COUNTING = """
from pathlib import Path
def look() -> str:
    "Looks, and leaves a trace."
    Path("looked").touch()
    return ""
def note() -> str:
    "Notes nothing."
    return ""
TOOLS = [look, note]
"""


def test_the_answer_goes_to_standard_output(run: Run, folder: Path, wording: Wording) -> None:
    """And what the agent does to standard error."""
    model = script(folder, {"text": "Let me look.", "calls": [call("look")]}, {"text": "There are no notes."})
    ran = run("What is there?", "--model", model)
    assert (ran.code, ran.out) == (0, wording)
    assert [line.partition(",")[0] for line in ran.err.splitlines()] == wording


def test_input_comes_from_standard_input_too(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `echo hello | handrail run desk.agent`."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    assert run("--model", script(folder, HELLO)).out == "Hello.\n"


def test_without_input_nothing_runs(run: Run, folder: Path, wording: Wording) -> None:
    """Exit code 2, and what to type."""
    for words in (("--model", script(folder, HELLO)), ()):  # it is told before a model is missed
        ran = run(*words)
        assert (ran.code, ran.out, ran.err) == (2, "", wording)
        assert len(ran.err.splitlines()) == 1


def test_a_script_must_be_played_to_its_end(run: Run, folder: Path) -> None:
    """What is left over is told, beside the answer."""
    ran = run("hello", "--model", script(folder, HELLO, HELLO))
    assert (ran.code, ran.out) == (1, "Hello.\n")
    assert "script.yaml" in ran.err


@pytest.mark.requirement("A-30")
def test_without_a_terminal_what_needs_approval_is_denied(run: Run, folder: Path, wording: Wording) -> None:
    """The run goes on, and what to do about it is said once."""
    ran = run("note it", "--model", noting(folder, "milk", "bread"))
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert [line for line in ran.err.splitlines() if not line.startswith("desk: ")] == wording
    assert len(re.findall(r"^desk: note\(text=.*\) refused, ", ran.err, re.MULTILINE)) == 2


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_run_says_that_it_is_waited_for(run: Run, folder: Path, wording: Wording) -> None:
    """And how it goes on."""
    note = '    "Is interrupted."\n    signal.raise_signal(signal.SIGINT)\n    await asyncio.sleep(60)\n    return text'
    write(
        folder,
        desk__agent=agent("desk", tools="[note]"),
        tools__py=f"import asyncio, signal\n\nasync def note(text: str) -> str:\n{note}\n\nTOOLS = [note]\n",
    )
    ran = run("note it", "--model", noting(folder, "milk"), "--approve", "approve-all")
    assert ran.code == 130
    assert [line for line in ran.err.splitlines() if "nterrupted" in line] == wording


def test_the_root_is_the_folder_to_work_on(run: Run, folder: Path) -> None:
    """Files are read below it, and not elsewhere."""
    write(folder, desk__agent="---\nname: desk\ntoolsets: [files_ro]\n---\nRead.\n")
    (folder / "desk").mkdir()
    (folder / "desk" / "inside.txt").write_text("found me")
    reading = [call("read_file", "a", path="inside.txt"), call("read_file", "b", path="../tools.py")]
    ran = run("read", "--model", script(folder, {"calls": reading}, HELLO), "--root", "desk", "--format", "json")
    told = {event["call_id"]: event for event in events(ran.out) if event["event"] == "call_ended"}
    assert told["a"]["success"]
    assert "found me" in told["a"]["content"]
    assert not told["b"]["success"]


def test_a_reader_that_goes_away_stops_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As `handrail run ... --format json | head -1` does: nothing more is done."""
    write(folder, tools__py=COUNTING)
    replies = [{"calls": [call("look", f"c{number}")]} for number in range(9)]
    words = ["run", "desk.agent", "hello", "--model", script(folder, *replies, HELLO), "--format", "json"]
    read, write_end = os.pipe()
    os.close(read)
    with os.fdopen(write_end, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main([*words, "--approve", "approve-all"]) == 141
    assert capfd.readouterr().err == ""
    assert not (folder / "looked").exists()


@pytest.mark.parametrize("shape", ["text", "json"])
def test_output_that_cannot_be_written_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shape: str, wording: Wording
) -> None:
    """An answer that was not written must not look like success."""
    with open("/dev/full", "w", buffering=1) as full:  # noqa: PTH123 - a device
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["run", "desk.agent", "hello", "--model", script(folder, HELLO), "--format", shape]) == 1
    assert capsys.readouterr().err == wording


EXITING = """
import sys
from handrail import tool

@tool(effect="external")
def note(text: str) -> str:
    "Ends the program."
    sys.exit(int(text) if text.isdecimal() else text)

TOOLS = [note]
"""


@pytest.mark.parametrize("argument, code", [("0", 3), ("2", 2), ("256", 3), ("no more", 3)])
def test_run_that_a_tool_ends_has_failed(run: Run, folder: Path, argument: str, code: int, wording: Wording) -> None:
    """It has not answered, whatever exit code the tool asks for, and its effect may have happened."""
    write(folder, desk__agent="---\nname: desk\ntools: [note]\n---\nHello.\n", tools__py=EXITING)
    words = ("--approve", "approve-all", "--store", "sqlite:///desk.db", "--session", "monday")
    ran = run("note it", "--model", noting(folder, argument), *words)
    assert (ran.code, ran.out) == (code, "")
    key = ran.err.splitlines()[-1].split()[3]
    assert ran.err.replace(key, "KEY") == wording


BELLS = """
from pydantic_ai.toolsets import FunctionToolset

def ring() -> str:
    "Rings."
    return ""

def bells(ctx):
    return FunctionToolset([ring])

def broken(ctx):
    raise KeyError("no such shelf")

TOOLSETS = [bells, broken]
"""
RINGS = {"desk__agent": agent("desk", toolsets="[bells]"), "tools__py": BELLS}
RULED = "[tool.handrail]\napproval = 'rules.yaml'\n"
WRONG = "deny: [noet, {tool: '*', agent: dsk}]"
APPROVED, RULES = "--approve approve-all", "--rules rules.yaml"

RUNS: dict[str, tuple[int, str, dict[str, str]]] = {
    "approved": (0, APPROVED, {}),
    "denied": (0, "--approve deny-all", {}),
    "approved by rules": (0, RULES, {"rules__yaml": "allow: [note]"}),
    "with a call that fails": (0, f"--model script:boom.yaml {APPROVED}", {}),
    "beyond its limit": (1, f"--request-limit 1 {APPROVED}", {}),
    "with a factory that raises": (1, "", {"desk__agent": agent("desk", toolsets="[broken]"), "tools__py": BELLS}),
    "with a reply that is not expected": (1, "--model script:other.yaml", {}),
    "under wrong rules": (2, RULES, {"rules__yaml": WRONG}),
    "under wrong rules of the project": (2, "", {"rules__yaml": WRONG, "pyproject__toml": RULED}),
    "under rules for a tool that no factory has": (0, RULES, {**RINGS, "rules__yaml": "deny: [rnig]"}),
    "with an unknown tool": (2, "", {"desk__agent": agent("desk", tools="[fly]")}),
    "with a module that raises": (2, "", {"tools__py": "1 / 0\n"}),
    "with an unknown setting": (2, "", {"pyproject__toml": "[tool.handrail]\nmodle = 'x'\n"}),
    "without its rules": (2, "", {"pyproject__toml": "[tool.handrail]\napproval = 'nowhere.yaml'\n"}),
    "on an empty model": (2, "--model=", {}),
    "with an unknown option": (2, "--modl test", {}),
    "answered later without a store": (2, "--approve later", {}),
    "without depth": (2, "--max-depth 0", {}),
    "in a file": (2, "--root tools.py", {}),
    "with a choice that is not there": (2, "--approve maybe", {}),
}
"""Runs: the exit code, the options, and the files that are written beside those of the fixture."""


@pytest.mark.parametrize("what", RUNS)
def test_what_comes_of_a_run(run: Run, folder: Path, wording: Wording, what: str) -> None:
    """With 2 nothing has run; an error names its file and place, and is not a traceback."""
    code, options, files = RUNS[what]
    write(folder, **files)
    script(folder, {"calls": [call("note", text="boom")]}, {"text": "Done."}, name="boom.yaml")
    script(folder, {"text": "x", "expect": {"tools": ["fly"]}}, name="other.yaml")
    words = options.split()
    if not any(word.startswith("--model") for word in words):
        words += ["--model", noting(folder, "milk")]
    ran = run("note it", *words)
    assert (ran.code, ran.out) == (code, "Done.\n" if code == 0 else "")
    assert ran.err == wording
    assert "Traceback" not in ran.err


def test_without_a_model_or_with_an_empty_input_nothing_runs(run: Run, wording: Wording) -> None:
    """In one line with exit code 2, and where the help is."""
    for words in (("hello",), ("", "--model", "test")):
        ran = run(*words)
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
        assert ran.err == wording


@pytest.mark.parametrize("content, mode", [(b"caf\xe9", "strict"), (b"caf\xe9", "surrogateescape")])
def test_input_that_is_no_utf_8_is_told(content: bytes, mode: str, wording: Wording) -> None:
    """Whatever the stream makes of it."""
    stream = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors=mode)
    with raises(CycloptsError, wording):
        read_prompt(None, stream)


CHOSEN_STORES: list[tuple[str | None, str | None, dict[str, str], str | None]] = [
    ("sqlite:///a.db", "sqlite:///b.db", {"HANDRAIL_STORE": "sqlite:///c.db"}, "sqlite:///a.db"),
    (None, "sqlite:///b.db", {"HANDRAIL_STORE": "sqlite:///c.db"}, "sqlite:////desk/b.db"),
    (None, None, {"HANDRAIL_STORE": " sqlite:///c.db "}, "sqlite:///c.db"),
    *((None, None, {"HANDRAIL_STORE": ""}, None), (None, None, {}, None), ("memory:", "sqlite:///b.db", {}, None)),
    (None, "memory:", {"HANDRAIL_STORE": "sqlite:///c.db"}, None),
]


@pytest.mark.parametrize("typed, project, environment, url", CHOSEN_STORES)
def test_the_store_is_the_one_that_was_typed_then_that_of_the_project(
    typed: str | None, project: str | None, environment: Mapping[str, str], url: str | None
) -> None:
    """Then that of the environment; one in memory is none."""
    assert chosen_store(typed, project, Path("/desk"), environment) == url


PLACES = [
    *(("sqlite:////srv/desk.db", "sqlite:////srv/desk.db"), ("postgresql://host/desk", "postgresql://host/desk")),
    ("sqlite:///my%20desk.db", "sqlite:////desk/my%20desk.db"),
]


@pytest.mark.parametrize("url, placed", PLACES)
def test_a_database_of_a_project_lies_in_its_folder(url: str, placed: str) -> None:
    """Wherever the command is typed."""
    assert within(Path("/desk"), url) == placed


MODEL = {"HANDRAIL_MODEL": " d "}


CHOSEN_MODELS: list[tuple[str | None, str | None, str | None, dict[str, str], NamedModel | None]] = [
    ("a", "b", "c", MODEL, NamedModel("a", "--model")),
    (None, "b", "c", MODEL, NamedModel("b", "the agent file")),
    (None, None, "c", MODEL, NamedModel("c", "[tool.handrail] of pyproject.toml")),
    (None, None, None, MODEL, NamedModel("d", "HANDRAIL_MODEL")),
    *((None, None, None, {"HANDRAIL_MODEL": " "}, None), (None, None, None, {}, None)),
]


@pytest.mark.parametrize("typed, file, project, environment, chosen", CHOSEN_MODELS)
def test_what_is_typed_counts_most(
    typed: str | None, file: str | None, project: str | None, environment: Mapping[str, str], chosen: NamedModel | None
) -> None:
    """Then the agent file, then the project, then the environment."""
    assert chosen_model(typed, file, project, environment) == chosen


@pytest.mark.parametrize("name", ["openai:gpt-5.2", "gpt-5", "nobody:gpt-5", ":", "openai:", "groq:llama"])
def test_a_model_that_cannot_be_used_is_told(name: str, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """A key, a package or the model may be missing; nothing has been asked yet."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with raises(CycloptsError, wording):
        resolve_model(NamedModel(name, "the agent file"))


def test_a_script_plays_a_model(tmp_path: Path, wording: Wording) -> None:
    """It counts for every agent of the run, as a model that is typed does."""
    script = tmp_path / "script.yaml"
    script.write_text("replies: [{text: Hello.}]")
    named = NamedModel(f"script:{script}", "--model")
    assert isinstance(resolve_model(named), ScriptedModel)
    assert named.typed
    assert NamedModel(f"script:{script}", "HANDRAIL_MODEL").typed
    assert not NamedModel("test", "HANDRAIL_MODEL").typed
    with raises(CycloptsError, wording):
        resolve_model(NamedModel(f"script:{script}", "the agent file"))
    with raises(CycloptsError, wording):
        resolve_model(NamedModel("script: ", "--model"))
