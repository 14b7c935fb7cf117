"""`handrail.agents.project_config`: what `[tool.handrail.shell]` may say, and every fault of it at once."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from handrail.agents.project import READY_RULES, ProjectConfig, ShellConfig, read_config
from handrail.contrib.tools import CHECKING, FIXING, GIT_READING, READING, ShellRule
from tests.agents.folders import write
from tests.wording import Wording


def test_every_key_is_read(tmp_path: Path) -> None:
    """Ready rules by name, prefixes and tables stand in one list; folders are from the project folder."""
    text = """
[tool.handrail.shell]
allow = ["reading", "checking", ["make", "test"], {prefix = ["make", "lint"], commit_on = [0, 1], exact = true}]
path = [".venv/bin", "/opt/bin"]
timeout = 1.5
"""
    reading = read_config(write(tmp_path, {"pyproject.toml": text}))
    assert not reading.problems
    assert reading.config.shell == ShellConfig(
        allow=(
            *READING,
            *CHECKING,
            ShellRule(("make", "test")),
            ShellRule(("make", "lint"), commit_on=(0, 1), exact=True),
        ),
        path=(os.fspath(tmp_path / ".venv/bin"), "/opt/bin"),
        timeout=timedelta(seconds=1.5),
    )


def test_ready_rules_have_names() -> None:
    """All of them; without a configuration only looking is allowed."""
    assert [*READY_RULES.values()] == [READING, GIT_READING, FIXING, CHECKING]
    assert ProjectConfig().shell == ShellConfig(allow=READING)


@pytest.mark.parametrize(
    "text",
    [
        "shell = 'ls'",
        "[tool.handrail.shell]\nalow = []\nallow = 'reading'\ntimeout = 0",
        "[tool.handrail.shell]\nallow = ['make test', 7, [], {exact = true}, {prefix = ['x'], opts = []}, ['./x']]",
        "[tool.handrail.shell]\npath = ['a:b']\ntimeout = true",
    ],
    ids=["no table", "keys", "rules", "kinds"],
)
def test_every_fault_is_told_with_key_value_and_cure(tmp_path: Path, text: str, wording: Wording) -> None:
    """And what is wrong has its default."""
    header = "" if text.startswith("[") else "[tool.handrail]\n"
    reading = read_config(write(tmp_path, {"pyproject.toml": header + text}))
    assert "\n".join(map(str, reading.problems)) == wording
    assert reading.config == ProjectConfig()
