"""The streams of `handrail run`, `check` and `new`: what programs print, and streams that are closed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from handrail.cli import main
from tests.cli.agent_folders import PRINTING, PRINTING_AGENT, call, events, noting, script, write
from tests.cli.desk import Run
from tests.extent import some
from tests.wording import Wording

HELLO = {"text": "Hello."}
CHECK = ("check", "desk.agent")
MAKE = ("new", "other")
PROGRAM = "import sys; from handrail.cli import main; sys.exit(main())"


@pytest.mark.parametrize("shape", ["text", "json"])
def test_what_a_program_prints_is_no_part_of_the_output(run: Run, folder: Path, shape: str) -> None:
    """Module, factory and tool: all of it goes to standard error."""
    write(folder, desk__agent=PRINTING_AGENT, tools__py=PRINTING)
    model = script(folder, {"calls": [call("say")]}, HELLO)
    ran = run("speak", "--model", model, "--approve", "approve-all", "--format", shape)
    assert ran.code == 0
    if shape == "json":
        assert events(ran.out)[-1]["output"] == "Hello."
    else:
        assert ran.out == "Hello.\n"
    for speaker in ("module", "factory", "tool"):
        assert f"the {speaker} speaks" in ran.err


def test_without_standard_input_nobody_is_asked(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """As with `<&-`: there is nobody."""
    monkeypatch.setattr(sys, "stdin", None)
    ran = run("note it", "--model", noting(folder, "milk"))
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert ran.err == wording


@pytest.mark.parametrize("words", [("run", "desk.agent", "hello", "--model", "test"), CHECK, MAKE])
def test_without_standard_output_nothing_is_done(
    folder: Path,
    words: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wording: Wording,
) -> None:
    """As with `>&-`: an answer that nobody can read must not look like success."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(words) == 1
    assert capsys.readouterr().err == wording
    assert not (folder / "other").exists()


CLOSED = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")
WORDS = ("run desk.agent hello --model test", "check desk.agent", "new other")


@pytest.mark.parametrize("closed, words", some([*product(CLOSED, WORDS)], 4))
@pytest.mark.short(1)
def test_no_closed_stream_ends_in_a_traceback(folder: Path, closed: str, words: str) -> None:
    """Whichever of them a process is started without."""
    line = f'exec "$0" -c "$1" {words} {closed}'
    shell = ("/bin/sh", "-c", line, sys.executable, PROGRAM)
    done = subprocess.run(shell, capture_output=True, check=False, timeout=60, cwd=folder)
    assert done.returncode == (1 if ">&- " in f"{closed} ".replace("2>&- ", "") else 0)
    assert b"Traceback" not in done.stderr


def test_a_full_disk_behind_both_streams_ends_quietly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nowhere to say it."""
    with open("/dev/full", "w", buffering=1) as full:  # noqa: PTH123 - a device
        monkeypatch.setattr(sys, "stdout", full)
        monkeypatch.setattr(sys, "stderr", full)
        assert main(["run", "desk.agent", "hello", "--model", script(folder, HELLO)]) == 1
