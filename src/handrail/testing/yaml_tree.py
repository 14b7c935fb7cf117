"""YAML 1.2 text as a tree in which every part knows its line and column. A date is text, as in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from handrail.errors import ScriptError


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value: `text` as it is written, `value` as JSON has it; `line` and `column` count from 1."""

    text: str
    value: str | int | float | bool | None
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    items: tuple[Tree, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping; one that holds a key twice holds it twice here."""

    entries: tuple[tuple[Tree, Tree], ...]
    line: int
    column: int


Tree = Scalar | Sequence | Mapping
"""A part of the text."""


def read_tree(text: str, *, name: str) -> Tree | None:
    """The tree of a text that holds one document; `None` if it holds nothing. `name` is what errors call the text.

    Raises:
        ScriptError: it is no YAML; the message names line and column.
    """
    try:
        yaml: Any = YAML(typ="safe", pure=True)  # its `compose` declares no types
        root = yaml.compose(text)
    except MarkedYAMLError as error:
        known: Any = error  # ruamel.yaml declares no types for what its errors carry
        mark = known.problem_mark or known.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise ScriptError(f"{where}: {known.problem or known.context}") from error
    except YAMLError as error:
        raise ScriptError(f"{name}: {error}") from error
    return None if root is None else _tree(root, name, ())


def _tree(node: Any, name: str, inside: tuple[Any, ...]) -> Tree:  # noqa: ANN401 - ruamel.yaml declares no types for nodes
    line, column = node.start_mark.line + 1, node.start_mark.column + 1
    if any(node is outer for outer in inside):
        raise ScriptError(f"{name}:{line}:{column}: this value holds itself, by an alias")
    inside = (*inside, node)
    if node.id == "sequence":
        return Sequence(tuple(_tree(item, name, inside) for item in node.value), line, column)
    if node.id == "mapping":
        entries = tuple((_tree(key, name, inside), _tree(value, name, inside)) for key, value in node.value)
        return Mapping(entries, line, column)
    text = str(node.value)
    return Scalar(text, _value(text, str(node.tag).rpartition(":")[2]), line, column)


def _value(text: str, kind: str) -> str | int | float | bool | None:
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    plain = text.replace("_", "").lower()
    if kind == "int":
        return int(plain, 0 if plain.lstrip("+-")[:2] in ("0x", "0o", "0b") else 10)
    if kind == "float":
        return float(plain.replace(".inf", "inf").replace(".nan", "nan"))
    return text
