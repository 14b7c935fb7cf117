"""A part of a type takes the values that come back from a store as what they are, and no others."""

from __future__ import annotations

import datetime as dt
from dataclasses import make_dataclass
from fractions import Fraction
from itertools import count
from typing import Any, Final

import pytest

from handrail.serde.fitting import LEAST_TOO_LONG, LEAVES, Part, any_of, items_of, of_dataclass, of_typed_dict, pairs
from tests.wording import Wording

INT: Final = LEAVES["int"]
TYPED_DICT: Final = of_typed_dict([("x", INT)])

FITTING: list[tuple[Part, Any, bool]] = [
    (LEAVES["float"], 2, True),
    (LEAVES["float"], 10**400, False),
    (LEAVES["datetime"], dt.date(2026, 1, 1), False),
    (LEAVES["time"], "12:00", False),
    (LEAVES["fraction"], Fraction(1, LEAST_TOO_LONG), False),
    (LEAVES["function-plain"], "no pattern", True),
    (any_of([TYPED_DICT, LEAVES["str"]]), {"x": 1}, True),
    (any_of([TYPED_DICT, LEAVES["str"]]), {"x": True}, False),
]


@pytest.mark.parametrize("part, value, fits", FITTING, ids=count())
def test_a_part_says_of_each_value_whether_it_comes_back(part: Part, value: object, *, fits: bool) -> None:
    """One by one, and among several."""
    assert part.fits(value) is fits
    assert part.many([value, value]) is fits


@pytest.mark.parametrize("part, sound", [(items_of(list, INT), [1]), (pairs(INT, INT), {1: 1})], ids=["list", "dict"])
def test_a_collection_beside_a_scalar_is_refused(part: Part, sound: object) -> None:
    """One value of another kind is enough, and it is not looked into."""
    assert part.many([sound, sound])
    assert not part.many([sound, 5])


def test_a_class_of_the_same_name_is_told_by_its_module(wording: Wording) -> None:
    """As after a module was loaded twice."""
    one, other = (make_dataclass("Card", [("number", int)]) for _ in range(2))
    one.__module__, other.__module__ = "one", "other"
    part = of_dataclass(one, [("number", INT)])
    assert not part.fits(other(5))
    assert part.fault(other(5)) == wording
