"""The faults of data that does not fit."""

from __future__ import annotations

import json

import pytest

from handrail.errors import ParseError
from handrail.serde import parse
from tests.serde.shapes import Json


def told(kind: type[object], data: Json) -> list[str]:
    """The faults of `data` for the model, one a line."""
    with pytest.raises(ParseError) as caught:
        parse(kind, json.dumps(data))
    lines = [f"{path}: {text}" for path, text in caught.value.faults]
    assert str(caught.value) == "\n".join(lines)
    return lines
