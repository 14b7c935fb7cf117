"""The list of requirements and the markers of the tests, held to each other.

The markers are read from the sources, so the whole list is checked whichever tests a run has picked.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from tests.architecture.sources import Source, listed, python_sources
from tests.requirements import REQUIREMENTS

KNOWN = [requirement.id for requirement in REQUIREMENTS]


def test_ids_are_well_formed_and_given_once() -> None:
    """An id is a letter for its list, two digits for the row, and a letter where a row has several outcomes."""
    assert [key for key in KNOWN if not re.fullmatch(r"[A-Z]-\d\d[a-z]?", key)] == []
    assert [key for key, times in Counter(KNOWN).items() if times > 1] == []
    assert [one.id for one in REQUIREMENTS if not (one.source.strip() and one.behaviour.strip())] == []


def test_every_requirement_is_shown_by_a_test() -> None:
    """A requirement without a test is a wish."""
    marked = {key for source in _test_files() for key, _ in _marks(source)}
    missing = [f"{one.id} {one.behaviour}" for one in REQUIREMENTS if one.id not in marked]
    assert not missing, listed(missing)


def test_every_marker_names_known_requirements() -> None:
    """A marker with a mistyped id would show nothing."""
    unknown = [
        f"{source.path}:{line} {key}" for source in _test_files() for key, line in _marks(source) if key not in KNOWN
    ]
    assert not unknown, listed(unknown)


def test_every_marker_stands_on_a_test() -> None:
    """A marker on a function that is not collected would show nothing."""
    idle = [
        f"{source.path}:{node.lineno} {node.name}"
        for source in python_sources("tests")
        for node in source.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and any(_is_mark(decorator) for decorator in node.decorator_list)
        and not (source in _test_files() and node.name.lower().startswith("test"))
    ]
    assert not idle, listed(idle)


def _test_files() -> list[Source]:
    return [source for source in python_sources("tests") if source.path.name.startswith("test_")]


def _marks(source: Source) -> Iterator[tuple[str, int]]:
    """The ids of every `pytest.mark.requirement(...)` in the file; anything but text counts as an unknown id."""
    for node in source.nodes:
        if _is_mark(node) and isinstance(node, ast.Call):
            for argument in node.args:
                yield str(argument.value if isinstance(argument, ast.Constant) else ast.unparse(argument)), node.lineno


def _is_mark(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "requirement"
        and ast.unparse(node.func) == "pytest.mark.requirement"
    )
