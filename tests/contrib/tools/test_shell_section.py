"""The shell suite: its text, its tool, its declaration, and what becomes of the changes of programs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Generator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import ProgramEnded, ShellRule, ShellToolsSection
from handrail.contrib.tools.shell import process
from handrail.contrib.tools.shell.process import ProgramExit
from handrail.contrib.tools.shell.section import failure_result
from handrail.errors import EffectUncertain, PromptValidationError
from handrail.filesystem import HostFilesystem
from handrail.programs import ProgramEnd, StartedProgram
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall
from tests.contrib.suites import SuiteRun, rendered
from tests.filesystem.shadow_trees import git
from tests.wording import Wording

PYTHON = Path(sys.executable).name
PYTHON_PATH = os.fspath(Path(sys.executable).parent)
ANY_PYTHON = ShellRule((PYTHON,), confined=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a note and a link that leads out."""
    root = tmp_path / "root"
    (root / "notes").mkdir(parents=True)
    (root / "notes/plan.md").write_text("plan\n")
    (root / "out").symlink_to(tmp_path)
    (root / "back").symlink_to("notes")
    return root


@pytest.fixture
def files(root: Path) -> Generator[HostFilesystem]:
    """The folder, opened."""
    with HostFilesystem(root, journal=root.with_name("journal")) as files:
        yield files


def python_section(folder: Path | HostFilesystem, **options: Any) -> ShellToolsSection:
    """A section that runs Python with anything."""
    given: dict[str, Any] = {"allow": [ANY_PYTHON], "environment": {"PATH": PYTHON_PATH}} | options
    return ShellToolsSection(folder, **given)


def script(text: str) -> list[str]:
    """A command that runs Python code."""
    return [PYTHON, "-I", "-S", "-c", text]


def test_section_brings_one_tool_that_acts_outside(root: Path) -> None:
    """Its example is a command that may be run, as far as a rule says one."""
    (tool,) = ShellToolsSection(root, allow=[("ls", "-*"), ("cat",)]).tools
    assert (tool.name, tool.effect, tool.accepts_overrides) == ("shell_run", "external", False)
    assert tool.examples[0].input.command == ("cat",)
    assert ShellToolsSection(root).tools[0].examples[0].input.command == ("ls",)
    assert ShellToolsSection(root, accepts_overrides=True).tools[0].accepts_overrides


def test_text_says_what_may_be_run_and_what_is_undone(root: Path, files: HostFilesystem, wording: Wording) -> None:
    """What a model sees: only over a filesystem is anything undone, and programs that only look change nothing."""
    section = ShellToolsSection(files, allow=[("sh", "run"), ShellRule(("ls",), options=("-l",)), ("no-such-program",)])
    assert section.missing == {"no-such-program"}
    assert rendered(section) == wording
    reads, unconfined = ShellRule(("ls",), reads=True), ShellRule(("ls",), confined=False)
    rows: list[Any] = [*((root, allow) for allow in ([("ls",)], [reads], [], [unconfined])), (files, [("ls",), reads])]
    for folder, allow in (*rows, (files, [reads])):
        assert rendered(ShellToolsSection(folder, allow=allow)) == wording


def test_program_runs_in_the_folder_that_is_named(root: Path, wording: Wording) -> None:
    """Links inside are followed; the result has the shortest form of the path."""
    run = SuiteRun(ShellToolsSection(root, allow=[("ls",), ("cat",)]))
    assert run.told("shell_run", command=["ls", "notes"]) == "plan.md\n"
    message = run.call("shell_run", command=["ls"], folder="./notes/")
    assert message.result.value == ProgramEnded(("ls",), "notes", 0, "plan.md\n", changes="kept")
    assert run.told("shell_run", command=["ls"], folder="back") == "plan.md\n"
    assert run.told("shell_run", command=["cat"], input="é\0") == "é␀"
    assert run.told("shell_run", command=["cat"]) == wording


@pytest.mark.requirement("A-36")
@pytest.mark.parametrize("folder", [
    pytest.param("..", id="above"), pytest.param("/etc", id="absolute"), pytest.param("out", id="link"),
    pytest.param("notes/plan.md", id="file"), pytest.param("nowhere", id="missing"), pytest.param("", id="empty"),
    pytest.param("a\0b", id="NUL"), pytest.param("\ud800", id="surrogate"), pytest.param("x" * 5000, id="too long"),
])  # fmt: skip
def test_folder_outside_of_the_root_is_refused(folder: str, root: Path, wording: Wording) -> None:
    """And so is one that is none."""
    run = SuiteRun(ShellToolsSection(root, allow=[("ls",)]))
    assert run.refused("shell_run", command=["ls"], folder=folder) == wording


@pytest.mark.parametrize("command", [
    pytest.param("ls -l", id="text"), pytest.param([], id="empty"), pytest.param([""], id="empty name"),
    pytest.param(["ls -l notes"], id="line"), pytest.param(["/bin/ls"], id="absolute path"),
    pytest.param(["./ls"], id="relative path"), pytest.param(["ls", "&&", "rm"], id="two commands"),
    pytest.param(["ls", "2>&1"], id="redirection"), pytest.param(["ls", "a\0b"], id="NUL"),
    pytest.param(["ls", "\udc80"], id="surrogate"), pytest.param(["rm"], id="another program"),
    pytest.param(["ls", "/"], id="path outside"),
])  # fmt: skip
def test_command_that_is_none_is_refused_with_the_cure(command: object, root: Path, wording: Wording) -> None:
    """A whole line, paths, and what means something only to a shell."""
    assert SuiteRun(ShellToolsSection(root, allow=[("ls",)])).refused("shell_run", command=command) == wording


@pytest.mark.parametrize("allow", [(), [("no-such-program",)]], ids=["nothing is allowed", "not installed"])
def test_program_that_is_not_allowed_or_not_installed_is_refused(root: Path, allow: Any, wording: Wording) -> None:
    """Nothing is allowed by default; and a rule for what is not there stands, and the model does without."""
    assert SuiteRun(ShellToolsSection(root, allow=allow)).refused("shell_run", command=["no-such-program"]) == wording


def test_programs_are_looked_for_once(root: Path, tmp_path: Path, wording: Wording) -> None:
    """One that is planted later, in the folder or earlier on the path, is not run; the path that was found is."""
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        place.mkdir()

    def plant(place: Path, text: str) -> None:
        (place / "tool").write_text(f"#!/bin/sh\necho {text} $0\n")
        (place / "tool").chmod(0o755)

    plant(second, "right")
    run = SuiteRun(ShellToolsSection(root, allow=[("tool",)], environment={"PATH": f"{first}:{second}:/bin"}))
    plant(first, "wrong")
    plant(root, "wrong")
    assert run.told("shell_run", command=["tool"]) == f"right {second}/tool\n"
    (second / "tool").unlink()
    assert run.refused("shell_run", command=["tool"]) == wording


def test_environment_is_small_and_can_be_added_to(root: Path, wording: Wording) -> None:
    """Nothing of this process's own environment reaches a program."""
    tell = "import os; os.environ['HANDRAIL_CALL'] = 'C'; [print(*pair) for pair in sorted(os.environ.items())]"
    run = SuiteRun(python_section(root, environment={"PATH": PYTHON_PATH, "HOME": "/somewhere"}))
    told = run.told("shell_run", command=script(tell)).replace(PYTHON_PATH, "P")
    assert told.replace(os.fspath(root.parent.resolve()), "R") == wording


def test_over_a_plain_folder_nothing_is_undone_and_the_model_is_told(root: Path, wording: Wording) -> None:
    """A program that is killed is told by the name of the signal."""
    run = SuiteRun(python_section(root))
    dies = "import os; open('new', 'w').close(); os.kill(os.getpid(), {})"
    assert run.refused("shell_run", command=script(dies.format(9))) == wording
    assert (root / "new").exists()
    told = run.refused("shell_run", command=script(dies.format(int(signal.SIGRTMIN) + 3)))
    assert told == wording


def test_program_that_takes_too_long_is_in_doubt(root: Path, files: HostFilesystem, wording: Wording) -> None:
    """What it did in the folder is undone; what it did elsewhere nobody knows, unless it only looks."""
    slow = script("import time; open('new', 'w').close(); print('begun', flush=True); time.sleep(600)")
    options: dict[str, Any] = {"timeout": timedelta(seconds=0.5)}
    run = SuiteRun(python_section(files, **options))
    assert run.refused("shell_run", command=slow) == wording
    assert not (root / "new").exists()
    assert [row.status for row in run.executor.environment.find_ledger().rows()] == ["unknown"]
    looks = SuiteRun(python_section(files, allow=[ShellRule((PYTHON,), confined=False, reads=True)], **options))
    assert looks.refused("shell_run", command=slow) == wording


def test_program_whose_end_is_not_known_is_in_doubt(
    files: HostFilesystem, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Something else has waited for it; or something that it has started cannot be killed, whatever its exit code."""
    run = SuiteRun(python_section(files))
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run.refused("shell_run", command=script("")) == wording
    finally:
        signal.signal(signal.SIGCHLD, before)

    class Stubborn(StartedProgram):
        def end(self) -> ProgramEnd:
            return replace(super().end(), survivors=1)

    monkeypatch.setattr(process, "StartedProgram", Stubborn)
    assert run.refused("shell_run", command=script("")) == wording
    assert [row.status for row in run.executor.environment.find_ledger().rows()] == ["unknown", "unknown"]


def test_of_a_long_output_a_part_is_shown_and_the_rest_is_read(root: Path, wording: Wording) -> None:
    """The result holds all of it, also if the program fails."""
    run = SuiteRun(python_section(root, max_output_bytes=1_000))
    for code in (0, 1):
        message = run.call("shell_run", command=script(f"print('a' * 5000 + 'b' * 5000); raise SystemExit({code})"))
        assert message.is_cut
        assert len(message.content) <= 1_000
        assert message.content.partition("\n[...]\n")[2] == wording
        assert message.result.value is not None
        assert message.result.value.output == "a" * 5_000 + "b" * 5_000 + "\n"
        found = run.told("read_result", call=message.call_id, find="ab")
        assert found.partition("\n")[2] == "a" * 201 + "b" * 5_000 + "\n"


def test_program_is_not_started_when_the_tree_cannot_be_kept(root: Path, wording: Wording) -> None:
    """Nothing could be undone then; for a program that only looks nothing needs to be kept."""
    with HostFilesystem(root, journal=root.with_name("journal"), max_untracked_bytes=1) as files:
        run = SuiteRun(python_section(files))
        told = run.refused("shell_run", command=script("open('new', 'w')"))
        assert told == wording
        assert not (root / "new").exists()
        looks = SuiteRun(ShellToolsSection(files, allow=[ShellRule(("ls",), reads=True)]))
        assert "notes" in looks.told("shell_run", command=["ls"])


@pytest.mark.anyio
async def test_program_of_a_call_that_is_cancelled_is_killed(root: Path, files: HostFilesystem) -> None:
    """And waited for; what it has changed is undone."""
    os.mkfifo(root.with_name("fifo"))
    descriptor = os.open(root.with_name("fifo"), os.O_RDONLY | os.O_NONBLOCK)
    begun = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, begun.set)
    template = PromptTemplate(ns="tests", key="shell", sections=[python_section(files)])
    executor = ToolExecutor(prompt=Prompt(template), session=Session())
    text = "import time; open('new', 'w').close(); held = open('../fifo', 'w'); print(1, file=held, flush=True)"
    call = ToolCall("call-1", "shell_run", {"command": script(f"{text}; time.sleep(600)")})
    task = asyncio.ensure_future(executor.execute_async(call))
    try:
        await begun.wait()
        assert (root / "new").exists()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert os.read(descriptor, 10) == b"1\n"
        assert os.read(descriptor, 10) == b""
        assert not (root / "new").exists()
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


@pytest.mark.parametrize("folder, options", [
    ("nowhere", {"allow": ["ls"], "timeout": None, "max_output_bytes": -1, "environment": {"A": 1}}),
    *((folder, {}) for folder in ("nowhere", "file", "a\0b", None)), (".", {"allow": "ls"}), (".", {"allow": ["ls"]}),
    *((".", {"environment": {"A": value}}) for value in (5, "\0")), (".", {"max_output_bytes": 0}),
    *((".", {"environment": given}) for given in (["A"], {"": "x"}, {"A=B": "x"}, {"PATH": "/bin:bin"})),
])  # fmt: skip
def test_wrong_declarations_are_refused(folder: Any, options: dict[str, Any], tmp_path: Path, wording: Wording) -> None:
    """Where the section is made; all faults at once."""
    (tmp_path / "file").touch()
    with pytest.raises(PromptValidationError) as caught:
        ShellToolsSection(tmp_path / folder if isinstance(folder, str) else folder, **options)
    what_python_says = r" \(.*?\);"
    assert re.sub(what_python_says, ";", str(caught.value), count=1) == wording


def test_a_failing_program_keeps_what_it_changed_in_git_and_in_ignored_files(root: Path, wording: Wording) -> None:
    """All else is rolled back, and the message says so. A large file that is ignored is no reason to refuse."""
    (root / ".venv").mkdir()
    (root / ".venv/1.py").touch()
    with (root / ".venv/libtorch.so").open("wb") as file:
        file.truncate(101 * 1024 * 1024)
    (root / ".gitignore").write_text(".venv/\n*.log\n")
    git(root, "init", "--initial-branch=main")
    git(root, "commit", "--allow-empty", "--message", "first")
    script = "git checkout -b topic; echo x > .venv/1.py; echo x >> notes/plan.md; touch new; exit 1"
    with HostFilesystem(root, journal=root.with_name("journal")) as files:
        run = SuiteRun(ShellToolsSection(files, allow=[ShellRule(("sh", "-c"), confined=False)]))
        message = run.call("shell_run", command=["sh", "-c", script])
    assert message.content == wording
    assert ((root / "notes/plan.md").read_text(), (root / "new").exists()) == ("plan\n", False)
    assert (root / ".venv/1.py").read_text() == "x\n"
    assert (root / ".git/HEAD").read_text() == "ref: refs/heads/topic\n"
    assert isinstance(message.result.value, ProgramEnded)
    assert message.result.value.changes == "rolled back"


def test_a_killed_program_is_in_doubt_unless_all_that_it_does_is_rolled_back() -> None:
    """As a command in a sandbox without a network, or a program that only reads, of which no process is left."""
    value, ended = ProgramEnded("x", ".", -9, ""), ProgramExit("timeout", -9, "", 0)
    assert not failure_result(value, ended, "was killed", is_certain=True).success
    for end, is_certain in ((ended, False), (replace(ended, left_running=1), True)):
        with pytest.raises(EffectUncertain):
            failure_result(value, end, "was killed", is_certain=is_certain)
