"""Whether an answer completes what a prompt was to do: checkers, and how they are combined.

A checker says what is missing, in sentences that the model reads; nothing missing is complete. When the model gives its
answer, `handrail.runtime.hooks` asks, and sends the model back with what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from handrail.errors import InvalidArgumentError, PromptValidationError, UnboundResourceError
from handrail.filesystem import Filesystem
from handrail.prompt.run_view import RunView
from handrail.serde.formatting import enumerated, shorten

MOST_SENT_BACK = 3
"""How often the model is sent back at most, unless the prompt says something else."""

_LONGEST_LIST = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionContext(RunView):
    """What a checker sees: the run, and the answer that the model has given.

    Attributes:
        answer: the answer, as the prompt declares it: text, or a dataclass.
    """

    answer: Any = None


class CompletionChecker(Protocol):
    """Says what is missing."""

    def missing(self, context: CompletionContext, /) -> Sequence[str]:
        """What is missing, each in one sentence for the model; empty if it is complete.

        It may be called on another thread than that of the run. It reads: what it writes to the session or to a
        resource raises `ReadOnlyViolation`, and `TransactionClosedError` once the deadline has passed, or the check was
        cancelled. An exception ends the run: it is a mistake of the program.
        """
        ...


CompletionFunction: TypeAlias = Callable[[CompletionContext], str | Sequence[str] | None]
"""A function in the place of a checker: what is missing, or `None` if it is complete."""


@dataclass(frozen=True, slots=True)
class FilesExist:
    """Files that the bound `Filesystem` must have.

    Attributes:
        paths: their paths. They are not patterns: `*.md` is the name of a file.

    Raises:
        InvalidArgumentError: `paths` is one text, and not several.
    """

    paths: Sequence[str]

    def __post_init__(self) -> None:
        if isinstance(self.paths, str):
            expected = 'a sequence of paths: ["report.md"]'
            raise InvalidArgumentError(function="FilesExist", argument="paths", given=self.paths, expected=expected)

    def missing(self, context: CompletionContext, /) -> Sequence[str]:
        """The files that do not exist, in one sentence.

        Raises:
            UnboundResourceError: no `Filesystem` is bound, so that nothing can be said of files.
        """
        if not self.paths:
            return ()
        filesystem = context.filesystem
        if filesystem is None:
            raise UnboundResourceError(Filesystem)
        absent = [path for path in self.paths if not filesystem.exists(path)]
        if not absent:
            return ()
        return (f"These files do not exist: {enumerated(absent, limit=_LONGEST_LIST)}.",)


class AllOf:
    """Complete if all of its checkers say so; what any of them misses is missing.

    Args:
        checkers: checkers or functions. With none, it is complete.

    Raises:
        PromptValidationError: one is neither.
    """

    __slots__ = ("checkers",)

    def __init__(self, *checkers: CompletionChecker | CompletionFunction) -> None:
        self.checkers: tuple[CompletionChecker, ...] = tuple(map(checker_of, checkers))

    def missing(self, context: CompletionContext, /) -> Sequence[str]:
        """What all of them miss, in their order."""
        return tuple(each for checker in self.checkers for each in checker.missing(context))


class AnyOf:
    """Complete if one of its checkers says so; those after it are not asked.

    Args:
        checkers: checkers or functions. With none, it is complete.

    Raises:
        PromptValidationError: one is neither.
    """

    __slots__ = ("checkers",)

    def __init__(self, *checkers: CompletionChecker | CompletionFunction) -> None:
        self.checkers: tuple[CompletionChecker, ...] = tuple(map(checker_of, checkers))

    def missing(self, context: CompletionContext, /) -> Sequence[str]:
        """What each of them misses, and that one of these suffices."""
        found: list[str] = []
        for checker in self.checkers:
            missing = checker.missing(context)
            if not missing:
                return ()
            found.append(" ".join(missing))
        return [f"One of these suffices: {' Or: '.join(found)}"] if len(found) > 1 else found


@dataclass(frozen=True, slots=True)
class CompletionCheck:
    """When an answer is accepted.

    Attributes:
        checker: says what is missing.
        most_sent_back: how often the model is sent back at most; then its answer is accepted as it is. 0 for never.

    Raises:
        PromptValidationError: the checker is neither a checker nor a function.
        InvalidArgumentError: the number is not one, or negative.
    """

    checker: CompletionChecker | CompletionFunction
    most_sent_back: int = MOST_SENT_BACK

    def __post_init__(self) -> None:
        object.__setattr__(self, "checker", checker_of(self.checker))
        if type(self.most_sent_back) is not int or self.most_sent_back < 0:
            raise InvalidArgumentError(
                function="CompletionCheck",
                argument="most_sent_back",
                given=self.most_sent_back,
                expected="a number of at least 0",
            )

    def missing(self, context: CompletionContext, /) -> Sequence[str]:
        """What the checker misses."""
        return cast("CompletionChecker", self.checker).missing(context)  # made one above


class _ByFunction:
    """A function as a checker."""

    __slots__ = ("_function",)

    def __init__(self, function: CompletionFunction) -> None:
        self._function = function

    def __repr__(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    def missing(self, context: CompletionContext, /) -> Sequence[str]:
        found = self._function(context)
        if found is None:
            return ()
        # Anything else than texts is refused by the caller, who knows the prompt.
        return (found,) if isinstance(found, str) else found


def checker_of(given: object) -> CompletionChecker:
    """A checker, also of a function.

    Raises:
        PromptValidationError: it is neither.
    """
    if callable(getattr(given, "missing", None)) and not isinstance(given, type):
        return cast("CompletionChecker", given)
    if callable(given) and not isinstance(given, type):
        return _ByFunction(cast("CompletionFunction", given))
    raise PromptValidationError(
        f"{shorten(repr(given), 80)} cannot check an answer; give a checker, as FilesExist(['report.md']), or a "
        "function that takes a CompletionContext and returns what is missing, or None."
    )


def completion_of(given: object) -> CompletionCheck | None:
    """When the answers of a prompt are accepted, from what it was given; `None` for always.

    Raises:
        PromptValidationError: it was given something else.
    """
    return given if given is None or isinstance(given, CompletionCheck) else CompletionCheck(checker_of(given))
