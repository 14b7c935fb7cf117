"""What a run shares with the runs nested in it: approval, ledger, files, and who listens.

A folder that runs of this process work on is opened once, shared, and closed with its last run. One `HostFilesystem` at
a time works on a folder, whatever the process. Runs side by side that use the same folder therefore share one; the
turns that their calls take on it keep them apart.

An agent that another one calls has a session of its own for each call, which is found again when the call is resumed.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

from pydantic_ai.models import Model

from handrail.adapters.loop import session_ledger
from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.adapters.pydantic_ai.model_names import check_model_name
from handrail.agents.agent_file import AgentFile
from handrail.agents.approval.decisions import Decision, GatedCall, Grant, given_answer, load_decisions, record_decision
from handrail.agents.approval.gate import ApprovalGate
from handrail.agents.approval.path_rules import PrefixedToolsets
from handrail.agents.approval.rules import ApprovalRules
from handrail.agents.project import Project, reached_agents
from handrail.agents.run.events import QuestionAsked, QuestionDecided, RunEvent, RunWarned
from handrail.agents.run.options import RunOptions
from handrail.errors import AgentError, CallPostponed, PromptEvaluationError, RunAbortedError
from handrail.errors.developer import mistakes_in
from handrail.filesystem import CommitRecordStore, HostFilesystem
from handrail.filesystem.host.journal_folder import default_journal_folder
from handrail.redaction import redacted_logger
from handrail.runtime import EffectLedger
from handrail.runtime.execution import ASYNC
from handrail.runtime.failures import describe_error
from handrail.serde import canonical_json
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer
from handrail.store.protocol import LedgerStore
from handrail.taint import taint_by_answer
from handrail.waiting import outlast, run_in_thread


@asynccontextmanager
async def open_child_session(
    caller: Session, ref: CallRef, *, agent: str, input: str, effects: LedgerStore
) -> AsyncGenerator[tuple[Session, StoredHistory]]:
    """The session in which an agent does what a call asks it to, with what was said there; closed after the block.

    If the agent has read untrusted content, the session of the call is tainted by the call. A failure of the agent is a
    result for the caller, and names the effects from before it was resumed; exceeded limits and tools end both.

    It is named after the identity of the call, so that a call that was interrupted finds it again.

    Args:
        caller: the session of the call.
        ref: the identity of the call; one without an id has no session that could be found again. For each agent after
            the first, one that is nested in it.
        agent: the agent that is called.
        input: the task that it is given.
        effects: where the effects of the agent are recorded.

    Raises:
        AgentError: the agent has failed, or what was said there cannot be read.
        SessionLockedError: another process has the session.
        CancelledError: the task was cancelled; a session that is opened after that is closed again.
    """
    name = f"{caller.session_id}/{ref.key}" if ref.call_id else None
    async with await caller.child_async(session_id=name) as session:
        # An error of the agent is an answer, too: it may repeat what the agent has read.
        arguments = canonical_json({"input": input}).decode()
        answered = partial(taint_by_answer, caller, session, tool=agent, ref=ref.parent or ref, arguments=arguments)
        resumed = False
        try:
            history = await ASYNC.write_to(session.store, partial(StoredHistory, session, agent))
            resumed = bool(history.history)
            yield session, history
        except Exception as error:
            stopped = isinstance(error, PromptEvaluationError) and error.phase in {"request", "response"}
            if not stopped and (isinstance(error, RunAbortedError | CallPostponed) or mistakes_in(error)):
                raise
            # The message of the call itself names the effects of calls that were made inside it, in this process.
            read = partial(_effects_that_stay, effects, session.session_id)
            stay = await ASYNC.write_to(effects, read) if resumed else ""
            if not stopped and not stay:
                raise
            # First, because a long text of a provider is cut.
            raise AgentError(f"{stay} It was ended by {describe_error(error)}" if stay else str(error)) from error
        finally:
            # A coroutine that is closed with its loop cannot await anything.
            if isinstance(sys.exception(), GeneratorExit):
                answered()
            else:
                await ASYNC.write_to(caller.store, answered)


def _effects_that_stay(effects: LedgerStore, session_id: str) -> str:
    """Sentences for the model of the caller about effects of a session, and of those below it; empty without any."""
    rows = effects.effects_below(session_id)
    recorded = {row.tool: "was done, and is recorded" for row in rows if row.status == "done"}
    in_doubt = {row.tool: "may have happened" for row in rows if row.status in {"running", "unknown"}}
    sentences = [f"{tool} {words}" for each in (recorded, in_doubt) for tool, words in each.items()]
    return (
        f"{'; '.join(sentences)}. Do not ask for it again: another call could do it a second time." if sentences else ""
    )


_log = redacted_logger("handrail.agents")

_MOST_WARNINGS = 20

_AT_ONCE = timedelta(0)
"""Another process may hold the folder for as long as its run takes, so there is no use in waiting for it."""


class RunGroup:
    """A run and all runs nested in it, as far as they are one.

    Attributes:
        project: where agents and their tools come from.
        options: what the program chose.
        rules: what is allowed, asked and denied.
        session: the session of the outermost run.
        gate: says which calls may run.
        ledger: remembers the effects of all runs.
        prefixed: the toolsets with a prefix that have been made.
    """

    def __init__(self, project: Project, options: RunOptions, rules: ApprovalRules) -> None:
        """Begin; `close` ends it."""
        self.project = project
        self.options = options
        self.rules = rules
        self.session: Session = Session() if options.session is None else options.session
        self.ledger: EffectLedger = session_ledger(self.session)
        self.gate: ApprovalGate = ApprovalGate(
            rules,
            options.mode,
            options.asker,
            can_wait=self.session.store is not None,
            on_event=self._on_question,
            find_given=self._given,
        )
        # Before the first question: what earlier runs have answered is not asked again.
        self.gate.resume(load_decisions(self.session), self.session[Grant])
        self._recorded_grants = len(self.gate.grants)
        self.prefixed: PrefixedToolsets = {}
        self._files: dict[Path, HostFilesystem] = {}
        self._stack = ExitStack()
        self._opening = threading.Lock()

    @property
    def root(self) -> Path:
        """The folder that the run works on."""
        return Path.cwd() if self.options.root is None else self.options.root

    async def close(self) -> None:
        """Release the folders, on a thread: closing a filesystem removes files from its journal."""
        if not self._files:
            return
        # First, so that no later call gets a filesystem that is closed.
        self._files.clear()
        await outlast(run_in_thread(self._stack.close))

    def model_for(self, file: AgentFile, caller: Model | str | None) -> Model | str:
        """The model of an agent: the program's choice, its file's, the project's, or that of the agent that calls it.

        Raises:
            AgentError: none is named.
            UnknownModelError: no model can have the name.
        """
        # In order of precedence. The caller comes last: its model is used where neither the file nor the project names
        # one.
        model = self.options.model or file.model or self.project.config.model or caller
        if model is None:
            raise AgentError(
                f"which model is agent {file.name} to use? Name one: `model:` in its file, `model` in [tool.handrail] "
                "of pyproject.toml, --model or RunOptions(model=...), or the environment variable HANDRAIL_MODEL"
            )
        if isinstance(model, str):
            check_model_name(model, source=f"for agent {file.name}")
        return model

    def check_models(self, file: AgentFile) -> None:
        """Make sure that the agents of the project that an agent can call, however far down, name models.

        A run that notices later could only report it to the model that called.

        Raises:
            UnknownModelError: no model can have the name in one of the files.
        """
        if self.options.model is not None:  # which counts for all of them
            return
        for each in reached_agents(self.project, file):
            if each.model is not None:
                check_model_name(each.model, source=f"for agent {each.name}")

    def has_open(self, folder: Path) -> bool:
        """Whether a run of the group has opened a folder."""
        return folder.resolve() in self._files

    async def open_filesystem(self, folder: Path) -> HostFilesystem:
        """The one filesystem over a folder, opened on a thread; see `CurrentRun.open_filesystem`."""
        return await outlast(run_in_thread(lambda: self.filesystem(folder)))

    def filesystem(self, folder: Path) -> HostFilesystem:
        """The one filesystem over a folder; see `CurrentRun.filesystem`."""
        # Two names of one folder are one filesystem: a second one would find the folder locked by the first.
        where = folder.resolve()
        with self._opening:
            found = self._files.get(where)
            if found is not None:
                return found
            for other in self._files:
                # Each filesystem has its own journal. A file in both folders would be restored by one of them to a
                # state that the other has changed since.
                if other in where.parents or where in other.parents:
                    raise AgentError(
                        f"{where} and {other} lie one inside the other, and files of both cannot be undone together; "
                        "give the agent the tools of one of them"
                    )
            store = self.session.store
            decides = store if isinstance(store, CommitRecordStore) else None
            found = self._files[where] = self._stack.enter_context(OPEN_FOLDERS.opened(where, decides))
            return found

    def notify(self, event: RunEvent) -> None:
        """Notify the listener, if there is one; what it raises is logged."""
        listener = self.options.listener
        if listener is None:
            return
        try:
            listener(event)
        except Exception:  # noqa: BLE001 - logged; who listens must not stop the run
            _log.exception("the listener failed on %s", type(event).__name__)

    def warn(self, path: tuple[str, ...], messages: Sequence[str]) -> None:
        """Log warnings about a run that begins, and notify the listener; of many only the first."""
        shown = list(messages[:_MOST_WARNINGS])
        if len(messages) > len(shown):
            shown.append(f"{len(messages) - len(shown):,} more warnings; handrail check shows them")
        for message in shown:
            _log.warning("%s: %s", "/".join(path), message)
            self.notify(RunWarned(path, message))

    async def _given(self, call: GatedCall) -> GivenAnswer | None:
        """The answer that a person has given elsewhere to a question that was left open."""
        return await ASYNC.write_to(self.session.store, partial(given_answer, self.session, call))

    async def _on_question(self, call: GatedCall, decision: Decision | None) -> None:
        if decision is None:
            self.notify(QuestionAsked(call))
            return
        # Recorded before the listener is notified, so that what a listener does cannot lose an answer.
        await ASYNC.write_to(self.session.store, partial(self._record, call, decision))
        self.notify(QuestionDecided(call, decision))

    def _record(self, call: GatedCall, decision: Decision) -> None:
        record_decision(self.session, call, decision)
        # Those before this index are recorded already.
        for grant in self.gate.grants[self._recorded_grants :]:
            self.session[Grant].append(grant)
        self._recorded_grants = len(self.gate.grants)


class OpenFolders:
    """The one owner of what is open. Threads may share it."""

    def __init__(self) -> None:
        """Begin with nothing open."""
        # A lock for each folder, which stays: a recovery of one must not hold up the runs that work on others.
        self._locks: dict[Path, threading.Lock] = {}
        self._open: dict[Path, tuple[HostFilesystem, CommitRecordStore | None]] = {}
        self._users: Counter[Path] = Counter()

    @contextmanager
    def opened(self, folder: Path, store: CommitRecordStore | None) -> Generator[HostFilesystem]:
        """The filesystem over a folder, for the time of the block.

        Args:
            folder: where it is, without links.
            store: decides whether calls were committed: that of the run's session, if it is stored.

        Raises:
            AgentError: another run uses the folder with another store, or with another object for the same one; or its
                journal would lie in it.
            FilesystemError: the folder cannot be opened, or another process works on it.
        """
        lock = self._locks.setdefault(folder, threading.Lock())
        with lock:
            if folder not in self._open:
                _check_journal(folder)
                self._open[folder] = HostFilesystem(folder, store=store, wait=_AT_ONCE), store
            filesystem, other_store = self._open[folder]
            # By identity: what was committed is read from the store object that the journal was opened with.
            if other_store is not store:
                raise AgentError(
                    f"{folder} is used by another run of this process, whose session is kept in "
                    f"{_name_of(other_store)}, and this one's in {_name_of(store)}: neither could decide for both what "
                    "was committed there. Open one store for both sessions, or run one after the other."
                )
            self._users[folder] += 1
        try:
            yield filesystem
        finally:
            with lock:
                self._users[folder] -= 1
                if not self._users[folder]:
                    del self._users[folder], self._open[folder]
                    filesystem.close()


OPEN_FOLDERS = OpenFolders()
"""Of the process: runs on one folder share its filesystem, because the second would find it locked by the first."""


def _check_journal(folder: Path) -> None:
    """Refuse a folder that holds what is to undo its changes: the home folder, say."""
    journal = default_journal_folder(folder, os.environ)
    # With and without links: the folder of the journal may lead back into the tree through one.
    if folder in (*journal.parents, *journal.resolve().parents):
        raise AgentError(
            f"{folder} cannot be worked on as a whole, because {journal}, where its changes are noted in order to undo "
            "them, lies in it. Work on a folder below it (--root FOLDER, or RunOptions(root=...)), or set "
            "XDG_STATE_HOME to a folder outside of it."
        )


def _name_of(store: CommitRecordStore | None) -> str:
    return "memory" if store is None else store.url
