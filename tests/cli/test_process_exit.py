"""Ctrl-C, in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from handrail.cli import main
from handrail.cli.process_exit import Terminated, interrupt_exit_code, interruptible, wake_on_signals
from tests.cli.agent_folders import call, noting, script, write
from tests.cli.desk import ENTRY
from tests.wording import Wording

pytestmark = pytest.mark.usefixtures("ctrl_c")

WAITING = """
import os, sys
async def note(text: str) -> str:
    "Waits for a line, whatever happens."
    os.write(2, b"begun\\n")
    with open("line") as line:
        return line.read()
TOOLS = [note]
"""


def _exit_code(act: Callable[[], object]) -> int:
    """The exit code of a process that does this; 0 if it does not end it."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _begun(folder: Path, *words: str) -> subprocess.Popen[str]:
    """The command as a process that has come to where it waits for a line."""
    if not (folder / "line").exists():
        os.mkfifo(folder / "line")
    process = subprocess.Popen((*ENTRY, *words), cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while (line := process.stderr.readline()) != "begun\n":
        assert line
    return process


def _run_words(folder: Path, tools: str) -> tuple[str, ...]:
    """The words of a run that calls a tool of a module."""
    write(folder, desk__agent="---\nname: desk\ntools: [note]\n---\nHello.\n", tools__py=tools)
    return ("run", "desk.agent", "note", "--model", noting(folder, "milk"), "--approve", "approve-all")


def _stopped(folder: Path, tools: str, number: signal.Signals, last: str, *options: str) -> list[str]:
    """What a run prints after a signal, up to a line; one more Ctrl-C changes nothing, and its function ends."""
    with _begun(folder, *_run_words(folder, tools), "--store", "sqlite:///desk.db", *options) as process:
        assert process.stderr is not None
        process.send_signal(number)
        lines: list[str] = []
        while not lines or last not in lines[-1]:
            lines.append(process.stderr.readline().rstrip("\n"))
            assert lines[-1]
        process.send_signal(signal.SIGINT)
        (folder / "line").write_text("milk")
        assert process.communicate(timeout=60)[1] == "ended\n"
    assert process.returncode == 128 + number
    return lines


def test_ctrl_c_while_modules_are_imported_ends_quietly(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a traceback."""
    write(folder, tools__py="import signal\n\nsignal.raise_signal(signal.SIGINT)\n")
    assert (main(["check", "desk.agent"]), capsys.readouterr().err) == (130, "")


BODY = """def note(text: str) -> str:
    "Waits for a line, whatever happens."
    os.write(2, b"begun\\n")
    with open("line") as line:
        text = line.read()
    os.write(2, b"ended\\n")
    return text
"""
PLAIN = f"import os\nfrom pydantic_ai import Tool\n{BODY}TOOLS = [Tool(note)]\n"


def test_a_plain_function_that_still_runs_is_reported_with_what_next_ones_do(folder: Path, wording: Wording) -> None:
    """At once; and how the run is resumed. The second one changes nothing: the function runs to its end."""
    lines = _stopped(folder, PLAIN, signal.SIGINT, "  handrail run")
    session_id = lines[-1].rpartition(" ")[2]
    said = [line.replace(session_id, "SESSION") for line in lines if not line.startswith("desk: ")]
    assert [line.replace(str(folder), "FOLDER") for line in said] == wording


LATE = BODY.replace("line.read()\n", 'line.read()\n    time.sleep(0.5)\n    open("ended", "w").close()\n')
DECORATED = f'import os, time\nfrom handrail import tool\n@tool(effect="external")\n{LATE}TOOLS = [note]\n'


@pytest.mark.usefixtures("ended_by_default")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.short(2)
def test_function_ends_and_its_unknown_effect_is_named(folder: Path, number: signal.Signals, wording: Wording) -> None:
    """On a thread of its own, on which nothing in the run waits; the line of the call agrees with the ledger."""
    lines = _stopped(folder, DECORATED, number, "ledger reconcile", "--session", "one")
    key = lines[-1].split()[3]
    assert "\n".join(lines).replace(key, "KEY").replace(str(folder), "FOLDER") == wording


@pytest.mark.usefixtures("ended_by_default")
def test_a_function_runs_to_its_end_also_if_the_terminal_is_gone(folder: Path) -> None:
    """Nothing can be printed then, which changes neither the end nor the exit code."""
    with _begun(folder, *_run_words(folder, DECORATED), "--store", "sqlite:///desk.db") as process:
        assert process.stderr is not None
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        (folder / "line").write_text("milk")
    assert (process.returncode, (folder / "ended").exists()) == (128 + signal.SIGHUP, True)


@pytest.mark.short(0)
def test_who_does_not_want_to_wait_ends_the_process(folder: Path, wording: Wording) -> None:
    """By three of them, however long the call would take."""
    with _begun(folder, *_run_words(folder, WAITING)) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while (line := process.stderr.readline()).startswith("desk: "):
            pass
        assert line == wording
        while process.poll() is None:  # signals that come at the same moment are one
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_who_ignores_ctrl_c_goes_on_to_ignore_it() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible(lambda: None, print):
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ended_by_default")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.short(1)
def test_termination_ends_the_program_of_call_and_rolls_its_changes_back(folder: Path, number: signal.Signals) -> None:
    """At once, and not when the folder is opened again; the exit code says which signal it was."""
    shell = '[tool.handrail]\napproval = "rules.yaml"\n[tool.handrail.shell]\nallow = [["sh", "build.sh"]]\n'
    write(
        folder,
        desk__agent="---\nname: desk\ntoolsets: [shell]\n---\nHello.\n",
        pyproject__toml=shell,
        rules__yaml="allow: [shell_run]\n",
        build__sh="echo lost > plan.md; mkdir new; echo begun > line; sleep 100\n",
        plan__md="as it was\n",
    )
    os.mkfifo(folder / "line")
    model = script(folder, {"calls": [call("shell_run", command=["sh", "build.sh"])]}, {"text": "Done."})
    words = (*ENTRY, "run", "desk.agent", "build", "--model", model)
    with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert (folder / "line").read_text() == "begun\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (128 + number, False)
    assert ((folder / "plan.md").read_text(), (folder / "new").exists()) == ("as it was\n", False)


def _interrupt(signals: Sequence[signal.Signals], *, stops: bool, grace: float) -> None:
    def stop() -> None:
        if stops:
            raise KeyboardInterrupt

    try:
        with interruptible(stop, lambda _how_long: None, grace=timedelta(seconds=grace)):
            for number in signals:
                signal.raise_signal(number)
            threading.Event().wait()
    except Terminated as error:
        if (interrupt_exit_code(error), signal.getsignal(signal.SIGTERM)) == (143, signal.SIG_DFL):
            threading.Event().wait()


@pytest.mark.usefixtures("ended_by_default")
@pytest.mark.parametrize(
    "signals, stops, grace, code",
    [([signal.SIGTERM], False, 0, 143), ([signal.SIGTERM], True, 0.1, 143), ([signal.SIGINT] * 3, False, 60, 130)],
)
def test_waiting_has_an_end(signals: Sequence[signal.Signals], grace: float, code: int, *, stops: bool) -> None:
    """After a termination, which is raised by its name, no person is there to press Ctrl-C for the third time."""
    assert _exit_code(lambda: _interrupt(signals, stops=stops, grace=grace)) == code


def test_a_signal_that_is_ignored_or_handled_is_left_alone() -> None:
    """As under nohup, or in a program that calls the command."""
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, signal.default_int_handler)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    during = {number: signal.getsignal(number) for number in before}
    try:
        with interruptible(lambda: None, print) as signals:
            assert {number: signal.getsignal(number) for number in before} == during
        assert not signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_signal_wakes_a_loop_that_is_about_to_wait() -> None:
    """Python notes a signal, and asks for it between two steps; the loop waits in one."""

    async def listening() -> bool:
        before = _wakes()
        wake_on_signals(asyncio.get_running_loop())
        return not before and _wakes()

    assert asyncio.run(listening())
    assert not _wakes()


def _wakes() -> bool:
    """Whether a signal is written to a descriptor that a loop waits for."""
    descriptor = signal.set_wakeup_fd(-1)
    if descriptor != -1:
        signal.set_wakeup_fd(descriptor)
    return descriptor != -1
