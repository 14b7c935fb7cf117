"""What lives as long as the process: each value of a module that changes says why it is the process's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import Source, listed, python_sources

REASON = "Of the process"
"""How the docstring of such a value begins, or the comment above it; see `handrail.threads`."""

CHANGING = {
    *("Condition", "Event", "Lock", "RLock", "Semaphore", "local", "OpenFolders", "ThreadCache", "_Session"),
    *("Counter", "OrderedDict", "bytearray", "count", "defaultdict", "deque"),
    *("Queue", "SimpleQueue", "WeakKeyDictionary", "WeakSet", "WeakValueDictionary"),
}
"""What makes an object that changes."""

CHANGES = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"),
    *("setdefault", "update"),
}


def test_values_of_modules_that_change_and_no_others_say_why_they_are_the_process_s() -> None:
    """Every other one is an attribute of the object that it belongs to, an argument, or a memo."""
    faults = [
        f"{source.path}:{place.lineno} {name}"
        for source in python_sources("src")
        for changed in [set(_changed_names(source))]
        for name, place, text in _values(source)
        if (name in changed or _maker(place.value) in CHANGING) != text.startswith(REASON)
    ]
    assert not faults, listed(faults)


def _values(source: Source) -> Iterator[tuple[str, ast.Assign | ast.AnnAssign, str]]:
    """The values of a module: each name with its assignment, and its docstring or the comment above it."""
    lines, body = source.text.splitlines(), source.tree.body
    for place, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(place, ast.Assign | ast.AnnAssign):
            continue
        is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        text = str(ast.literal_eval(following.value)) if is_text and isinstance(following, ast.Expr) else ""
        at = place.lineno - 2
        while not text.startswith(REASON) and lines[at].startswith("# "):
            text, at = lines[at].removeprefix("# "), at - 1
        for target in place.targets if isinstance(place, ast.Assign) else [place.target]:
            yield ast.unparse(target), place, text


def _maker(value: ast.expr | None) -> str:
    call = value.value if isinstance(value, ast.Attribute) else value  # a method of what is made there
    return ast.unparse(call.func).partition("[")[0].rpartition(".")[2] if isinstance(call, ast.Call) else ""


def _changed_names(source: Source) -> Iterator[str]:
    """The names that a module binds again, and those of tables that it changes."""
    for node in source.nodes:
        if isinstance(node, ast.Global):
            yield from node.names
        elif (isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)) or (
            isinstance(node, ast.Attribute) and node.attr in CHANGES
        ):
            yield ast.unparse(node.value)
        elif isinstance(node, ast.AugAssign):
            yield ast.unparse(node.target)
