"""When a feedback provider is asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from handrail.errors import InvalidArgumentError, PathEscapeError
from handrail.filesystem.paths import normalise

_NO_TIME = timedelta(0)
_PATH = 'a path or a glob pattern: "reports/*.md"'


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackTrigger:
    """When a provider is asked; at least one condition. Several are alternatives: any of them suffices.

    Each provider counts for itself, from its last feedback in the session, or else from the first call. Nested calls
    do not count.

    Attributes:
        every_calls: after so many calls, at least 1.
        every: at the first call that ends when so much time has passed.
        on_file: when the bound `Filesystem` has a file or folder whose path matches, once for each path; a path, or a
            glob pattern. A deleted path that appears again does not count again.
        on_repeated_failure: when the same call, with the same tool and arguments, has failed so many times since it
            succeeded last, at least 2.

    Raises:
        InvalidArgumentError: there is no condition, or one has a wrong value.
    """

    every_calls: int | None = None
    every: timedelta | None = None
    on_file: str | None = None
    on_repeated_failure: int | None = None

    def __post_init__(self) -> None:
        if all(each is None for each in (self.every_calls, self.every, self.on_file, self.on_repeated_failure)):
            raise InvalidArgumentError(
                function="FeedbackTrigger",
                argument="every_calls",
                given=None,
                expected="a number of calls, unless there is another condition: FeedbackTrigger(every_calls=10)",
            )
        _check_number("every_calls", self.every_calls, least=1)
        _check_number("on_repeated_failure", self.on_repeated_failure, least=2)
        every, on_file = self.every, self.on_file
        if every is not None and (not isinstance(every, timedelta) or every <= _NO_TIME):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a checker
            _refuse("every", every, "a positive span with its unit: timedelta(minutes=5)")
        if on_file is not None and (not isinstance(on_file, str) or not on_file):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            _refuse("on_file", on_file, _PATH)
        try:
            normalise(on_file or ".", noun="path or pattern")
        except PathEscapeError as error:
            _refuse("on_file", on_file, f"{_PATH}; {error}")


def _check_number(argument: str, given: object, *, least: int) -> None:
    if given is not None and (type(given) is not int or given < least):
        _refuse(argument, given, f"a number of at least {least}")


def _refuse(argument: str, given: object, expected: str) -> None:
    raise InvalidArgumentError(function="FeedbackTrigger", argument=argument, given=given, expected=expected)
