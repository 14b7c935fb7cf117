"""The toolset `sandbox`: over the folder of a run, with options, and behind what the run keeps from its tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handrail.agents import SandboxOptions, parse_rules, sandbox_toolset
from handrail.contrib.tools import Podman
from handrail.errors import AgentError
from handrail.testing import Call
from tests.agents.desks import called, desk, play, returns
from tests.agents.folders import write
from tests.contrib.tools.sandbox.podman_store import IMAGE, containers, podman_command
from tests.wording import Wording


async def answers(agent: Any, *commands: str, tool: str = "shell_execute", **options: Any) -> list[str]:
    """What the model reads of each command."""
    result = await play(agent, called(*(Call(tool, {"command": command}) for command in commands)), **options)
    return [str(part.content) for part in returns(result.messages)]


@pytest.mark.anyio
async def test_agent_runs_commands_over_the_folder_of_its_run(tmp_path: Path, wording: Wording) -> None:
    """What a command that fails has changed there is undone."""
    write(tmp_path / "work", {"a.txt": "one"})
    agent = desk(tmp_path / "project", also=["sandbox"])
    said = await answers(agent, "cat a.txt", "echo two > b.txt", "echo lost > c.txt; exit 1", root=tmp_path / "work")
    assert said[0] == "one"
    assert said[2] == wording
    assert {path.name for path in (tmp_path / "work").iterdir()} == {".git", "a.txt", "b.txt"}


@pytest.mark.anyio
async def test_toolset_takes_engine_and_prefix(tmp_path: Path, wording: Wording) -> None:
    """Two of them serve one agent, each with a sandbox of its own, which ends with the run."""
    write(tmp_path / "project", {"data/a.txt": "one", "other/a.txt": "two"})
    options = SandboxOptions(engine=Podman(image=IMAGE, command=podman_command()), commit_on=(0, 3))
    toolsets = {"data": sandbox_toolset("data", options=options, prefix="data"), "other": sandbox_toolset("other")}
    agent = desk(tmp_path / "project", toolsets=toolsets)
    assert await answers(agent, "cat a.txt; exit 3", tool="data_shell_execute") == wording
    assert not containers(tmp_path / "project" / "data")
    assert await answers(agent, "cat a.txt") == ["two"]
    with pytest.raises(AgentError):
        sandbox_toolset(prefix="A")


RULES = """
allow: [shell_execute]
deny: [{tool: read_file, arguments: {path: "*.key"}}]
"""


@pytest.mark.anyio
async def test_command_is_refused_where_the_run_keeps_files_from_its_tools(tmp_path: Path, wording: Wording) -> None:
    """It would read them; the options may allow that."""
    write(tmp_path / "work", {"a.key": "one"})
    options: dict[str, Any] = {"root": tmp_path / "work", "rules": parse_rules(RULES, file="rules.yaml")}
    agent = desk(tmp_path / "project", also=["sandbox"])
    assert await answers(agent, "cat *.key", **options) == [wording]
    toolset = sandbox_toolset(tmp_path / "work", options=SandboxOptions(reads_everything=True))
    agent = desk(tmp_path / "another", toolsets={"work": toolset})
    assert await answers(agent, "cat *.key", **options) == ["one"]
