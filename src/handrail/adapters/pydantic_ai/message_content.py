"""Text and files of a result in PydanticAI's form, and back."""

from __future__ import annotations

from typing import Any

from pydantic_ai import BinaryContent, ToolReturn
from pydantic_ai.messages import ToolReturnPart

from handrail.prompt import BinaryPart
from handrail.prompt.content_parts import ContentPart
from handrail.runtime import ToolMessage
from handrail.serde.json_schema import is_array


def message_content(message: ToolMessage) -> Any:  # noqa: ANN401 - PydanticAI's
    """What the model gets of a message: its text, or a list of text and files."""
    return [*map(_content, message.parts)] if message.parts else message.content


def replayed_value(message: ToolMessage) -> Any:  # noqa: ANN401 - decoded JSON, with PydanticAI's files
    """The recorded value of a foreign tool, with its files behind the rest, as in `split_files`."""
    value, parts = message.result.value, message.result.parts
    if not parts:
        return value
    others = value if is_array(value) else () if value is None else (value,)
    return [*others, *map(_content, parts)]


def split_files(returned: object) -> tuple[Any, tuple[ContentPart, ...]]:
    """The return value of a tool without its files, and the files; a value that has none is the same object.

    PydanticAI sends the files to the model that are the value itself, or items of a list.
    """
    value: Any = returned.return_value if isinstance(returned, ToolReturn) else returned
    files = [each for each in ToolReturnPart("", value).files if isinstance(each, BinaryContent)]
    if not files:
        return value, ()
    others = [each for each in value if not isinstance(each, BinaryContent)] if is_array(value) else None
    return others, tuple(BinaryPart(each.data, each.media_type) for each in files)


def _content(part: ContentPart) -> str | BinaryContent:
    """A part as PydanticAI has it, also after it was stored."""
    if isinstance(part, BinaryPart):
        return BinaryContent.narrow_type(BinaryContent(part.data, media_type=part.media_type))
    return part.text
