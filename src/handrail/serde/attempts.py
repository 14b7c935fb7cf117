"""How often the members of unions are tried while one text is read: so often that it grows with the text.

pydantic tries each member of a union, and each member tries what it holds. Where a union holds itself and the JSON
does not say which member is meant, the number of attempts doubles with every level. A text for which they are too
many is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

T = TypeVar("T")

LEAST: Final = 10_000
"""So many attempts are made for any text."""

FOR_A_BYTE: Final = 4
"""And so many for each byte of it."""

TOO_MANY: Final = "too_many_attempts"
"""The type of the error, as pydantic reports it."""

_FAULT: Final = (
    "nested too deeply in unions whose members the JSON does not tell apart, so that there are too many ways to read "
    "it; nest it to less depth, or give each member a Literal field that tells it apart"
)


class _TooManyAttemptsError(Exception):
    """Ends the reading of a text; no union takes it for a member that does not fit."""


class _Attempts(threading.local):
    """How many may still be made in this thread; without a bound while no text is read."""

    left: float = float("inf")


_attempts: Final = _Attempts()


def count_attempt() -> None:
    """Count that all members of a union are about to be tried.

    Raises:
        Exception: there have been too many; `bounded` knows it.
    """
    if _attempts.left <= 0:
        raise _TooManyAttemptsError
    _attempts.left -= 1


def bounded(validate: Callable[..., T]) -> Callable[..., T]:
    """A function that reads a text as `validate` does, and gives up when there are too many ways to read it.

    Raises:
        ValidationError: also where there are too many attempts.
    """

    def validate_bounded(data: Any, **options: Any) -> T:  # noqa: ANN401 - as pydantic declares it
        before = _attempts.left
        _attempts.left = LEAST + FOR_A_BYTE * len(data)
        try:
            return validate(data, **options)
        except _TooManyAttemptsError:
            error = InitErrorDetails(type=PydanticCustomError(TOO_MANY, _FAULT), loc=(), input=None)
            raise ValidationError.from_exception_data("union", [error]) from None
        finally:
            _attempts.left = before  # a __post_init__ may read another text meanwhile

    return validate_bounded
