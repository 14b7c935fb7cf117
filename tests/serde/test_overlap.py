"""Two schemas overlap when one JSON value is of both."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from handrail.serde.overlap import Side, overlaps

PAIR: Any = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "minItems": 2, "maxItems": 2}
NONE: Any = {"type": "array", "maxItems": 0}
SHORT: Any = {"type": "array", "items": {"type": "integer"}, "maxItems": 1}

OVERLAPS: list[tuple[Any, Any, bool]] = [
    ({"enum": ["a", 1]}, {}, True),
    ({"const": 1}, {"enum": [True, "1"]}, False),
    ({"const": 1}, {"const": 1.0}, True),
    (PAIR, SHORT, False),
    (NONE, SHORT, True),
]


@pytest.mark.parametrize("one, other, common", OVERLAPS, ids=count())
def test_schemas_overlap_if_a_value_is_of_both(one: Any, other: Any, *, common: bool) -> None:
    """In either order."""
    assert overlaps(Side(one, one), Side(other, other)) is common
    assert overlaps(Side(other, other), Side(one, one)) is common


def test_two_empty_arrays_of_one_class_are_one_value() -> None:
    """So they do not count where only different values do."""
    assert overlaps(Side(NONE, NONE), Side(SHORT, SHORT))
    assert not overlaps(Side(NONE, NONE), Side(SHORT, SHORT), same_class=True)
