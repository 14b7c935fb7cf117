"""The events of a run: one value for each thing that happens, also in the agents that it calls.

`path` is always the chain of agents, the one that was started first. Values are frozen and made of plain types, so that
a listener may keep them or write them down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from handrail.agents.approval.decisions import Decision, GatedCall
from handrail.contrib.tools.shell.process import ProgramProgress
from handrail.limits import TokenUsage
from handrail.runtime import EffectAwaited

Status = Literal["done", "waiting", "failed"]
"""How a run ended: with an answer, with questions that are left open, or by an exception."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """An agent begins, or resumes where it was interrupted.

    Attributes:
        path: the agents that called each other.
        model: the name of the model.
        session_id: the session that it works on.
        resumed: whether it resumes a conversation that is in the session.
    """

    path: tuple[str, ...]
    model: str
    session_id: str
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class RunWarned:
    """Something about the run may not be as it was meant, such as an approval rule that fits nothing.

    Attributes:
        path: the agents that called each other.
        message: what it is, and the cure.
    """

    path: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of what the model says.

    Attributes:
        path: the agents that called each other.
        text: the piece.
    """

    path: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The model asked for a call whose arguments are valid.

    Attributes:
        path: the agents that called each other.
        call_id: the id of the call.
        tool: the name of the tool.
        arguments: the validated arguments, as JSON has them.
        reply: the reply of the model that asked for it; with the id it names the call within its session.
    """

    path: tuple[str, ...]
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    reply: str | None = None


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call has been carried out or refused, and recorded.

    Attributes:
        path: the agents that called each other.
        call_id: the id of the call.
        tool: the name of the tool.
        success: whether it succeeded; if not, everything it changed has been undone.
        content: the text of its result; of more than 30,000 characters the beginning and the end, whatever limit the
            tool sets for the model. The record of the call has the whole result.
        seconds: how long it took, waiting included.
        replayed: whether the result comes from the ledger.
        reply: the reply of the model that asked for it, as for `CallStarted`.
        raised_at: file and line of the user's code at which the tool raised what ended the call, such as `tools.py:12`,
            from the folder of the project; empty if it raised nothing, or only a library did. Not for the model.
        refused: whether it failed before its handler was started, so that nothing had to be rolled back.
        has_effect: whether it has an effect in the ledger, which is not rolled back with session and files.
        outcome_unknown: whether its handler was started and failed, and its effect on the world may have happened;
            see `handrail ledger reconcile`.
    """

    path: tuple[str, ...]
    call_id: str
    tool: str
    success: bool
    content: str
    seconds: float
    replayed: bool
    reply: str | None = None
    raised_at: str = ""
    refused: bool = False
    outcome_unknown: bool = False
    has_effect: bool = False


@dataclass(frozen=True, slots=True)
class CallWaits:
    """A call waits for an effect that another process, or a handler left behind in this one, has claimed.

    Attributes:
        path: the agents that called each other.
        reply: the reply of the model that asked for the call; `None` if it has none.
        call_id: the id of the call.
        tool: the name of the tool.
        key: the key of the effect.
        owner: the call that has claimed the effect, and its process, in words.
        until: when the lease of the claim ends, in ISO 8601, unless its owner renews it.
    """

    path: tuple[str, ...]
    reply: str | None
    call_id: str
    tool: str
    key: str
    owner: str
    until: str

    @staticmethod
    def of(path: tuple[str, ...], event: EffectAwaited) -> CallWaits:
        """The wait of a call in the run of an agent."""
        owner, until = event.owner.in_words, event.until.isoformat()
        return CallWaits(path, event.reply, event.call_id, event.tool, event.key, owner, until)


@dataclass(frozen=True, slots=True)
class CallOutput:
    """A program that a call runs has written something, or has been quiet for some time.

    Attributes:
        path: the agents that called each other.
        reply: the reply of the model that asked for the call; `None` if it has none.
        call_id: the id of the call.
        tool: the name of the tool.
        text: what the program has written since the last such event, or the end of that; empty if it is quiet.
        quiet_seconds: for how long it has written nothing.
    """

    path: tuple[str, ...]
    reply: str | None
    call_id: str
    tool: str
    text: str
    quiet_seconds: float = 0.0

    @staticmethod
    def of(path: tuple[str, ...], event: ProgramProgress) -> CallOutput:
        """The output of a call in the run of an agent."""
        return CallOutput(path, event.reply, event.call_id, event.tool, event.text, event.quiet_seconds)


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """A person is about to be asked whether a call may run.

    Attributes:
        call: the call.
    """

    call: GatedCall

    @property
    def path(self) -> tuple[str, ...]:
        """The agents that called each other."""
        return self.call.path


@dataclass(frozen=True, slots=True)
class QuestionDecided:
    """It has been decided whether a call may run.

    Attributes:
        call: the call.
        decision: what was decided, and by whom.
    """

    call: GatedCall
    decision: Decision

    @property
    def path(self) -> tuple[str, ...]:
        """The agents that called each other."""
        return self.call.path


@dataclass(frozen=True, slots=True)
class RunEnded:
    """An agent has ended.

    Attributes:
        path: the agents that called each other.
        status: how it ended.
        output: its answer; for a failure, what went wrong.
        usage: the tokens of this run, those of the agents that it called included.
        session_id: the session that it worked on.
        unknown: the effects of that session that may have happened: the name of the tool by their keys. A run that was
            cancelled does not look for them; see `Session.open_calls`.
    """

    path: tuple[str, ...]
    status: Status
    output: str
    usage: TokenUsage
    session_id: str
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])


RunEvent = (
    RunStarted
    | RunWarned
    | TextDelta
    | CallStarted
    | CallWaits
    | CallOutput
    | CallEnded
    | QuestionAsked
    | QuestionDecided
    | RunEnded
)
"""Every event of a run."""

Listener = Callable[[RunEvent], None]
"""Called with each event, on the event loop of the run: it must not block. What it raises is logged."""
