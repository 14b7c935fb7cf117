"""Mistakes of the program that show when Handrail runs. They are raised to the developer, never told to a model."""

from __future__ import annotations

from typing import cast

from handrail.errors.outcomes import HandrailError

_MOST_SHOWN = 100


class DeveloperMistake(HandrailError):
    """The branch of the tree for mistakes of the program that Handrail itself finds while a call runs.

    The call is rolled back and recorded as failed. The exception is raised to the developer when the other calls of the
    reply have ended. The model reads nothing of it.
    """


def mistakes_in(error: BaseException) -> tuple[DeveloperMistake, ...]:
    """The developer's mistakes that an exception is or holds as a group, at any depth; empty for any other exception.

    An exception that was only raised from a mistake is not one: it is the program's own.
    """
    if isinstance(error, DeveloperMistake):
        return (error,)
    if isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)  # of whatever it is
        return tuple(mistake for member in group.exceptions for mistake in mistakes_in(member))
    return ()


class InvalidArgumentError(DeveloperMistake, TypeError, ValueError):
    """A function of Handrail was given a value of the wrong kind. Nothing was done.

    Attributes:
        function: the function or class, as it is imported: `"store.open"`.
        argument: the name of the parameter.
        given: the type of what was given.
        expected: what is expected, in words.
    """

    def __init__(self, *, function: str, argument: str, given: object, expected: str) -> None:
        super().__init__(f"{function}: {argument} is {_shown(given)}; it must be {expected}.")
        self.function = function
        self.argument = argument
        self.given: type[object] = type(given)
        self.expected = expected


def check_argument(
    function: str, argument: str, given: object, kinds: type[object] | tuple[type[object], ...], expected: str
) -> None:
    """Refuse an argument that is of another type.

    Args:
        function: the function or class, as it is imported: `"store.open"`.
        argument: the name of the parameter.
        given: what was given.
        kinds: the types that it may be of.
        expected: the same in words, with an example.

    Raises:
        InvalidArgumentError: it is of none of them.
    """
    if not isinstance(given, kinds):
        raise InvalidArgumentError(function=function, argument=argument, given=given, expected=expected)


class InvalidReturnError(DeveloperMistake, TypeError):
    """A policy, an approver or a `key_fn` of the program returned something of another type. The call did not run.

    Attributes:
        function: what returned it: `"policy rule"`, `"the approver"`, `"key_fn"`.
        tool: name of the tool whose call it was asked about.
        returned: the type of what it returned.
        expected: what is expected, in words.
    """

    def __init__(self, *, function: str, tool: str, returned: object, expected: str) -> None:
        super().__init__(f"{function} answered {_shown(returned)} about a call of {tool}; it must return {expected}.")
        self.function = function
        self.tool = tool
        self.returned: type[object] = type(returned)
        self.expected = expected


class SecondStoreError(DeveloperMistake):
    """A call writes to two stores of Handrail, and can commit in one only. The call is rolled back.

    Attributes:
        store: the store that the call commits in.
        second: the other one.
    """

    def __init__(self, *, store: object, second: object) -> None:
        super().__init__(
            f"a call writes to {_shown(store)} and to {_shown(second)}, and commits in one store only. Open the "
            "session and the files of a run with the same store: HostFilesystem(root, store=session.store)."
        )
        self.store = store
        self.second = second


def _shown(value: object) -> str:
    """A value with its type, in so many words."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a value that cannot show itself must not become another error
        return f"a value of type {type(value).__name__}"
    text = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    return f"{text} ({type(value).__name__})"
