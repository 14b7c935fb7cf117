"""`handrail submit`, and `handrail runs`: what workers carry out, as the sessions have it."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, TypeAlias

from cyclopts import Parameter

from handrail.cli.options import COUNT, FILLED, MORE_THAN_ZERO, Entity, Limit, StoreOptions
from handrail.cli.process_exit import DONE, FAILED, TRY_AGAIN, WAITING
from handrail.cli.screen import Field, Screen
from handrail.errors import SessionNotFoundError
from handrail.operations.answers import user_name
from handrail.operations.runs import (
    DEFAULT_QUEUE,
    MOST_REQUESTS,
    StoredRun,
    cancel_run,
    decode_run,
    find_run,
    retry_run,
)
from handrail.process import process_in_words
from handrail.store import Store

_POLL_SECONDS: Final = 0.2
_CODES: Final = {"finished": DONE, "failed": FAILED, "cancelled": FAILED, "waiting": WAITING}


ListedStatus: TypeAlias = Literal["open", "running", "waiting", "finished", "failed", "cancelled"]
"""The state of a run; one that a worker has begun is running."""


def _status(run: StoredRun) -> ListedStatus:
    return "running" if run.row.worker else run.row.status


RUN: Entity[StoredRun] = Entity(
    "runs",
    ("session", "agent", "status", "queue", "due", "attempts", "text"),
    (
        Field("session", lambda one: one.row.session_id, key="session_id"),
        Field("agent", lambda one: one.data.agent),
        Field("status", _status, styles={"failed": "bold red", "waiting": "yellow"}),
        Field("queue", lambda one: one.row.queue),
        Field("priority", lambda one: one.row.priority),
        Field("submitted", lambda one: one.row.submitted_at, key="submitted_at"),
        Field("due", lambda one: one.row.due_at, key="due_at"),
        Field("deadline", lambda one: one.data.deadline),
        Field("requests", lambda one: one.data.request_limit, key="request_limit"),
        Field("worker", lambda one: process_in_words(one.row.worker) or None),
        Field("attempts", lambda one: one.data.attempts),
        Field("input", lambda one: one.data.input),
        Field("text", lambda one: one.data.text or None),
    ),
)
"""A run."""

RunSession = Annotated[str, Parameter(metavar="SESSION"), FILLED]
"""The session of a run."""


def submit_run(  # noqa: PLR0913 - the options of the command
    session: RunSession,
    prompt: Annotated[str | None, FILLED] = None,
    /,
    *,
    agent: Annotated[str, Parameter(metavar="NAME"), FILLED],
    at: Annotated[datetime | None, Parameter(metavar="TIME")] = None,
    priority: int = 0,
    queue: Annotated[str, FILLED] = DEFAULT_QUEUE,
    deadline: Annotated[timedelta | None, MORE_THAN_ZERO] = None,
    request_limit: Annotated[int | None, COUNT] = None,
    options: StoreOptions = StoreOptions(),
) -> None:
    """Hand a run to workers. The session is its key: submitted twice, it is one run.

    Example: `handrail submit order-17 "Refund order 17." --agent desk --store postgresql://db/shop`

    Args:
        session: The id of the session, which is created.
        prompt: What the agent is to do; without it, workers finish what the session has begun.
        agent: The agent, as the workers know it.
        at: Not before this time, such as 2026-12-24T08:00; of this machine's zone, unless it names another.
        priority: The highest comes first.
        queue: The queue of the workers.
        deadline: No call starts or runs later than this span from now.
        request_limit: How many requests to its model the run may make, in all attempts together; 50 unless given.
        options: The store; it is created if it does not exist.
    """
    from handrail.worker.submitting import submit  # noqa: PLC0415 - the other commands need none of it

    with options.open(writing=True, create=True) as store:
        run = submit(
            store,
            session,
            agent=agent,
            input=prompt,
            at=None if at is None else at.astimezone(),
            priority=priority,
            queue=queue,
            deadline=None if deadline is None else store.now() + deadline,
            request_limit=request_limit or MOST_REQUESTS,
        )
    if options.as_json:
        Screen().json(RUN.json(run))
    else:
        Screen().say(f"The run of session {session} is {run.row.status}.")


def list_runs(
    *,
    status: Annotated[tuple[ListedStatus, ...], Parameter(metavar="STATUS")] = (),
    agent: Annotated[str | None, Parameter(metavar="NAME")] = None,
    queue: Annotated[str | None, Parameter(metavar="NAME")] = None,
    limit: Limit = None,
    options: StoreOptions = StoreOptions(),
) -> None:
    """List the runs of workers, the newest first. Filters are combined with AND.

    Example: `handrail runs list --status failed --status waiting`

    Args:
        status: Only those that are open, running, waiting, finished, failed or cancelled. Repeatable.
        agent: Only those of this agent.
        queue: Only those of this queue.
        limit: How many.
        options: The store and the output format.
    """
    with options.open() as store:
        runs = (decode_run(row, store) for row in store.runs())
        rows = (
            one
            for one in runs
            if (not status or _status(one) in status)
            and agent in {None, one.data.agent}
            and queue in {None, one.row.queue}
        )
        RUN.print_list(rows, limit, options)


def show_run(session: RunSession, /, *, options: StoreOptions = StoreOptions()) -> None:
    """Show one run. `handrail sessions show` has its conversation.

    Args:
        session: Its session.
        options: The store and the output format.
    """
    with options.open() as store:
        RUN.print_one(_find(store, session), options)


def wait_for_run(
    session: RunSession,
    /,
    *,
    timeout: Annotated[timedelta | None, MORE_THAN_ZERO] = None,
    options: StoreOptions = StoreOptions(),
) -> int:
    """Wait until a run has ended or waits for answers, and show it; the exit code says which.

    Args:
        session: Its session.
        timeout: Not longer than this; then the exit code is 75.
        options: The store and the output format.
    """
    until = None if timeout is None else time.monotonic() + timeout.total_seconds()
    with options.open() as store:
        while (run := _find(store, session)).row.status == "open":
            if until is not None and time.monotonic() >= until:
                break
            time.sleep(_POLL_SECONDS)
        RUN.print_one(run, options)
    return _CODES.get(run.row.status, TRY_AGAIN)


def cancel(
    session: RunSession,
    /,
    *,
    reason: Annotated[str, Parameter(metavar="TEXT")] = "",
    by: Annotated[str | None, Parameter(metavar="NAME")] = None,
    options: StoreOptions = StoreOptions(),
) -> int:
    """End a run that has not ended; a worker that carries it out stops within seconds.

    Its running call is cancelled and rolled back, except for what it has done outside.

    Args:
        session: Its session.
        reason: Why.
        by: Who ends it; the user of this process unless given.
        options: The store and the output format.
    """
    with options.open(writing=True) as store:
        run = cancel_run(store, session, by=user_name() if by is None else by, reason=reason)
        return _print_change(store, session, run, options)


def retry(
    session: RunSession,
    /,
    *,
    request_limit: Annotated[int | None, COUNT] = None,
    options: StoreOptions = StoreOptions(),
) -> int:
    """Have workers carry out a run again that has failed or was cancelled, from where it stopped.

    Args:
        session: Its session.
        request_limit: How many requests to its model it may make from now on, those before included.
        options: The store and the output format.
    """
    with options.open(writing=True) as store:
        return _print_change(store, session, retry_run(store, session, request_limit=request_limit), options)


def _print_change(store: Store, session: str, run: StoredRun | None, options: StoreOptions) -> int:
    now = run or _find(store, session)
    if options.as_json:
        Screen().json(RUN.json(now))
    elif run is None:
        Screen().fault(f"the run of session {session} is {now.row.status} already")
    else:
        Screen().say(f"The run of session {session} is {now.row.status}.")
    return FAILED if run is None else DONE


def _find(store: Store, session: str) -> StoredRun:
    if (run := find_run(store, session)) is None:
        raise SessionNotFoundError(
            f"{store.url} has no run of session {session}; handrail runs list shows all", session_id=session
        )
    return run
