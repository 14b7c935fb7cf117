"""A bound on how often the members of recursive unions are tried, where nothing decides between them beforehand.

Each member tries what it holds, so that the number of attempts may double with every level of the input: 22 levels in
two hundred bytes take four million attempts. The attempts are counted where a union selects its member
(`handrail.serde.recursive_unions`), and the count is that of the innermost `validate_json` that `bounded` has made: a
`__post_init__` may parse other values meanwhile. What is read without `bounded` is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from handrail.errors import ParseError

_ATTEMPTS: Final = 10_000
"""How often all members of recursive unions may be tried in any input."""

_ATTEMPTS_PER_BYTE: Final = 4
"""How much more often in a larger one; a value that is tried once has two bytes at least."""

_TOO_MANY_WAYS: Final = (
    "there are too many ways to read this value: at every level, it may be of several members of a union that holds "
    "itself; nest it less deeply, or declare a Literal field in each class by which they are told apart"
)

_Validate = Callable[..., Any]
_attempts_left: Final[ContextVar[list[int] | None]] = ContextVar("attempts_left", default=None)


# Not a ValueError: a wrap validator around a union would turn that into one fault of one member, and the members beside
# it would be tried all the same.
class TooManyWaysError(Exception):
    """All members of recursive unions have been tried too often."""


def bounded(validate: _Validate) -> _Validate:
    """A `validate_json` that raises `ParseError` where the members of recursive unions are tried too often.

    Args:
        validate: pydantic's own, which takes JSON and options.
    """

    def within(data: str | bytes | bytearray, **options: Any) -> object:  # noqa: ANN401 - pydantic's
        # A list, so that `count_attempt` can count in place: the variable itself is only set where a reading begins and
        # ends.
        token = _attempts_left.set([_ATTEMPTS + _ATTEMPTS_PER_BYTE * len(data)])
        try:
            return validate(data, **options)
        except TooManyWaysError:
            raise ParseError(f"$: {_TOO_MANY_WAYS}", faults=(("$", _TOO_MANY_WAYS),)) from None
        finally:
            # Restores the count of the reading that this one is nested in, as in a `__post_init__` that parses.
            _attempts_left.reset(token)

    return within


def count_attempt() -> None:
    """Count that all members of a union are tried, if what is read is bounded.

    Raises:
        TooManyWaysError: the input being read leaves no more attempts.
    """
    left = _attempts_left.get()
    if left is not None:
        left[0] -= 1
        if left[0] < 0:
            raise TooManyWaysError
