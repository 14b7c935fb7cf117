"""The ready rules for programs that fix and check: what such a program has done stays when it has only found more."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from handrail.contrib.tools import CHECKING, FIXING, ProgramEnded, ShellToolsSection
from handrail.filesystem import HostFilesystem
from handrail.runtime import ToolMessage
from tests.contrib.suites import SuiteRun
from tests.wording import Wording

PROGRAMS = Path(sys.executable).parent
CODE = "import os\n\n\ndef broken(x: int) -> int:\n    return undefined_name\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a file in which one finding can be fixed, and one cannot."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "code.py").write_text(CODE)
    return root


@pytest.fixture
def files(root: Path) -> Generator[HostFilesystem]:
    """The folder, opened."""
    with HostFilesystem(root, journal=root.with_name("journal")) as files:
        yield files


def running(files: HostFilesystem, *places: Path) -> SuiteRun:
    """Calls of both presets, with the programs of some folders."""
    path = os.pathsep.join(str(place) for place in (*places, PROGRAMS, "/usr/bin", "/bin"))
    return SuiteRun(ShellToolsSection(files, allow=[*FIXING, *CHECKING], environment={"PATH": path}))


def ended(message: ToolMessage) -> tuple[int, bool]:
    """The exit code of a program, and whether its call has succeeded."""
    assert isinstance(message.result.value, ProgramEnded)
    return message.result.value.code, message.success


def test_ruff_keeps_its_fixes_when_a_finding_is_left(root: Path, files: HostFilesystem, wording: Wording) -> None:
    """The call succeeds, and says so."""
    run = running(files)
    message = run.call("shell_run", command=["ruff", "check", "--fix", "--output-format", "concise", "code.py"])
    assert message.success
    assert "import os" not in (root / "code.py").read_text()
    assert message.content == wording
    assert isinstance(message.result.value, ProgramEnded)
    assert (message.result.value.code, message.result.value.changes) == (1, "kept")


def test_ruff_that_is_used_wrongly_has_changed_nothing(root: Path, files: HostFilesystem, wording: Wording) -> None:
    """It ends with another code; options that are not allowed are refused before."""
    run = running(files)
    assert ended(run.call("shell_run", command=["ruff", "check", "--select", "NOSUCH"])) == (2, False)
    assert not (root / ".ruff_cache").exists()
    for option in ("--config", "--cache-dir", "--output-file", "--watch"):
        assert run.refused("shell_run", command=["ruff", "check", option]) == wording
    assert (root / "code.py").read_text() == CODE


def test_ruff_formats(root: Path, files: HostFilesystem) -> None:
    """Also where it only says what it would do."""
    (root / "code.py").write_text("x  =  1\n")
    run = running(files)
    assert ended(run.call("shell_run", command=["ruff", "format", "--check"])) == (1, True)
    run.told("shell_run", command=["ruff", "format"])
    assert (root / "code.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    "command, code, stays",
    [
        (["pre-commit", "run", "--all-files"], 1, True),
        (["pre-commit", "run"], 3, False),
        (["eslint", "--fix", "src"], 1, True),
        (["eslint", "--fix"], 2, False),
        (["pytest", "-q"], 5, True),
        (["pytest"], 2, False),
    ],
)
def test_the_exit_code_decides_what_stays(
    command: list[str], code: int, root: Path, files: HostFilesystem, *, stays: bool
) -> None:
    """Of a program that changes a file, and ends so."""
    planted = root.with_name("programs")
    planted.mkdir()
    (planted / command[0]).write_text(f"#!/bin/sh\necho fixed > code.py; exit {code}\n")
    (planted / command[0]).chmod(0o755)
    message = running(files, planted).call("shell_run", command=command)
    assert message.success == stays
    assert (root / "code.py").read_text() == ("fixed\n" if stays else CODE)


@pytest.mark.parametrize(
    "command, cache",
    [(["pytest", "-q", "test_it.py"], ".pytest_cache/v/cache/lastfailed"), (["mypy", "code.py"], ".mypy_cache")],
)
@pytest.mark.short(1)
def test_caches_stay_when_something_is_found(command: list[str], cache: str, root: Path, files: HostFilesystem) -> None:
    """So that the next run is quick, and knows what had failed."""
    (root / "test_it.py").write_text("def test_it():\n    assert False\n")
    message = running(files).call("shell_run", command=command)
    assert isinstance(message.result.value, ProgramEnded)
    assert message.result.value.code == 1
    assert message.success
    assert (root / cache).exists()
