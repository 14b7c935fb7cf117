"""Tables of the docs that list something of the code list what there is."""

from __future__ import annotations

import ast
import inspect
import re
import signal
from collections.abc import Callable
from typing import get_args

import pytest

import handrail.errors
from handrail import store
from handrail.cli.process_exit import (
    INTERRUPTED,
    READER_GONE,
    TRY_AGAIN,
    USAGE,
    WAITING,
    Terminated,
    interrupt_exit_code,
)
from handrail.contrib.tools import VfsToolsSection
from handrail.filesystem import HostFilesystem
from handrail.prompt.idempotency import OnOrphan
from tests.architecture.sources import ROOT, listed, python_sources
from tests.docs import store_schema

DOCS = ROOT / "docs"


def table_of(page: str, first_column: str) -> list[list[str]]:
    """The rows of the table of a page whose heading begins with a word."""
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = text.partition(f"\n| {first_column} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def named_in(cells: list[str]) -> list[str]:
    """What the first cell of a row names as code."""
    return re.findall(r'`"?(\w+)"?`', cells[0])


def test_file_tools_are_those_of_the_section_with_their_effects() -> None:
    """In the order in which the section has them."""
    rows = [(named_in(row)[0], row[1]) for row in table_of("explanation/files.md", "tool")]
    assert rows == [(tool.name, tool.effect) for tool in VfsToolsSection().tools]


@pytest.mark.parametrize(
    "page, function, required",
    [("reference/configuration.md", store.open, {"url"}), ("explanation/files.md", HostFilesystem, {"root"})],
)
def test_options_are_the_arguments(page: str, function: Callable[..., object], required: set[str]) -> None:
    """All but what only tests have use for."""
    named = {name for row in table_of(page, "option") for name in named_in(row)}
    assert named - {"clock"} == set(inspect.signature(function).parameters) - required - {"clock", "disk"}


@pytest.mark.parametrize("page", ["explanation/stores.md", "explanation/files.md"])
def test_errors_of_a_table_can_be_caught(page: str) -> None:
    """Each is an exception of `handrail.errors`."""
    names = [name for row in table_of(page, "error") for name in named_in(row)]
    missing = [name for name in names if not hasattr(handrail.errors, name)]
    assert names
    assert not missing, listed(missing)


def test_exit_codes_are_those_of_the_command() -> None:
    """0 and 1, and those that have a name."""
    codes = [int(code) for row in table_of("reference/command-line.md", "exit code") for code in row[0].split(",")]
    ended = [interrupt_exit_code(Terminated(number)) for number in (signal.SIGHUP, signal.SIGTERM)]
    assert codes == [0, 1, USAGE, WAITING, TRY_AGAIN, *ended, INTERRUPTED, READER_GONE]


def test_what_becomes_of_orphans_is_told_of_each_policy() -> None:
    """The page helps to choose among all there are."""
    named = {name for row in table_of("explanation/effects.md", "`on_orphan`") for name in named_in(row)}
    assert named == set(get_args(OnOrphan))


def test_events_of_a_session_have_a_row() -> None:
    """Those that say of themselves that subscribers are notified."""
    classes = (node for source in python_sources("src") for node in source.tree.body if isinstance(node, ast.ClassDef))
    said = {
        node.name for node in classes if "Subscribers of the session are notified" in (ast.get_docstring(node) or "")
    }
    assert {name for row in table_of("reference/events.md", "event") for name in named_in(row)} == said | {
        "ToolInvoked"
    }


def test_every_variable_of_the_environment_has_a_row() -> None:
    """Those that a module reads; one that Handrail sets for its own processes is not a setting."""
    read = {name for source in python_sources("src") for name in re.findall(r"\bHANDRAIL_[A-Z_]+\b", source.text)}
    assert {row[0].strip("`") for row in table_of("reference/configuration.md", "variable")} == read - {"HANDRAIL_CALL"}


def test_the_schema_of_stores_is_made_from_their_tables() -> None:
    """`make reference` writes it anew."""
    assert store_schema.PAGE.read_text(encoding="utf-8") == store_schema.page()
