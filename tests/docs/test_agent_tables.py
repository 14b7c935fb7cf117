"""Tables of the pages on agents and approval list what the code has."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import get_args

import pytest

from handrail.adapters.pydantic_ai.foreign import calls
from handrail.agents import Answer, RunOptions, RunResult
from handrail.agents.agent_file import AGENT_FILE_KEYS, NAME_PATTERN
from handrail.agents.approval import matching
from handrail.agents.approval.decisions import ApprovalMode
from handrail.agents.approval.path_rules import path_filter_of
from handrail.agents.approval.rules import DEFAULTS, RULE_KEYS, ApprovalRules, Rule
from handrail.agents.approval.rules import RULES_FILE_KEYS as RULES_KEYS
from handrail.agents.project_config import ProjectConfig, ShellTable
from handrail.agents.run.events import RunEvent
from handrail.agents.toolsets.builtin import built_ins
from handrail.contrib.tools import VfsToolsSection
from handrail.contrib.tools.planning import PlanningToolsSection
from handrail.filesystem import PathFilter
from handrail.runtime import Session
from handrail.testing import Call, Expect, Reply
from tests.docs.test_tables import named_in, table_of


def names(page: str, first_column: str) -> list[str]:
    """What the first cells of a table name as code, in their order."""
    return [name for row in table_of(page, first_column) for name in named_in(row)]


@pytest.mark.parametrize(
    "page, column, there",
    [
        ("reference/agent-file.md", "key", AGENT_FILE_KEYS),
        ("reference/configuration.md", "`[tool.handrail]`", [field.name for field in fields(ProjectConfig)]),
        ("reference/configuration.md", "`[tool.handrail.shell]`", [each.name for each in fields(ShellTable)]),
        ("reference/agent-file.md", "toolset", [entry.name for entry in built_ins()]),
        (
            "reference/agent-file.md",
            "metadata",
            ["effect", "concurrent", "idempotency", "approval", "max_result_chars", "untrusted"],
        ),
        ("reference/running-agents.md", "option", [field.name for field in fields(RunOptions)]),
        ("reference/running-agents.md", "`RunResult`", [field.name for field in fields(RunResult)]),
        ("reference/scripts.md", "key of a reply", [field.name for field in fields(Reply)]),
        ("reference/scripts.md", "key of a call", [field.name for field in fields(Call)]),
        ("reference/scripts.md", "key of `expect`", [field.name for field in fields(Expect)]),
        ("reference/running-agents.md", "event", [event.__name__ for event in get_args(RunEvent)]),
        ("reference/approval-rules.md", "key", RULES_KEYS),
        ("reference/approval-rules.md", "key of a rule", RULE_KEYS),
    ],
)
def test_a_table_lists_what_there_is(page: str, column: str, there: Collection[str]) -> None:
    """All of it, and nothing else."""
    assert sorted(names(page, column)) == sorted(there)


def test_modes_are_those_that_there_are() -> None:
    """In their order."""
    assert tuple(row[0].strip("`") for row in table_of("explanation/approval.md", "mode")) == get_args(ApprovalMode)


def test_answers_are_those_that_can_be_given() -> None:
    """Each verdict and each length of memory has a row."""
    documented = [row[0].strip("`") for row in table_of("explanation/approval.md", "`Answer`")]
    verdicts, remembers = ("yes", "no", "later"), ("nothing", "arguments", "rule")
    assert documented == [f'verdict="{word}"' for word in verdicts] + [f'remember="{word}"' for word in remembers]
    assert {field.name for field in fields(Answer)} == {"verdict", "remember", "reason"}


def test_defaults_are_those_of_the_code() -> None:
    """Of approval by effect, of a project, and of a run."""
    (row,) = [row for row in table_of("reference/approval-rules.md", "key") if named_in(row) == ["defaults"]]
    assert re.findall(r"`(\w+)`", row[1]) == [*DEFAULTS]
    assert re.findall(r"`(\w+)`", row[2]) == [*DEFAULTS.values()]
    project = {named_in(row)[0]: row[2] for row in table_of("reference/configuration.md", "`[tool.handrail]`")}
    for name in ("agents", "python"):
        documented = re.findall(r'"([^"]+)"', project[name])
        assert documented == [*getattr(ProjectConfig(), name)]
    run = {named_in(row)[0]: row[2] for row in table_of("reference/running-agents.md", "option")}
    assert (run["max_depth"], run["request_limit"]) == (str(RunOptions().max_depth), str(RunOptions().request_limit))
    assert run["mode"] == f'`"{RunOptions().mode}"`'
    assert f"`{NAME_PATTERN}`" in table_of("reference/agent-file.md", "key")[0][1]


def test_tools_of_built_in_toolsets_are_those_of_their_sections() -> None:
    """In the order in which a model sees them."""
    tools = {named_in(row)[0]: re.findall(r"`(\w+)`", row[1]) for row in table_of("reference/agent-file.md", "toolset")}
    assert tools["files"] == [tool.name for tool in VfsToolsSection().tools]
    assert tools["planning"] == [tool.name for tool in PlanningToolsSection(session=Session()).tools]


def rows_below(head: str, header: str) -> list[str]:
    """The rows of the table in a docstring whose header begins so."""
    lines = iter(head.splitlines())
    while not next(lines).startswith(header):
        pass
    return list(takewhile(lambda line: line.startswith("|"), lines))[1:]  # without the line below the header


@pytest.mark.parametrize(
    "page, column, source, header",
    [
        ("reference/agent-file.md", "hints of an MCP server", calls.__file__, "| the hints say"),
        ("reference/approval-rules.md", "in a glob", matching.__file__, "| in a glob"),
    ],
)
def test_a_table_says_what_the_head_of_its_module_says(page: str, column: str, source: str, header: str) -> None:
    """Row by row, word by word."""
    there = rows_below(Path(source).read_text(encoding="utf-8").split('"""')[1], header)
    assert [f"| {cells} |" for cells in map(" | ".join, table_of(page, column))] == there


def test_readings_of_globs_are_those_of_the_head_of_their_module() -> None:
    """Each row about something is about the same thing there."""
    rows = rows_below(matching.__doc__ or "", "| | to allow: narrowly")
    there = [row.split(" | ")[0].lstrip("| ") for row in rows]
    documented = [row[0] for row in table_of("reference/approval-rules.md", "| `allow`, narrowly")]
    assert documented == there


def test_table_of_rules_on_paths_says_what_the_code_does() -> None:
    """Each row names its verdict, argument and tools, and the filter that they make."""
    kept = {
        "do not exist for reading, lists and searches": "reading",
        "are not written, made, moved, moved onto or removed": "writing",
        "are neither moved nor removed": "removing",
        "are left out of lists and searches, which count them": "listing",
        "are shown by no list or search, named or not": "searching",
        "stay when a folder above them is to be moved or removed": "holding",
    }
    assert list(kept.values()) == [each.name for each in fields(PathFilter)]
    into: list[str] = []
    for said, tools, files in table_of("reference/approval-rules.md", "the rule"):
        verdict, *arguments = re.findall(r"`(\w+)`", said)
        into = into if files == "the same" else [name for words, name in kept.items() if words in files]
        named = re.findall(r"`(\w+|\*)`", tools.partition(", and n")[0]) or ["*"]
        for tool in named:
            for argument in arguments or ["path"]:
                rule = Rule(tool, {argument: "x"})
                rules = {"allow": (), "ask": (), "deny": (), verdict: (rule,)}
                every = ApprovalRules(allow=rules["allow"], ask=rules["ask"], deny=rules["deny"])
                found = path_filter_of(every, ("desk",), "ask")
                assert [name for name in kept.values() if getattr(found, name)] == into, (said, tool)
