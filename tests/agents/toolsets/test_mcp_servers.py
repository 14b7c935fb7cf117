"""MCP servers as toolsets: the file that `[tool.handrail] mcp` names, and agents that name the servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.adapters.mcp import McpServerError
from handrail.agents import Project
from tests.adapters.mcp.bank_server import Bank
from tests.adapters.mcp.kit import bank_command
from tests.agents.kit import DONE, agent, desk, play, refusal, write
from tests.cli.desk import ENTRY
from tests.wording import Wording

PYPROJECT = '[tool.handrail]\nmcp = "servers.yaml"\n'
SCRIPT = """
replies:
  - calls: [{name: pay, arguments: {order: a}, id: pay}]
  - calls: [{name: helper, arguments: {input: "Pay b."}, id: helper}]
    expect: {messages: {pay: ok}}
  - {within: helper, calls: [{name: pay, arguments: {order: b}}]}
  - {within: helper, text: Done.}
  - text: Done.
"""


def project(folder: Path, servers: object) -> Path:
    """A project whose agent names the server `bank`, and another agent that does too."""
    files = {"pyproject.toml": PYPROJECT, "servers.yaml": json.dumps({"servers": servers})}
    write(folder, {**files, "helper.agent": agent("helper", toolsets="[bank]")})
    return write(folder, {"desk.agent": agent("desk", toolsets="[bank, helper]")})


@pytest.mark.timeout(180)  # two processes that start
def test_agents_of_a_project_call_the_tools_of_a_server(tmp_path: Path) -> None:
    """One server for both agents; it ends with the process, which closes its output."""
    server = {"command": [*bank_command()], "env": [f"BANK={tmp_path}/payments"]}
    write(project(tmp_path, {"bank": server}), {"script.yaml": SCRIPT})
    words = ("run", "desk.agent", "Pay a and b.", "--model", "script:script.yaml", "--approve", "approve-all")
    ran = subprocess.run((*ENTRY, *words), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "Done.\n"), ran.stderr
    assert Bank(tmp_path / "payments").paid() == [{"order": "a"}, {"order": "b"}]


@pytest.mark.anyio
async def test_server_that_cannot_be_started_ends_the_run(tmp_path: Path, wording: Wording) -> None:
    """With the error of its connection."""
    project(tmp_path, {"bank": {"command": [sys.executable, "-c", "pass"]}})
    with refusal(McpServerError, wording):
        await play(desk(tmp_path, also=["bank"]), [DONE])


@pytest.mark.parametrize("text", [None, "servers: {}", "servers: {bank: {command: python}}"])
def test_faulty_file_is_a_problem_of_the_project(tmp_path: Path, text: str | None, wording: Wording) -> None:
    """Beside the agents that name its servers, which do not exist then."""
    write(project(tmp_path, {}), {} if text is None else {"servers.yaml": text})
    if text is None:
        (tmp_path / "servers.yaml").unlink()
    _, problems = Project.survey(tmp_path)
    assert list(map(str, problems)) == wording
