"""`handrail run`, from the command line to the answer, over agents that a scripted model plays."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

import pytest

from handrail.cli import main
from tests.agents.folders import agent
from tests.cli.agent_folders import call, events, noting, script, write
from tests.cli.desk import Run
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
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    assert run("-", "--model", script(folder, HELLO)).out == "Hello.\n"


def test_without_input_nothing_runs(run: Run, folder: Path, wording: Wording) -> None:
    """Exit code 2, and what to type."""
    for words in (("--model", script(folder, HELLO)), ()):  # it is told before a model is missed
        ran = run(*words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == wording
        assert len(ran.err.splitlines()) == 1


def test_a_script_must_be_played_to_its_end(run: Run, folder: Path) -> None:
    """What is left over is told, beside the answer."""
    ran = run("hello", "--model", script(folder, HELLO, HELLO))
    assert (ran.code, ran.out) == (1, "Hello.\n")
    assert "script.yaml" in ran.err


def test_a_run_that_the_script_does_not_expect_fails(run: Run, folder: Path) -> None:
    """The line says what was expected."""
    ran = run("hello", "--model", script(folder, {"text": "x", "expect": {"tools": ["fly"]}}))
    assert (ran.code, ran.out) == (1, "")
    assert "fly" in ran.err


def test_for_programs_there_are_only_events(run: Run, folder: Path) -> None:
    """One a line, in the order in which they happened."""
    ran = run("note it", "--model", noting(folder, "milk"), "--format", "json", "--approve", "approve-all")
    assert (ran.code, ran.err) == (0, "")
    told = events(ran.out)
    assert [event["event"] for event in told if event["event"] != "text_delta"] == [
        "run_started",
        "call_started",
        "call_ended",
        "run_ended",
    ]
    assert told[-1] | {"at": ""} == {
        "event": "run_ended",
        "at": "",
        "path": ["desk"],
        "status": "done",
        "output": "Done.",
        "usage": told[-1]["usage"],
        "session_id": told[0]["session_id"],
        "unknown": {},
    }


@pytest.mark.requirement("A-30")
def test_without_a_terminal_what_needs_approval_is_denied(run: Run, folder: Path, wording: Wording) -> None:
    """The run goes on, and what to do about it is said once."""
    ran = run("note it", "--model", noting(folder, "milk", "bread"))
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert [line for line in ran.err.splitlines() if not line.startswith("desk: ")] == wording
    assert len(re.findall(r"^desk: note\(text=.*\) refused, ", ran.err, re.MULTILINE)) == 2


@pytest.mark.parametrize(
    "mode, line", [("approve-all", 'note(text="milk") ok'), ("deny-all", 'note(text="milk") refused')]
)
def test_a_mode_answers_every_question(run: Run, folder: Path, mode: str, line: str) -> None:
    """Nobody is asked."""
    assert line in run("note it", "--model", noting(folder, "milk"), "--approve", mode).err


def test_rules_may_be_given(run: Run, folder: Path) -> None:
    """Instead of those of the project."""
    (folder / "rules.yaml").write_text("allow: [note]")
    assert 'note(text="milk") ok' in run("note it", "--model", noting(folder, "milk"), "--rules", "rules.yaml").err


@pytest.mark.parametrize("typed", [True, False])
def test_rules_that_name_what_there_is_not_keep_a_run_from_beginning(
    run: Run, folder: Path, wording: Wording, *, typed: bool
) -> None:
    """Those of the project and those that are typed: exit code 2, because nothing has run."""
    (folder / "rules.yaml").write_text("deny: [noet, {tool: '*', agent: dsk}]")
    if not typed:
        (folder / "pyproject.toml").write_text("[tool.handrail]\napproval = 'rules.yaml'\n")
    ran = run("note it", "--model", noting(folder, "milk"), *(("--rules", "rules.yaml") if typed else ()))
    assert (ran.code, ran.out) == (2, "")
    told = [line.partition(": ")[2] for line in ran.err.splitlines()]
    assert len(told) == 2
    assert told[0] == wording
    assert told[1] == wording


def test_a_rule_that_only_the_tools_of_a_run_show_to_be_wrong_ends_it_with_2(
    run: Run, folder: Path, wording: Wording
) -> None:
    """The factory has been called by then, but no model was asked."""
    tools = "from pydantic_ai.toolsets import FunctionToolset\n\n\ndef ring() -> str:\n    'Rings.'\n    return ''\n\n"
    tools += "\ndef bells(ctx):\n    return FunctionToolset([ring])\n\nTOOLSETS = [bells]\n"
    write(folder, desk__agent="---\nname: desk\ntoolsets: [bells]\n---\nHello.\n", tools__py=tools)
    (folder / "rules.yaml").write_text("deny: [rnig]")
    ran = run("Go.", "--model", script(folder, HELLO), "--rules", "rules.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == wording


@pytest.mark.parametrize(
    "name, text, told",
    [
        ("desk__agent", "---\nname: desk\ntoolz: [x]\n---\nHello.\n", "desk.agent:3"),
        ("desk__agent", "---\nname: desk\ntools: [fly]\n---\nHello.\n", "fly"),
        ("desk__agent", "Hello.\n", "desk.agent"),
        ("tools__py", "1 / 0\n", "tools.py"),
        ("pyproject__toml", "[tool.handrail]\nmodle = 'x'\n", "modle"),
        ("pyproject__toml", "[tool.handrail]\napproval = 'nowhere.yaml'\n", "nowhere.yaml"),
    ],
)
def test_a_file_that_is_wrong_is_told(run: Run, folder: Path, name: str, text: str, told: str) -> None:
    """Exit code 2: nothing has run."""
    write(folder, **{name: text})
    ran = run("hello", "--model", script(folder, HELLO))
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("hello", "--model", "nobody:x"), id="unknown model"),
        pytest.param(("hello",), id="no model"),
        pytest.param(("hello", "--model", " "), id="empty model"),
        pytest.param(("hello", "--model", "script:nowhere.yaml"), id="no script"),
        pytest.param(("", "--model", "test"), id="no input"),
        pytest.param(("hello", "-", "--model", "test"), id="two inputs"),
        pytest.param(("--modl", "test", "hello"), id="unknown option"),
        pytest.param(("hello", "--model", "test", "--session", "one"), id="session without a store"),
        pytest.param(("hello", "--model", "test", "--approve", "later"), id="answer without a store"),
        pytest.param(("hello", "--model", "test", "--max-depth", "0"), id="no depth"),
        pytest.param(("hello", "--model", "test", "--root", "tools.py"), id="no folder"),
        pytest.param(("hello", "--model", "test", "--approve", "maybe"), id="no choice"),
        pytest.param(("hello", "world", "--model", "test"), id="a word too many"),
    ],
)
def test_a_slip_on_the_command_line_is_told(run: Run, words: tuple[str, ...], wording: Wording) -> None:
    """In one line with exit code 2, and where the help is."""
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == wording
    assert len(ran.err.splitlines()) == 1


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_run_names_the_tool_that_is_waited_for(run: Run, folder: Path, wording: Wording) -> None:
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


def test_a_call_that_fails_is_told_and_the_run_goes_on(run: Run, folder: Path, wording: Wording) -> None:
    """The model reads why."""
    ran = run("note it", "--model", noting(folder, "boom"), "--approve", "approve-all")
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert ran.err == wording


def test_a_limit_ends_the_run(run: Run, folder: Path, wording: Wording) -> None:
    """Exit code 1, in one line."""
    ran = run("note it", "--model", noting(folder, "milk"), "--request-limit", "1", "--approve", "approve-all")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == wording


def test_what_a_factory_raises_ends_in_one_line(run: Run, folder: Path, wording: Wording) -> None:
    """With its type and the place: it is the program's own."""
    tools = "def broken(ctx):\n    raise KeyError('no such shelf')\n\nTOOLSETS = [broken]\n"
    write(folder, desk__agent="---\nname: desk\ntoolsets: [broken]\n---\nHello.\n", tools__py=tools)
    ran = run("hello", "--model", script(folder, HELLO))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == wording
    assert "tools.py:2]" in ran.err


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
    """As `handrail run ... --format json | head -1` does: nothing more is done for nobody."""
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


REMOVING = """
from pathlib import Path
from handrail import tool

@tool(effect="external")
def note(text: str) -> str:
    "Notes something, and loses the store."
    Path("desk.db").rename("moved.db")
    return text

TOOLS = [note]
"""


def test_run_whose_store_is_lost_says_to_try_again(run: Run, folder: Path, wording: Wording) -> None:
    """What closing the store raises does not replace the exit code."""
    write(folder, desk__agent="---\nname: desk\ntools: [note]\n---\nHello.\n", tools__py=REMOVING)
    words = ("--approve", "approve-all", "--store", "sqlite:///desk.db", "--session", "monday")
    ran = run("note it", "--model", noting(folder, "milk"), *words)
    assert (ran.code, ran.out) == (75, "")
    assert [line for line in ran.err.splitlines() if line.startswith("handrail: ")] == wording


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
