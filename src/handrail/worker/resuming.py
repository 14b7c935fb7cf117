"""Carrying out the run of a session from where its record ends.

| the session | the outcome |
|---|---|
| its run is of another agent | `Failed`, and the run stays as it is |
| its run is finished, has failed or was cancelled; it waits | that, without an attempt |
| this process has closed its store; its deadline has passed | `Failed` |
| a worker carries it out; it is to begin later | `Again` |
| another process has it open; it cannot be read; its store is away | `Again` |
| an attempt has come no further, `MOST_ATTEMPTS` times | `Failed` |
| a question of it is open | `Waiting` |
| it was lost, or its store was; a model did not answer, or its reply was cut off | `Again`, later each time |
| the agent has answered, or raised anything else | `Finished` or `Failed` |

Who begins a run writes itself into its row, with the time until which it has the run, and moves that time on as long as
it works. Who does not is taken for dead: another worker writes itself into the row, and takes the session. It does not
once its event loop has left `MOST_UNANSWERED` heartbeats unanswered. Each write compares the row with the one written
before, so that a worker which was stopped, or whose run a person has cancelled, changes nothing, and ends its attempt.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, get_args

from handrail.adapters.model_replies import may_pass
from handrail.adapters.run_task import RunTask, name_function
from handrail.errors import (
    AgentError,
    CommitInDoubtError,
    HandrailError,
    InvalidArgumentError,
    SessionError,
    SessionLostError,
    SessionNotFoundError,
    StoreClosedError,
    StoreUnavailableError,
)
from handrail.limits import Deadline
from handrail.operations.questions import StoredQuestion, questions_in
from handrail.operations.runs import RunData, StoredRun, find_run, wake_run, write_run
from handrail.process import ProcessName, is_running, own_name, process_in_words
from handrail.readable import fit_text, format_when
from handrail.redaction import redacted_logger
from handrail.runtime.execution import ASYNC
from handrail.serde.formatting import count_noun
from handrail.session import Session
from handrail.session.persistence.protocol import RunStatus
from handrail.store import Store
from handrail.threads import THREADS
from handrail.worker.agents import Runnable, digest_agent, is_pending

if TYPE_CHECKING:
    from handrail.agents import RunOptions

T = TypeVar("T")

MOST_ATTEMPTS: Final = 10
"""How often a run is begun that comes no further; then it has failed.

A run that ends its worker looks like one whose worker others kill, so it is more than bad luck explains.
"""

LONGEST_PAUSE: Final = timedelta(minutes=5)
"""The longest time before a run is begun again that comes no further; the first is a second."""

HEARTBEAT: Final = timedelta(seconds=10)
"""How long a worker has a run without renewing that, unless it says otherwise."""

MOST_UNANSWERED: Final = 12
"""How many heartbeats an event loop may be blocked, as by a long computation; then other workers take its runs."""

LONGEST_ANSWER: Final = 20_000
"""The most characters of an answer in the row of a run."""

OnChange: TypeAlias = Literal["warn", "refuse"]
"""What happens to a run that another version of its agent has begun."""

_NO_TIME: Final = timedelta(0)
_SOON: Final = timedelta(seconds=1)
_LATER: Final = timedelta(seconds=10)
_OUTAGES: Final = (SessionLostError, StoreUnavailableError, CommitInDoubtError)
_log = redacted_logger("handrail.worker")


@dataclass(frozen=True, slots=True)
class Finished:
    """The agent has answered; if the run was finished before, `answer` is text, of `LONGEST_ANSWER` at most."""

    answer: object


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run waits for answers of people, and holds nothing meanwhile."""

    questions: tuple[StoredQuestion, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """The run is to be resumed, `after` some time at the earliest."""

    after: timedelta
    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The run has ended without an answer; a person may have cancelled it."""

    error: Exception
    is_cancelled: bool = False


RunOutcome: TypeAlias = Finished | Waiting | Again | Failed
"""How far a run has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions:
    """How the runs of an agent are carried out.

    Attributes:
        on_change: what to do if another version of the agent has begun a run.
        version: names the version of the agent, such as a release; a digest of its files unless given.
        heartbeat: how long a run stays with who carries it out and does not renew that.
        run: further options of the runs of an agent of a file.

    Raises:
        InvalidArgumentError: `on_change` is another word, or `heartbeat` is not positive.
    """

    on_change: OnChange = "warn"
    version: str | None = None
    heartbeat: timedelta = HEARTBEAT
    run: RunOptions | None = None

    def __post_init__(self) -> None:
        refuse = partial(InvalidArgumentError, function="ResumeOptions")
        if self.on_change not in get_args(OnChange):
            raise refuse(argument="on_change", value=self.on_change, expected='"warn" or "refuse"')
        if self.heartbeat <= _NO_TIME:
            raise refuse(argument="heartbeat", value=self.heartbeat, expected="a span of time that is more than zero")


_DEFAULTS: Final = ResumeOptions()


async def resume(
    store: Store, session: str, agent: Runnable, *, evict: bool = False, options: ResumeOptions = _DEFAULTS
) -> RunOutcome:
    """Carries out the run of a session from where its record ends, as far as it comes.

    Args:
        store: the store of the session, open for writing.
        session: the id of the session.
        agent: the agent of a file, or a function that takes a `RunTask`.
        evict: whether to take the session from a process that has it, whose next write is refused.
        options: how it is carried out.

    Raises:
        InvalidArgumentError: `agent` is neither of them, such as a name.
        CancelledError: the task was cancelled; the run can be resumed.
    """
    if not (callable(agent) or hasattr(agent, "task")):
        expected = "what load_agent returns, or an async function that takes a RunTask"
        raise InvalidArgumentError(function="resume", argument="agent", value=agent, expected=expected)
    return await Attempt(store, session, agent, options, name_function(agent)).carry_out(evict=evict)


def has_ended(worker: str) -> bool:
    """Returns whether a worker is known to have been a process of this machine that has ended."""
    name, boot = ProcessName.parse(worker), own_name().boot
    return name is not None and name.boot == boot != "" and not is_running(name)


class Attempt:
    """One attempt at a run, as of `resume`.

    Attributes:
        run: the run, as it was read or written last; `None` until it is this one's to begin.
    """

    def __init__(self, store: Store, session_id: str, agent: Runnable, options: ResumeOptions, name: str) -> None:
        self._store = store
        self._session_id = session_id
        self._agent = agent
        self._options = options
        self._name = name  # of the agent, as runs have it
        self.run: StoredRun | None = None
        self._writing = threading.Lock()
        self._is_lost = False  # another process has changed the row

    async def carry_out(self, *, evict: bool = False) -> RunOutcome:
        """Begins the run in its row, opens its session, and has the agent answer."""
        try:
            return await self._carry_out(evict=evict)
        except (SessionNotFoundError, StoreClosedError) as error:
            return Failed(error)
        except HandrailError as error:  # the session was lost, or its store is away
            return await self._put_off(_SOON, str(error))

    async def _carry_out(self, *, evict: bool) -> RunOutcome:
        run = await self._in_store(partial(find_run, self._store, self._session_id))
        if run is not None:
            early = await self._find_outcome(run, evict=evict) or await self._begin(run)
            if early is not None:
                return early
            # Who has begun it before, and shows no life, may hold its session still.
            evict = evict or bool(run.row.worker)
        try:
            session = await Session.open_async(self._store, self._session_id, create=False, wait=_SOON, evict=evict)
        except (SessionNotFoundError, StoreClosedError):
            raise
        except HandrailError as error:  # it is open elsewhere; or it cannot be read here, and another version may
            after = _SOON if isinstance(error, StoreUnavailableError) else _LATER
            return await self._put_off(after, str(error), is_counted=False)
        async with session:
            work, is_over = asyncio.ensure_future(self._ask(session)), threading.Event()
            if run is not None:
                # On a thread: an agent may block the event loop for long.
                THREADS.run(partial(self._beat, asyncio.get_running_loop(), work.cancel, is_over))
            try:
                return await self._find_end(work)
            finally:
                is_over.set()

    async def _find_end(self, work: asyncio.Future[object]) -> RunOutcome:
        try:
            answer = await work
        except asyncio.CancelledError as error:
            return await self._stop(error)
        except _OUTAGES:
            raise
        except Exception as error:  # noqa: BLE001 - it is returned
            return await self._fail(error)
        return await self._settle(answer)

    async def _find_outcome(self, run: StoredRun, *, evict: bool) -> RunOutcome | None:  # noqa: PLR0911 - a table
        row, data = run
        if data.agent != self._name:
            return Failed(SessionError(f"the run of session {row.session_id} is of {data.agent}, not of {self._name}"))
        if row.status == "finished":
            return Finished(data.text)
        if row.status in {"failed", "cancelled"}:
            return Failed(AgentError(data.text), is_cancelled=row.status == "cancelled")
        remaining = row.due_at - (now := await self._in_store(self._store.now))
        if row.worker and remaining > _NO_TIME and not (evict or has_ended(row.worker)):
            return Again(remaining, f"{process_in_words(row.worker)} carries it out")
        if not data.version and not row.worker and remaining > _NO_TIME:
            return Again(remaining, f"it begins at {format_when(row.due_at)}")
        if text := run.describe_lateness(now):
            self.run = run
            return await self._end("failed", Failed(AgentError(text)), text=text)
        if row.status == "waiting" and (questions := await self._open_questions()):
            return Waiting(questions)
        return None

    async def _begin(self, run: StoredRun) -> RunOutcome | None:
        # The outcome, if it is not begun.
        data, version = run.data, self._options.version
        version = digest_agent(self._agent) if version is None else version
        row = await self._in_store(partial(self._store.find, self._session_id))
        self.run = run
        if data.version not in {"", version}:
            own = f"this worker has version {version}"
            why = f"version {data.version} of {data.agent} has begun the run of session {self._session_id}, and {own}"
            if self._options.on_change == "refuse":
                why += f": a worker with version {data.version} is to continue it"
                await self._write("open", _LATER, text=why)  # `reason` stays that of the last attempt
                return Again(_LATER, why)
            _log.warning("%s; it is continued", why)
        head = 0 if row is None else row.head
        attempts = 1 if head > data.head else data.attempts + 1
        if attempts > MOST_ATTEMPTS:
            last = data.reason or "its worker ended"
            text = f"begun {MOST_ATTEMPTS} times, and it came no further; the last time: {last}"
            return await self._end("failed", Failed(AgentError(text)), text=text)
        changes: dict[str, Any] = {"attempts": attempts, "head": head, "version": version, "text": "", "reason": ""}
        if not await self._write("open", self._options.heartbeat, worker=str(own_name()), **changes):
            self.run = None
            return Again(_SOON, "another worker has begun it")
        return None

    async def _ask(self, session: Session) -> object:
        data = RunData(agent=self._name) if self.run is None else self.run.data
        deadline = None if data.deadline is None else Deadline(data.deadline)
        try:
            function = self._agent if callable(self._agent) else self._agent.task(self._options.run)
            return await function(RunTask(session, data.input, deadline, data.request_limit))
        except (SystemExit, KeyboardInterrupt) as error:  # it would end the event loop, and with it all runs
            raise AgentError(f"a function of the program has raised {error!r}") from error

    def _beat(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], object], is_over: threading.Event) -> None:
        # Moves the time on until which the run is this worker's, until it has ended or is lost; not while its loop is
        # blocked.
        seconds = self._options.heartbeat.total_seconds()
        answers, is_blocked = deque([time.monotonic()], maxlen=1), False
        while not is_over.wait(seconds / 3):
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(lambda: answers.append(time.monotonic()))
            was_blocked, is_blocked = is_blocked, time.monotonic() - answers[0] > MOST_UNANSWERED * seconds
            if is_blocked:
                if not was_blocked:
                    _log.warning("run %s: its event loop is blocked, so another worker may take it", self._session_id)
                continue
            with suppress(HandrailError):  # the store is away; what the agent writes finds that out
                self._write_now("open", self._options.heartbeat, None)
            if self._is_lost:
                with suppress(RuntimeError):  # the event loop has ended
                    loop.call_soon_threadsafe(stop)
                return

    async def _stop(self, error: asyncio.CancelledError) -> RunOutcome:
        if self._is_lost:
            return await self._leave()
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return await self._fail(AgentError(f"a task of the agent was cancelled: {error}"))
        # The worker is stopped: it was not the run that came no further.
        if self.run is not None:
            with suppress(HandrailError):
                await asyncio.shield(self._write("open", attempts=self.run.data.attempts - 1))
        raise error

    async def _settle(self, answer: object) -> RunOutcome:
        if questions := await self._open_questions():
            text = f"waits for {count_noun(len(questions), 'answer')}"
            outcome = await self._end("waiting", Waiting(questions), text=text)
            if len(await self._open_questions()) < len(questions):  # answered before the row said that it waits
                await self._in_store(partial(wake_run, self._store, self._session_id))
            return outcome
        if is_pending(answer):
            return await self._put_off(_NO_TIME, "its questions were answered meanwhile")
        return await self._end("finished", Finished(answer), text=fit_text(str(answer), LONGEST_ANSWER))

    async def _fail(self, error: Exception) -> RunOutcome:
        data = RunData(agent="") if self.run is None else self.run.data
        is_late = data.deadline is not None and data.deadline <= await self._in_store(self._store.now)
        if may_pass(error) and not is_late:
            is_store = getattr(error, "phase", "") == "store"
            pause = _SOON if is_store else min(_SOON * 8 ** (data.attempts - 1), LONGEST_PAUSE)
            return await self._put_off(pause, str(error) or repr(error))
        return await self._end("failed", Failed(error), text=f"{type(error).__name__}: {error}")

    async def _open_questions(self) -> tuple[StoredQuestion, ...]:
        return await self._in_store(self._read_questions)

    def _read_questions(self) -> tuple[StoredQuestion, ...]:
        # Those of the agents that it calls are in its session, too. Not `stored_questions`, which reads all sessions.
        row = self._store.find(self._session_id)
        questions = questions_in(self._store, () if row is None else (row,))
        return tuple(question for question in questions if question.answer is None)

    # ------------------------------------------------------------------------------------------------------ the row

    async def _put_off(self, after: timedelta, why: str, *, is_counted: bool = True) -> Again:
        run = self.run
        data = {"reason": why} if is_counted or run is None else {"attempts": run.data.attempts - 1}
        with suppress(HandrailError):  # the store is away; the time in the row passes
            await self._write("open", after, text=why, **data)
        return Again(after, why)

    async def _end(self, status: RunStatus, outcome: RunOutcome, *, text: str) -> RunOutcome:
        return outcome if await self._write(status, text=text) else await self._leave()

    async def _leave(self) -> RunOutcome:
        run = await self._in_store(partial(find_run, self._store, self._session_id))
        if run is not None and run.row.status == "cancelled":
            return Failed(AgentError(run.data.text), is_cancelled=True)
        return Again(_SOON, "another process has changed the run")

    async def _write(self, status: RunStatus, after: timedelta = _NO_TIME, **changes: Any) -> bool:  # noqa: ANN401 - fields
        # False if another process has changed the row.
        await self._in_store(partial(self._write_now, status, after, changes))
        return not self._is_lost

    def _write_now(self, status: RunStatus, after: timedelta, changes: Mapping[str, Any] | None) -> None:
        # What is known of the row is set here: a task that waits for it may be cancelled meanwhile.
        with self._writing:
            run = self.run
            if run is None or self._is_lost or (changes is None and not run.row.worker):  # a beat that comes late
                return
            changes = {"worker": run.row.worker} if changes is None else changes
            changed = run.change(status, due_at=self._store.now() + after, **changes)
            self._is_lost = not write_run(self._store, changed)
            self.run = run if self._is_lost else changed

    async def _in_store(self, body: Callable[[], T]) -> T:
        return await ASYNC.write_to(self._store, body)
