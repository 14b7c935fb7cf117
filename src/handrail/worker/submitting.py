"""Handing a run to workers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from handrail.adapters.run_task import name_function
from handrail.operations.runs import DEFAULT_QUEUE, MOST_REQUESTS, RunData, StoredRun, store_run
from handrail.store import Store
from handrail.worker.agents import Runnable
from handrail.worker.queues import QueuedRun


def submit(  # noqa: PLR0913 - what a run is
    store: Store,
    session: str,
    *,
    agent: Runnable | str,
    input: str | None = None,
    at: datetime | None = None,
    priority: int = 0,
    queue: str = DEFAULT_QUEUE,
    deadline: datetime | None = None,
    request_limit: int | None = MOST_REQUESTS,
    tags: Mapping[str, str] | None = None,
) -> StoredRun:
    """Hands a run to workers, once: the id of its session is its key.

    If the session has this run already, that is returned as it is: another time, priority, queue or limit is ignored.

    Args:
        store: the store, open for writing.
        session: the session of the run, which is created.
        agent: the agent, or the name under which the workers know it.
        input: what it is to do; without one, workers finish what the session has begun.
        at: not before this time, which is aware; a little late is at once.
        priority: the highest comes first.
        queue: the queue of the workers that carry it out, such as one for each tenant.
        deadline: no call starts or runs past it, whichever worker runs it.
        request_limit: how many requests to its model the run may make, in all attempts together.
        tags: tags of the session.

    Returns:
        The run as the store has it.

    Raises:
        InvalidArgumentError: an argument is of another type or out of range, or a time has no zone or has passed.
        SessionError: the session has another run; or it has begun, and there is an input.
        SessionNotFoundError: it does not exist, and there is no input.
        StoreError: the store cannot be written.
    """
    name: Any = name_function(agent) if callable(agent) or hasattr(agent, "task") else agent  # checked below
    data = RunData(agent=name, input=input, deadline=deadline, request_limit=request_limit)
    run = store_run(store, session, data, at=at, priority=priority, queue=queue, tags=tags)
    if run.row.status == "open" and run.row.due_at <= store.now():
        with suppress(ImportError):  # without the extras there are no workers here, but elsewhere
            from handrail.store.postgres import PostgresStore  # noqa: PLC0415 - needs an extra
            from handrail.worker.procrastinate_queue import defer_run  # noqa: PLC0415 - as above

            if isinstance(store, PostgresStore):  # else the next sweep finds it
                defer_run(store, run.row.queue, QueuedRun(session, run.row.priority))
    return run
