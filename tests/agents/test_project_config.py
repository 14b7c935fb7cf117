"""`handrail.agents.project_config`: what `[tool.handrail]` may say, and every fault of it at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from handrail.agents.project import ProjectConfig, matching_files, read_config
from tests.agents.folders import write
from tests.wording import Wording


def fault(folder: Path, text: str) -> str:
    """The one fault of a `pyproject.toml`; what Python says of the TOML in it is not compared."""
    (problem,) = read_config(write(folder, {"pyproject.toml": text})).problems
    reason = problem.__cause__
    return str(problem).replace(str(reason), "REASON") if isinstance(reason, ValueError) else str(problem)


def test_a_folder_without_configuration_has_the_defaults(tmp_path: Path) -> None:
    """Also one whose `pyproject.toml` is about other things."""
    assert read_config(tmp_path).config == ProjectConfig()
    write(tmp_path, {"pyproject.toml": "[project]\nname = 'desk'\n[tool.ruff]\n"})
    reading = read_config(tmp_path)
    assert (reading.config, reading.problems) == (ProjectConfig(), ())
    assert reading.config.agents == ("*.agent",)
    assert reading.config.python == ("tools.py", "tools/*.py")


def test_a_configuration_says_where_files_are_and_what_is_used(tmp_path: Path) -> None:
    """Every key, in a file with a byte order mark and the line ends of Windows."""
    write(tmp_path, {"agents/desk.agent": "", "lib/money.py": "", "rules.yaml": ""})
    text = (
        "\ufeff[tool.handrail]\nagents = ['agents/*.agent']\npython = ['lib/*.py']\nmodel = 'openai:gpt-5.2'\n"
        "approval = 'rules.yaml'\nstore = 'sqlite:///desk.db'\n"
    )
    (tmp_path / "pyproject.toml").write_bytes(text.replace("\n", "\r\n").encode())
    assert read_config(tmp_path).config == ProjectConfig(
        agents=("agents/*.agent",),
        python=("lib/*.py",),
        model="openai:gpt-5.2",
        approval=Path("rules.yaml"),
        store="sqlite:///desk.db",
    )
    assert not read_config(tmp_path).problems


def test_a_project_may_say_that_it_has_no_modules(tmp_path: Path) -> None:
    """An empty list is an answer."""
    reading = read_config(write(tmp_path, {"pyproject.toml": "[tool.handrail]\npython = []"}))
    assert (reading.config.python, reading.problems) == ((), ())


def test_all_faults_are_told_at_once_and_what_is_sound_counts(tmp_path: Path, wording: Wording) -> None:
    """Each fault is a problem for itself."""
    text = "[tool.handrail]\nmodle = 'x'\nmodel = 7\nstore = 'memory:'\npython = ['nothing.py', '../x.py', 7]"
    reading = read_config(write(tmp_path, {"pyproject.toml": text}))
    assert [str(problem).removeprefix("pyproject.toml: [tool.handrail]: ") for problem in reading.problems] == wording
    assert reading.config == ProjectConfig(store="memory:")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[tool.handrail]\nx = = 1", id="no TOML"),
        pytest.param("[tool]\nhandrail = 7", id="no table"),
        pytest.param("[tool.handrail]\nagents = '*.agent'", id="no list"),
        pytest.param("[tool.handrail]\nagents = ['']", id="empty"),
        pytest.param(f"[tool.handrail]\nagents = ['{'a/' * 3000}']", id="deep"),
        pytest.param("[tool.handrail]\nagents = ['/etc/*']", id="absolute"),
        pytest.param("[tool.handrail]\nagents = ['x\\..\\y']", id="backslashes"),
        pytest.param("[tool.handrail]\nagents = ['folder']", id="folder"),
        pytest.param("[tool.handrail]\napproval = '../x.yaml'", id="outside"),
        pytest.param("[tool.handrail]\napproval = 'folder'", id="folder for a file"),
        pytest.param("[tool.handrail]\napproval = true", id="boolean"),
        pytest.param("[tool.handrail]\nmodel = ' '", id="blank"),
    ],
)
def test_a_fault_is_told_with_key_value_and_cure(tmp_path: Path, text: str, wording: Wording) -> None:
    """No wrong value ends in anything but a message."""
    (tmp_path / "folder").mkdir()
    assert fault(tmp_path, text) == wording


@pytest.mark.parametrize("pattern", ["**x", "x" * 300])
def test_a_pattern_that_not_every_system_reads_is_a_fault(tmp_path: Path, pattern: str) -> None:
    """It matches no file, or Python or the disk says what is wrong with it."""
    assert "agents" in fault(tmp_path, f"[tool.handrail]\nagents = ['{pattern}']")


def _fifo(file: Path) -> None:
    os.mkfifo(file)


def _link(target: str) -> Callable[[Path], None]:
    return lambda file: file.symlink_to(target)


def _large(file: Path) -> None:
    file.write_bytes(b"#" * 1_000_001)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(Path.mkdir, id="folder"),
        pytest.param(_fifo, id="pipe"),
        pytest.param(_link("pyproject.toml"), id="loop"),
        pytest.param(_large, id="large"),
    ],
)
def test_what_is_no_file_is_a_problem_and_never_the_defaults_alone(
    tmp_path: Path, make: Callable[[Path], object], wording: Wording
) -> None:
    """It is told at once; nobody waits for a pipe."""
    make(tmp_path / "pyproject.toml")
    (problem,) = read_config(tmp_path).problems
    assert str(problem) == wording


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"x = {'[' * 100_000}", id="deep"),
        pytest.param(f"[tool.handrail]\nmodel = 0x{'f' * 9000}", id="hex"),
    ],
)
def test_a_document_of_any_shape_ends_in_a_message(tmp_path: Path, text: str, wording: Wording) -> None:
    """However deep and long its values are."""
    assert fault(tmp_path, text) == wording


def test_patterns_match_files_in_their_order_and_each_once(tmp_path: Path) -> None:
    """Folders are no files, and what two patterns match comes with the first."""
    write(tmp_path, {"b.py": "", "a.py": "", "c.py/x.txt": "", "sub/d.py": ""})
    found = matching_files(tmp_path, ("b.py", "*.py", "**/*.py"))
    assert [path.as_posix() for path in found] == ["b.py", "a.py", "sub/d.py"]
