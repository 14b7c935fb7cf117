"""How `handrail run` was typed: what a session stores of it, and the command that resumes its run.

What was denied must not be allowed because an option was left out. So a run that was begun with `--rules`, or on
another folder, is resumed only by a command that names the rules and the folder.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from handrail.agents.run.options import DEFAULT_OPTIONS, RunOptions
from handrail.errors import AgentError
from handrail.redaction import redacted
from handrail.session import Session, SlicePolicy, stored_as

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
