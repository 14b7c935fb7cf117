"""The part of a run that the runs nested in it share: approval, ledger, files, and the listener.

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
from handrail.adapters.pydantic_ai.models import check_model_name
from handrail.agents.agent_file import AgentFile
from handrail.agents.approval.decisions import (
    Decision,
    GatedCall,
    Grant,
    find_elsewhere,
    load_decisions,
    record_decision,
)
from handrail.agents.approval.gate import ApprovalGate
from handrail.agents.approval.path_rules import PrefixedToolsets
from handrail.agents.approval.rules import ApprovalRules
from handrail.agents.project import Project, reachable_agents
from handrail.agents.run.interface import QuestionAsked, QuestionDecided, RunEvent, RunOptions, RunWarned
from handrail.errors import AgentError, CallPostponed, PromptEvaluationError, RunAbortedError
from handrail.errors.developer import mistakes_in
from handrail.filesystem import CommitRecordStore, HostFilesystem
from handrail.filesystem.host.recovery import default_journal_folder
from handrail.redaction import redacted_logger
from handrail.runtime import EffectLedger
from handrail.runtime.environment import find_guard
from handrail.runtime.execution import ASYNC
from handrail.runtime.failures import describe_error
from handrail.serde import canonical_json
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer
from handrail.store.protocol import LedgerStore
from handrail.taint import taint_by_answer
from handrail.waiting import await_shielded, run_in_thread


@asynccontextmanager
async def open_child_session(
    caller: Session, ref: CallRef, *, agent: str, input: str, effects: LedgerStore
) -> AsyncGenerator[tuple[Session, StoredHistory]]:
    """The session of an agent that a call runs, with its conversation; closed after the block.

    It is named after `ref`, so that a call that was interrupted finds it again; a call without an id has no such name.
    If the agent has read untrusted content, the session of the caller is tainted. A failure of the agent is a result
    for the caller (`AgentError`), and names the effects from before it was resumed; exceeded limits and tools end both.
    """
    name = f"{caller.session_id}/{ref.key}" if ref.call_id else None
    async with await caller.child_async(session_id=name) as session:
        # An error of the agent is an answer, too: it may repeat what the agent has read.
        arguments = canonical_json({"input": input}).decode()
        taint = partial(taint_by_answer, caller, session, tool=agent, ref=ref.parent or ref, arguments=arguments)
        resumed = False
        try:
            history = await ASYNC.write_to(session.store, partial(StoredHistory, session, agent))
            resumed = bool(history.history)
            yield session, history
        except Exception as error:
            is_failure = isinstance(error, PromptEvaluationError) and error.phase in {"request", "response"}
            if not is_failure and (isinstance(error, RunAbortedError | CallPostponed) or mistakes_in(error)):
                raise
            # The message of the call itself names the effects of calls that were made inside it, in this process.
            read = partial(_describe_effects, effects, session.session_id)
            stay = await ASYNC.write_to(effects, read) if resumed else ""
            if not is_failure and not stay:
                raise
            # First, because a long text of a provider is cut.
            raise AgentError(f"{stay} It was ended by {describe_error(error)}" if stay else str(error)) from error
        finally:
            # A coroutine that is closed with its loop cannot await anything.
            if isinstance(sys.exception(), GeneratorExit):
                taint()
            else:
                await ASYNC.write_to(caller.store, taint)


def _describe_effects(effects: LedgerStore, session_id: str) -> str:
    # For the model of the caller: the effects of the session and of those below it.
    rows = effects.effects_below(session_id)
    done = {row.tool: "was done, and is recorded" for row in rows if row.status == "done"}
    in_doubt = {row.tool: "may have happened" for row in rows if row.status in {"running", "unknown"}}
    sentences = [f"{tool} {words}" for group in (done, in_doubt) for tool, words in group.items()]
    return (
        f"{'; '.join(sentences)}. Do not ask for it again: another call could do it a second time." if sentences else ""
    )


_log = redacted_logger("handrail.agents")

_AT_ONCE = timedelta(0)
"""Another process may hold the folder for as long as its run takes, so waiting for it has no use."""


class RunGroup:
    """The part of a run that it shares with all runs nested in it; `session` is that of the outermost run."""

    def __init__(self, project: Project, options: RunOptions, rules: ApprovalRules) -> None:
        """Begins the group; `close` ends it."""
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
            find_elsewhere=self._find_elsewhere,
        )
        # Before the first question: answers of earlier runs are not asked for again.
        self.gate.resume(load_decisions(self.session), self.session[Grant])
        self._recorded_grants = len(self.gate.grants)
        self.prefixes: PrefixedToolsets = {}
        self._files: dict[Path, HostFilesystem] = {}
        self._stack = ExitStack()
        self._opening = threading.Lock()

    @property
    def root(self) -> Path:
        """The folder that the run works on."""
        return Path(self.options.root or Path.cwd())

    async def close(self) -> None:
        """Releases the folders, on a thread: closing a filesystem removes files from its journal."""
        if not self._files:
            return
        # First, so that no later call gets a filesystem that is closed.
        self._files.clear()
        await await_shielded(run_in_thread(self._stack.close))

    def model_for(self, file: AgentFile, caller: Model | str | None) -> Model | str:
        """The model of an agent: the program's choice, its file's, the project's, or that of the agent that calls it.

        Raises:
            AgentError: no model is named. An `UnknownModelError` if it cannot exist.
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
        """Checks that the agents that an agent can call, however far down, name models, before any of them runs."""
        if self.options.model is not None:  # which counts for all of them
            return
        for agent in reachable_agents(self.project, file):
            if agent.model is not None:
                check_model_name(agent.model, source=f"for agent {agent.name}")

    def has_open(self, folder: Path) -> bool:
        """True if a run of the group has opened a folder."""
        return folder.resolve() in self._files

    async def open_filesystem(self, folder: Path) -> HostFilesystem:
        """The one filesystem over a folder, opened on a thread; see `CurrentRun.open_filesystem`."""
        return await await_shielded(run_in_thread(lambda: self.filesystem(folder)))

    def filesystem(self, folder: Path) -> HostFilesystem:
        """The one filesystem over a folder; see `CurrentRun.filesystem`."""
        # Two names of one folder are one filesystem: a second one would find the folder locked by the first.
        where, guard = folder.resolve(), find_guard(self.session)
        with self._opening:
            if where in self._files:
                return self._files[where]
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
            place, journal = (where, None) if guard is None else guard.workplace(where)
            files = self._files[where] = self._stack.enter_context(OPEN_FOLDERS.use(place, decides, journal))
            return files

    def notify(self, event: RunEvent) -> None:
        """Notifies the listener, if there is one; its exceptions are logged."""
        listener = self.options.listener
        if listener is None:
            return
        try:
            listener(event)
        except Exception:  # noqa: BLE001 - logged; a listener must not stop the run
            _log.exception("the listener failed on %s", type(event).__name__)

    def warn(self, path: tuple[str, ...], messages: Sequence[str]) -> None:
        """Logs warnings about a run that begins, and notifies the listener."""
        for message in messages:
            _log.warning("%s: %s", "/".join(path), message)
            self.notify(RunWarned(path, message))

    async def _find_elsewhere(self, call: GatedCall) -> GivenAnswer | None:
        return await ASYNC.write_to(self.session.store, partial(find_elsewhere, self.session, call))

    async def _on_question(self, call: GatedCall, decision: Decision | None) -> None:
        if decision is None:
            self.notify(QuestionAsked(call))
            return
        # Recorded before the listener is notified, so that a failing listener cannot lose an answer.
        await ASYNC.write_to(self.session.store, partial(self._record, call, decision))
        self.notify(QuestionDecided(call, decision))

    def _record(self, call: GatedCall, decision: Decision) -> None:
        record_decision(self.session, call, decision)
        # Those before this index are recorded already.
        for grant in self.gate.grants[self._recorded_grants :]:
            self.session[Grant].append(grant)
        self._recorded_grants = len(self.gate.grants)


class OpenFolders:
    """The one owner of the open folders of the process. Threads may share it."""

    def __init__(self) -> None:
        """Begins without open folders."""
        # A lock for each folder, which stays: a recovery of one must not hold up the runs that work on others.
        self._locks: dict[Path, threading.Lock] = {}
        self._open: dict[Path, tuple[HostFilesystem, CommitRecordStore | None]] = {}
        self._users: Counter[Path] = Counter()

    @contextmanager
    def use(
        self, folder: Path, store: CommitRecordStore | None, journal: Path | None = None
    ) -> Generator[HostFilesystem]:
        """The filesystem over a folder, given without links, for the time of the block.

        `store` decides whether calls were committed: that of the run's session, or `None` in memory. `journal` is where
        its journal is, if not in the usual place.

        Raises:
            AgentError: another run uses the folder with another store object; or its journal would lie in it.
        """
        lock = self._locks.setdefault(folder, threading.Lock())
        with lock:
            if folder not in self._open:
                if journal is None:
                    _check_journal(folder)
                self._open[folder] = HostFilesystem(folder, store=store, journal=journal, wait=_AT_ONCE), store
            filesystem, other_store = self._open[folder]
            # By identity: commits are read from the store object that the journal was opened with.
            if other_store is not store:
                raise AgentError(
                    f"{folder} is used by another run of this process, whose session is kept in another store or in "
                    "memory: neither could decide for both what was committed there. Open one store for both sessions, "
                    "or run one after the other."
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
    # A folder that holds the journal of its changes cannot be restored: the home folder, say.
    journal = default_journal_folder(folder, os.environ)
    # With and without links: the folder of the journal may lead back into the tree through one.
    if folder in (*journal.parents, *journal.resolve().parents):
        raise AgentError(
            f"{folder} cannot be worked on as a whole, because {journal}, where its changes are noted in order to undo "
            "them, lies in it. Work on a folder below it (--root FOLDER, or RunOptions(root=...)), or set "
            "XDG_STATE_HOME to a folder outside of it."
        )
