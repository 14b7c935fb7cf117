"""Two hooks of a run: feedback providers, which advise after a call, and completion checkers, which accept an answer.

Feedback is text for the model in the message of a call, in a part of its own; the result of the call and its record do
not contain it. A completion checker says what is missing when the model gives its answer; then the model is sent back
with these sentences.

`handrail.adapters.hooks` asks both. They see a run as a `RunView`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar, cast

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import InvalidArgumentError, PromptValidationError, UnboundResourceError
from handrail.filesystem import Filesystem
from handrail.filesystem.paths import normalise
from handrail.limits import BudgetTracker, Deadline
from handrail.prompt.context import resource_for_call
from handrail.resources import Resolver
from handrail.resources.context import BoundResources
from handrail.serde.formatting import enumerated, shorten
from handrail.session import Session
from handrail.session.calls import ToolCall
from handrail.session.views import bound_session
from handrail.transaction import Transaction, view_for_call

V = TypeVar("V", bound="RunView")


@dataclass(frozen=True, slots=True)
class RunFilesystem:
    """Finds the `Filesystem` of another prompt of a run, for one whose prompt binds none."""

    find: Callable[[], Filesystem | None]

    def view_for_call(self, call: Transaction, /) -> RunFilesystem:
        """The same for a call; it finds a view that is bound to the call."""

        def find() -> Filesystem | None:
            filesystem = self.find()
            return None if filesystem is None else view_for_call(filesystem, call)

        return RunFilesystem(find)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run between two calls of the model. It is read, not changed.

    A provider or checker gets views of session and resources, as a handler does: writes through them are refused, also
    after it was abandoned.
    """

    prompt: str
    session: Session
    resources: Resolver
    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    clock: Clock = SYSTEM_CLOCK

    def within(self, transaction: Transaction, kind: type[V], /, **more: Any) -> V:  # noqa: ANN401 - of any class
        """A copy of class `kind` for a hook, whose session and resources are bound to its transaction."""
        return kind(
            prompt=self.prompt,
            session=bound_session(self.session, transaction),
            resources=BoundResources(self.resources, transaction, view_for_call=resource_for_call),
            deadline=self.deadline,
            budget_tracker=self.resources.get(BudgetTracker, self.budget_tracker),
            clock=self.clock,
            **more,
        )

    @property
    def filesystem(self) -> Filesystem | None:
        """The bound `Filesystem`, or that of another prompt of the run; `None` if there is none."""
        if (bound := self.resources.get(Filesystem, None)) is not None:
            return bound
        beside = self.resources.get(RunFilesystem, None)
        return None if beside is None else beside.find()


MAX_FEEDBACK_CHARS = 2_000
"""The longest text of one feedback, in characters; a longer one is cut."""

_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class Feedback:
    """Advice to the model.

    Attributes:
        text: one or two sentences.
        suggestions: what the model may do about it, each in one sentence.

    Raises:
        InvalidArgumentError: the text or a suggestion is not text, or is empty.
    """

    text: str
    suggestions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        texts: tuple[Any, ...] = (self.text, *self.suggestions)
        for place, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip():
                _refuse("Feedback", "suggestions" if place else "text", text, "text that is not empty")

    def render(self, name: str) -> str:
        """The feedback as the model reads it: a line with the name of the provider, the text, the suggestions."""
        text = "\n".join((self.text, *(f"- {suggestion}" for suggestion in self.suggestions)))
        return f"[Feedback ({name}), not part of the result]\n{shorten(text, MAX_FEEDBACK_CHARS)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackContext(RunView):
    """The run, and the call that has just ended.

    Attributes:
        call: the call to whose message the feedback is added.
        calls: how many calls there have been since the last feedback of the provider, with this one.
        files: the paths that have appeared, if the provider watches for them, sorted.
    """

    call: ToolCall
    success: bool = True
    calls: int = 1
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackTrigger:
    """The conditions under which a provider is asked; at least one. Several are alternatives.

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
        PathEscapeError: `on_file` is outside of the root.
    """

    every_calls: int | None = None
    every: timedelta | None = None
    on_file: str | None = None
    on_repeated_failure: int | None = None

    def __post_init__(self) -> None:
        if (self.every_calls, self.every, self.on_file, self.on_repeated_failure) == (None, None, None, None):
            expected = "a number of calls, unless there is another condition: FeedbackTrigger(every_calls=10)"
            _refuse("FeedbackTrigger", "every_calls", None, expected)
        for argument, least in (("every_calls", 1), ("on_repeated_failure", 2)):
            number = getattr(self, argument)
            if number is not None and (type(number) is not int or number < least):
                _refuse("FeedbackTrigger", argument, number, f"a number of at least {least}")
        every = cast("object", self.every)
        if every is not None and (not isinstance(every, timedelta) or every <= _NO_TIME):
            _refuse("FeedbackTrigger", "every", every, "a positive span with its unit: timedelta(minutes=5)")
        if self.on_file is not None:
            normalise(self.on_file, noun="path or pattern")


def _refuse(function: str, argument: str, value: object, expected: str) -> NoReturn:
    raise InvalidArgumentError(function=function, argument=argument, value=value, expected=expected)


class FeedbackProvider(Protocol):
    """A source of feedback for the model."""

    @property
    def name(self) -> str:
        """The name, unique in the prompt. It is shown to the model."""
        ...

    @property
    def trigger(self) -> FeedbackTrigger:
        """The conditions under which the provider is asked."""
        ...

    def provide(self, context: FeedbackContext, /) -> Feedback | Awaitable[Feedback | None] | None:
        """The feedback that is due; `None` for nothing. It may be `async`.

        Called when the call has ended, perhaps from several threads; the message of the call waits for it. An exception
        is logged, and there is no feedback. What it writes to the session or to a resource raises `ReadOnlyViolation`,
        and `TransactionClosedError` once its call was cancelled.
        """
        ...


_WRAP_UP = ("Do what matters most first.", "Leave a summary of what is done and of what is not.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFeedback:
    """A fixed text."""

    text: str
    trigger: FeedbackTrigger
    name: str = "note"

    def provide(self, context: FeedbackContext, /) -> Feedback:  # noqa: ARG002 - the interface's
        """The text."""
        return Feedback(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineFeedback:
    """The time left until the deadline of the run. Without a deadline there is nothing to say.

    Attributes:
        warn_below: with less time left, the model is also advised to come to an end.
    """

    trigger: FeedbackTrigger = field(default=FeedbackTrigger(every=timedelta(minutes=1)))
    warn_below: timedelta = timedelta(minutes=2)
    name: str = "deadline"

    def provide(self, context: FeedbackContext, /) -> Feedback | None:
        """The time left as hours, minutes and seconds, rounded down."""
        if context.deadline is None:
            return None
        remaining = context.deadline.remaining()
        if not remaining:
            return Feedback("The deadline has passed.", ("Give your answer now.",))
        seconds = timedelta(seconds=int(remaining.total_seconds()))
        return Feedback(f"Time left (h:mm:ss): {seconds}.", _WRAP_UP if remaining <= self.warn_below else ())


def checked_providers(providers: Iterable[Any]) -> tuple[FeedbackProvider, ...]:
    """Checks the providers of a prompt."""
    checked: dict[str, FeedbackProvider] = {}
    for provider in providers:
        name, provide = getattr(provider, "name", ""), getattr(provider, "provide", None)
        has_trigger = isinstance(getattr(provider, "trigger", None), FeedbackTrigger)
        if not has_trigger or not name or "\n" in name or not callable(provide):
            raise PromptValidationError(
                f"feedback holds {shorten(repr(provider), 80)}, which is not a FeedbackProvider: it has a name of one "
                "line, a FeedbackTrigger, and a method provide."
            )
        if name in checked:
            raise PromptValidationError(f"two providers of feedback have the name {name!r}. Give one another name=.")
        checked[name] = provider
    return tuple(checked.values())


MOST_SENT_BACK = 3
"""The default of how often the model is sent back at most."""

_LONGEST_LIST = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionContext(RunView):
    """The run, and the answer that the model has given."""

    answer: Any = None


class CompletionChecker(Protocol):
    """A check of whether an answer is complete."""

    def missing(self, context: CompletionContext, /) -> Sequence[str]:
        """The missing parts, each in one sentence for the model; empty if it is complete.

        It may be called on another thread than that of the run. What it writes to the session or to a resource raises
        `ReadOnlyViolation`, and `TransactionClosedError` once the deadline has passed or the check was cancelled. An
        exception ends the run: it is a mistake of the program.
        """
        ...


CompletionFunction: TypeAlias = Callable[[CompletionContext], str | Sequence[str] | None]
"""A function in the place of a checker: what is missing, or `None` if it is complete."""


@dataclass(frozen=True, slots=True)
class FilesExist:
    """Files that the bound `Filesystem` must have.

    Attributes:
        paths: not patterns: `*.md` is the name of a file.

    Raises:
        InvalidArgumentError: `paths` is one text.
    """

    paths: Sequence[str]

    def __post_init__(self) -> None:
        if isinstance(self.paths, str):
            _refuse("FilesExist", "paths", self.paths, 'a sequence of paths: ["report.md"]')

    def missing(self, context: CompletionContext, /) -> Sequence[str]:
        """The files that do not exist, in one sentence.

        Raises:
            UnboundResourceError: `Filesystem` is not bound.
        """
        if not self.paths:
            return ()
        if (filesystem := context.filesystem) is None:
            raise UnboundResourceError(Filesystem)
        absent = [path for path in self.paths if not filesystem.exists(path)]
        if not absent:
            return ()
        return (f"These files do not exist: {enumerated(absent, limit=_LONGEST_LIST)}.",)


@dataclass(frozen=True, slots=True)
class CompletionCheck:
    """A checker, and how often the model is sent back.

    Attributes:
        most_sent_back: then the answer is accepted as it is. 0 for never.

    Raises:
        PromptValidationError: the checker is neither a checker nor a function.
        InvalidArgumentError: the number is not one, or negative.
    """

    checker: CompletionChecker | CompletionFunction
    most_sent_back: int = MOST_SENT_BACK

    def __post_init__(self) -> None:
        _check_checker(self.checker)
        if type(self.most_sent_back) is not int or self.most_sent_back < 0:
            _refuse("CompletionCheck", "most_sent_back", self.most_sent_back, "a number of at least 0")

    def missing(self, context: CompletionContext, /) -> Sequence[str]:
        """The sentences of the checker."""
        return _missing(self.checker, context)


def _missing(checker: CompletionChecker | CompletionFunction, context: CompletionContext) -> Sequence[str]:
    function = cast("CompletionFunction", getattr(checker, "missing", checker))
    missing = function(context)
    # Anything else than texts is refused by the caller, who knows the prompt.
    return () if missing is None else (missing,) if isinstance(missing, str) else missing


def _check_checker(checker: object) -> None:
    if isinstance(checker, type) or not callable(getattr(checker, "missing", checker)):
        raise PromptValidationError(
            f"{shorten(repr(checker), 80)} cannot check an answer; give a checker, as FilesExist(['report.md']), or a "
            "function that takes a CompletionContext and returns what is missing, or None."
        )


def as_completion_check(completion: object) -> CompletionCheck | None:
    """The check of a prompt, from a check, a checker or a function; `None` for none."""
    if completion is None or isinstance(completion, CompletionCheck):
        return completion
    return CompletionCheck(cast("Any", completion))
