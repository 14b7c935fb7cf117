"""`--debug` and `HANDRAIL_DEBUG`: tracebacks for who asks for them, and for nobody else."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from handrail.cli.screen import debugging, is_set, without_option
from tests.cli.agent_folders import noting, write
from tests.cli.desk import Command, Run

TRACEBACK = "Traceback (most recent call last):"


@pytest.mark.parametrize(
    "words, left",
    [
        (("run", "desk.agent"), ["run", "desk.agent"]),
        (("run", "desk.agent", "--debug"), ["run", "desk.agent"]),
        (("--debug", "sessions", "--debug", "list"), ["sessions", "list"]),
        (("run", "--debug", "desk.agent", "--", "--debug"), ["run", "desk.agent", "--", "--debug"]),
    ],
)
def test_the_option_may_stand_anywhere(words: Sequence[str], left: list[str]) -> None:
    """What stands behind `--` is no option."""
    assert without_option(words) == left


@pytest.mark.parametrize(
    "value, asked",
    [*((value, True) for value in ("1", "true", " yes ")), *((value, False) for value in ("0", "False", " no ", ""))],
)
def test_the_variable_asks_for_tracebacks_unless_it_says_no(value: str, asked: bool) -> None:
    """Or is not there."""
    assert is_set({"HANDRAIL_DEBUG": value}) is asked
    assert not is_set({})


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize(
    "words, raised",
    [
        (("run", "nowhere", "Go."), "CycloptsError"),
        (("run", "other/desk.agent", "Go."), "ZeroDivisionError"),
        (("check", "other/desk.agent"), "ZeroDivisionError"),
        (("sessions", "list", "--store", "sqlite:///nowhere.db"), "StoreError"),
        (("new", "desk", "--folder", "desk.agent"), "FileExistsError"),
    ],
)
def test_a_command_that_fails_shows_its_traceback_above_the_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], raised: str, place: int
) -> None:
    """With its cause, wherever the option stands; exit code and line are the same."""
    write(folder / "other", tools__py="1 / 0\n")
    command = Command("", capsys)
    plain, traced = command(*words), command(*words[:place], "--debug", *words[place:])
    assert TRACEBACK not in plain.err
    assert traced.code == plain.code
    above, _, below = traced.err.rpartition("handrail: ")
    assert plain.err.endswith(below)
    assert above.startswith(TRACEBACK)
    assert f"{raised}: " in above


def test_a_tool_that_raises_shows_its_traceback_and_the_run_goes_on(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model reads type and message, as ever."""
    monkeypatch.setenv("HANDRAIL_DEBUG", "1")
    ran = run("note it", "--model", noting(folder, "boom"), "--approve", "approve-all")
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert f'File "{folder}/tools.py", line 12, in note' in ran.err
    assert ran.err.index(TRACEBACK) < ran.err.index('desk: note(text="boom") failed')
    assert " s: RuntimeError: the pen is broken [tools.py:12]\n" in ran.err


def test_a_run_that_fails_shows_its_traceback(run: Run, folder: Path) -> None:
    """Above the line that says why."""
    model = noting(folder, "milk")
    ran = run("note it", "--model", model, "--request-limit", "1", "--approve", "approve-all", "--debug")
    assert ran.code == 1
    assert ran.err.index(TRACEBACK) < ran.err.index("handrail: desk: ")
    assert "UsageLimitExceeded" in ran.err


def test_passwords_are_not_shown_in_tracebacks(run: Run, folder: Path) -> None:
    """As they are not in the line below."""
    ran = run("Go.", "--model", noting(folder, "x"), "--store", "mysql://ada:secret@host/db", "--debug")
    assert TRACEBACK in ran.err
    assert "secret" not in ran.err


def test_nothing_of_it_is_left_when_the_command_has_ended(run: Run, folder: Path) -> None:
    """The process may be another program's."""
    assert TRACEBACK not in run("Go.", "--model", "nobody:x").err
    before = list(logging.getLogger("handrail").handlers)
    with debugging():
        logging.getLogger("handrail").warning("without an exception")
    assert TRACEBACK in run("Go.", "--model", "nobody:x", "--debug").err
    assert logging.getLogger("handrail").handlers == before
    assert TRACEBACK not in run("Go.", "--model", "nobody:x").err
