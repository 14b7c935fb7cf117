"""`handrail.prompt.tool_result`: files and text in a result, and their form in a record."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from handrail.errors import InvalidArgumentError
from handrail.prompt import BinaryPart, TextPart, ToolResult
from handrail.prompt.tool_result import dump_parts, load_parts
from tests.wording import Wording


@pytest.mark.parametrize(
    "size, shown",
    [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1 kB"), (12_400, "12 kB"), (2_600_000, "3 MB")],
)
def test_a_file_is_named_by_type_and_size(size: int, shown: str) -> None:
    """In texts for models and people, which do not hold files."""
    assert str(BinaryPart(bytes(size), "image/png")) == f"[image/png, {shown}]"


@pytest.mark.parametrize("data, media_type", [("text", "image/png"), (b"", "png"), (b"", "image/"), (b"", None)])
def test_a_wrong_part_is_the_mistake_of_the_developer(data: Any, media_type: Any) -> None:
    """It names the argument."""
    with pytest.raises(InvalidArgumentError) as raised:
        BinaryPart(data, media_type)
    assert raised.value.argument == ("data" if isinstance(data, str) else "media_type")


def test_what_was_written_is_read(wording: Wording) -> None:
    """Any bytes, and any text."""
    parts = (TextPart("page 1"), BinaryPart(bytes(range(256)), "application/pdf"))
    assert load_parts(dump_parts(parts)) == parts
    wrong: list[Any] = [{}, {"data": "x"}, {"data": "x", "media_type": "image/png"}, 7]
    for each in wrong:
        with pytest.raises(ValueError) as raised:
            load_parts([each])
        assert str(raised.value).partition(": ")[0] == wording


def test_an_api_gets_base64_and_a_url() -> None:
    """In the standard alphabet."""
    part = BinaryPart(b"\xfb\xff", "image/png")
    assert base64.b64decode(part.base64, validate=True) == part.data
    assert part.data_url == f"data:image/png;base64,{part.base64}"
    assert part.is_image
    assert not BinaryPart(b"", "application/pdf").is_image


def test_the_text_names_each_part_in_its_place() -> None:
    """The parts begin with the text of message and value."""
    image = BinaryPart(b"x", "image/png")
    result = ToolResult.ok({"page": 1}, "read", parts=[TextPart("below"), image])
    assert result.render() == 'read\n{"page":1}\nbelow\n[image/png, 1 bytes]'
    assert result.all_parts() == (TextPart('read\n{"page":1}'), TextPart("below"), image)
    assert ToolResult.ok("text").all_parts() == ()
