"""`handrail.agents.project_config`: what `[tool.handrail]` may say, and every fault of it at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from handrail.agents.overrides_config import OverridesConfig
from handrail.agents.project_config import ProjectConfig, matching_files, read_config, unreadable
from tests.agents.folders import write
from tests.wording import Wording


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
        "overrides = {folder = 'texts', tag = 'next'}\n"
    )
    (tmp_path / "pyproject.toml").write_bytes(text.replace("\n", "\r\n").encode())
    assert read_config(tmp_path).config == ProjectConfig(
        agents=("agents/*.agent",),
        python=("lib/*.py",),
        model="openai:gpt-5.2",
        approval=Path("rules.yaml"),
        store="sqlite:///desk.db",
        overrides=OverridesConfig(folder=Path("texts"), tag="next"),
    )
    assert not read_config(tmp_path).problems


def test_a_project_may_have_overrides_in_the_usual_place(tmp_path: Path) -> None:
    """An empty table says so; without the table it has none."""
    assert read_config(write(tmp_path, {"pyproject.toml": "[tool.handrail.overrides]"})).config.overrides == (
        OverridesConfig(folder=Path("overrides"), tag="stable")
    )
    assert ProjectConfig().overrides is None


def test_all_faults_of_the_table_of_overrides_are_reported(tmp_path: Path, wording: Wording) -> None:
    """A folder out of the project, what cannot be a tag, what is no text, and other keys."""
    tables = ("folder = '../x'\ntag = 'a/b'\ntags = 1", "folder = 7\ntag = 7", "folder = ' '")
    found = [fault for table in tables for fault in faults(tmp_path, f"[tool.handrail.overrides]\n{table}")]
    assert "\n".join([*found, *faults(tmp_path, "[tool.handrail]\noverrides = 'texts'")]) == wording


def test_a_project_may_say_that_it_has_no_modules(tmp_path: Path) -> None:
    """An empty list is an answer."""
    reading = read_config(write(tmp_path, {"pyproject.toml": "[tool.handrail]\npython = []"}))
    assert (reading.config.python, reading.problems) == ((), ())


def test_all_faults_are_told_at_once_and_what_is_sound_counts(tmp_path: Path, wording: Wording) -> None:
    """Each fault is a problem for itself."""
    text = "[tool.handrail]\nmodle = 'x'\nmodel = 7\nstore = 'memory:'\npython = ['nothing.py', '../x.py', 7]"
    reading = read_config(write(tmp_path, {"pyproject.toml": text}))
    assert [str(problem).removeprefix("pyproject.toml: [tool.handrail]: ") for problem in reading.problems] == [
        wording,
        wording,
        wording,
        wording,
        wording,
    ]
    assert reading.config == ProjectConfig(store="memory:")


@pytest.mark.parametrize(
    "text, told",
    [
        pytest.param("[tool.handrail]\nx = = 1", "pyproject.toml is not TOML: Invalid value (at line 2", id="no TOML"),
        pytest.param("[tool.handrail]\na=1\na=2", "pyproject.toml is not TOML: Cannot overwrite a value", id="doubled"),
        pytest.param("tool = 7", "[tool.handrail] is not a table", id="tool is no table"),
        pytest.param("[tool]\nhandrail = 7", "[tool.handrail] is not a table", id="no table"),
        pytest.param("[tool.handrail]\nzzz = 1", "the key 'zzz' does not exist. The keys are", id="far key"),
        pytest.param("[tool.handrail]\nagents = '*.agent'", "agents is '*.agent'; write a list of", id="no list"),
        pytest.param("[tool.handrail]\nagents = ['']", "agents has '', which is not a pattern", id="empty"),
        pytest.param('[tool.handrail]\nagents = ["a\\u0000"]', "which is not a pattern", id="null"),
        pytest.param("[tool.handrail]\nagents = ['a/**b/c']", "agents has 'a/**b/c', which", id="stars"),
        pytest.param(
            "[tool.handrail]\nagents = ['.']", "agents has '.', which is not a pattern", id="the folder itself"
        ),
        pytest.param(f"[tool.handrail]\nagents = ['{'a/' * 3000}']", "…, which is not a pattern", id="deep"),
        pytest.param(f"[tool.handrail]\nagents = ['{'a' * 900}']", "…, which ", id="long"),
        pytest.param(f"[tool.handrail]\napproval = '{'a' * 900}'", "…, but the file does not exist", id="long file"),
        pytest.param(f"[tool.handrail]\n{'a' * 9000} = 1", "… does not exist. The keys are", id="long key"),
        pytest.param("[tool.handrail]\nagents = ['/etc/*']", "leaves the project folder", id="absolute"),
        pytest.param("[tool.handrail]\nagents = ['C:\\x\\*']", "leaves the project folder", id="drive"),
        pytest.param("[tool.handrail]\nagents = ['x\\..\\y']", "leaves the project folder", id="backslashes"),
        pytest.param("[tool.handrail]\nagents = ['folder']", "matches no file", id="folder"),
        pytest.param("[tool.handrail]\nmodel = ' '", "model is ' ', which says nothing", id="blank"),
        pytest.param("[tool.handrail]\nstore = ['x']", "store is ['x']; write a text", id="list"),
        pytest.param("[tool.handrail]\napproval = 'x.yaml'", "approval is 'x.yaml', but the file does not", id="file"),
        pytest.param("[tool.handrail]\napproval = '../x.yaml'", "approval is '../x.yaml', which leaves", id="outside"),
        pytest.param("[tool.handrail]\napproval = 'folder'", "but the file does not exist", id="folder for a file"),
        pytest.param("[tool.handrail]\napproval = true", "approval is True; write a text", id="boolean"),
    ],
)
def test_a_fault_is_told_with_key_value_and_cure(tmp_path: Path, text: str, told: str) -> None:
    """No wrong value ends in anything but a message."""
    (tmp_path / "folder").mkdir()
    (fault,) = faults(tmp_path, text)
    assert fault.startswith("pyproject.toml")
    assert told in fault


def test_a_file_in_another_encoding_is_told(tmp_path: Path, wording: Wording) -> None:
    """With line and column of the first byte that is no UTF-8."""
    (tmp_path / "pyproject.toml").write_bytes(b"x = '\xff'")
    (problem,) = read_config(tmp_path).problems
    assert str(problem) == wording
    assert problem.__cause__ is not None


def _fifo(file: Path) -> None:
    os.mkfifo(file)


def _link(target: str) -> Callable[[Path], None]:
    return lambda file: file.symlink_to(target)


def _large(file: Path) -> None:
    file.write_bytes(b"#" * 1_000_001)


@pytest.mark.parametrize(
    "make, told",
    [
        pytest.param(Path.mkdir, "this is a folder; a project is configured in a text file", id="folder"),
        pytest.param(_fifo, "this is a device or pipe; a project is configured in a text file", id="pipe"),
        pytest.param(_link("/dev/zero"), "this is a device or pipe", id="device"),
        pytest.param(_link("pyproject.toml"), "cannot be read: Too many levels of symbolic", id="loop"),
        pytest.param(_link("x"), "this is a link that leads nowhere; fix", id="link"),
        pytest.param(_large, "has more than 1,000,000 bytes", id="large"),
    ],
)
def test_what_is_no_file_is_a_problem_and_never_the_defaults_alone(
    tmp_path: Path, make: Callable[[Path], object], told: str
) -> None:
    """It is told at once; nobody waits for a pipe."""
    make(tmp_path / "pyproject.toml")
    (problem,) = read_config(tmp_path).problems
    assert str(problem).startswith("pyproject.toml: ")
    assert told in str(problem)


def test_a_folder_that_is_none_is_told_as_the_system_says_it(tmp_path: Path, wording: Wording) -> None:
    """A folder without the file has the defaults, and that is no such folder."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    (problem,) = read_config(tmp_path / "file").problems
    assert str(problem) == wording


@pytest.mark.parametrize(
    "text, told",
    [
        pytest.param(f"x = {'[' * 100_000}", "is nested too deep to be read; make it flatter", id="deep"),
        pytest.param(f"x = {'1' * 5000}", "is not TOML: ", id="digits"),
        pytest.param(f"[tool.handrail]\nmodel{'.a' * 100_000} = 1", "is nested too deep to be read", id="dots"),
        pytest.param(f"[x{' . a' * 100_000}]", "is nested too deep to be read", id="dots in a header"),
        pytest.param('"x"' + ".'a'" * 100_000 + " = 1", "is nested too deep to be read", id="dots of quoted parts"),
        pytest.param(f"x = {{a{'.a' * 100_000} = 1}}", "is nested too deep to be read", id="dots in a table"),
        pytest.param(
            f'x = """\\""""""\na{".a" * 100_000} = 1', "is nested too deep to be read", id="dots behind quotes"
        ),
        pytest.param('x = """\n' + '\\"""x\n' * 150_000, "is not TOML: ", id="text without an end"),
        pytest.param(f"[tool.handrail]\nmodel = 0x{'f' * 9000}", "model is a int that is too large to be", id="hex"),
    ],
)
def test_a_document_of_any_shape_ends_in_a_message(tmp_path: Path, text: str, told: str) -> None:
    """However deep and long its values are."""
    (fault,) = faults(tmp_path, text)
    assert told in fault


DOTS = "." * 201


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f'x = """\n{DOTS}\n"""', id="text of several lines"),
        pytest.param(f"x = '''\n{DOTS}\n'''", id="literal text of several lines"),
        pytest.param(f'x = """\n\\"""{DOTS}\n"{DOTS}\n"""""', id="quotes in a text of several lines"),
        pytest.param(f"x = '''\n'{DOTS}\n''{DOTS}\n'''''", id="quotes in a literal text of several lines"),
        pytest.param(f'x = "\\"{DOTS}"', id="quote in a text"),
        pytest.param(f"x = '{DOTS}'", id="literal text"),
        pytest.param(f"x = 1 # '{DOTS}", id="comment"),
        pytest.param(f"x = [{'1.5, ' * 201}]", id="numbers"),
    ],
)
def test_dots_outside_keys_do_not_count_as_levels(tmp_path: Path, text: str) -> None:
    """Only keys are nested by them: texts, comments and numbers of valid TOML may have any number of dots."""
    reading = read_config(write(tmp_path, {"pyproject.toml": f"{text}\n[tool.handrail]\nmodel = 'm'\n"}))
    assert (reading.config.model, reading.problems) == ("m", ())


def test_what_patterns_lead_to_and_cannot_be_read_is_found(tmp_path: Path) -> None:
    """Links to nowhere and in a circle, pipes; with and without wildcards, and on the way to a file."""
    for link, target in {"tools.py": "nowhere", "a.agent": "a.agent", "lib": "lib", "gone": "nowhere"}.items():
        (tmp_path / link).symlink_to(target)
    os.mkfifo(tmp_path / "b.agent")
    write(tmp_path, {"c.agent": "", "d.agent/x.txt": "", "one.py": "", "sub/two.py": ""})
    patterns = ("tools.py", "*.agent", "lib/*.py", "gone/*.py", "one.py", "one.py/*.py", "sub/*.py", "none/*.py")
    assert unreadable(tmp_path, patterns) == (
        "tools.py is a link that leads nowhere; fix or remove it",
        "a.agent cannot be read: Too many levels of symbolic links",
        "b.agent is a device or pipe; put a file there",
        "lib cannot be read: Too many levels of symbolic links",
        "gone is a link that leads nowhere; fix or remove it",
    )
    assert faults(tmp_path, "[tool.handrail]\nagents = ['a.agent']\npython = ['tools.py', 'lib/*.py']") == []


def test_patterns_match_files_in_their_order_and_each_once(tmp_path: Path) -> None:
    """Folders are no files, and what two patterns match comes with the first."""
    write(tmp_path, {"b.py": "", "a.py": "", "c.py/x.txt": "", "sub/d.py": ""})
    found = matching_files(tmp_path, ("b.py", "*.py", "**/*.py"))
    assert [path.as_posix() for path in found] == ["b.py", "a.py", "sub/d.py"]
