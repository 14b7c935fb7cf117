"""`docs/reference/limits.md` has the values that the code has."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import timedelta
from importlib import import_module

import pytest

from handrail.agents import RunOptions
from handrail.contrib.tools import SandboxLimits, VfsLimits
from handrail.session import Session
from handrail.store import open as open_store
from tests.architecture.sources import ROOT, python_sources
from tests.docs.test_tables import table_of

PAGE = "reference/limits.md"

INTERNAL = {
    *("CHUNK", "CHUNK_BYTES", "START_BYTES", "ROWS_AT_ONCE", "EFFECTS_AT_ONCE", "ROWS_PER_PAGE"),
    *("MOST_TOGETHER", "MOST_ENTRIES", "MAX_CACHED", "MOST_RUNS"),
    *("USER", "VERSION", "MOST_WRITTEN", "UNTIL_APPLIED", "TABLES_VERSION"),
}
"""Numbers that no program meets: how much is done at a time or remembered, and what has to be one."""

_NUMBER = re.compile(r"[\d_]+(\.\d+)?( (\*|<<|\+) [\d_]+)*|timedelta\(.*\)")

_ROW = re.compile(
    r"^\| .*?: (?:\[`(\w+)`\]\(\.\./\.\./src/(handrail[\w/]+)\.py\)|`(\w+)` of ).* \| ([\d,]+) ", re.MULTILINE
)


def rows() -> Iterator[tuple[str, str, int]]:
    """The name, the module and the value of each row that names a constant or a parameter."""
    for name, path, parameter, value in _ROW.findall((ROOT / "docs" / PAGE).read_text(encoding="utf-8")):
        yield name or parameter, path.replace("/", "."), int(value.replace(",", ""))


def default_of(name: str, module: str) -> object:
    """The value of a constant of a module, or the default of a parameter."""
    functions: dict[str, Callable[..., object]]
    functions = {"checkpoint_every": Session.open, "wait": Session.open, "busy": open_store}
    if name in functions:
        return inspect.signature(functions[name]).parameters[name].default
    if name in {field.name for field in fields(RunOptions)}:
        return getattr(RunOptions(), name)
    return getattr(import_module(module), name)


@pytest.mark.parametrize("name, module, value", [*rows()], ids=str)
def test_a_limit_has_the_value_that_the_page_says(name: str, module: str, value: int) -> None:
    """Spans are in seconds."""
    found = default_of(name, module)
    assert value == (found.total_seconds() if isinstance(found, timedelta) else found)


def test_each_row_names_what_it_is_the_limit_of() -> None:
    """No row is left out of the comparison, and no field of the limits of file tools is left out of the page."""
    text = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    tables = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| limit |")]
    count = len(list(rows()))
    for limits in (VfsLimits(), SandboxLimits()):
        of_tools = table_of(PAGE, f"field of `{type(limits).__name__}`")
        count += len(of_tools) + 1
        documented = {row[0].strip("`"): int(row[1].split()[0].replace(",", "")) for row in of_tools}
        values = {field.name: getattr(limits, field.name) for field in fields(limits)}
        seconds = {name: value.total_seconds() for name, value in values.items() if isinstance(value, timedelta)}
        assert documented == values | seconds
    assert count == len(tables)


def test_every_limit_of_the_code_is_on_the_page() -> None:
    """A public constant that is a number or a span has a row, unless no program can meet it."""
    constants = {
        target.id
        for source in python_sources("src")
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _NUMBER.fullmatch(ast.unparse(node.value))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id[0] != "_"
    }
    named = {name for name, _, _ in rows()}
    assert sorted(constants - named - INTERNAL) == []
    assert sorted(INTERNAL - constants) == [], "take these off the list"
