"""The shape of the source files: how long, how named, how documented, and what must not stand in any of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

import pytest

from tests.architecture.sources import Source, listed, python_sources, text_files

MAX_FILE_LINES = 600
MIN_MODULE_LINES = 60
MAX_FUNCTION_LINES = 50
NAMES_THAT_SAY_NOTHING = {"base", "common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}

SHORT_MODULES = {
    "__main__.py": "the entry point of `python -m handrail`",
    "cli/backup.py": "one command",
    "cli/pages.py": "one command",
    "clock.py": "one protocol, below everything",
    "crash_points.py": "one list, below everything",
    "lazy_exports.py": "one function, below everything",
    "testing/fixtures.py": "one fixture, which pytest loads everywhere",
}
"""Modules of the library under 60 lines, with the reason why each is one."""

WITH_LOGGERS = {
    "redaction.py": "makes the loggers that write no secrets",
    "cli/application.py": "adds handlers, and logs nothing",
    "cli/worker.py": "has what workers log written to standard error, and logs nothing",
    "cli/screen.py": "adds a handler, and logs nothing",
}
"""Modules of the library that may name a logger themselves, with the reason why each does."""

_LOGGING = {"getLogger", "Logger", "LoggerAdapter", "log", "debug", "info", "warning", "error", "critical", "exception"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = Function | ast.ClassDef

# Written so that no pattern matches itself.
FORBIDDEN_TEXT = {
    "host of a package registry": r"pypi[.]org|pythonhosted[.]org|registry[.]npmjs|registry[.]yarnpkg|npmmirror[.]com",
    "option or path of a package registry": r"--(extra-)?index[-]url|/simpl[e]/",
    "path of one machine": r"(?<!>)/roo[t]/|/hom[e]/\w|/Users[/]\w|/wor[k]/(main|shared)\b|/tmp/[v]/",
}

NOT_IN_TESTS = {
    "unittest.mock": "write a fake that implements the interface, as those of handrail.testing",
    **dict.fromkeys(
        ("pytest.skip", "pytest.importorskip", "pytest.mark.skipif"), "`make setup` installs what it needs"
    ),
    **dict.fromkeys(("pytest.mark.skip", "pytest.xfail", "pytest.mark.xfail"), "fix what it is about, or remove it"),
    "time.sleep": "wait for an event, a thread, a process or a file descriptor, or set the clock",
    "time.perf_counter": "measure in `make bench`; a test that hangs fails by its timeout",
}
"""What tests do not use, and what they do in its place."""

_LAST_WORDS = {name.rpartition(".")[2] for name in NOT_IN_TESTS}
_CLOCKS = {"time.time", "time.monotonic", "monotonic"}


def test_no_file_is_longer_than_a_reader_takes_in() -> None:
    """A file has at most 600 lines; there is no list of exceptions."""
    lengths = [(source.path, source.text.count("\n")) for source in python_sources()]
    long = [f"{path}: {length} lines" for path, length in lengths if length > MAX_FILE_LINES]
    assert not long, listed(long)


def test_no_module_is_too_short_to_be_an_idea() -> None:
    """A module of the library has at least 60 lines, or a reason; what a package exports is no module."""
    modules = [source for source in python_sources("src") if source.path.name != "__init__.py"]
    found = [source.path for source in modules if source.text.count("\n") < MIN_MODULE_LINES]
    short = {path.relative_to("src/handrail").as_posix() for path in found}
    assert sorted(short - SHORT_MODULES.keys()) == []
    assert sorted(SHORT_MODULES.keys() - short) == [], "take these off the lists"


def test_no_function_is_longer_than_a_page() -> None:
    """A function has at most 50 lines from `def` to its end, its docstring not counted; no list of exceptions."""
    long = [
        f"{source.path}:{node.lineno} {node.name}: {_code_lines(node)} lines"
        for source in python_sources()
        for node in _statements(source.tree)
        if isinstance(node, Function) and _code_lines(node) > MAX_FUNCTION_LINES
    ]
    assert not long, listed(long)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All that may hold a statement; expressions, which are most of a tree, are not looked into."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from _statements(child)


def test_every_module_is_named_after_what_it_owns() -> None:
    """A name such as `utils` says nothing; it grows for ever."""
    named = [source.path for source in python_sources()]
    assert [str(path) for path in named if NAMES_THAT_SAY_NOTHING & {*path.with_suffix("").parts}] == []


def test_every_public_name_of_the_library_says_what_it_means() -> None:
    """Modules, classes, functions, methods and module-level values have a docstring."""
    silent = [place for source in python_sources("src") for place in _undocumented(source)]
    assert not silent, listed(silent)


def test_every_logger_of_the_library_writes_no_secrets() -> None:
    """It is made by `redacted_logger`; a module that asks `logging` for one, or logs by it, would write them."""
    faults = [
        f"{source.path}:{node.lineno}: use redacted_logger of handrail.redaction"
        for source in python_sources("src")
        if "/".join(source.path.parts[2:]) not in WITH_LOGGERS
        for node in source.nodes
        if _asks_for_logger(node)
    ]
    assert not faults, listed(faults)
    assert any(_asks_for_logger(node) for node in ast.walk(ast.parse("import logging\nlogging.getLogger('a')")))
    assert any(_asks_for_logger(node) for node in ast.walk(ast.parse("from logging import getLogger")))


def _asks_for_logger(node: ast.AST) -> TypeGuard[ast.Attribute | ast.ImportFrom]:
    if isinstance(node, ast.ImportFrom):
        return node.module == "logging" and any(name.name in _LOGGING for name in node.names)
    if not isinstance(node, ast.Attribute) or node.attr not in _LOGGING:
        return False
    return isinstance(node.value, ast.Name) and node.value.id == "logging"


def test_tests_have_no_mocks_sleeps_skips_and_timed_assertions() -> None:
    """They would hold without the code that they are about, or depend on how fast the machine is."""
    faults = [
        f"{source.path}:{line} {name}: {cure}"
        for source in python_sources("tests")
        for node in source.nodes
        for name, line, cure in _not_in_tests(node)
    ]
    assert not faults, listed(faults)


@pytest.mark.parametrize(
    "line", ["import unittest.mock", "from time import sleep", "pytest.skip('no')", "assert time.time() - begun < 1"]
)
def test_what_is_not_in_tests_is_found(line: str) -> None:
    """However it is written."""
    assert [found for node in ast.walk(ast.parse(line)) for found in _not_in_tests(node)]


def _not_in_tests(node: ast.AST) -> Iterator[tuple[str, int, str]]:
    """The names of a node that tests do not use, each with its line and what to do in its place."""
    named: list[str] = []
    if isinstance(node, ast.Import):
        named = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        named = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    elif isinstance(node, ast.Attribute) and node.attr in _LAST_WORDS:
        named = [ast.unparse(node)]
    elif isinstance(node, ast.Assert) and any(map(_asks_a_clock, ast.walk(node))):
        yield "an assertion about the clock of the machine", node.lineno, NOT_IN_TESTS["time.perf_counter"]
    yield from ((name, getattr(node, "lineno", 0), NOT_IN_TESTS[name]) for name in named if name in NOT_IN_TESTS)


def _asks_a_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return False
    return ast.unparse(node.func) in _CLOCKS


def test_no_file_holds_the_address_of_a_registry_or_the_path_of_a_machine() -> None:
    """The repository installs from whatever registry a machine is set up for, wherever it is cloned."""
    found = [
        f"{path}:{number} {what}: {line.strip()[:80]}"
        for path, text in text_files()
        for number, line in enumerate(text.splitlines(), start=1)
        for what, pattern in FORBIDDEN_TEXT.items()
        if re.search(pattern, line)
    ]
    assert not found, listed(found)


def _code_lines(node: Function) -> int:
    docstring = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
    documented = _last_line(docstring) - docstring.lineno + 1 if docstring else 0
    return _last_line(node) - node.lineno + 1 - documented


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _undocumented(source: Source) -> Iterator[str]:
    if ast.get_docstring(source.tree) is None:
        yield f"{source.path}: the module"
    for name, line in (*_silent_definitions(source.tree), *_silent_values(source.tree)):
        yield f"{source.path}:{line} {name}"


def _silent_definitions(holder: ast.Module | ast.ClassDef) -> Iterator[tuple[str, int]]:
    for node in holder.body:
        if not isinstance(node, Documented) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None and not _is_overload(node):
            yield node.name, node.lineno
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{name}", line) for name, line in _silent_definitions(node))


def _silent_values(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.Assign | ast.AnnAssign) and not (_is_string(after) or _is_type_variable(node.value)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            yield from ((name, node.lineno) for name in names if not name.startswith("_"))


def _is_string(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_type_variable(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {"TypeVar", "ParamSpec", "TypeVarTuple"}


def _is_overload(node: Documented) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id == "overload" for decorator in node.decorator_list)


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

Holder = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Each text in a tree that is no docstring, in parts where values stand in it, with its line."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, Holder) and node.body and isinstance(node.body[0], ast.Expr)
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
