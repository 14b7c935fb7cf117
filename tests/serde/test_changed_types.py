"""What was stored with tags is read when its type has changed; the table is in `docs/reference/values.md`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from pathlib import PurePosixPath
from typing import Any

import pytest

from handrail.errors import ParseError
from handrail.serde import codec, stored_codec
from tests.serde.members import Approve, Reject, Word


@dataclass(frozen=True)
class Long:
    """Held more than its own class once."""

    below: Long | Short | None = None
    why: str = ""


@dataclass(frozen=True)
class Short:
    """Told apart from `Long` by its field now."""

    below: Long | Short | None = None
    number: int = 0


def held(kind: object) -> Any:
    """A dataclass with one field of a type, and another."""
    return dataclasses.make_dataclass("Held", [("x", kind), ("number", int | Decimal, 0)], frozen=True)


DATE = "2026-01-31"
READ: list[tuple[Any, str, Any]] = [
    (Approve, '{"$type":"Approve","value":{"why":"a"}}', Approve("a")),
    (list[Approve], '[{"$type":"Approve","value":{"why":"a"}},{"why":"b"}]', [Approve("a"), Approve("b")]),
    (dict[str, str], '{"a":{"$type":"str","value":"b"}}', {"a": "b"}),
    (dict[int, Word], '{"1":{"$type":"Word","value":"a"}}', {1: next(iter(Word))}),
    (date | None, f'{{"$type":"date","value":"{DATE}"}}', date(2026, 1, 31)),
    (Approve | Reject, '{"$type":"list","value":1}', None),
    (Approve | int, '{"$type":"int","value":1}', 1),
    (int, '{"$type":"int","value":"1"}', None),
    (int, '{"$type":"str","value":1}', None),
    (list[Approve | Reject], '{"$type":"list[Reject]","value":[{"why":"a"}]}', [Reject("a")]),
    (tuple[Approve | Reject, ...], '{"$type":"tuple[Reject]","value":[{"why":"a"}]}', (Reject("a"),)),
    (dict[str, Approve | Reject], '{"$type":"dict[str, Reject]","value":{"k":{"why":"a"}}}', {"k": Reject("a")}),
    (list[date | str], f'{{"$type":"list[str]","value":["{DATE}"]}}', [DATE]),
    (Sequence[Approve | Reject], '{"$type":"list[Reject]","value":[{"why":"a"}]}', None),
    (Sequence[Approve], '{"$type":"list[Approve]","value":[{"why":"a"}]}', [Approve("a")]),
    (Decimal, '{"$type":"str","value":"1"}', None),
    (datetime, f'{{"$type":"str","value":"{DATE}T00:00:00"}}', None),
    (PurePosixPath, '{"$type":"str","value":"a"}', None),
    (PurePosixPath, '{"$type":"PurePosixPath","value":"a"}', PurePosixPath("a")),
    (datetime | str, '{"$type":"date","value":1}', None),
    (
        Long,
        '{"$type":"Long","value":{"below":{"$type":"Short","value":{"number":1}},"why":"a"}}',
        Long(Short(None, 1), "a"),
    ),
]


@pytest.mark.parametrize("kind, data, value", READ, ids=count())
def test_a_tag_is_read_where_it_names_the_type_of_the_place(kind: Any, data: str, value: object) -> None:
    """And refused where it does not; a number beside it stays what it is."""
    cls = held(kind)
    text = f'{{"x":{data},"number":5}}'
    if value is None:
        with pytest.raises(ParseError):
            stored_codec(cls).parse_json(text)
        return
    found = stored_codec(cls).parse_json(text)
    assert (type(found.x), found.x) == (type(value), value)
    assert type(found.number) is int


def test_a_model_does_not_send_tags() -> None:
    """They are read from stores alone."""
    with pytest.raises(ParseError):
        codec(held(Approve)).parse_json('{"x":{"$type":"Approve","value":{"why":"a"}}}')


def test_a_mapping_that_looks_like_a_tag_is_read_as_what_it_is() -> None:
    """Where its type takes it."""
    cls = held(dict[str, str])
    value = cls({"$type": "str", "value": "a"})
    assert stored_codec(cls).parse_json(stored_codec(cls).dump_json(value)) == value
