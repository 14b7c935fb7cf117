"""`handrail submit`, and `handrail runs`: what workers carry out, as the sessions have it."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Final, Literal, TypeAlias

from cyclopts import Parameter

from handrail.cli.options import COUNT, FILLED, MORE_THAN_ZERO, WHOLE, Entity, Limit, NewStoreOptions, StoreOptions
from handrail.cli.process_exit import DONE, FAILED, TRY_AGAIN, WAITING
from handrail.cli.screen import Field, Screen
from handrail.operations import skip_unreadable
from handrail.operations.answers import user_name
from handrail.operations.runs import (
    DEFAULT_QUEUE,
    MOST_REQUESTS,
    StoredRun,
    cancel_run,
    decode_run,
    find_run,
    require_run,
    retry_run,
)
from handrail.process import process_in_words
from handrail.readable import format_when
from handrail.store import Store

_POLL_SECONDS: Final = 0.2
_CODES: Final = {"finished": DONE, "failed": FAILED, "cancelled": FAILED, "waiting": WAITING}


ListedStatus: TypeAlias = Literal["open", "running", "waiting", "finished", "failed", "cancelled"]
"""The state of a run; one that a worker has begun is running."""


def _status(run: StoredRun) -> ListedStatus:
    return "running" if run.row.worker else run.row.status


RUN: Entity[StoredRun] = Entity(
    "runs",
    ("session", "agent", "status", "due", "text"),
    (
        Field("session", lambda one: one.row.session_id, key="session_id"),
        Field("agent", lambda one: one.data.agent),
        Field("status", _status, styles={"failed": "bold red", "waiting": "yellow"}),
        Field("queue", lambda one: one.row.queue),
        Field("priority", lambda one: one.row.priority),
        Field("submitted", lambda one: one.row.submitted_at, key="submitted_at"),
        Field("due", lambda one: one.row.due_at, key="due_at"),
        Field("deadline", lambda one: one.data.deadline),
        Field("request limit", lambda one: one.data.request_limit, key="request_limit"),
        Field("worker", lambda one: process_in_words(one.row.worker) or None),
        Field("attempts", lambda one: one.data.attempts),
        Field("input", lambda one: one.data.input),
        Field("text", lambda one: one.data.text or None),
    ),
)
"""A run."""


def _check_time(_type: object, time: datetime | None) -> None:
    if time is not None and time.year <= 1:  # in another zone it may not exist
        raise ValueError("Must be a time to come.")


RunSession = Annotated[str, Parameter(metavar="SESSION"), FILLED]
"""The session of a run."""


def submit_run(  # noqa: PLR0913 - the options of the command
    session: RunSession,
    prompt: Annotated[str | None, FILLED] = None,
    /,
    *,
    agent: Annotated[str, Parameter(metavar="NAME"), FILLED],
    at: Annotated[datetime | None, Parameter(metavar="TIME", validator=_check_time)] = None,
    priority: Annotated[int, WHOLE] = 0,
    queue: Annotated[str, Parameter(metavar="NAME")] = DEFAULT_QUEUE,
    deadline: Annotated[timedelta | None, MORE_THAN_ZERO] = None,
    request_limit: Annotated[int, COUNT] = MOST_REQUESTS,
    options: NewStoreOptions = NewStoreOptions(),
) -> int:
    """Hand a run to workers. The session is its key: submitted twice, it is one run.

    Submitted again, the run stays as it is; an agent or input other than those of the run is refused.

    Example: `handrail submit order-17 "Refund order 17." --agent desk --store postgresql://db/shop`

    Args:
        session: The id of the session, which is created.
        prompt: What the agent is to do. Without it, workers finish what the session has begun.
        agent: The name of the agent, as the workers know it.
        at: Begin no earlier than this time, such as 2026-12-24T08:00, in the zone of this machine unless it names
            another. By default at once.
        priority: Runs with a higher number begin first; 0 by default.
        queue: The queue of the workers. By default it is called handrail.
        deadline: The run ends after this span from now, such as 2h, at the latest. One that waits for an answer then
            fails when it is answered. By default it has no deadline.
        request_limit: How many requests to its model the run may make, in all attempts together; 50 by default.
        options: The store and the output format.
    """
    from handrail.worker.submitting import submit  # noqa: PLC0415 - the other commands need none of it

    with options.open(writing=True) as store:
        before = find_run(store, session)
        run = submit(
            store,
            session,
            agent=agent,
            input=prompt,
            at=None if at is None else at.astimezone(),
            priority=priority,
            queue=queue,
            deadline=None if deadline is None else store.now() + deadline,
            request_limit=request_limit,
        )
        if before is not None:
            how = f"queue {run.row.queue}, priority {run.row.priority}, due {format_when(run.row.due_at)}"
            Screen().remark(f"It was submitted before, and stays as it is: {how}.")
        return _print_change(store, session, run, options)


def list_runs(
    *,
    status: Annotated[tuple[ListedStatus, ...], Parameter(metavar="STATUS")] = (),
    agent: Annotated[str | None, Parameter(metavar="NAME")] = None,
    queue: Annotated[str | None, Parameter(metavar="NAME")] = None,
    limit: Limit = None,
    options: StoreOptions = StoreOptions(),
) -> int:
    """List the runs of workers, the newest first. Filters are combined with AND.

    Example: `handrail runs list --status failed --status waiting`

    Args:
        status: Only those that are open, running, waiting, finished, failed or cancelled. Repeatable.
        agent: Only those of this agent.
        queue: Only those of this queue.
        limit: How many.
        options: The store and the output format.
    """
    faults: list[str] = []
    with options.open() as store:
        runs = map(partial(decode_run, store=store), store.runs())
        rows = (
            one
            for one in skip_unreadable(runs, faults)
            if (not status or _status(one) in status)
            and agent in {None, one.data.agent}
            and queue in {None, one.row.queue}
        )
        return RUN.print_list(rows, limit, options, faults)


def show_run(session: RunSession, /, *, options: StoreOptions = StoreOptions()) -> None:
    """Show one run. `handrail sessions show` has its conversation.

    Args:
        session: Its session.
        options: The store and the output format.
    """
    with options.open() as store:
        RUN.print_one(require_run(store, session), options)
        unknown = sum(effect.status == "unknown" for effect in store.effects_below(session))
    if unknown and not options.as_json:
        see = "handrail ledger list --status unknown shows them, and handrail ledger reconcile settles them"
        Screen().note(f"Effects with an unknown outcome: {unknown}; {see}.")


def wait_for_run(
    session: RunSession,
    /,
    *,
    timeout: Annotated[timedelta | None, MORE_THAN_ZERO] = None,
    options: StoreOptions = StoreOptions(),
) -> int:
    """Wait until a run has ended or waits for answers, and show it; the exit code says which.

    It is 0 if the run is finished, 1 if it has failed or was cancelled, and 3 if it waits.

    Args:
        session: Its session.
        timeout: Wait no longer than this span, such as 30s; then the exit code is 75. By default there is no limit.
        options: The store and the output format.
    """
    until = time.monotonic() + (timeout or timedelta.max).total_seconds()
    with options.open() as store:
        while (run := require_run(store, session)).row.status == "open" and time.monotonic() < until:
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

    Its running call is cancelled and rolled back, except for what it has done outside. A `def` function cannot be
    stopped: it runs to its end, and may act outside after the run was cancelled.

    Args:
        session: Its session.
        reason: Why, for the record.
        by: Who ends it; the user of this process by default.
        options: The store and the output format.
    """
    with options.open(writing=True) as store:
        is_running = bool(require_run(store, session).row.worker)
        run = cancel_run(store, session, by=user_name() if by is None else by, reason=reason)
        code = _print_change(store, session, run, options)
    if run is not None and is_running:
        Screen().remark("A `def` function that runs for it cannot be stopped, and may act until it ends.")
    return code


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
        request_limit: How many requests to its model it may make, those before included; as many as before by default.
        options: The store and the output format.
    """
    with options.open(writing=True) as store:
        return _print_change(store, session, retry_run(store, session, request_limit=request_limit), options)


def _print_change(store: Store, session: str, run: StoredRun | None, options: StoreOptions) -> int:
    now = run or require_run(store, session)
    if options.as_json:
        Screen().json(RUN.json(now))
    elif run is None:
        Screen().fault(f"the run of session {session} is {now.row.status} already")
    else:
        Screen().say(f"The run of session {session} is {now.row.status}.")
    return FAILED if run is None else DONE
