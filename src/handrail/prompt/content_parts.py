"""Parts of the content of a result: text and files, as the model receives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from handrail.errors.developer import InvalidArgumentError, check_argument
from handrail.serde import dump, stored_codec

_KB = 1_000
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text.

    Attributes:
        text: the text.
    """

    text: str

    def __str__(self) -> str:
        """The text."""
        return self.text


@dataclass(frozen=True, slots=True)
class BinaryPart:
    """An image, or another file.

    Attributes:
        data: its bytes.
        media_type: what it is, as `image/png` or `application/pdf`.

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
        """What stands for it in a text: `[image/png, 12 kB]`."""
        return describe_file(self.media_type, len(self.data))

    @property
    def is_image(self) -> bool:
        """Whether it is an image."""
        return self.media_type.startswith("image/")

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


_FILE_OF_PYDANTIC_AI = ("pydantic_ai.messages", "BinaryContent")
"""Known by its name, because the core does not import PydanticAI."""


def is_file_type(kind: object) -> bool:
    """Whether it is a class of files: `BinaryPart`, or `BinaryContent` of PydanticAI."""
    if not isinstance(kind, type):
        return False
    return issubclass(kind, BinaryPart) or any(
        (base.__module__, base.__qualname__) == _FILE_OF_PYDANTIC_AI for base in kind.__mro__
    )


def parts_of_files(value: object) -> tuple[ContentPart, ...]:
    """The parts that a returned value means: a file, or a list or tuple of files and text; empty for any other value.

    Raises:
        InvalidArgumentError: a file of PydanticAI has no valid media type.
    """
    items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)
    # By their types, of which a long list has few.
    kinds = set(map(type, items))
    files = {kind for kind in kinds if is_file_type(kind)}
    if not files or not all(issubclass(kind, str | TextPart) for kind in kinds - files):
        return ()
    return tuple(map(_part_of, items))


def _part_of(item: Any) -> ContentPart:  # noqa: ANN401 - a part, text, or a file of PydanticAI
    if isinstance(item, TextPart | BinaryPart):
        return item
    return TextPart(item) if isinstance(item, str) else BinaryPart(item.data, item.media_type)


def describe_file(media_type: str, size: int) -> str:
    """What stands for a file of so many bytes in a text: `[image/png, 12 kB]`."""
    for unit, name in ((_MB, "MB"), (_KB, "kB")):
        if size >= unit:
            return f"[{media_type}, {size / unit:.0f} {name}]"
    return f"[{media_type}, {size} bytes]"


def dump_parts(parts: Sequence[ContentPart]) -> list[dict[str, str]]:
    """Parts as JSON."""
    return [dump(part) for part in parts]


def load_parts(data: Sequence[Mapping[str, Any]]) -> tuple[ContentPart, ...]:
    """What `dump_parts` wrote.

    Raises:
        ValueError: it is something else.
    """
    items: Any = data  # not an object, for which `parse` is typed
    return stored_codec(tuple[ContentPart, ...]).parse(items) if data else ()
