"""The result of a handler, its parts, and its text for the model."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import AsyncGeneratorType, GeneratorType, NoneType
from typing import Any, Generic, Literal, Never, TypeAlias, TypeVar, cast, get_args, get_origin, overload

from typing_extensions import is_typeddict

from handrail.errors.developer import InvalidArgumentError, check_argument
from handrail.redaction import redacted_logger
from handrail.serde import dump, result_codec, stored_codec
from handrail.serde.annotations import is_union, strip_annotated, subscriptable
from handrail.serde.formatting import type_name
from handrail.serde.json_values import escape_surrogates, is_decoded
from handrail.serde.secrets import partial_json

_KB = 1_000
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text."""

    text: str

    def __str__(self) -> str:
        """The text."""
        return self.text


@dataclass(frozen=True, slots=True)
class BinaryPart:
    """An image, or another file.

    Attributes:
        media_type: as `image/png` or `application/pdf`.

    Raises:
        InvalidArgumentError: the data are not bytes, or the media type is not one.
    """

    data: bytes
    media_type: str

    def __post_init__(self) -> None:
        check_argument("BinaryPart", "data", self.data, bytes, "bytes")
        media_type = cast("object", self.media_type)
        if not isinstance(media_type, str) or not all(media_type.partition("/")):
            expected = "a media type: image/png"
            raise InvalidArgumentError(
                function="BinaryPart", argument="media_type", value=media_type, expected=expected
            )

    def __str__(self) -> str:
        """The text in its place: `[image/png, 12 kB]`."""
        return describe_file(self.media_type, len(self.data))

    @property
    def base64(self) -> str:
        """The bytes in base64, as the APIs of providers take them."""
        from base64 import b64encode  # noqa: PLC0415

        return b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        """A URL that holds the bytes: `data:image/png;base64,...`."""
        return f"data:{self.media_type};base64,{self.base64}"


ContentPart: TypeAlias = TextPart | BinaryPart
"""A part of the content of a result."""

# Known by its name, because the core does not import PydanticAI.
_FILE_OF_PYDANTIC_AI = ("pydantic_ai.messages", "BinaryContent")


def is_file_type(kind: object) -> bool:
    """Returns whether it is a class of files: `BinaryPart`, or `BinaryContent` of PydanticAI."""
    if not isinstance(kind, type):
        return False
    names = {(base.__module__, base.__qualname__) for base in kind.__mro__}
    return issubclass(kind, BinaryPart) or _FILE_OF_PYDANTIC_AI in names


def collect_file_parts(value: object) -> tuple[ContentPart, ...]:
    """The parts in a returned value: a file, or a list or tuple of files and text; empty for any other value.

    Raises:
        InvalidArgumentError: a file of PydanticAI has no valid media type.
    """
    items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)
    # By their types, of which a long list has few.
    kinds = set(map(type, items))
    files = {kind for kind in kinds if is_file_type(kind)}
    if not files or not all(issubclass(kind, str | TextPart) for kind in kinds - files):
        return ()
    return tuple(map(_as_part, items))


def _as_part(item: Any) -> ContentPart:  # noqa: ANN401 - a part, text, or a file of PydanticAI
    if isinstance(item, TextPart | BinaryPart):
        return item
    return TextPart(item) if isinstance(item, str) else BinaryPart(item.data, item.media_type)


def describe_file(media_type: str, size: int) -> str:
    """The text in the place of a file of so many bytes: `[image/png, 12 kB]`."""
    for unit, name in ((_MB, "MB"), (_KB, "kB")):
        if size >= unit:
            return f"[{media_type}, {size / unit:.0f} {name}]"
    return f"[{media_type}, {size} bytes]"


def dump_parts(parts: Sequence[ContentPart]) -> list[dict[str, str]]:
    """Parts as JSON."""
    return [dump(part) for part in parts]


def load_parts(data: Sequence[Mapping[str, Any]]) -> tuple[ContentPart, ...]:
    """Loads what `dump_parts` wrote.

    Raises:
        ValueError: it is something else.
    """
    items: Any = data  # not an object, for which `parse` is typed
    return stored_codec(tuple[ContentPart, ...]).parse(items) if data else ()


T_co = TypeVar("T_co", covariant=True)
V = TypeVar("V")
_log = redacted_logger("handrail.prompt")

_MOST_GAPS = 10  # so many places are named that JSON cannot say

_UNFINISHED = (GeneratorType, AsyncGeneratorType, Future)

Extent: TypeAlias = Literal["all", "part", "nothing"]
"""The part of a file that has been shown: `"nothing"` for one that was only described, `"all"` for an empty one."""

Position: TypeAlias = tuple[int, int]
"""A line of a file and a character in it, both from 1."""

FILE_START: Position = (1, 1)
"""The first character of a file."""


@dataclass(frozen=True, slots=True)
class FileShown:
    """The part of a file that one result shows to the model, or has the model write.

    Attributes:
        identity: `Filesystem.identity` of the content; if empty, it is computed when the call has ended.
        shown: `"all"` for a whole file; `"part"` for some of its lines; `"nothing"` if only its kind is shown.
        first_line: for a part, the first line that is shown, from 1.
        last_line: for a part, the last line that is shown.
        column: the first character of the first line that is shown, from 1.
        next_column: the first character of the last line that is not shown; `None` if it is shown to its end.

    Raises:
        ValueError: it is a part, and its lines are not lines of the file.
    """

    path: str
    identity: str = ""
    shown: Extent = "all"
    first_line: int = 1
    last_line: int = 0
    total_lines: int | None = None
    column: int = 1
    next_column: int | None = None

    def __post_init__(self) -> None:
        total = self.total_lines or 0
        # A range beyond the end would count as the whole file.
        if self.shown == "part" and not 1 <= self.first_line <= self.last_line <= total:
            raise ValueError(
                f"lines {self.first_line} to {self.last_line} of {total} are not part of {self.path}; give "
                "first_line, last_line and total_lines, counted from 1"
            )

    @property
    def part(self) -> tuple[Position, Position]:
        """The shown lines, as positions."""
        end = (self.last_line + 1, 1) if self.next_column is None else (self.last_line, self.next_column)
        return (self.first_line, self.column), end


@subscriptable
@dataclass(frozen=True, slots=True)
class ToolResult(Generic[T_co]):
    """The result of a call.

    Attributes:
        value: a value of the tool's result type; `None` if there is none, as for most failures.
        success: whether the call succeeded; if not, everything it changed is rolled back.
        exclude_value_from_context: whether the model reads only the message. It saves context; it does not protect
            secrets, because sessions and stores record the value.
        files_shown: which files it shows to the model, and how much of each, for `ReadBeforeWritePolicy`; `None` if the
            tool does not report it. It is not stored.
        parts: images, other files and more text for the model, after the text of message and value. They are recorded
            and replayed as the value is.
    """

    message: str
    value: T_co | None
    success: bool = True
    exclude_value_from_context: bool = False
    # Not compared: it is not stored, and a result that was restored equals the one that was stored.
    files_shown: Sequence[FileShown] | None = field(default=None, compare=False, repr=False)
    parts: tuple[ContentPart, ...] = ()

    @staticmethod
    def ok(
        value: V,
        message: str = "",
        *,
        exclude_value_from_context: bool = False,
        files_shown: Sequence[FileShown] | None = None,
        parts: Iterable[ContentPart] = (),
    ) -> ToolResult[V]:
        """The result of a successful call."""
        return ToolResult(message, value, True, exclude_value_from_context, files_shown, tuple(parts))  # noqa: FBT003 - the fields, in order

    @overload
    @staticmethod
    def error(message: str, value: None = None) -> ToolResult[Never]: ...
    @overload
    @staticmethod
    def error(message: str, value: V) -> ToolResult[V]: ...
    @staticmethod
    def error(message: str, value: V | None = None) -> ToolResult[V]:
        """The result of a failed call; `message` should state the fault and how to fix it, for the model."""
        return ToolResult(message, value, False)  # noqa: FBT003 - the fields, in order

    def render(self) -> str:
        """The text that the model reads, with a line for each of the parts: `[image/png, 12 kB]` for a file.

        If the value has a method `render() -> str`, a success is exactly that text. Any other value is shown as JSON
        below the message, a string as it is. A failure starts with its message. Without a value to show, the text is
        the message, or `OK` or `Failed`. Lone surrogates are written as their escapes.

        Never raises: null stands for what JSON cannot say, such as NaN, and a line below names these places. A value of
        which nothing can be shown is logged, and the model reads the name of its type.
        """
        if not self.parts:
            return self._text()
        return escape_surrogates("\n".join((self._text(), *map(str, self.parts))))

    def all_parts(self) -> tuple[ContentPart, ...]:
        """The text of message and value as the first part, and the others; empty if there are no others."""
        return (TextPart(self._text()), *self.parts) if self.parts else ()

    def _text(self) -> str:
        value = self.value
        if value is None or self.exclude_value_from_context:
            return escape_surrogates(self.message or ("OK" if self.success else "Failed"))
        if (text := _render_value(value)) is None:
            text = value if isinstance(value, str) else _as_json(value)
        # Only a success is its `render` alone: a failure without its message would read like a success.
        elif self.success:
            return escape_surrogates(text)
        body = "\n".join(part for part in (self.message, text) if part)
        return escape_surrogates(body or ("OK" if self.success else "Failed"))


def parts_fault(parts: object) -> str | None:
    """The fault of the parts of a result, as text that follows "its handler"; `None` if they are valid."""
    if not isinstance(parts, tuple):
        return f"returned parts as a {type(parts).__name__}, but they are a tuple of TextPart and BinaryPart"
    items = cast("tuple[object, ...]", parts)
    wrong = next((part for part in items if not isinstance(part, TextPart | BinaryPart)), None)
    return None if wrong is None else f"returned a part of type {type(wrong).__name__}; use TextPart or BinaryPart"


def is_unfinished(value: object) -> bool:
    """Returns whether a value is a generator, an awaitable or a future."""
    return isinstance(value, _UNFINISHED) or hasattr(type(value), "__await__")


def check_value(expected: object, value: object) -> str | None:
    """The fault of the class of a value, as text that follows "its handler"; `None` if it is valid."""
    if is_unfinished(value):
        return f"returned a value of type {type(value).__name__}, whose work has perhaps not been done"
    if any(_is_instance(value, kind) for kind in _members(expected)):
        return None
    text = "no value" if value is None else f"a value of type {type_name(type(value))}"
    return f"returned {text}, but the tool declares {'none' if expected is None else type_name(expected)}"


def shown_schema(expected: object) -> dict[str, Any] | None:
    """The JSON Schema of a success as the model reads it; `None` if nothing can be said.

    A value with a method `render` is read as text, and any other as its JSON.
    """
    members = [get_origin(kind) or kind for kind in _members(expected) if kind not in {None, NoneType}]
    has_render = [callable(getattr(kind, "render", None)) for kind in members]
    if all(has_render):
        return {"type": "string"} if has_render else None
    return None if any(has_render) else result_codec(expected).schema or None


def _members(expected: object) -> tuple[object, ...]:
    inner = strip_annotated(expected)
    return tuple(member for kind in get_args(inner) for member in _members(kind)) if is_union(inner) else (inner,)


def _is_instance(value: object, kind: object) -> bool:
    if kind is Any or kind is object:
        return True
    if kind is None or value is None:
        return value is None and kind in (None, NoneType)
    cls = get_origin(kind) or kind
    # A TypedDict is a dict at run time, and the choices of a `Literal` are compared with the content.
    if cls is Literal or is_typeddict(cls):
        return cls is Literal or isinstance(value, dict)
    # An `int` is a `float` for type checkers, and a number in JSON.
    if cls is float:
        return isinstance(value, int | float)
    # A text is a sequence of texts in Python. In JSON it is not, so a handler that returns one instead of a list is
    # refused.
    text_as_sequence = isinstance(value, str | bytes) and cls in (Sequence, Collection)
    return isinstance(cls, type) and isinstance(value, cls) and not text_as_sequence


def _render_value(value: object) -> str | None:
    render = getattr(value, "render", None)
    if not callable(render):
        return None
    try:
        text = render()
    except Exception:  # noqa: BLE001 - the call has succeeded, so the model is shown what there is
        _log.exception("%s.render failed; the model is shown its JSON", type(value).__name__)
        return None
    if isinstance(text, str):
        return text
    _log.error("%s.render returned a %s; the model is shown its JSON", type(value).__name__, type(text).__name__)
    return None


def _as_json(value: object) -> str:
    name = type(value).__name__
    try:
        if hasattr(value, "__dataclass_fields__"):
            return result_codec(type(value)).dump_json(value).decode()
        text = json.dumps(dump(value), ensure_ascii=False, separators=(",", ":"))
        if "null" not in text or is_decoded(value):
            return text
        # A model of pydantic writes null for what is not finite, and says nothing of it.
        gaps = tuple(gap for gap in partial_json(value).gaps if gap.endswith(("NaN", "Infinity")))
    except Exception:  # noqa: BLE001 - as above; the value may hold anything
        # Most such values fit JSON except for lone surrogates, which this form writes as escapes.
        partial = partial_json(value)
        if not partial.is_escaped or partial.gaps:
            _log.exception("JSON cannot say a value of type %s; the model is shown the rest", name)
        text, gaps = partial.text, partial.gaps
    if not gaps:
        return text
    if text == "null":
        return f"(a value of type {name}, which cannot be shown: {gaps[0]})"
    more = [f"{len(gaps) - _MOST_GAPS} more"] if len(gaps) > _MOST_GAPS else []
    return f"{text}\n(null stands for what JSON cannot say: {'; '.join([*gaps[:_MOST_GAPS], *more])})"
