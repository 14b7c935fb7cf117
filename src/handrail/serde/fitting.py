"""What a value of one part of a type is held to, so that it comes back from a store as what it is.

A part is made by the kind of what a type holds in one place: a scalar, a collection, a dataclass, one of several. The
table of what is refused, and why, is in `handrail.serde.exact`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from operator import attrgetter
from pathlib import PurePath
from typing import Any, Final, cast
from uuid import UUID

from handrail.serde.formatting import type_name
from handrail.serde.location import Path

MOST_DIGITS: Final = 4300
"""How many digits an integer may have to be read back."""

LEAST_TOO_LONG: Final = 10**MOST_DIGITS
"""The least integer with more."""


@dataclass(slots=True, eq=False)
class Part:
    """What a value of one part of a type is held to.

    Attributes:
        fits: whether a value comes back as it is.
        many: whether each of several values does. Collections hand on what all of them hold, and dataclasses what
            is in one field of all of them, so that few functions are called for many values.
        takes: whether a value is of the kind of this part at all.
        below: what a value holds: the path from the value, the part, and the held value.
        fault: what is wrong with a value that does not fit, though all that it holds does.
        types: types of which every value fits; found out sooner than by `fits`.
        sure: whether pydantic's serializer warns of every value that does not fit.
    """

    fits: Callable[[Any], bool]
    many: Callable[[Sequence[Any]], bool]
    takes: Callable[[Any], bool]
    below: Callable[[Any], Iterator[tuple[Path, Part, object]]]
    fault: Callable[[Any], str]
    types: frozenset[type[Any]] = frozenset()
    sure: bool = False


def _nothing(value: object) -> Iterator[tuple[Path, Part, object]]:
    del value
    return iter(())


def _would_be(name: str, cure: str) -> Callable[[object], str]:
    return lambda value: f"a {type(value).__name__} would come back as a {name}; {cure}"


def leaf(
    kind: type[Any] | tuple[type[Any], ...],
    fits: Callable[[Any], bool] | None = None,
    fault: Callable[[object], str] | None = None,
    types: Iterable[type[Any]] = (),
) -> Part:
    """A part of scalars of a class; without `fits`, pydantic warns of those of another."""

    def takes(value: object) -> bool:
        return isinstance(value, kind)

    described = fault or _would_be("value of another type", "declare its type here")
    known = frozenset(types)
    return Part(fits or takes, _each(known, fits or takes), takes, _nothing, described, known, sure=fits is None)


def _each(types: frozenset[type[Any]], fits: Callable[[Any], bool]) -> Callable[[Sequence[Any]], bool]:
    """Whether values are of types of which every value fits, or fit each by itself."""
    return lambda values: types.issuperset(map(type, values)) or all(map(fits, values))


def _is_no_dataclass(value: object) -> bool:
    return not hasattr(type(value), "__dataclass_fields__")


def _is_int(value: object) -> bool:
    return type(value) is int


def _is_float(value: object) -> bool:
    if type(value) is int:
        try:
            # Python compares the two exactly, so that 2**53 + 1, whose float is another number, is refused.
            return float(value) == value
        except OverflowError:
            return False
    return isinstance(value, float)


def _is_date(value: object) -> bool:
    return isinstance(value, date) and not isinstance(value, datetime)


def _has_whole_minutes(value: object) -> bool:
    if not isinstance(value, datetime | time):
        return False
    offset = value.utcoffset()
    return offset is None or not offset % timedelta(minutes=1)


def _has_fixed_offset(value: object) -> bool:
    """Whether a time has no zone, or one whose offset does not depend on the date, in whole minutes."""
    if not isinstance(value, time):
        return False
    # A zone such as `Europe/Berlin` has no offset without a date, and such a time would be written without its zone.
    return _has_whole_minutes(value) and (value.tzinfo is None or value.utcoffset() is not None)


def _is_short_fraction(value: object) -> bool:
    return isinstance(value, Fraction) and max(abs(value.numerator), value.denominator) < LEAST_TOO_LONG


def _has_no_flags(value: object) -> bool:
    if not isinstance(value, re.Pattern):
        return True
    pattern = cast("re.Pattern[str]", cast("object", value))  # or of bytes
    # Flags that are written within the pattern are stored with it, and are in both.
    return pattern.flags == re.compile(pattern.pattern).flags


def _float_fault(value: object) -> str:
    if type(value) is int:
        return "no float is equal to this integer, so it would come back as another number; declare int, or use a float"
    return f"a {type(value).__name__} would come back as a float; use a float"


def _offset_fault(value: object) -> str:
    del value
    return "an offset from UTC is stored in whole minutes, and this one has seconds; use another offset, such as UTC"


def _zone_fault(value: object) -> str:
    if isinstance(value, time) and value.utcoffset() is None:
        return "the offset of its zone depends on the date, so it would come back without a zone; declare datetime"
    return _offset_fault(value)


def _flags_fault(value: object) -> str:
    del value
    return 'the flags of a pattern are not stored; write them into the pattern, as in re.compile("(?i)a")'


_INT: Final = leaf(int, _is_int, _would_be("plain int", "use int(...), or declare its type"), {int})
_FLOAT: Final = leaf((int, float), _is_float, _float_fault, {float})
_DATE: Final = leaf(date, _is_date, _would_be("date", "declare datetime, or use a date"), {date})
_DATETIME: Final = leaf(datetime, _has_whole_minutes, _offset_fault)
_TIME: Final = leaf(time, _has_fixed_offset, _zone_fault)
_FRACTION: Final = leaf(
    Fraction, _is_short_fraction, lambda _: f"a fraction of more than {MOST_DIGITS:,} digits cannot be read back"
)
UNKNOWN: Final = Part(
    _is_no_dataclass,
    _each(frozenset(), _is_no_dataclass),
    _is_no_dataclass,
    _nothing,
    _would_be("something else", "declare its type"),
    sure=True,
)
"""Of what nothing is known; a dataclass has to fit another choice beside it."""

_FUNCTION: Final = Part(_has_no_flags, _each(frozenset(), _has_no_flags), _is_no_dataclass, _nothing, _flags_fault)
LEAVES: Final[Mapping[str, Part]] = {
    "int": _INT,
    "float": _FLOAT,
    "date": _DATE,
    "datetime": _DATETIME,
    "time": _TIME,
    "fraction": _FRACTION,
    # pydantic reads `re.Pattern` by a plain function; another function may make anything else, which has no flags.
    "function-plain": _FUNCTION,
    "str": leaf(str),
    "bytes": leaf(bytes),
    "bool": leaf(bool),
    "none": leaf(type(None)),
    "decimal": leaf(Decimal),
    "timedelta": leaf(timedelta),
    "uuid": leaf(UUID),
}
"""The parts that hold nothing, by the type of their core schema."""


def of_dataclass(cls: type[Any], fields: Iterable[tuple[str, Part]]) -> Part:
    """A part of dataclasses, with those of its fields that are to be looked into."""
    held = tuple(fields)
    columns = [(attrgetter(name), part) for name, part in held]
    own = frozenset({cls})

    def many(several: Sequence[Any]) -> bool:
        if not own.issuperset(map(type, several)):
            return False
        # A column at a time: many values of one field cost one call of `many`, and not one for each value.
        for column, part in columns:  # noqa: SIM110 - `all` with a generator takes longer
            if not part.many([*map(column, several)]):
                return False
        return True

    def below(value: object) -> Iterator[tuple[Path, Part, object]]:
        return (((name,), part, getattr(value, name)) for name, part in held if type(value) is cls)

    def fault(value: object) -> str:
        given = type_name(type(value))
        if not isinstance(value, cls):
            return f"a {given} of {type(value).__module__} is not the {cls.__name__} of {cls.__module__}; use that one"
        return (
            f"a {given} would come back as a {cls.__name__}, without what it has more; "
            f"declare this place as {cls.__name__} | {given}, or as {given}"
        )

    types = frozenset[type[Any]]() if held else own
    return Part(lambda value: many((value,)), many, lambda value: isinstance(value, cls), below, fault, types)


def of_typed_dict(fields: Iterable[tuple[str, Part]]) -> Part:
    """A part of plain dicts, with the parts of their keys."""
    held = tuple(fields)

    def fits(value: object) -> bool:
        return value.__class__ is dict and all(part.fits(inner) for _, part, inner in below(value))

    def below(value: object) -> Iterator[tuple[Path, Part, object]]:
        if isinstance(value, dict):
            given = cast("dict[str, object]", value)
            yield from (((name,), part, given[name]) for name, part in held if name in given)

    def takes(value: object) -> bool:
        return isinstance(value, dict)

    return Part(fits, _each(frozenset(), fits), takes, below, _would_be("dict", "use a plain dict"))


def any_of(choices: list[Part]) -> Part:
    """A part of values that fit one of several parts."""
    if len(choices) == 1:
        return choices[0]
    kinds = tuple(choices)

    def many(several: Sequence[Any]) -> bool:
        # By the choice that takes them, and not one by one: a level of a recursive value then costs few frames.
        taken: dict[int, list[Any]] = {}
        for value in several:
            if type(value) in types:
                continue
            taking = [position for position, choice in enumerate(kinds) if choice.takes(value)]
            if len(taking) == 1:
                taken.setdefault(taking[0], []).append(value)
            # Several choices take it: it need fit only one of them, so that it cannot be handed on with the others.
            elif not any(kinds[position].fits(value) for position in taking):
                return False
        for position, values in taken.items():  # noqa: SIM110 - `all` with a generator is a frame more
            if not kinds[position].many(values):
                return False
        return True

    def below(value: object) -> Iterator[tuple[Path, Part, object]]:
        return (((), choice, value) for choice in kinds if choice.takes(value))

    # Not yet of a part that is still being made; it has types only if it holds nothing, so nothing is lost.
    types = frozenset(cls for choice in choices for cls in choice.types)

    return Part(
        lambda value: many((value,)),
        many,
        lambda value: any(choice.takes(value) for choice in kinds),
        below,
        _would_be("value of another type", "declare its type here"),
        types,
        sure=all(choice.sure for choice in kinds),
    )


def items_of(cls: type[Any], part: Part) -> Part:
    """A part of collections whose items are of one part."""

    def takes(value: object) -> bool:
        # A string is a `Collection` too, but it is not written as an array.
        return isinstance(value, cls) and not isinstance(value, str | bytes)

    def fits(value: Any) -> bool:  # noqa: ANN401 - any collection
        return takes(value) and (part.sure or part.types.issuperset(map(type, value)) or all(map(part.fits, value)))

    def many(several: Sequence[Any]) -> bool:
        if not own.issuperset(map(type, several)) and not all(map(takes, several)):
            return False
        if part.sure:
            return True
        items = [*chain.from_iterable(several)]
        # Empty collections of a recursive type end its recursion here.
        return not items or part.many(items)

    own = frozenset({cls})

    def below(value: Any) -> Iterator[tuple[Path, Part, object]]:  # noqa: ANN401 - any collection
        return (((position,), part, item) for position, item in enumerate(value))

    return Part(fits, many, takes, below, _would_be("value of another type", "declare its type here"), sure=part.sure)


def fixed(parts: list[Part]) -> Part:
    """A part of tuples with a part for each position."""

    def takes(value: object) -> bool:
        return isinstance(value, tuple) and len(cast("tuple[object, ...]", value)) == len(parts)

    def fits(value: Any) -> bool:  # noqa: ANN401 - a tuple
        return takes(value) and all(part.fits(item) for part, item in zip(parts, value, strict=True))

    def below(value: Any) -> Iterator[tuple[Path, Part, object]]:  # noqa: ANN401 - a tuple
        return (((position,), *pair) for position, pair in enumerate(zip(parts, value, strict=True)))

    sure = all(part.sure for part in parts)
    return Part(
        fits,
        _each(frozenset(), fits),
        takes,
        below,
        _would_be("value of another type", "declare its type here"),
        sure=sure,
    )


def pairs(keys: Part, values: Part) -> Part:
    """A part of mappings."""

    def takes(value: object) -> bool:
        return isinstance(value, Mapping)

    def fits(value: Any) -> bool:  # noqa: ANN401 - a mapping
        return (
            takes(value)
            and (keys.sure or keys.types.issuperset(map(type, value)) or all(map(keys.fits, value)))
            and (
                values.sure
                or values.types.issuperset(map(type, value.values()))
                or all(map(values.fits, value.values()))
            )
        )

    def many(several: Sequence[Any]) -> bool:
        if not all(map(takes, several)):
            return False
        held = [] if keys.sure else [*chain.from_iterable(several)]
        items = [] if values.sure else [item for each in several for item in each.values()]
        return (not held or keys.many(held)) and (not items or values.many(items))

    def below(value: Any) -> Iterator[tuple[Path, Part, object]]:  # noqa: ANN401 - a mapping
        for key, item in value.items():
            yield (str(key),), keys, key
            yield (str(key),), values, item

    sure = keys.sure and values.sure
    return Part(fits, many, takes, below, _would_be("value of another type", "declare its type here"), sure=sure)


def literal(expected: Collection[object]) -> Part:
    """A part of the choices of a `Literal`."""

    def fits(value: object) -> bool:
        return any(value == each and (type(value) is type(each) or isinstance(value, str)) for each in expected)

    def fault(value: object) -> str:
        if all(value != each for each in expected):
            return f"this {type(value).__name__} is none of the choices, so it cannot be read back; use one of them"
        return f"a {type(value).__name__} that equals a choice would come back as the choice; use the choice itself"

    texts = frozenset(each for each in expected if type(each) is str)
    own = frozenset({str})

    def many(several: Sequence[Any]) -> bool:
        # The types first, because a value of another type may have no hash.
        return (own.issuperset(map(type, several)) and texts.issuperset(several)) or all(map(fits, several))

    part = leaf(object, fits, fault)
    part.many = many
    return part


def of_paths(cls: type[PurePath]) -> Part:
    """A part of paths of a class; one of a class beside it may be equal, and so comes back as what it is."""

    def fits(value: object) -> bool:
        return isinstance(value, cls) and (type(value) is cls or cls(value) == value)

    # `Path` makes a path of this system, which is what a stored one is read as.
    made = type(cls())

    def fault(value: object) -> str:
        given = type(value).__name__
        return f"a {given} would come back as a {made.__name__}; declare this place as {given}"

    return leaf(cls, fits, fault, {made})
