"""Feedback providers: they may add advice to the message of a call, when their trigger applies.

A policy decides whether a call runs. Feedback only advises: it is text for the model, added to the message of the call
after which it is due, in a part of its own. The result of the call, and its record, do not contain it.
`handrail.runtime.hooks` decides when a provider is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, cast

from handrail.errors import InvalidArgumentError, PathEscapeError, PromptValidationError
from handrail.filesystem.paths import normalise
from handrail.prompt.run_view import RunView
from handrail.serde.formatting import shorten
from handrail.session.call_ref import ToolCall

MAX_FEEDBACK_CHARS = 2_000
"""The longest text of one feedback, in characters; a longer one is cut."""

_NO_TIME = timedelta(0)
_PATH = 'a path or a glob pattern: "reports/*.md"'


@dataclass(frozen=True, slots=True)
class Feedback:
    """Advice to the model.

    Attributes:
        text: what the model reads, in one or two sentences.
        suggestions: what it may do about it, each in one sentence.

    Raises:
        InvalidArgumentError: the text or a suggestion is not text, or is empty.
    """

    text: str
    suggestions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for argument, given in (("text", self.text), *(("suggestions", each) for each in self.suggestions)):
            if not isinstance(given, str) or not given.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a checker
                expected = "text that is not empty"
                raise InvalidArgumentError(function="Feedback", argument=argument, given=given, expected=expected)

    def render(self, name: str) -> str:
        """The feedback as the model reads it: a line that marks it, the text, a line for each suggestion.

        Args:
            name: the name of its provider.
        """
        text = "\n".join((self.text, *(f"- {each}" for each in self.suggestions)))
        return f"[Feedback ({name}), not part of the result]\n{shorten(text, MAX_FEEDBACK_CHARS)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackContext(RunView):
    """What a provider sees: the run, and the call that has just ended.

    Attributes:
        call: the call to whose message the feedback is added.
        success: whether it succeeded.
        calls: how many calls there have been since the last feedback of the provider, with this one.
        files: the paths that have appeared, if the provider watches for them, sorted.
    """

    call: ToolCall
    success: bool = True
    calls: int = 1
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackTrigger:
    """When a provider is asked; at least one condition. Several are alternatives: any of them suffices.

    Each provider counts for itself, from its last feedback in the session, or else from the first call. Nested calls
    count, and have no feedback. A provider that has nothing to say is asked again after the next call.

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


class FeedbackProvider(Protocol):
    """Something that may have feedback for the model."""

    @property
    def name(self) -> str:
        """The name, unique in the prompt. It is shown to the model."""
        ...

    @property
    def trigger(self) -> FeedbackTrigger:
        """When the provider is asked."""
        ...

    def provide(self, context: FeedbackContext, /) -> Feedback | Awaitable[Feedback | None] | None:
        """The feedback that is due; `None` for nothing. It may be `async`.

        It is called when the call has ended, and may be called from several threads. The message of the call waits for
        it. An exception is logged, and the call has no feedback of this provider. It reads: what it writes to the
        session or to a resource raises `ReadOnlyViolation`, and `TransactionClosedError` once its call was cancelled.
        """
        ...


def checked_providers(providers: object) -> tuple[FeedbackProvider, ...]:
    """The providers of a prompt, if they are valid.

    Raises:
        PromptValidationError: one is not a provider, or two have one name.
    """
    if not isinstance(providers, Iterable) or isinstance(providers, str):
        raise PromptValidationError(f"feedback is of type {type(providers).__name__}; write feedback=[...].")
    checked: dict[str, FeedbackProvider] = {}
    for each in cast("Iterable[object]", providers):
        name, trigger = getattr(each, "name", None), getattr(each, "trigger", None)
        if not isinstance(name, str) or not name or "\n" in name or not callable(getattr(each, "provide", None)):
            raise PromptValidationError(
                f"feedback holds {shorten(repr(each), 80)}, which is not a FeedbackProvider: it has a name of one "
                "line, a trigger, and a method provide."
            )
        if not isinstance(trigger, FeedbackTrigger):
            raise PromptValidationError(
                f"the trigger of feedback {name!r} is of type {type(trigger).__name__}; write "
                "FeedbackTrigger(every_calls=10)."
            )
        if name in checked:
            raise PromptValidationError(f"two providers of feedback have the name {name!r}. Give one another name=.")
        checked[name] = cast("FeedbackProvider", each)
    return tuple(checked.values())


def _check_number(argument: str, given: object, *, least: int) -> None:
    if given is not None and (type(given) is not int or given < least):
        _refuse(argument, given, f"a number of at least {least}")


def _refuse(argument: str, given: object, expected: str) -> None:
    raise InvalidArgumentError(function="FeedbackTrigger", argument=argument, given=given, expected=expected)
