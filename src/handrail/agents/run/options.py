"""What is chosen about one run of an agent, beside its input: by a program, or by how `handrail run` was typed.

A session stores how the command was typed, so that it can be shown how to resume its run. What was denied must not be
allowed because an option was left out. So a run that was begun with `--rules`, or on another folder, is resumed only by
a command that names the rules and the folder.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar

from pydantic_ai.models import Model

from handrail.adapters.pydantic_ai.model_names import check_model_name
from handrail.agents.approval.decisions import ApprovalMode, Asker
from handrail.agents.approval.rules import ApprovalRules
from handrail.agents.run.events import Listener
from handrail.errors import AgentError
from handrail.limits import Deadline, Heartbeat, RunContext
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
from handrail.session import Session, SlicePolicy, stored_as


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The choices of one run; they hold for the agents that it calls, too.

    Attributes:
        session: what the run works on: its state, its conversation and its record. A new one in memory without. One
            that holds a conversation already is resumed. It has one run of an agent at a time.
        model: the model of every agent of the run, instead of those that their files name.
        mode: how questions are answered: a person is asked, all are approved, or nothing runs that no rule allows.
        asker: asks the person. Without one, what would have to be asked is denied.
        rules: what is allowed, asked and denied; those of the project without.
        listener: hears what happens.
        root: the folder that the file tools and the shell work on; the current one without.
        deps: what PydanticAI's tools find in their `ctx.deps`.
        resources: what Handrail's tools find in `context.resources`, beside what their sections bring.
        max_depth: how deep agents may call each other; the one that is started is at depth 1.
        request_limit: how many requests to models the run and those nested in it may make; `None` for any number.
        deadline: no call starts or runs past it.
        heartbeat: beaten by `context.beat()` of Handrail's tools.
        run_context: correlation ids, for `context.run_context` and `ToolInvoked`, instead of those of each agent.
        output_type: the type of the answer, as PydanticAI's `Agent` takes it; text without.
        feedback: what may add advice for the model to the messages of calls, as of `PromptTemplate`.
        completion: when the answer of the agent that is started is accepted, as of `PromptTemplate`; the answers of
            agents that it calls always are.
        stream: whether the model's replies are streamed to a listener; without, it hears each reply as a whole.
        retries: how often the library of the provider repeats a request that fails for a reason that may pass, such as
            429, 5xx or no connection; its own number without. No call is repeated by it.
        fallback_model: is asked where the model of an agent fails at a request, after its retries.
        check_names: whether tool names that are taken twice are reported by Handrail, with every origin; without,
            PydanticAI ends the run at the first.

    Raises:
        ValueError: something is of the wrong kind, or a number is out of its range; a provider or a checker is none.
        UnknownModelError: no model can have that name.
    """

    session: Session | None = None
    model: Model | str | None = None
    mode: ApprovalMode = "ask"
    asker: Asker | None = None
    rules: ApprovalRules | None = None
    listener: Listener | None = None
    root: Path | None = None
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
    check_names: bool = True

    def __post_init__(self) -> None:
        given: dict[str, object] = {name: getattr(self, name) for name in (*_KINDS, "asker", "listener")}
        wrong = [(name, words) for name, (kinds, words) in _KINDS.items() if not isinstance(given[name], kinds)]
        functions = [name for name in ("asker", "listener") if given[name] is not None and not callable(given[name])]
        wrong += [(name, "a function, or None") for name in functions]
        if wrong:
            raise ValueError("; ".join(f"{name} is {given[name]!r}, and it must be {words}" for name, words in wrong))
        if self.mode not in ("ask", "approve-all", "deny-all"):
            raise ValueError(f"mode is {self.mode!r}; it is ask, approve-all or deny-all")
        for name, model in (("model", self.model), ("fallback_model", self.fallback_model)):
            if isinstance(model, str):
                check_model_name(model, source=f"RunOptions({name}=...)")
        checked_providers(self.feedback)
        as_completion_check(self.completion)
        for name, least in (("max_depth", 1), ("request_limit", 1), ("retries", 0)):
            if (number := getattr(self, name)) is not None and number < least:
                raise ValueError(f"{name} is {number}, and it must be {_KINDS[name][1]}")


_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "session": ((Session, NoneType), "a Session, or None for a new one"),
    "model": ((Model, str, NoneType), "a model of PydanticAI, the name of one, or None"),
    "rules": ((ApprovalRules, NoneType), "ApprovalRules, or None for those of the project"),
    "root": ((Path, NoneType), "a pathlib.Path, or None for the current folder"),
    "resources": ((ResourceRegistry, Mapping), "a ResourceRegistry, or a mapping from types to resources"),
    "max_depth": ((int,), "a whole number, 1 or more"),
    "request_limit": ((int, NoneType), "a whole number, 1 or more, or None for any number"),
    "deadline": ((Deadline, NoneType), "a Deadline, or None"),
    "heartbeat": ((Heartbeat, NoneType), "a Heartbeat, or None"),
    "run_context": ((RunContext, NoneType), "a RunContext of handrail.limits, or None"),
    "stream": ((bool,), "True or False"),
    "retries": ((int, NoneType), "a whole number, 0 or more, or None for what the provider's library does"),
    "fallback_model": ((Model, str, NoneType), "a model of PydanticAI, the name of one, or None"),
    "check_names": ((bool,), "True or False"),
}
"""What the choices have to be, as types and in words."""

DEFAULT_OPTIONS = RunOptions()
"""Nothing chosen."""


SCRIPT_PREFIX = "script:"
"""The prefix of a script file, in place of a model's name."""


@stored_as("handrail.run_command")
@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """The options of `handrail run` that change what a run does. Its slice is a LOG; the last one holds.

    Attributes:
        agent_file: the agent file, as it was typed.
        folder: the folder in which the command was typed; empty if only the name of the agent is known.
        model: the model, as it was typed; `None` for none.
        rules: the file of approval rules, as it was typed; `None` for the project's.
        root: the folder to work on, as it was typed; `None` for `folder`.
        max_depth: how deep agents may call each other.
        request_limit: how many requests to models are allowed.
        stream: whether replies are streamed.
        retries: how often a failed request to a model is repeated.
        fallback_model: the model that is asked where another one fails, as it was typed.
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

    def resuming(self, session_id: str, *, store: str | None, approve: str = "ask") -> list[str]:
        """The command that resumes the run, typed in the current folder, as words of a shell.

        Args:
            session_id: the session.
            store: the URL of its store; `None` if the project or the environment names it.
            approve: what happens to calls that need approval.
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
        """A path that leads from the current folder where the typed one led."""
        return typed if self._is_here else str(Path(self.folder, typed))


def record_command(session: Session, command: RunCommand) -> None:
    """Store how a run was typed, unless the session has that already.

    Raises:
        SessionError: the session cannot be written to.
    """
    if session[RunCommand].latest() != command:
        session[RunCommand].append(command)


def check_resumed(session: Session, options: RunOptions) -> None:
    """Check that a run is resumed with the rules and on the folder that it was begun with, or with others by choice.

    A file of rules may have changed since; what it says now holds.

    Raises:
        AgentError: `options` leave out the rules or the folder, and the run was begun with others than the defaults.
    """
    begun = session[RunCommand].latest()
    if begun is None:
        return
    missing: list[str] = []
    if begun.rules is not None and options.rules is None:
        missing += ["--rules", os.path.relpath(Path(begun.folder, begun.rules))]
    root = Path(begun.folder, begun.root or "")
    if options.root is None and root.resolve() != Path.cwd().resolve():
        missing += ["--root", os.path.relpath(root)]
    if missing:
        raise AgentError(
            f"the run in session {session.session_id!r} was begun with other rules or on another folder than apply "
            f"now; resume it with {shlex.join(missing)}, or name others "
            "(in a program, RunOptions(rules=..., root=...))"
        )
