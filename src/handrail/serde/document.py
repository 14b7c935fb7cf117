"""Reading of documents that people write: regular files of at most a million bytes, in UTF-8, with YAML in them.

A folder, a pipe or a device in place of a document is refused at once. YAML 1.2 is read as a tree in which every part
knows its line and column, and which holds what JSON can say:

- one document; no aliases, no tags (`!!int`), no directives but `%YAML 1.2`;
- a key has at most 1024 characters with its quotes and escapes, as in YAML, unless it is written after `? `;
- `on`, `yes`, dates, and numbers with underscores are text;
- U+0085, U+2028 and U+2029 break lines, as in YAML 1.1, because ruamel.yaml reads them so; escaped, they do not;
- values nest at most `MAX_YAML_DEPTH` deep; a deeper text is refused before it exhausts the stack.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handrail.errors import DocumentError
from handrail.serde.formatting import shorten
from handrail.waiting import check_blocking

try:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.events import AliasEvent, CollectionEndEvent, DocumentStartEvent, MappingStartEvent, ScalarEvent
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"reading YAML needs {_error.name}, which is not installed: pip install 'handrail[agents]'", name=_error.name
    ) from _error

LARGEST = 1_000_000
"""How many bytes a document may have."""

_LINE_BREAK = re.compile(r"\r\n?|\n")

MAX_YAML_DEPTH = 64
"""How deeply values may nest; what reads a tree recursively stays far below the stack's limit."""

_LONGEST_NUMBER = 1_000
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # YAML 1.2.2, rule 1
_STEP = re.compile(r'\.([^.\[\]]+)|\[("(?:[^"\\]|\\.)*"|[0-9]+)\]')
_COLON = "mapping values are not allowed here"
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?(?:0b[01]+|0o[0-7]+|0x[0-9a-fA-F]+|[0-9]+)")
_REAL = re.compile(r"[-+]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)")


@dataclass(frozen=True, slots=True)
class YamlScalar:
    """A single value: `text` as it is written, `value` as JSON has it; `line` and `column` count from 1."""

    text: str
    value: str | int | float | bool | None
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class YamlList:
    """A list."""

    items: tuple[YamlNode, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class YamlMap:
    """A mapping; one that holds a key twice holds it twice here."""

    entries: tuple[tuple[YamlNode, YamlNode], ...]
    line: int
    column: int


YamlNode = YamlScalar | YamlList | YamlMap
"""A part of the text."""


ErrorFactory = Callable[..., DocumentError]
"""Makes the error for a fault of a document, as `DocumentError` does: that class, or one of its subclasses."""


# ---------------------------------------------------------------------------------------------------------- the files


def read_document(path: Path, *, file: str, what: str, refusal: ErrorFactory = DocumentError) -> str:
    """Reads the text of a document.

    Args:
        path: of the file.
        file: the file in errors.
        what: what it is to be, as a sentence without its stop: `an agent file is a text file`.
        refusal: makes the error.

    Raises:
        DocumentError: as `refusal` makes it: the file does not exist or cannot be read, is not a regular file, has more
            than a million bytes, or is not UTF-8.
    """
    check_blocking("reading", path)
    try:
        return _read(path, file=file, what=what, refusal=refusal)
    except FileNotFoundError as error:
        # `stat` follows links, so that the missing file may be what a link leads to.
        if path.is_symlink():
            raise refusal("this is a link that leads nowhere; fix or remove it", file=file) from error
        raise refusal("the file does not exist", file=file) from error
    except OSError as error:
        raise refusal(f"the file cannot be read: {error.strerror}", file=file) from error
    except ValueError as error:
        # `DocumentError` is a ValueError, and has said already what is wrong.
        if isinstance(error, DocumentError):
            raise
        path_text = shorten(repr(file), 120)  # a NUL in the path
        raise refusal(f"this cannot be the path of a file: {error}", file=path_text) from error


def _read(path: Path, *, file: str, what: str, refusal: ErrorFactory) -> str:
    # Before the file is opened: opening a pipe waits until another process writes to it.
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        if not stat.S_ISDIR(mode):
            raise refusal(f"this is a device or pipe; {what}", file=file)
        raise refusal(f"this is a folder; {what}", file=file)
    with path.open("rb") as handle:
        # One byte more than is allowed shows that there is more. The size that `stat` gives may have changed since.
        content = handle.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise refusal(f"the file has more than {LARGEST:,} bytes; {what} of that size at most", file=file)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        # All before the fault is valid UTF-8, so that line and column count characters, as editors do.
        before = _LINE_BREAK.split(content[: error.start].decode("utf-8"))
        text = f"the byte 0x{content[error.start]:02X} is not UTF-8; save the file as UTF-8"
        raise refusal(text, file=file, line=len(before), column=len(before[-1]) + 1) from error


# ----------------------------------------------------------------------------------------------------------- the tree


def read_tree(text: str, *, name: str, first_line: int = 1, refusal: ErrorFactory = DocumentError) -> YamlNode | None:
    """The tree of a text, which begins at `first_line` of its file and holds one document; `None` if it is empty.

    Raises:
        DocumentError: it is not YAML, or more than is read here; made by `refusal`.
    """
    place = _Place(name, first_line, refusal)
    # Before ruamel.yaml, whose error for such a character has a position, and neither a line nor a mark.
    if (unprintable := first_unprintable(text)) is not None:
        line, column, words = unprintable
        raise place.fault(f"{words}; remove it, or write it as an escape in double quotes", line, column)
    return _Reader(place, _events(text, place)).tree()


def first_unprintable(text: str) -> tuple[int, int, str] | None:
    """The first character that YAML does not allow, as NUL: line, column and words."""
    if (match := _UNPRINTABLE.search(text)) is None:
        return None
    lines = re.split("\r\n?|\n", text[: match.start()])
    return len(lines), len(lines[-1]) + 1, f"the character U+{ord(match[0]):04X} is not allowed in YAML"


def node_at(root: YamlNode, path: str, *, is_key: bool = False) -> YamlNode:
    """The part at a path such as `$.replies[1]`, or the last one above it that there is; `is_key` for a key itself."""
    node = root
    for match in _STEP.finditer(path):
        step = match[1] or json.loads(match[2])
        if isinstance(node, YamlList):
            node = node.items[int(step)]
            continue
        pairs = node.entries if isinstance(node, YamlMap) else ()
        pair = next((pair for pair in pairs if isinstance(pair[0], YamlScalar) and pair[0].text == step), None)
        if pair is None:
            return node
        node = pair[0] if is_key and match.end() == len(path) else pair[1]
    return node


@dataclass(frozen=True, slots=True)
class _Place:
    file: str
    first_line: int
    refusal: ErrorFactory

    def fault(self, message: str, line: int, column: int) -> DocumentError:
        return self.refusal(message, file=self.file, line=line + self.first_line - 1, column=column)

    def of(self, mark: Any) -> tuple[int, int]:  # noqa: ANN401 - ruamel.yaml declares no types for marks
        return mark.line + self.first_line, mark.column + 1

    def fault_at(self, mark: Any, message: str) -> DocumentError:  # noqa: ANN401 - as above
        return self.fault(message, mark.line + 1, mark.column + 1)


def _events(text: str, place: _Place) -> Iterator[Any]:
    yaml: Any = YAML(typ="safe", pure=True)  # `parse` declares no types
    events = yaml.parse(text)
    mark: Any = None
    try:
        for event in events:
            mark = event.start_mark
            yield event
    except MarkedYAMLError as error:
        known_keys: Any = error  # nor do the errors
        at = known_keys.problem_mark or known_keys.context_mark or mark
        raise place.fault_at(at, _problem(text, known_keys, at)) from error
    # These have no mark, so that the last event stands for the place.
    except (ValueError, OverflowError) as error:  # an escape beyond Unicode, a version of thousands of digits
        raise place.fault_at(mark, "an escape or a directive from here on is out of range") from error


def _problem(text: str, error: Any, mark: Any) -> str:  # noqa: ANN401 - as in `_events`
    if text[mark.index : mark.index + 1] == "\t":
        return "a tab stands where YAML takes only spaces; indent with spaces"
    words = [str(error.problem or error.context)]
    if words[0] == _COLON:
        words.append("text that holds ': ' is put in quotes")
    return "; ".join(words)


class _Reader:
    def __init__(self, place: _Place, events: Iterator[Any]) -> None:
        self._place = place
        self._events = events

    def tree(self) -> YamlNode | None:
        root: YamlNode | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                self._begin(event, root)
            elif hasattr(event, "anchor"):  # of a node
                root = self._node(event, 0, None)
        return root

    def _begin(self, event: Any, root: YamlNode | None) -> None:  # noqa: ANN401 - ruamel.yaml declares no types
        if root is not None:
            raise self._place.fault_at(event.start_mark, "but found another document; there can be only one")
        if event.tags or event.version not in (None, (1, 2)):
            fault = "directives are not read here, and the text is YAML 1.2; remove the lines with %"
            raise self._place.fault_at(event.start_mark, fault)

    def _node(self, event: Any, above: int, key: YamlNode | None) -> YamlNode:  # noqa: ANN401 - ruamel.yaml declares no types
        anchor, mark = event.anchor, event.start_mark
        if isinstance(event, AliasEvent):
            fault = f"the alias *{shorten(anchor, 60)} is not read here; write the value again, or put text in quotes"
            raise self._place.fault_at(mark, fault)
        if event.tag is not None:
            fault = f"the tag {shorten(event.tag, 60)!r} is not read here; put text in quotes, and leave the rest bare"
            raise self._place.fault_at(event.start_mark, fault)
        return self._scalar(event, key) if isinstance(event, ScalarEvent) else self._parts(event, above + 1)

    def _parts(self, event: Any, levels: int) -> YamlNode:  # noqa: ANN401 - as above
        if levels > MAX_YAML_DEPTH:
            raise self._place.fault_at(event.start_mark, f"values nest more than {MAX_YAML_DEPTH} deep")
        is_mapping = isinstance(event, MappingStartEvent)
        # Keys and values in turn, as the events come; the parser has put an empty value where none stands.
        parts: list[YamlNode] = []
        while not isinstance(part := next(self._events), CollectionEndEvent):
            parts.append(self._node(part, levels, parts[-1] if is_mapping and len(parts) % 2 else None))
        at = self._place.of(event.start_mark)
        if is_mapping:
            return YamlMap(tuple(zip(parts[::2], parts[1::2], strict=True)), *at)
        return YamlList(tuple(parts), *at)

    def _scalar(self, event: Any, key: YamlNode | None) -> YamlScalar:  # noqa: ANN401 - as above
        try:
            # JSON writes such a character as two surrogates, which are one in UTF-16. A lone one cannot be decoded.
            text = str(event.value).encode("utf-16", "surrogatepass").decode("utf-16")
            value = _value(text) if event.implicit[0] else text  # implicit: neither in quotes nor a block of text
        except UnicodeDecodeError:
            fault = "this text holds half a character, a lone surrogate; write the whole one"
            raise self._place.fault_at(event.start_mark, fault) from None
        except ValueError as error:
            raise self._place.fault_at(event.start_mark, str(error)) from None
        if value is None and not text and key is not None:  # the mark is that of what comes next
            return YamlScalar(text, value, key.line, key.column)
        return YamlScalar(text, value, *self._place.of(event.start_mark))


def _value(text: str) -> str | int | float | bool | None:
    if text in _NULL:
        return None
    # `yes` and `on` are text in YAML 1.2, so that they are not here.
    if _BOOLEAN.fullmatch(text):
        return text.lower() == "true"
    integer = _INTEGER.fullmatch(text)
    if not integer and not _REAL.fullmatch(text):
        return text
    # Before `int`, whose time grows with the square of the digits, and which refuses more than 4,300 of them.
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number has at most {_LONGEST_NUMBER} characters; put text in quotes")
    if integer:
        # Base 0 knows the prefixes, but refuses `010`, which is ten in YAML 1.2.
        return int(text, 0 if text.lstrip("+-")[:2] in ("0x", "0o", "0b") else 10)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
