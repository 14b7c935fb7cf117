"""What approval rules on paths become: the path filter of a run."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents import ApprovalRules, Rule
from handrail.agents.approval.decisions import ApprovalMode
from handrail.agents.approval.matching import glob, shortest
from handrail.agents.approval.path_rules import FILE_TOOLS, RulePaths, reached_paths, rule_filter
from handrail.contrib.tools import VfsToolsSection
from handrail.filesystem import InMemoryFilesystem, PathFilter
from handrail.filesystem.path_filters import folded
from tests.wording import Wording

PATHS = (".env", "a/.env", "secrets/key", "secrets", "notes.md")


def rule(tool: str, glob: str = "**/.env", argument: str = "path", **also: Any) -> Rule:
    """A rule on a path."""
    return Rule(tool, {argument: glob}, **also)


def kept(
    verdict: str, *rules: Rule, mode: ApprovalMode = "ask", path: tuple[str, ...] = ("desk",), prefix: str = ""
) -> str:
    """The sets of the filter that a rule goes into, in words."""
    ruled = {"allow": (), "ask": (), "deny": (), verdict: rules}
    every = ApprovalRules(allow=ruled["allow"], ask=ruled["ask"], deny=ruled["deny"])
    found = rule_filter(every, path, mode, prefix=prefix)
    return " ".join(each.name for each in fields(PathFilter) if getattr(found, each.name))


def fitting(glob: str) -> list[str]:
    """Those of a few paths that a rule with this glob keeps from being read."""
    found = rule_filter(ApprovalRules(deny=(rule("read_file", glob),)), ("desk",), "ask")
    return [path for path in PATHS if found.unreadable(path) is not None]


def test_file_tools_are_those_of_the_suite_with_their_paths() -> None:
    """A tool that is added, or gets another argument that is a path, is entered here too."""
    tools = {tool.name: tool for tool in VfsToolsSection(InMemoryFilesystem()).tools}
    assert set(FILE_TOOLS) == set(tools)
    for name, arguments in FILE_TOOLS.items():
        properties = tools[name].parameters_schema["properties"]
        assert set(arguments) == {each for each in properties if each.endswith("path")}


@pytest.mark.parametrize(
    "verdict, tool, argument, into",
    [
        ("deny", "read_file", "path", "reading"),
        ("deny", "read_*", "path", "reading"),
        ("deny", "*", "path", "reading writing"),
        ("deny", "*", "*", "reading writing"),
        ("deny", "list_files", "path", "removing searching"),
        ("deny", "g*_files", "path", "removing searching"),
        ("deny", "[gw]*_file*", "path", "writing searching"),
        ("deny", "write_file", "path", "writing"),
        ("deny", "edit_file", "path", "writing"),
        ("deny", "move_file", "new_path", "writing"),
        ("deny", "move_file", "path", "removing"),
        ("deny", "remove_file", "path", "removing"),
        ("deny", "*", "new_path", "writing"),
        ("deny", "*", "file", ""),
        ("deny", "lookup", "path", ""),
        ("ask", "read_file", "path", "removing searching"),
        ("ask", "list_files", "path", "removing listing"),
        ("ask", "grep_files", "path", "removing listing"),
        ("ask", "[rg]*_file*", "path", "removing listing"),
        ("ask", "[rm]*_file", "path", "searching holding"),
        ("ask", "*", "path", "listing holding"),
        ("ask", "write_file", "path", "holding"),
        ("ask", "remove_file", "path", "holding"),
        ("ask", "move_file", "new_path", "holding"),
        ("ask", "*", "file", ""),
        ("allow", "*", "path", ""),
    ],
)
def test_where_a_rule_on_a_path_holds(verdict: str, tool: str, argument: str, into: str) -> None:
    """What it says of one tool holds for every way to do the same."""
    assert kept(verdict, rule(tool, argument=argument)) == into


def test_rule_about_more_than_a_path_filters_nothing() -> None:
    """It fits some calls about a path, and others not."""
    assert not kept("deny", Rule("*", {"path": "**/.env", "recursive": "true"}))
    assert not kept("deny", Rule("read_file"))
    assert not kept("deny", Rule("*", {"steps[*].path": "**/.env"}))


def test_ask_rules_follow_the_mode() -> None:
    """Where nobody is asked, they allow or deny."""
    assert kept("ask", rule("*"), mode="approve-all") == ""
    assert kept("ask", rule("*"), mode="deny-all") == "reading writing"
    assert kept("deny", rule("*"), mode="approve-all") == "reading writing"


def test_rule_holds_for_its_agents_and_for_the_names_of_its_tools() -> None:
    """As it does for calls."""
    assert kept("deny", rule("*", agent="desk"), path=("desk",))
    assert not kept("deny", rule("*", agent="desk"), path=("desk", "clerk"))
    assert kept("deny", rule("a_read_file"), prefix="a_") == "reading"
    assert not kept("deny", rule("a_read_file"))
    assert not kept("deny", rule("read_file"), prefix="a_")


@pytest.mark.parametrize(
    "glob, paths",
    [
        ("**/.env", [".env", "a/.env"]),
        ("*.env", [".env", "a/.env"]),
        (".ENV", [".env"]),
        ("./a/../.env", [".env"]),
        ("secrets", ["secrets/key", "secrets"]),
        ("secrets/", ["secrets/key", "secrets"]),
        ("secrets/**", ["secrets/key", "secrets"]),
        ("secrets/*", ["secrets/key"]),
        ("**", list(PATHS)),
        ("/srv/.env", []),
        ("s?crets/k[a-f]y", ["secrets/key"]),
    ],
)
def test_globs_are_read_widely(glob: str, paths: list[str]) -> None:
    """And a folder takes in what lies in it."""
    assert fitting(glob) == paths


@pytest.mark.parametrize("path", ["cafe\u0301.txt", "CAFÉ.TXT", "ca\u200cfé.txt"])
def test_spellings_that_some_disk_takes_for_one_are_one(path: str) -> None:
    """As of an excluded path."""
    assert RulePaths("deny", rule("*", "café.txt")).why(path, is_folder=False) is not None


def test_reason_names_the_rule(wording: Wording) -> None:
    """With its place."""
    denied = rule("*", source="approval.yaml:3")
    found = rule_filter(ApprovalRules(deny=(denied,)), ("desk",), "ask")
    assert found.unwritable("a/.env") == wording
    assert found.unwritable("a/b") is None
    assert len({RulePaths("deny", denied), RulePaths("deny", denied), RulePaths("ask", denied)}) == 2
    assert reached_paths("read_file", {"path": 5}, InMemoryFilesystem()) is None  # of a tool of the program


SPELLINGS = st.text(st.sampled_from("abAB/*\u00e9\u0301\u200c[k\u212a]"), max_size=8)
"""Paths and globs in which spellings are many, among them the sign for kelvin, which is a `k` in lower case."""


@given(SPELLINGS, SPELLINGS)
def test_path_is_held_against_every_glob_that_could_fit_it(pattern: str, path: str) -> None:
    """Most paths are passed over by a look at their characters, and no path that fits."""
    rule_paths = RulePaths("deny", rule("*", pattern))
    short = shortest(pattern)
    spelled = (short, short.removesuffix("/**") or pattern)
    fits = any(
        glob(each, "wide").fits_at_or_above(path) or glob(folded(each), "wide").fits_at_or_above(folded(path))
        for each in spelled
    )
    assert (rule_paths.why(path, is_folder=False) is not None) is fits
