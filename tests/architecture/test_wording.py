"""The texts of messages are asserted in `tests/wording.txt`, so that a change of wording touches that file alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.sources import listed, python_sources

_RUN = 4
"""So many words of a text of the library make an assertion one about its wording."""

_NO_WORDING = {
    "ended with exit code": "what pytest prints of a worker",
    "The number of the": "what a test says of its own tool",
    "is to be done.": "what a test says of its own tool",
    "are those of the": "a promise of an example",
    "the completion check of": "an attribute of ReadOnlyViolation",
    "write to the database": "an attribute of ReadOnlyViolation",
}
"""Runs of words that a test may assert, with what they are."""

_WORD = re.compile(r"[^\w\s]*[A-Za-z][a-z']*[^\w\s]*")

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Each text in a tree that is no docstring, in parts where values stand in it, with its line."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, _Documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def runs_of_words(text: str) -> Iterator[str]:
    """Each run of words in a text that has the length which counts."""
    words = text.replace("\\", "").split()
    for start in range(len(words) - _RUN + 1):
        run = words[start : start + _RUN]
        if all(map(_WORD.fullmatch, run)):
            yield " ".join(run)


def asserted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Each text in an assertion, or in a pattern that the text of an exception has to match."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield from texts(node.test)
        elif isinstance(node, ast.Call):
            yield from (found for word in node.keywords if word.arg == "match" for found in texts(word.value))


def test_no_test_asserts_the_wording_of_the_library() -> None:
    """What a test says of a text beside `tests/wording.txt` would change with it: it asserts attributes."""
    library = {run for source in python_sources("src") for _, text in texts(source.tree) for run in runs_of_words(text)}
    library -= set(_NO_WORDING)
    faults = [
        f"{source.path}:{line}: {run!r} is wording of the library; compare the whole text with the fixture `wording`"
        for source in python_sources("tests")
        for line, text in asserted(source.tree)
        if (run := next((run for run in runs_of_words(text) if run in library), None)) is not None
    ]
    assert not faults, listed(faults)
