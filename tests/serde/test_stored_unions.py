"""What is written of a union as it is stored is read as it was, with equal types; for types times generated values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import PurePosixPath
from typing import Any, Final, Literal
from uuid import UUID

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from handrail.errors import DumpError
from handrail.serde import canonical_json, result_codec, stored_codec
from tests.extent import FULL
from tests.serde.members import PAIRS, Approve, Defer, Digit, Other, Reject, State, Word
from tests.serde.test_schema_agreement import held, is_same

EXAMPLES: Final = 25 if FULL else 10
_SLOW: Final = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)


st.register_type_strategy(PurePosixPath, st.sampled_from(["a", "a/b", "done", "."]).map(PurePosixPath))


@dataclass(frozen=True)
class Both:
    """Equal in its fields to `Either`, and holds itself."""

    parts: tuple[Both | Either | Word | str, ...] = ()
    by_name: dict[str, Both | Either] | None = None


@dataclass(frozen=True)
class Either:
    """Equal in its fields to `Both`."""

    parts: tuple[Both | Either | Word | str, ...] = ()
    by_name: dict[str, Both | Either] | None = None


@dataclass(frozen=True)
class Section:
    """Told apart from `Note` by its fields."""

    title: str
    inside: list[Section | Note]


@dataclass(frozen=True)
class Note:
    """Holds nothing."""

    text: str | State


@dataclass(frozen=True)
class Chain:
    """Holds lists of itself and of `Ring`, of which the JSON is one."""

    below: list[Chain] | list[Ring] | None


@dataclass(frozen=True)
class Ring:
    """Equal in its fields to `Chain`."""

    below: list[Chain] | list[Ring] | None


UNIONS_OF_COLLECTIONS: Final[list[Any]] = [
    *(list[Approve | int] | list[Reject | str], dict[str, Approve | int] | dict[str, Reject | int]),
    *(list[Approve] | tuple[Reject, ...] | None, tuple[Approve, int] | tuple[Reject, int], list[int] | set[int]),
    *(dict[int, str] | dict[str, str], dict[UUID, int] | dict[str, int], dict[bool, int] | dict[int, int]),
    *(list[list[Approve]] | list[list[Reject]], list[dt.date] | list[str], dict[str, dt.date] | dict[str, str]),
    *(frozenset[Word] | frozenset[str], list[dict[int, Approve]] | list[dict[str, Reject]], list[bytes] | str),
]
COLLECTIONS_OF_UNIONS: Final[list[Any]] = [
    *(list[Approve | Reject | Defer], dict[str, dt.datetime | str], tuple[Decimal | str, ...], set[UUID | str]),
    *(frozenset[Word | Other], tuple[bytes | str, Digit | int], list[list[int] | tuple[int, ...]]),
    dict[str, list[Approve | Reject] | Approve],
]
ENUMS: Final[list[Any]] = [
    *(PurePosixPath | State, State | PurePosixPath, State | str, State | Other | Word, Digit | int, int | Digit),
    *(Digit | float, Digit | Decimal, State | UUID | None, list[PurePosixPath | State], Word | dt.date | str),
]
LITERALS: Final[list[Any]] = [
    *(float | Literal[0], Decimal | Literal[1, 2], Literal[0] | float | None, Fraction | Literal[1], Literal[1] | bool),
    *(
        Literal[True] | int,
        Literal["a", 1] | dt.time,
        Decimal | Literal["1"],
        Literal[0, False, "0"] | float,
        Literal["a"] | Word,
    ),
    *(Literal[1, True] | dt.date | str, list[float | Literal[1]]),
]
RECURSIVE: Final[list[Any]] = [Both, Both | Either, Section, Section | Note, Chain, Chain | Ring | str]

KINDS: Final[list[Any]] = [
    *(UNIONS_OF_COLLECTIONS + COLLECTIONS_OF_UNIONS + ENUMS + LITERALS + RECURSIVE),
    *(kind for kind, _ in PAIRS),
]


@pytest.mark.parametrize("kind", KINDS, ids=count())
def test_what_is_stored_of_a_union_comes_back(kind: Any) -> None:
    """In a field and in a collection; and values that differ have canonical texts that differ."""
    cls: Any = held(kind)
    stored, shown = stored_codec(cls), result_codec(cls)

    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=_SLOW)
    @given(st.from_type(kind), st.from_type(kind))
    def holds(one: Any, other: Any) -> None:
        whole = cls(one, [one, other])
        assume(not any(word in repr(whole).lower() for word in ("inf", "nan")))  # as keys they are not looked for
        try:
            shown.dump_json(whole)
        except DumpError:  # such as a number that is not finite, or a lone surrogate
            assume(False)
        assert is_same(stored.parse_json(stored.dump_json(whole)), whole)
        if canonical_json(cls(one)) == canonical_json(cls(other)):
            assert one == other

    holds()
