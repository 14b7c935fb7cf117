"""What a feedback provider is: something that may add advice to the message of a call.

A policy decides whether a call runs. Feedback only advises: it is text for the model, added to the message of the call
after which it is due, in a part of its own. The result of the call, and its record, do not contain it.
`handrail.runtime.feedback` decides when a provider is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Protocol, cast

from handrail.errors import InvalidArgumentError, PromptValidationError
from handrail.prompt.feedback.trigger import FeedbackTrigger
from handrail.prompt.run_view import RunView
from handrail.serde.formatting import shorten
from handrail.session.call_ref import ToolCall

MAX_FEEDBACK_CHARS = 2_000
"""The longest text of one feedback, in characters; a longer one is cut."""


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

        It is called when the call has ended, and may be called from several threads. An exception is logged, and
        the call has no feedback of this provider; it has none either of one that takes longer than `PROVIDER_TIMEOUT`,
        or past the deadline. It reads: what it writes to the session or to a resource raises `ReadOnlyViolation`, and
        `TransactionClosedError` once it has been left behind.
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
