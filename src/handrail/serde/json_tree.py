"""JSON text as a tree in which every part knows its line and column, for documents that people write.

The text must be JSON as RFC 8259 defines it. A key may stand twice, which the reader of a document reports. Values nest
at most `MAX_JSON_TREE_DEPTH` deep.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from handrail.errors import DocumentError

MAX_JSON_TREE_DEPTH = 64
"""How deeply values may nest; the reader calls itself for each level."""

_BLANKS = re.compile(r"[ \t\r\n]*")
_LINE_BREAK = re.compile(r"\r\n?|\n")
_SCALAR = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null')
_LONGEST_NUMBER = 1_000


@dataclass(frozen=True, slots=True)
class JsonScalar:
    """A text, number, boolean or null; `line` and `column` count from 1."""

    value: str | int | float | bool | None
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class JsonArray:
    """A list."""

    items: tuple[JsonNode, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object: keys, each with its own position, and values. A key that stands twice is here twice."""

    entries: tuple[tuple[JsonScalar, JsonNode], ...]
    line: int
    column: int


JsonNode = JsonScalar | JsonArray | JsonObject
"""A part of the text."""


def read_json_tree(text: str, *, file: str, refusal: type[DocumentError] = DocumentError) -> JsonNode:
    """The tree of a JSON text.

    Args:
        text: the text; a byte order mark before it is left out.
        file: what errors call it.
        refusal: makes the errors.

    Raises:
        DocumentError: it is not JSON; made by `refusal`.
    """
    reader = _TreeReader(text.removeprefix("\ufeff"), file, refusal)
    return reader.document()


class _TreeReader:
    """Reads one text from its beginning to its end; `_at` is the position of the next character."""

    def __init__(self, text: str, file: str, refusal: type[DocumentError]) -> None:
        self._text = text
        self._file = file
        self._refusal = refusal
        self._at = 0
        self._starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text))]

    def document(self) -> JsonNode:
        self._skip_blanks()
        if self._at == len(self._text):
            self._fail("the file is empty; it is to be a JSON object")
        tree = self._value(1)
        self._skip_blanks()
        if self._at < len(self._text):
            self._fail("more follows after the end of the JSON value; remove it")
        return tree

    def _value(self, depth: int) -> JsonNode:
        if depth > MAX_JSON_TREE_DEPTH:
            self._fail(f"values nest more than {MAX_JSON_TREE_DEPTH} deep; write a flatter value")
        opening = self._text[self._at : self._at + 1]
        line, column = self._position()
        if opening == "{":
            return JsonObject(self._entries(depth), line, column)
        if opening == "[":
            return JsonArray(self._items(depth), line, column)
        return self._scalar("a value")

    def _scalar(self, due: str) -> JsonScalar:
        line, column = self._position()
        match = _SCALAR.match(self._text, self._at)
        if match is None:
            rest = self._text[self._at : self._at + 1]
            if rest == '"':
                self._fail("the text is not closed, or has a line break or control character; write \\n and \\u001f")
            self._fail(f"{due} is due here, and {rest!r} stands here" if rest else f"{due} is due here, at the end")
        if match[0][0] != '"' and len(match[0]) > _LONGEST_NUMBER:
            self._fail(f"the number has more than {_LONGEST_NUMBER:,} characters")
        try:
            value = json.loads(match[0])
        except ValueError:
            self._fail("the text has an escape that JSON does not have; write \\\\ for a backslash")
        self._at = match.end()
        return JsonScalar(value, line, column)

    def _items(self, depth: int) -> tuple[JsonNode, ...]:
        items: list[JsonNode] = []
        while self._more("]", first=not items):
            items.append(self._value(depth + 1))
        return tuple(items)

    def _entries(self, depth: int) -> tuple[tuple[JsonScalar, JsonNode], ...]:
        entries: list[tuple[JsonScalar, JsonNode]] = []
        while self._more("}", first=not entries):
            if self._text[self._at : self._at + 1] != '"':
                self._fail("a key in double quotes is due here")
            key = self._scalar("a key")
            self._skip_blanks()
            if self._text[self._at : self._at + 1] != ":":
                self._fail("a colon is due here, after the key")
            self._at += 1
            self._skip_blanks()
            entries.append((key, self._value(depth + 1)))
        return tuple(entries)

    def _more(self, closing: str, *, first: bool) -> bool:
        """Whether another item follows; moves to it, or behind the closing bracket."""
        if first:
            self._at += 1  # the opening bracket
        self._skip_blanks()
        here = self._text[self._at : self._at + 1]
        if here == closing:
            self._at += 1
            return False
        if first:
            return True
        if here != ",":
            self._fail(f"a comma or {closing!r} is due here")
        self._at += 1
        self._skip_blanks()
        if self._text[self._at : self._at + 1] == closing:
            self._fail(f"the comma before {closing!r} is too many; remove it")
        return True

    def _skip_blanks(self) -> None:
        self._at = cast("re.Match[str]", _BLANKS.match(self._text, self._at)).end()

    def _position(self) -> tuple[int, int]:
        line = bisect_right(self._starts, self._at)
        return line, self._at - self._starts[line - 1] + 1

    def _fail(self, message: str) -> NoReturn:
        line, column = self._position()
        raise self._refusal(message, file=self._file, line=line, column=column)


def node_kind(node: JsonNode) -> str:
    """What a part is, in words: `a list`, `a number`."""
    if isinstance(node, JsonObject):
        return "an object"
    if isinstance(node, JsonArray):
        return "a list"
    kinds: dict[type[Any], str] = {str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(node.value), "null")
