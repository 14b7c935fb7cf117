"""`handrail.agents.project_config`: what `[tool.handrail]` may say, and every fault of it at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.agents.project_config import ProjectConfig, matching, read_config
from tests.agents.folders import write


def faults(folder: Path, text: str) -> list[str]:
    """What is wrong with a `pyproject.toml`."""
    return [str(problem) for problem in read_config(write(folder, {"pyproject.toml": text})).problems]


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


def test_all_faults_are_told_at_once_and_what_is_sound_counts(tmp_path: Path) -> None:
    """Each fault is a problem for itself."""
    text = "[tool.handrail]\nmodle = 'x'\nmodel = 7\nstore = 'memory:'\npython = ['nothing.py', '../x.py', 7]"
    reading = read_config(write(tmp_path, {"pyproject.toml": text}))
    assert [str(problem).removeprefix("pyproject.toml: [tool.handrail]: ") for problem in reading.problems] == [
        "there is no key 'modle'. Did you mean 'model'? The keys are agents, python, model, approval, store.",
        "python has 'nothing.py', which matches no file",
        "python has '../x.py', which leaves the project folder; a pattern is a path from there",
        "python has 7, which is no pattern",
        'model is 7; write a text: model = "..."',
    ]
    assert reading.config == ProjectConfig(store="memory:")


@pytest.mark.parametrize(
    "text, told",
    [
        pytest.param("[tool.handrail]\nx = = 1", "pyproject.toml is no TOML: Invalid value (at line 2", id="no TOML"),
        pytest.param("[tool.handrail]\na=1\na=2", "pyproject.toml is no TOML: Cannot overwrite a value", id="doubled"),
        pytest.param("tool = 7", "[tool.handrail] is no table", id="tool is no table"),
        pytest.param("[tool]\nhandrail = 7", "[tool.handrail] is no table", id="no table"),
        pytest.param("[tool.handrail]\nzzz = 1", "there is no key 'zzz'. The keys are", id="far key"),
        pytest.param("[tool.handrail]\nagents = '*.agent'", "agents is '*.agent'; write a list of", id="no list"),
        pytest.param("[tool.handrail]\nagents = ['']", "agents has '', which is no pattern", id="empty"),
        pytest.param('[tool.handrail]\nagents = ["a\\u0000"]', "which is no pattern", id="null"),
        pytest.param("[tool.handrail]\nagents = ['a/**b/c']", "agents has 'a/**b/c', which", id="stars"),
        pytest.param("[tool.handrail]\nagents = ['.']", "agents has '.', which is no pattern", id="the folder itself"),
        pytest.param(f"[tool.handrail]\nagents = ['{'a/' * 3000}']", "…, which is no pattern", id="deep"),
        pytest.param(f"[tool.handrail]\nagents = ['{'a' * 900}']", "…, which is no pattern: ", id="long"),
        pytest.param(f"[tool.handrail]\napproval = '{'a' * 900}'", "…, but there is no such file", id="long file"),
        pytest.param(f"[tool.handrail]\n{'a' * 9000} = 1", "…. The keys are", id="long key"),
        pytest.param("[tool.handrail]\nagents = ['/etc/*']", "leaves the project folder", id="absolute"),
        pytest.param("[tool.handrail]\nagents = ['C:\\x\\*']", "leaves the project folder", id="drive"),
        pytest.param("[tool.handrail]\nagents = ['x\\..\\y']", "leaves the project folder", id="backslashes"),
        pytest.param("[tool.handrail]\nagents = ['folder']", "matches no file", id="folder"),
        pytest.param("[tool.handrail]\nmodel = ' '", "model is ' ', which says nothing", id="blank"),
        pytest.param("[tool.handrail]\nstore = ['x']", "store is ['x']; write a text", id="list"),
        pytest.param("[tool.handrail]\napproval = 'x.yaml'", "approval is 'x.yaml', but there is no such", id="file"),
        pytest.param("[tool.handrail]\napproval = '../x.yaml'", "approval is '../x.yaml', which leaves", id="outside"),
        pytest.param("[tool.handrail]\napproval = 'folder'", "but there is no such file", id="folder for a file"),
        pytest.param("[tool.handrail]\napproval = true", "approval is True; write a text", id="boolean"),
    ],
)
def test_a_fault_is_told_with_key_value_and_cure(tmp_path: Path, text: str, told: str) -> None:
    """No wrong value ends in anything but a message."""
    (tmp_path / "folder").mkdir()
    (fault,) = faults(tmp_path, text)
    assert fault.startswith("pyproject.toml")
    assert told in fault


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and a folder in the place of the file."""
    (tmp_path / "pyproject.toml").write_bytes(b"x = '\xff'")
    (problem,) = read_config(tmp_path).problems
    assert str(problem) == "pyproject.toml: byte 5 is no UTF-8; save it as UTF-8"
    assert isinstance(problem.__cause__, UnicodeDecodeError)
    (tmp_path / "sub" / "pyproject.toml").mkdir(parents=True)
    (problem,) = read_config(tmp_path / "sub").problems
    assert str(problem) == "pyproject.toml cannot be read: Is a directory"


def test_patterns_match_files_in_their_order_and_each_once(tmp_path: Path) -> None:
    """Folders are no files, and what two patterns match comes with the first."""
    write(tmp_path, {"b.py": "", "a.py": "", "c.py/x.txt": "", "sub/d.py": ""})
    found = matching(tmp_path, ("b.py", "*.py", "**/*.py"))
    assert [path.as_posix() for path in found] == ["b.py", "a.py", "sub/d.py"]
