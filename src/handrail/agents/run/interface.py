"""The interface of a run: its options, and its events.

A session stores how `handrail run` was typed (`RunCommand`), to show how to resume its run. What was denied must not be
allowed because an option was left out: a run that was begun with `--rules`, or on another folder, is resumed only by a
command that names the rules and the folder.

In each event `path` is the chain of agents that called each other, the first one first, and `reply` the reply of the
model that asked for the call: with `call_id` it names the call within its session. Events are frozen and made of plain
types, so that a listener may keep them or write them down.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic_ai.models import Model

from handrail.adapters.pydantic_ai.models import check_model_name
from handrail.agents.approval.decisions import ApprovalMode, Asker, Decision, GatedCall
from handrail.agents.approval.rules import ApprovalRules
from handrail.errors import AgentError
from handrail.limits import Deadline, Heartbeat, RunContext, TokenUsage
from handrail.prompt.hooks import (
    CompletionCheck,
    CompletionChecker,
    CompletionFunction,
    FeedbackProvider,
    as_completion_check,
    checked_providers,
)
from handrail.redaction import redacted
from handrail.resources import ResourceRegistry
from handrail.runtime import EffectAwaited
from handrail.session import Session, SlicePolicy, stored_as

Status = Literal["done", "waiting", "failed"]
"""How a run ended: with an answer, with questions that are left open, or by an exception."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """An agent begins, or resumes the conversation of its session (`resumed`)."""

    path: tuple[str, ...]
    model: str
    session_id: str
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class RunWarned:
    """A warning with its cure, such as about an approval rule that fits nothing."""

    path: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the text of the model."""

    path: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The model asked for a call whose arguments are valid; they are as JSON has them."""

    path: tuple[str, ...]
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    reply: str | None = None


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call has been carried out or refused, and recorded.

    Attributes:
        success: whether it succeeded; if not, its changes have been rolled back.
        content: the text of its result; of more than 30,000 characters the beginning and the end, whatever limit the
            tool sets for the model. The record of the call has the whole result.
        seconds: its duration, waiting included.
        replayed: whether the result comes from the ledger.
        raised_at: file and line in the folder of the project that raised, such as `tools.py:12`; empty without one.
            Not for the model.
        refused: whether it failed before its handler was started, so that nothing had to be rolled back.
        outcome_unknown: whether its handler was started and failed, and its effect on the world may have happened;
            see `handrail ledger reconcile`.
        has_effect: whether it has an effect in the ledger, which is not rolled back with session and files.
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
    """A call waits for an effect that another process, or another handler of this one, has claimed.

    Attributes:
        key: the key of the effect.
        owner: the call that has claimed the effect, and its process, in words.
        until: the end of the lease of the claim, in ISO 8601, unless its owner renews it.
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
class QuestionAsked:
    """A person is about to be asked whether a call may run."""

    call: GatedCall

    @property
    def path(self) -> tuple[str, ...]:
        """The agents that called each other."""
        return self.call.path


@dataclass(frozen=True, slots=True)
class QuestionDecided:
    """A person, a rule or the mode has decided whether a call may run."""

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
        output: its answer; for a failure, the error.
        usage: the tokens of this run, those of the agents that it called included.
        unknown: the effects of its session that may have happened: tools by the keys of the effects. A run that was
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
    | CallEnded
    | QuestionAsked
    | QuestionDecided
    | RunEnded
)
"""Every event of a run."""

Listener = Callable[[RunEvent], None]
"""Called with each event, on the event loop of the run: it must not block. Exceptions of it are logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of one run; they hold for the agents that it calls, too.

    Attributes:
        session: the session with state, conversation and record; a new one in memory without. One that holds a
            conversation already is resumed. It has one run of an agent at a time.
        model: the model of every agent of the run, instead of those that their files name.
        mode: how questions are answered: a person is asked, all are approved, or nothing runs that no rule allows.
        asker: asks the person. Without one, calls that need approval are denied.
        rules: the approval rules; those of the project without.
        listener: called with each event.
        root: the folder that the file tools and the shell work on; the current one without.
        deps: `ctx.deps` of PydanticAI's tools.
        resources: `context.resources` of Handrail's tools, beside the resources of their sections.
        max_depth: how deep agents may call each other; the one that is started is at depth 1.
        request_limit: how many requests to models the run and those nested in it may make; `None` for any number.
        deadline: no call starts or runs past it.
        heartbeat: beaten by `context.beat()` of Handrail's tools.
        run_context: correlation ids, for `context.run_context` and `ToolInvoked`, instead of those of each agent.
        output_type: the type of the answer, as PydanticAI's `Agent` takes it; text without.
        feedback: providers of advice in the messages of calls, as of `PromptTemplate`.
        completion: when the answer of the agent that is started is accepted, as of `PromptTemplate`; the answers of
            agents that it calls always are.
        stream: whether replies are streamed to a listener; without, it gets each reply as a whole.
        retries: how often the library of the provider repeats a request that fails for a reason that may pass, such as
            429, 5xx or no connection; its own number without. No call is repeated by it.
        fallback_model: is asked where the model of an agent fails at a request, after its retries.
        on_abort: `"undo"` undoes the calls of a run that ends with an error or is cancelled, as far as they can be
            (`handrail.undo.on_abort`). The session must be stored; the calls of agents that it called stay.
        check_names: whether Handrail reports conflicts of tool names, with every origin; without, PydanticAI ends the
            run at the first.

    Raises:
        ValueError: the mode does not exist, or a number is out of its range; a provider or checker is invalid.
        UnknownModelError: no model can have that name.
    """

    session: Session | None = None
    model: Model | str | None = None
    mode: ApprovalMode = "ask"
    asker: Asker | None = None
    rules: ApprovalRules | None = None
    listener: Listener | None = None
    root: Path | str | None = None
    deps: Any = None
    resources: ResourceRegistry | Mapping[type[Any], object] = field(default_factory=dict[type[Any], object])
    max_depth: int = 5
    request_limit: int | None = 50
    deadline: Deadline | None = None
    heartbeat: Heartbeat | None = None
    run_context: RunContext | None = None
    output_type: Any = str
    feedback: Sequence[FeedbackProvider] = ()
    completion: CompletionCheck | CompletionChecker | CompletionFunction | None = None
    stream: bool = True
    retries: int | None = None
    fallback_model: Model | str | None = None
    on_abort: Literal["undo"] | None = None
    check_names: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", None if self.root is None else Path(self.root))
        if self.on_abort not in (None, "undo"):
            raise ValueError(f"on_abort is {self.on_abort!r}; it is 'undo', or None")
        if self.on_abort is not None and (self.session is None or self.session.store is None):
            raise ValueError("on_abort='undo' needs a session in a store: Session.open(store, session_id)")
        if self.mode not in ("ask", "approve-all", "deny-all"):
            raise ValueError(f"mode is {self.mode!r}; it is ask, approve-all or deny-all")
        for name, model in (("model", self.model), ("fallback_model", self.fallback_model)):
            if isinstance(model, str):
                check_model_name(model, source=f"RunOptions({name}=...)")
        checked_providers(self.feedback)
        as_completion_check(self.completion)
        for name, least in (("max_depth", 1), ("request_limit", 1), ("retries", 0)):
            if (number := getattr(self, name)) is not None and number < least:
                raise ValueError(f"{name} is {number}, and it must be a whole number, {least} or more")


DEFAULT_OPTIONS = RunOptions()
"""The default of every option."""


SCRIPT_PREFIX = "script:"
"""The prefix of a script file, in place of a model's name."""


@stored_as("handrail.run_command")
@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """The options of `handrail run` that change a run, as they were typed. Its slice is a LOG; the last one holds.

    Attributes:
        folder: the folder in which the command was typed; empty if only the name of the agent is known.
        rules: the file of approval rules; `None` for the project's.
        root: the folder to work on; `None` for `folder`.
        mode: the approval mode, in which a replay decides as the run did; a run that is resumed states its own.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    agent_file: str
    folder: str = ""
    model: str | None = None
    rules: str | None = None
    root: str | None = None
    max_depth: int = DEFAULT_OPTIONS.max_depth
    request_limit: int | None = DEFAULT_OPTIONS.request_limit
    stream: bool = True
    retries: int | None = None
    fallback_model: str | None = None
    mode: ApprovalMode = "ask"

    def resuming(self, session_id: str, *, store: str | None, approve: str = "ask") -> list[str]:
        """The command that resumes the run, typed in the current folder, as words of a shell.

        `store` is `None` if the project or the environment names it; `approve` is the value of `--approve`.
        """
        words = ["handrail", "run", self._path(self.agent_file), *self._options()]
        if approve != "ask":
            words += ["--approve", approve]
        if store is not None:
            words += ["--store", redacted(store)]
        return [shlex.quote(word) for word in (*words, "--session", session_id)]

    def _options(self) -> Iterator[str]:
        for option, model in (("--model", self.model), ("--fallback-model", self.fallback_model)):
            if model is not None:
                script = model.removeprefix(SCRIPT_PREFIX)
                yield from (option, model if script == model else SCRIPT_PREFIX + self._path(script))
        if self.rules is not None:
            yield from ("--rules", self._path(self.rules))
        if self.root is not None or not self._is_here:
            yield from ("--root", self._path(self.root or ""))
        for name in ("max_depth", "request_limit", "retries"):
            if (number := getattr(self, name)) != getattr(DEFAULT_OPTIONS, name):
                yield from (f"--{name.replace('_', '-')}", str(number))
        if not self.stream:
            yield "--no-stream"

    @property
    def _is_here(self) -> bool:
        return not self.folder or self.folder == str(Path.cwd())

    def _path(self, typed: str) -> str:
        return typed if self._is_here else str(Path(self.folder, typed))


def record_command(session: Session, command: RunCommand) -> None:
    """Stores how a run was typed, unless the session has that already.

    Raises:
        SessionError: the session cannot be written to.
    """
    if session[RunCommand].latest() != command:
        session[RunCommand].append(command)


def check_resumed(session: Session, options: RunOptions) -> None:
    """Checks that a run is resumed with the rules and on the folder that it was begun with, or with others by choice.

    A file of rules may have changed since; its present rules hold.

    Raises:
        AgentError: `options` leave out the rules or the folder, and the run was begun with others than the defaults.
    """
    if (first := session[RunCommand].latest()) is None:
        return
    missing: list[str] = []
    if first.rules is not None and options.rules is None:
        missing += ["--rules", os.path.relpath(Path(first.folder, first.rules))]
    root = Path(first.folder, first.root or "")
    if options.root is None and root.resolve() != Path.cwd().resolve():
        missing += ["--root", os.path.relpath(root)]
    if missing:
        raise AgentError(
            f"the run in session {session.session_id!r} was begun with other rules or on another folder than apply "
            f"now; resume it with {shlex.join(missing)}, or name others "
            "(in a program, RunOptions(rules=..., root=...))"
        )
