"""What lives as long as the process: each value of a module that changes says why it is the process's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.architecture.sources import Source, listed, python_sources

REASON = "Of the process"
"""How the docstring of such a value begins, or the comment above it; see `handrail.threads`."""

CHANGING = {
    *("Condition", "Event", "Lock", "RLock", "Semaphore", "local"),
    *("Counter", "OrderedDict", "bytearray", "count", "defaultdict", "deque", "dict", "list", "set"),
    *("Queue", "SimpleQueue", "WeakKeyDictionary", "WeakSet", "WeakValueDictionary"),
}
"""What makes an object that changes."""

TABLES = {"dict", "list", "set", "OrderedDict", "defaultdict"}
"""Those of which most are tables: they change only if something changes them."""

CHANGES = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"),
    *("setdefault", "update"),
}

_Place = ast.Assign | ast.AnnAssign


def test_values_of_modules_that_change_and_no_others_say_why_they_are_the_process_s() -> None:
    """Every other one is an attribute of the object that it belongs to, an argument, or a memo."""
    faults = [
        f"{source.path}:{place.lineno} {name}"
        for source in python_sources("src")
        for name, place, text in _values(source)
        if _is_state(name, place, source) != text.startswith(REASON)
    ]
    assert not faults, listed(faults)


def _values(source: Source) -> Iterator[tuple[str, _Place, str]]:
    """The values of a module: each name with its assignment, and its docstring or the comment above it."""
    lines = source.text.splitlines()
    for place, following in _assignments(source.tree.body):
        text = _text_of(following)
        at = place.lineno - 2
        while not text.startswith(REASON) and lines[at].startswith("# "):
            text, at = lines[at].removeprefix("# "), at - 1
        for target in place.targets if isinstance(place, ast.Assign) else [place.target]:
            yield ast.unparse(target), place, text


def _assignments(body: list[ast.stmt]) -> Iterator[tuple[_Place, ast.stmt | None]]:
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.If | ast.Try):
            yield from _assignments([*statement.body, *statement.orelse])
        elif isinstance(statement, _Place):
            yield statement, following


def _text_of(statement: ast.stmt | None) -> str:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return str(value.value) if isinstance(value, ast.Constant) else ""


def _is_state(name: str, place: _Place, source: Source) -> bool:
    """Whether what a module gives a name to changes."""
    if name in _rebound(source):
        return True
    value = place.value
    if isinstance(value, ast.Attribute):  # a method of what is made there
        value = value.value
    if isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp):
        return name in _changed(source.module)
    if not isinstance(value, ast.Call):
        return False
    maker = _maker(value)
    if maker in TABLES:
        return name in _changed(source.module)
    return maker in CHANGING or (maker in _classes() and _has_state(_classes()[maker]))


def _maker(call: ast.Call) -> str:
    return ast.unparse(call.func).partition("[")[0].rpartition(".")[2]


@cache
def _rebound(source: Source) -> set[str]:
    return {name for node in ast.walk(source.tree) if isinstance(node, ast.Global) for name in node.names}


@cache
def _changed(module: str) -> set[str]:
    """The names of tables that a module changes, or that modules change which import them from it."""
    return {
        name
        for source in python_sources("src")
        for name in _names_changed_in(source)
        if source.module == module or (module, name) in _imported(source)
    }


@cache
def _imported(source: Source) -> set[tuple[str, str]]:
    nodes = (node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom))
    return {(node.module or "", alias.name) for node in nodes for alias in node.names}


@cache
def _names_changed_in(source: Source) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(source.tree):
        changed: ast.AST | None = None
        if (isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)) or (
            isinstance(node, ast.Attribute) and node.attr in CHANGES
        ):
            changed = node.value
        elif isinstance(node, ast.AugAssign):
            changed = node.target
        if isinstance(changed, ast.Name):
            names.add(changed.id)
    return frozenset(names)


@cache
def _classes() -> dict[str, ast.ClassDef]:
    nodes = (node for source in python_sources("src") for node in ast.walk(source.tree))
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def _has_state(kind: ast.ClassDef) -> bool:
    """Whether its objects change: a method sets an attribute of them, or they begin with something that changes."""
    methods = [node for node in kind.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    begins = [node for node in methods if node.name in {"__init__", "__new__", "__post_init__"}]
    return any(_sets_attribute(node) for method in methods if method not in begins for node in ast.walk(method)) or any(
        isinstance(node, ast.Assign | ast.AnnAssign) and _makes_state(node.value)
        for method in begins
        for node in ast.walk(method)
    )


def _sets_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"


def _makes_state(value: ast.expr | None) -> bool:
    is_call = isinstance(value, ast.Call) and _maker(value) in CHANGING
    return is_call or isinstance(value, ast.Dict | ast.List | ast.Set)
