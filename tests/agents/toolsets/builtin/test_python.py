"""The toolset `python`: over the folder of a run, with options, and behind the rules of the run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail.agents import PythonOptions, parse_rules, python_toolset
from handrail.errors import AgentError
from handrail.testing import Call
from tests.agents.desks import called, desk, play, returns
from tests.agents.folders import write
from tests.wording import Wording


async def answers(agent: Any, *codes: str, tool: str = "evaluate_python", **options: Any) -> list[str]:
    """What the model reads of each evaluation."""
    result = await play(agent, called(*(Call(tool, {"code": code}) for code in codes)), **options)
    return [str(part.content) for part in returns(result.messages)]


@pytest.mark.anyio
async def test_agent_evaluates_code_over_the_folder_of_its_run(tmp_path: Path, wording: Wording) -> None:
    """What code that fails has changed there is undone."""
    write(tmp_path / "work", {"a.txt": "one"})
    agent = desk(tmp_path / "project", also=["python"])
    said = await answers(
        agent,
        "read_text('a.txt')",
        "write_text('b.txt', 'two')",
        "write_text('c.txt', 'lost')\n1 / 0",
        root=tmp_path / "work",
    )
    assert said == wording
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"a.txt", "b.txt"}


@pytest.mark.anyio
async def test_toolset_takes_folder_options_and_prefix(tmp_path: Path, wording: Wording) -> None:
    """Two of them serve one agent."""
    write(tmp_path / "project", {"data/a.txt": "one"})
    options = PythonOptions(files=False, timeout=timedelta(milliseconds=200))
    toolsets = {"data": python_toolset("data", prefix="data"), "sums": python_toolset(options=options)}
    agent = desk(tmp_path / "project", toolsets=toolsets)
    assert await answers(agent, "read_text('a.txt')", tool="data_evaluate_python") == wording
    said = await answers(agent, "2 ** 0.5 > 1", "exists('a.txt')", "while True: pass")
    assert said == wording
    with pytest.raises(AgentError):
        python_toolset(prefix="A")


RULES = """
allow: [evaluate_python]
deny: [{tool: read_file, arguments: {path: "secret/**"}}]
ask: [{tool: write_file, arguments: {path: "asked/**"}}, {tool: read_file, arguments: {path: "private/**"}}]
"""


@pytest.mark.anyio
async def test_rules_on_paths_hold_for_code(tmp_path: Path, wording: Wording) -> None:
    """What they ask about is refused, because nothing asks about a file in the middle of a call."""
    write(tmp_path / "work", {"secret/a.txt": "hunter2", "private/b.txt": "hunter2", "asked/c.txt": "three"})
    agent = desk(tmp_path / "project", also=["python", "files"])
    rules = parse_rules(RULES, file="rules.yaml")
    said = await answers(
        agent,
        "read_text('secret/a.txt')",
        "read_text('private/b.txt')",
        "glob_files('**')",
        "read_text('asked/c.txt')",
        "text = read_text('asked/c.txt')\nwrite_text('asked/c.txt', 'lost')",
        root=tmp_path / "work",
        rules=rules,
        mode="ask",
    )
    assert not any("hunter2" in text for text in said)
    assert said == wording
    assert (tmp_path / "work/asked/c.txt").read_text() == "three"
