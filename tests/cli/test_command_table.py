"""The help and the version, which are printed without the libraries and modules of the commands."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from importlib.metadata import version

import pytest
from rich.console import Console

import handrail
from handrail.cli import main
from handrail.cli.application import application
from handrail.cli.command_table import COMMANDS, answer_without_command
from tests.cli.desk import ENTRY, Command, Terminal
from tests.wording import Wording

_LOADED = """
import io, json, sys
from contextlib import redirect_stdout
from handrail.cli import main
with redirect_stdout(io.StringIO()):
    code = main(json.loads(sys.argv[1]))
assert code == 0, code
print(json.dumps(sorted(sys.modules)))
"""


def loaded_by(*words: str) -> set[str]:
    """The modules that a command line has loaded."""
    done = subprocess.run(
        (sys.executable, "-c", _LOADED, json.dumps(words)), capture_output=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout))


def help_of_cyclopts(width: int) -> str:
    """What cyclopts prints for the commands, which it imports, without the blanks at the ends of lines."""
    app = application()
    for entry in COMMANDS:
        assert app[entry.name].help is not None
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=False, color_system=None, highlight=False)
    app.help_print([], console=console)
    return "\n".join(line.rstrip() for line in stream.getvalue().split("\n"))


@pytest.mark.parametrize("width", [40, 57, 80, 100, 200])
def test_the_help_is_that_of_the_commands(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any width it is what cyclopts prints of the commands: no summary in the table is out of date."""
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    assert answer_without_command(["--help"], stream) == help_of_cyclopts(width)


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("--version",), ()], ids=str)
def test_help_and_version_load_nothing_that_they_do_not_use(words: tuple[str, ...]) -> None:
    """Neither the libraries of the command line nor any part of Handrail but its command."""
    loaded = loaded_by(*words)
    assert not loaded & {"cyclopts", "rich", "pydantic", "asyncio", "dataclasses", "inspect", "importlib.metadata"}
    assert {name for name in loaded if name.startswith("handrail.") and not name.startswith("handrail.cli")} == set()


def test_the_help_of_a_command_loads_the_command_alone() -> None:
    """Commands of agents without those of the ledger, and neither the agents nor their framework."""
    loaded = loaded_by("check", "--help")
    assert not [name for name in loaded if name.startswith(("handrail.cli.ledger", "handrail.cli.sessions"))]
    assert not loaded & {"pydantic_ai", "handrail.agents", "handrail.adapters.tool_executor", "sqlite3"}
    assert "handrail.cli.agents.commands" not in loaded_by("ledger", "--help")


def test_the_version_is_one_number() -> None:
    """The package has it, and what builds the package reads it there."""
    assert handrail.__version__ == version("handrail")


def test_options_before_the_help_change_nothing(handrail: Command) -> None:
    """`--debug` is accepted anywhere."""
    assert handrail("--debug", "--help").out == handrail("--help").out == handrail("-h").out == handrail().out


def test_the_help_of_a_command_can_be_asked_for_before_its_name(handrail: Command) -> None:
    """As cyclopts reads it."""
    assert handrail("--help", "new").out == handrail("new", "--help").out


def test_a_terminal_gets_colours_and_its_width(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is asked for none."""
    assert terminal.run("--help", width=60) == 0
    assert "\x1b[36mcheck" in terminal.screen
    assert "╭─ Commands" in terminal.screen
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.run("--help", width=60)
    assert "\x1b" not in terminal.screen
    assert max(map(len, terminal.screen.splitlines())) == 60


@pytest.mark.parametrize("columns, width", [(63, 63), (0, 80)])
def test_the_width_is_that_of_the_terminal(columns: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the output goes into a pipe to a pager; some terminals do not know their width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    for name in ("__stdout__", "__stderr__"):
        monkeypatch.setattr(sys, name, None)
    with os.fdopen(slave) as keyboard:
        monkeypatch.setattr(sys, "__stdin__", keyboard)
        answer = answer_without_command([], None)
    os.close(master)
    assert answer is not None
    assert max(map(len, answer.splitlines())) == width


def test_a_stream_that_is_not_unicode_gets_a_box_that_it_has() -> None:
    """Like the encoding of a terminal of the C locale."""
    answer = answer_without_command([], io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert answer is not None
    assert answer.isascii()
    assert "+- Commands" in answer


def test_a_word_that_is_longer_than_a_line_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal that no help fits."""
    monkeypatch.setenv("COLUMNS", "5")
    answer = answer_without_command([], None)
    assert answer is not None
    assert "transaction," in answer.splitlines()


def test_the_package_runs_as_a_module(wording: Wording) -> None:
    """`python -m handrail`, where the command is not on the path; a closed standard output is an error there, too."""
    done = subprocess.run((sys.executable, "-m", "handrail", "--version"), capture_output=True, check=True, timeout=60)
    assert done.stdout.decode() == f"{handrail.__version__}\n"
    shell = f"{sys.executable} -m handrail --version >&-"
    closed = subprocess.run(shell, shell=True, capture_output=True, check=False, timeout=60)  # noqa: S602 - `>&-`
    assert closed.returncode == 1
    assert closed.stderr.decode() == wording


def test_a_process_without_standard_output_does_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wording: Wording
) -> None:
    """As a shell starts one with `>&-`."""
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["--version"]) == 1
    assert capsys.readouterr().err == wording


def test_the_help_may_have_no_place_to_go(wording: Wording) -> None:
    """As any other output, if the disk is full."""
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        failed = subprocess.run((*ENTRY, "--help"), stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert failed.returncode == 1
    assert failed.stderr.decode() == wording
