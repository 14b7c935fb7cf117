"""What becomes of a program's changes: they stay, or are rolled back."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handrail.contrib.tools import ProgramEnded, ShellExecuted, ShellRule, ShellToolsSection
from handrail.contrib.tools.shell.process import ProgramExit
from handrail.contrib.tools.shell.rules import describe_rules
from handrail.contrib.tools.shell.section import failure_result
from handrail.errors import EffectUncertain, PromptValidationError
from handrail.filesystem import HostFilesystem
from tests.contrib.suites import SuiteRun
from tests.filesystem.shadow_trees import git
from tests.kit import raises
from tests.wording import Wording

SH = ShellRule(("sh", "-c"), confined=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clone with a virtual environment that holds a file of more than 100 MB."""
    root = tmp_path / "root"
    (root / ".venv/lib").mkdir(parents=True)
    with (root / ".venv/lib/libtorch.so").open("wb") as file:
        file.truncate(101 * 1024 * 1024)
    for number in range(12):
        (root / f".venv/lib/{number}.py").touch()
    (root / "src").mkdir()
    (root / "src/main.py").write_text("as it was\n")
    (root / ".gitignore").write_text(".venv/\n*.log\n")
    git(root, "init", "--initial-branch=main")
    git(root, "add", "--all")
    git(root, "commit", "--message", "first")
    return root


@pytest.fixture
def files(root: Path) -> Generator[HostFilesystem]:
    """The clone, opened."""
    with HostFilesystem(root, journal=root.with_name("journal")) as files:
        yield files


def calls(folder: HostFilesystem | Path, *rules: ShellRule) -> SuiteRun:
    """Calls of a shell in which anything may be run."""
    return SuiteRun(ShellToolsSection(folder, allow=rules or [SH]))


def test_a_failing_program_keeps_what_it_changed_in_git_and_in_ignored_files(
    root: Path, files: HostFilesystem, wording: Wording
) -> None:
    """All else is rolled back, and the message says so. A large file that is ignored is no reason to refuse."""
    run = calls(files)
    script = "git checkout -b topic; echo x > .venv/lib/1.py; echo x >> src/main.py; touch new; exit 1"
    message = run.call("shell_run", command=["sh", "-c", script])
    assert message.content == wording
    assert (root / "src/main.py").read_text() == "as it was\n"
    assert not (root / "new").exists()
    assert (root / ".venv/lib/1.py").read_text() == "x\n"
    assert (root / ".git/HEAD").read_text() == "ref: refs/heads/topic\n"
    assert isinstance(message.result.value, ProgramEnded)
    assert message.result.value.changes == "rolled back"


def test_the_guidance_has_the_exit_codes(wording: Wording) -> None:
    """Of rules that have others than 0."""
    rules = [ShellRule(("a",), commit_on=(0, 1, 5)), ShellRule(("b",))]
    assert describe_rules(rules) == [wording, "`b`"]


@pytest.mark.parametrize(
    "codes",
    [
        pytest.param((1,), id="without 0"),
        pytest.param((0, 256), id="too large"),
        pytest.param((0, "1"), id="text in it"),
        pytest.param(1, id="number"),
        pytest.param("0", id="text"),
    ],
)
def test_what_is_no_exit_code_is_refused(codes: Any, wording: Wording) -> None:
    """Where the rule is made; a single 0 will do, and a list."""
    with raises(PromptValidationError, wording):
        ShellRule(("a",), commit_on=codes)
    single: Any = [1, 0]
    assert ShellRule(("a",), commit_on=single).commit_on == (0, 1)


def test_a_killed_program_is_in_doubt_unless_all_that_it_does_is_rolled_back() -> None:
    """As a command in a sandbox without a network, or a program that only reads, of which no process is left."""
    value, ended = ShellExecuted("x", ".", -9, ""), ProgramExit("timeout", -9, "", 0)
    assert not failure_result(value, ended, "was killed", name="x", is_certain=True).success
    for end, is_certain in ((ended, False), (replace(ended, left_running=1), True)):
        with pytest.raises(EffectUncertain):
            failure_result(value, end, "was killed", name="x", is_certain=is_certain)
