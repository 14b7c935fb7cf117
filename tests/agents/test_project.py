"""Projects: their folders and what `[tool.handrail]` configures, with every fault at once."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic_ai.toolsets import FunctionToolset

from handrail.agents import Entry, Project, load_agent
from handrail.agents.active_run import ShellConfig
from handrail.agents.modules import forget_modules
from handrail.agents.project import ProjectConfig, read_config
from handrail.agents.registry import AgentReference, resolve
from handrail.agents.toolsets.builtin import BUILT_INS
from handrail.contrib.tools import GIT_READING, READING, ShellRule
from handrail.errors import (
    AgentError,
    AgentFileError,
    DiscoveryError,
    HandrailError,
    ProjectError,
    RegistryError,
)
from tests.agents.kit import agent, refusal, write
from tests.wording import Wording

PING = "def ping(text: str) -> str:\n    return text\n\nTOOLS = [ping]"


PLAN = """
from dataclasses import dataclass
from handrail.session.persistence.stored_types import stored_as
@stored_as("tests.project.plan")
@dataclass
class Plan:
    a: int
"""


def problem(folder: Path) -> HandrailError:
    """Why a project cannot be loaded."""
    with pytest.raises(HandrailError) as caught:
        Project.load(folder)
    return caught.value


def test_a_folder_of_agents_and_modules_is_a_project_without_any_configuration(
    tmp_path: Path, wording: Wording
) -> None:
    """Agents name tools of modules, toolsets that are built in or of the program, and each other."""
    write(tmp_path, {"desk.agent": agent("desk", tools="[ping]", toolsets="[files, research, more]")})
    write(tmp_path, {"research.agent": agent("research", toolsets="[research]"), "tools/money.py": PING})
    write(tmp_path, {"tools/__init__.py": "KINDS = 1", "tools/__main__.py": "1 / 0"})
    more = Entry("more", "toolset", FunctionToolset(), "program")
    project = Project.load(str(tmp_path), entries=[more])
    assert list(project.agents) == ["desk", "research"]
    desk = resolve(project.agents["desk"], project.registry)
    assert desk.file is project.agents["desk"]
    assert [entry.label for entry in (*desk.tools, *desk.toolsets)] == wording
    assert desk.toolsets[0] is BUILT_INS[0]
    assert resolve(project.agents["research"], project.registry).toolsets[0].value == AgentReference("research")
    assert project.folder == tmp_path.resolve()


def test_a_project_says_where_its_agents_and_modules_are(tmp_path: Path, wording: Wording) -> None:
    """The patterns of `pyproject.toml` replace the defaults."""
    config = "[tool.handrail]\nagents = ['agents/*.agent']\npython = ['lib/*.py']\nmodel = 'test'"
    write(tmp_path, {"pyproject.toml": config, "agents/desk.agent": agent("desk", tools="[ping]"), "tools.py": "1 / 0"})
    write(tmp_path, {"other.agent": "not read", "lib/money.py": PING})
    project = Project.load(tmp_path)
    assert project.config.model == "test"
    assert [entry.label for entry in project.registry.entries[len(BUILT_INS) :]] == wording


@pytest.mark.parametrize("name", ["nowhere", "file", "a\0b"])
def test_a_project_is_a_folder(tmp_path: Path, name: str, wording: Wording) -> None:
    """Neither a file nor nothing."""
    write(tmp_path, {"file": ""})
    error = problem(tmp_path / name)
    assert isinstance(error, ProjectError)
    assert str(error) == wording
    assert Project.survey(tmp_path / name)[0] is None


def test_all_problems_are_told_at_once(tmp_path: Path, wording: Wording) -> None:
    """Of the configuration, the agent files and the modules."""
    write(tmp_path, {"a.agent": "no agent", "desk.agent": agent("desk", tools="[nowhere]")})
    write(tmp_path, {"pyproject.toml": "[tool.handrail]\nx = 1\ny = 2", "tools.py": "1 / 0", "tools/a.py": "TOOLS = 7"})
    error = problem(tmp_path)
    assert isinstance(error, ProjectError)
    kinds = [ProjectError, ProjectError, AgentFileError, DiscoveryError, DiscoveryError]
    assert [type(part) for part in error.problems] == kinds
    assert str(error) == wording
    assert all(str(part) in str(error) for part in error.problems)
    project, problems = Project.survey(tmp_path)
    assert [str(part) for part in problems] == [str(part) for part in error.problems]
    assert project is not None
    assert list(project.agents) == ["desk"]


def test_agents_of_one_name_are_refused_with_all_their_files(tmp_path: Path, wording: Wording) -> None:
    """The project, each of them, and what calls one of that name; not their neighbours, one of which lacks a tool."""
    write(
        tmp_path, {f"{name}.agent": agent("desk") for name in "abc"} | {"caller.agent": agent("x", toolsets="[desk]")}
    )
    write(tmp_path, {"lacking.agent": agent("lacking", tools="[desk]"), "sound.agent": agent("sound")})
    assert type(problem(tmp_path)) is RegistryError
    assert str(problem(tmp_path)) == wording
    assert load_agent(tmp_path / "sound.agent").name == "sound"
    for name in ("a", "c", "caller"):
        with refusal(AgentError, wording):
            load_agent(tmp_path / f"{name}.agent")
    project, _ = Project.survey(tmp_path)
    assert project is not None
    assert list(project.agents) == ["x", "lacking", "sound"]


def test_an_agent_file_that_is_there_under_two_names_is_one_agent(tmp_path: Path) -> None:
    """A link is the file that it leads to."""
    write(tmp_path, {"a.agent": agent("desk")})
    (tmp_path / "b.agent").symlink_to("a.agent")
    assert list(Project.load(tmp_path).agents) == ["desk"]


@pytest.mark.requirement("A-15")
def test_a_project_that_was_mended_can_be_loaded(tmp_path: Path, wording: Wording) -> None:
    """And one that has changed is reloaded; whoever holds the old one keeps it."""
    write(tmp_path, {"tools.py": "from helpers import name\nTOOLS = []", "helpers.py": "nothing = 1"})
    assert str(problem(tmp_path)) == wording
    write(tmp_path, {"tools.py": f"import helpers\n{PING}"})
    first = Project.load(tmp_path)
    write(tmp_path, {"tools.py": PING.replace("ping", "pong")})
    assert list(Project.load(tmp_path).registry.tools) == ["ping"]
    forget_modules(tmp_path)
    assert list(Project.load(tmp_path).registry.tools) == ["pong"]
    assert list(first.registry.tools) == ["ping"]


def test_two_projects_cannot_give_one_name_to_what_they_store(tmp_path: Path, wording: Wording) -> None:
    """Both files are told; when one of the projects is forgotten, its name is free."""
    for name in ("a", "b"):
        write(tmp_path / name, {"tools.py": PLAN})
    one = Project.load(tmp_path / "a")
    found = str(problem(tmp_path / "b"))
    assert re.sub("_[0-9a-f]{12}", "_HASH", found) == wording
    forget_modules(one.folder)
    Project.load(tmp_path / "b")
    forget_modules(tmp_path / "b")


def test_a_module_that_failed_leaves_no_stored_name_behind(tmp_path: Path, wording: Wording) -> None:
    """It may move its class to another file before it is loaded again, or after."""
    write(tmp_path, {"tools.py": f"{PLAN}\n1 / 0"})
    assert str(problem(tmp_path)) == wording
    write(tmp_path, {"tools.py": "from plans import Plan", "plans.py": PLAN})
    Project.load(tmp_path)
    write(tmp_path, {"tools.py": PLAN.replace("Plan", "Renamed"), "plans.py": ""})
    forget_modules(tmp_path)
    Project.load(tmp_path)
    forget_modules(tmp_path)


def test_agent_is_loaded_beside_broken_neighbours(tmp_path: Path) -> None:
    """Unless it, or an agent that it can call, names what is missing with them."""
    agents = {"desk": agent("desk", tools="[ping]"), "caller": agent("caller", toolsets="[other]")}
    agents |= {"other": agent("other", tools="[lost]"), "torn": "nothing"}
    write(tmp_path, {f"{name}.agent": text for name, text in agents.items()})
    write(tmp_path, {"tools.py": PING, "tools/broken.py": "1 / 0"})
    assert load_agent(tmp_path / "desk.agent").name == "desk"
    for name in ("caller", "other"):
        with pytest.raises(ProjectError) as failed:
            load_agent(tmp_path / f"{name}.agent")
        assert {type(each) for each in failed.value.problems} == {AgentFileError, DiscoveryError}


def test_a_configuration_says_where_files_are_and_what_is_used(tmp_path: Path) -> None:
    """Every key, in a file with a byte order mark and the line ends of Windows; paths are from the project folder."""
    write(tmp_path, {"agents/desk.agent": "", "lib/money.py": "", "rules.yaml": ""})
    text = """\ufeff[tool.handrail]
agents = ['agents/*.agent']
python = ['lib/*.py']
model = 'openai:gpt-5.2'
approval = 'rules.yaml'
store = 'sqlite:///desk.db'
[tool.handrail.shell]
allow = ["reading", "git-reading", ["make", "test"], {prefix = ["make", "lint"], commit_on = [0, 1], exact = true}]
path = [".venv/bin", "/opt/bin"]
timeout = 1.5
"""
    (tmp_path / "pyproject.toml").write_bytes(text.replace("\n", "\r\n").encode())
    own = (ShellRule(("make", "test")), ShellRule(("make", "lint"), commit_on=(0, 1), exact=True))
    path = (os.fspath(tmp_path / ".venv/bin"), "/opt/bin")
    config = ProjectConfig(
        agents=("agents/*.agent",), python=("lib/*.py",), model="openai:gpt-5.2", approval="rules.yaml",
        store="sqlite:///desk.db", shell=ProjectConfig().shell,
    )  # fmt: skip
    read, problems = read_config(tmp_path)
    assert (replace(read, shell=config.shell), problems) == (config, ())
    shell = ShellConfig(allow=(*READING, *GIT_READING, *own), path=path, timeout=timedelta(seconds=1.5))
    assert read.shell.settings(tmp_path) == shell
    assert ProjectConfig().shell.settings(tmp_path) == ShellConfig(allow=READING)


def test_all_faults_are_told_at_once(tmp_path: Path, wording: Wording) -> None:
    """Each is a problem for itself; a table with one counts for nothing."""
    text = "[tool.handrail]\nmodle = 'x'\nmodel = 7\nstore = 'memory:'\npython = ['nothing.py', '../x.py', 7]"
    config, problems = read_config(write(tmp_path, {"pyproject.toml": text}))
    assert [str(problem).removeprefix("pyproject.toml: [tool.handrail]: ") for problem in problems] == wording
    assert config == ProjectConfig()


FAULTS = {
    "no TOML": "x = = 1", "no list": "agents = '*.agent'", "empty": "agents = ['']",
    "absolute": "agents = ['/etc/*']", "backslashes": "agents = ['x\\..\\y']",
    "folder": "agents = ['folder']", "outside": "approval = '../x.yaml'",
    "boolean": "approval = true", "blank": "model = ' '", "deep": f"x = {'[' * 100_000}",
    "hex": f"model = 0x{'f' * 9000}", "no table": "[tool]\nhandrail = 7", "no table of the shell": "shell = 'ls'",
    "keys": "[tool.handrail.shell]\nalow = []\nallow = 'reading'\ntimeout = 0",
    "rules": "[tool.handrail.shell]\nallow = ['make test']", "kinds": "[tool.handrail.shell]\npath = ['a:b']",
}  # fmt: skip


def faults(folder: Path, text: str) -> str:
    """The faults of a `[tool.handrail]` with its defaults; what Python says of the TOML in it is not compared."""
    header = "" if text.startswith("[") else "[tool.handrail]\n"
    config, problems = read_config(write(folder, {"pyproject.toml": header + text}))
    assert config == ProjectConfig()
    reasons = [str(each.__cause__) if isinstance(each.__cause__, ValueError) else "\0" for each in problems]
    return "\n".join(str(each).replace(why, "REASON") for each, why in zip(problems, reasons, strict=True))


def test_a_link_that_leads_nowhere_is_a_problem_and_never_the_defaults_alone(tmp_path: Path, wording: Wording) -> None:
    """It is told at once."""
    (tmp_path / "pyproject.toml").symlink_to("pyproject.toml")
    (problem,) = read_config(tmp_path)[1]
    assert str(problem) == wording


@pytest.mark.parametrize("text", FAULTS.values(), ids=FAULTS)
def test_every_fault_is_told_with_key_value_and_cure(tmp_path: Path, text: str, wording: Wording) -> None:
    """No wrong value ends in anything but a message, and what is wrong has its default."""
    (tmp_path / "folder").mkdir()
    assert faults(tmp_path, text) == wording
