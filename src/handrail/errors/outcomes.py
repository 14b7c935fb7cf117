"""The root of the tree of errors and its branches; the errors that the model reads, and those that end a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, cast

EffectWord = Literal["none", "done", "unknown"]
"""The effect of a call that could not be recorded: it has none, it is done, or that is unknown."""


class HandrailError(Exception):
    """The root of all exceptions of Handrail; a model reads `text_for_model` instead of the message, if it is set.

    Keyword arguments are its attributes, as a class declares them; a list becomes a tuple.
    """

    text_for_model: ClassVar[str] = ""

    def __init__(self, *message: object, **attributes: object) -> None:
        super().__init__(*message)
        for name, value in attributes.items():
            setattr(self, name, tuple(cast("list[object]", value)) if isinstance(value, list) else value)

    def __reduce__(self) -> tuple[Any, ...]:
        """For durable engines and pools of processes, which pickle errors; some attributes become their `repr`."""
        return _restore, (type(self), self.args, {name: _picklable(value) for name, value in vars(self).items()})


def _restore(kind: type[HandrailError], args: tuple[object, ...], attributes: dict[str, object]) -> HandrailError:
    error = kind.__new__(kind)  # without `__init__`, whose arguments are those of each class
    error.args = args
    vars(error).update(attributes)
    return error


def _picklable(value: object) -> object:
    import pickle  # noqa: PLC0415 - of a failure

    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - whatever a type of the program raises
        return repr(value)
    return value


class ModelVisibleError(HandrailError):
    """The branch of the tree that becomes a failed result: the model reads the message."""


# Also a ValueError: it refuses the value of an argument.
class ToolValidationError(ModelVisibleError, ValueError):
    """Arguments that parse, but that the handler or a policy finds wanting. The message goes to the model."""


class ReadOnlyViolation(ModelVisibleError):
    """A write by a call that may only read, or by a provider, checker or reconciler. Nothing was written.

    Attributes:
        tool: name of the tool whose call tried, or of the provider or checker.
        what: the write, in words.
        cure: the end of the message.
    """

    def __init__(self, tool: str, what: str, *, concurrent: bool = False, cure: str = "") -> None:
        if concurrent and not cure:
            cure = "The tool is declared with concurrent=True: return what is to be stored, or declare it without that."
        cure = cure or "Declare the tool with effect='state' (or 'external') to write."
        super().__init__(f"{tool} may only read, so it cannot {what}. {cure}")
        self.tool = tool
        self.what = what
        self.cure = cure


class TransactionClosedError(ModelVisibleError):
    """A write, `what`, by the handler of a `tool` whose call has already ended. Nothing was written."""

    def __init__(self, tool: str, what: str) -> None:
        super().__init__(f"the call of {tool} has ended, so it can no longer {what}; nothing was written")
        self.tool = tool
        self.what = what


# Neither a ModelVisibleError nor a RunAbortedError: the pipeline would record either as the outcome of the call, and
# this call has no outcome yet.
class CallPostponed(HandrailError):
    """A call that cannot be carried out yet, because it waits for an approval, say. It is undone, and not recorded.

    Raised for an approver that leaves its question open, by approvers, and by the handlers of adapters. `question` is
    the `ApprovalRequest` that the approver has left open; `None` if none has.
    """

    question: object = None


class TurnConflictError(ModelVisibleError):
    """A nested call that would have waited for a call that waits for its own caller. Nothing was run."""


# Not an AgentError: the project is sound, and the model that asked for the call can do without it.
class AgentDepthError(ModelVisibleError):
    """Agents call each other too deep, and the call that would go deeper fails. The first agent is at depth 1."""


class LeaseLostError(ModelVisibleError):
    """The claim of an effect has passed to another owner. A handler that has not begun the effect leaves it to them."""

    def __init__(self, key: str, fence: int) -> None:
        super().__init__(
            f"the lease of effect {key} (fence {fence}) has been lost: it expired, and another call or a person has "
            "taken the effect over."
        )
        self.key = key
        self.fence = fence


# The model reads it, because it must not repeat the call as if nothing had happened.
class EffectUncertain(ModelVisibleError):
    """Raised by a handler that does not know whether its effect happened: the ledger marks the effect `unknown`.

    An external handler need not raise it: any exception that does not prove the contrary says the same.
    """


class AppliedMeanwhileError(ModelVisibleError):
    """Another call applied the result of the effect `key` while this one applied it; this one was rolled back.

    A call that answers from the ledger is answered anew by itself; a nested call fails with its parent.
    """

    def __init__(self, key: str) -> None:
        super().__init__(
            f"another call has applied the result of the effect {key} at the same time, so this call was undone. Ask "
            "for it again to get its result."
        )
        self.key = key


class EffectNotApplied(ModelVisibleError):
    """Raised by a handler that knows that its effect did not happen: the call failed, and may run again."""


class RunAbortedError(HandrailError):
    """The branch of the tree that no model can correct: it is rolled back, recorded and raised to the caller."""


class PromptEvaluationError(RunAbortedError):
    """The evaluation of a prompt that stopped.

    Attributes:
        phase: where it stopped: `"tool"`, `"request"`, `"response"`, `"budget"`, `"rollback"` or `"store"`.
        tool: name of the tool that ran, if one did.
    """

    phase: str = "tool"
    tool: str | None = None


class ModelUnreachableError(PromptEvaluationError):
    """The provider of a `model`, at `host` if that is known, did not answer, for a `reason`. `phase` is `"request"`."""

    phase: str = "request"  # a request to the model stopped, not a call; no tool is at fault
    model: str
    host: str | None
    reason: str


class IncompleteReplyError(PromptEvaluationError):
    """A reply of the model is cut off. No call of it has run, and nothing was appended; `phase` is `"response"`.

    Attributes:
        reply: the id that the provider gave it; empty if there is none.
        reason: what the provider says, such as `"finish_reason length"`; with None in it, a stream was cut.
    """

    def __init__(self, reply: str, reason: str) -> None:
        super().__init__(
            f"the reply {f'{reply} ' if reply else ''}of the model is incomplete: {reason}. No call of it has run, and "
            "nothing was appended, so make the request again; if a limit has cut the reply, with a higher one.",
            phase="response",
        )
        self.reply = reply
        self.reason = reason


# Ends the run: a model that reads of it asks again.
class RecordingError(PromptEvaluationError):
    """The session of a run was lost, or a store does not answer. What was committed is safe; `phase` is `"store"`.

    Open the session again, when the store answers, and resume the run. The cause is the error of session or store.

    Attributes:
        session_id: the session of the run.
        effect: the external effect of the call. In no case is it repeated unasked.
    """

    text_for_model: ClassVar[str] = "the run could not be recorded"

    def __init__(
        self, what: str, cause: Exception, *, session_id: str, tool: str | None = None, effect: EffectWord = "none"
    ) -> None:
        super().__init__(
            f"{what}. What was committed is safe: open session {session_id!r} again to resume the run. The cause is "
            f"{type(cause).__name__}: {cause}",
            phase="store",
            tool=tool,
        )
        self.__cause__: BaseException | None = cause
        self.session_id = session_id
        self.effect: EffectWord = effect


# Ends the run: a participant that was not restored may have a state that no sequence of calls produces.
class RollbackError(PromptEvaluationError):
    """Participants that could not be restored; every other one was. `failures` holds `(participant, exception)`."""

    def __init__(self, tool: str, failures: Sequence[tuple[object, Exception]]) -> None:
        # Types only for the participants: the `repr` of one that is half restored may raise.
        text = "; ".join(f"{type(who).__name__}: {type(error).__name__}: {error}" for who, error in failures)
        super().__init__(f"the call of {tool} could not be undone in full: {text}", phase="rollback", tool=tool)
        self.failures: tuple[tuple[object, Exception], ...] = tuple(failures)


# Ends the run: the next call would build on a state of which it is unknown whether it was committed.
class CommitInDoubtError(RunAbortedError):
    """A store was lost in the moment of a commit: it is unknown here whether the call was committed.

    Nothing was restored. Open the session and the files anew when the store answers again.
    """


class DeadlineExceededError(RunAbortedError):
    """The deadline has passed."""


# These three end the run: no call may follow that the plan does not have.
class DryRunEndedError(RunAbortedError):
    """A dry run cannot rehearse a call of a `tool`, so the plan ends before it."""

    tool: str = ""


class PlanRefusedError(RunAbortedError):
    """A plan is not made, or not executed: nothing has run. `changes` says what has changed since it was made."""

    changes: Sequence[str] = ()


class ReplayEndedError(RunAbortedError):
    """A replay has ended with its first difference, or with what the record does not have."""


class PlanDeviatedError(RunAbortedError):
    """A run that executes a plan deviates from it, and was stopped before the next call; `diff` shows how, if it can.

    The session has what was done before.
    """

    diff: str = ""


class BudgetExceededError(RunAbortedError):
    """More was used than the budget allows: the `usage` of a `dimension` is above its `limit`."""

    def __init__(self, *, dimension: str, usage: int, limit: int) -> None:
        super().__init__(f"the budget is used up: {dimension} is {usage}, and at most {limit} were allowed")
        self.dimension = dimension
        self.usage = usage
        self.limit = limit


# It leaves the pipeline, because only the caller can render the prompt again.
class VisibilityExpansionRequired(RunAbortedError):
    """The model asked for sections that are rendered as summaries: render the prompt again with them opened.

    Attributes:
        section_keys: dotted paths of the sections to open.
        reason: what the model gave as its reason.
        requested_overrides: what to open them to, by dotted path.
        open_sections: the paths of the sections that are open now because of it; empty until it has been recorded, and
            if
            it names a section that the prompt of the call cannot open.
    """

    section_keys: Sequence[str] = ()
    reason: str = ""
    requested_overrides: Mapping[str, object] = MappingProxyType({})
    open_sections: Sequence[str] = ()


class DeveloperMistake(HandrailError):
    """The branch of the tree for mistakes of the program that Handrail itself finds while a call runs.

    The call is rolled back and recorded as failed. The exception is raised to the developer when the other calls of the
    reply have ended. The model reads nothing of it.
    """

    text_for_model: ClassVar[str] = "a mistake of the program"
