"""The runs that workers carry out: what a store has of them, and what people and programs do with them.

A session has at most one run. Its row is the truth about it, and each change compares the row with the one read:

| what | from | to |
|---|---|---|
| it is submitted | nothing | open |
| a worker begins it, shows that it lives, or puts it off | open | open |
| the agent waits for answers | open | waiting |
| an answer is recorded | waiting | open |
| the agent has answered; it has failed | open | finished; failed |
| its deadline has passed | open, waiting | failed |
| a person cancels it | open, waiting | cancelled |
| a person has it carried out again | failed, cancelled | open |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from handrail.errors import InvalidArgumentError, SessionError, SessionNotFoundError, StoreCorruptError
from handrail.readable import format_when
from handrail.redaction import redacted
from handrail.serde import codec
from handrail.session.persistence.protocol import RunChange, RunRow, RunStatus, SessionRow
from handrail.session.session import check_session_arguments, is_text
from handrail.store import Store
from handrail.transaction import UnitOfWork

DEFAULT_QUEUE: Final = "handrail"
"""The queue of runs for which none is named."""

LONGEST_QUEUE: Final = 40
"""The most bytes of the name of a queue, of which PostgreSQL makes that of a channel."""

HIGHEST_PRIORITY: Final = 1_000_000
"""The highest priority of a run; its negative is the lowest."""

MOST_REQUESTS: Final = 50
"""How many requests to its model a run may make, unless it says otherwise."""

_PRIORITY: Final = f"a whole number, at most {HIGHEST_PRIORITY:,}, and at least the negative of that"
_A_DAY: Final = timedelta(days=1)

MOVES: Final[Mapping[RunStatus, frozenset[RunStatus]]] = {
    "open": frozenset({"open", "waiting", "finished", "failed", "cancelled"}),
    "waiting": frozenset({"open", "failed", "cancelled"}),
    "finished": frozenset(),
    "failed": frozenset({"open"}),
    "cancelled": frozenset({"open"}),
}
"""The states that may follow a state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """What is known of a run beside its row.

    Attributes:
        agent: the name of the agent that carries it out.
        input: what the agent is to do; `None` to finish what the session has begun.
        deadline: no call starts or runs past it.
        request_limit: how many requests to its model the run may make, in all attempts together.
        attempts: how often it was begun since it has come further.
        head: the newest entry of the session when it was begun last.
        version: that of the agent that has begun it; empty before that.
        text: its answer, or why it waits, is to be begun again, has failed or was cancelled.
        reason: why the last attempt has ended without an end of the run; empty if its worker ended.
    """

    agent: str
    input: str | None = None
    deadline: datetime | None = None
    request_limit: int | None = None
    attempts: int = 0
    head: int = 0
    version: str = ""
    text: str = ""
    reason: str = ""


class StoredRun(NamedTuple):
    """A run as a store has it."""

    row: RunRow
    data: RunData

    def change(
        self,
        status: RunStatus,
        *,
        due_at: datetime | None = None,
        worker: str = "",
        **data: Any,  # noqa: ANN401 - fields
    ) -> StoredRun:
        """The run in another state, without a worker or with this one, and with other data; in masked words.

        Raises:
            SessionError: the state cannot follow.
        """
        row = self.row
        if status not in MOVES[row.status]:
            raise SessionError(f"the run of session {row.session_id} is {row.status}, so it cannot become {status}")
        changed = replace(self.data, **data)
        changed = replace(changed, text=redacted(changed.text), reason=redacted(changed.reason))
        written = codec(RunData).dump_json(changed)
        row = row._replace(version=row.version + 1, status=status, worker=worker, due_at=due_at or row.due_at)
        return StoredRun(row._replace(data=written), changed)

    def describe_lateness(self, now: datetime) -> str:
        """Says that the deadline of the run has passed; empty if it has not."""
        deadline = self.data.deadline
        return "" if deadline is None or now < deadline else f"its deadline, {format_when(deadline)}, has passed"


def decode_run(row: RunRow, store: Store) -> StoredRun:
    """A row with its data."""
    try:
        return StoredRun(row, codec(RunData).parse_json(row.data))
    except ValueError as error:
        raise StoreCorruptError(
            f"the run of session {row.session_id} in {store.url} cannot be read: {error}", store=store.url
        ) from error


def find_run(store: Store, session_id: str) -> StoredRun | None:
    """The run of a session, if it has one.

    Raises:
        StoreError: it cannot be read.
    """
    row = store.run(session_id)
    return None if row is None else decode_run(row, store)


def require_run(store: Store, session_id: str) -> StoredRun:
    """The run of a session.

    Raises:
        SessionNotFoundError: the session has no run.
        StoreError: it cannot be read.
    """
    if (run := find_run(store, session_id)) is None:
        text = f"{store.url} has no run of session {session_id}; handrail runs list shows all"
        raise SessionNotFoundError(text, session_id=session_id)
    return run


def write_run(store: Store, run: StoredRun) -> bool:
    """Writes a changed run; returns whether it was still as it was read."""
    return store.apply(UnitOfWork((RunChange(run.row),))) is None


def check_writable(store: Store) -> None:
    """Writes nothing, as a run is written.

    Raises:
        StoreError: the store cannot be written to.
    """
    store.apply(UnitOfWork((RunChange(RunRow("", 2, "open", "", 0, "", store.now(), store.now(), b"")),)))


def change_run(store: Store, session_id: str, change: Callable[[StoredRun], StoredRun | None]) -> StoredRun | None:
    """Changes the run of a session, read again if another process has changed it; `None` leaves it as it is.

    Raises:
        SessionNotFoundError: the session has no run.
        SessionError: the change is not possible.
        StoreError: it cannot be read or written.
    """
    while True:
        changed = change(require_run(store, session_id))
        if changed is None or write_run(store, changed):
            return changed


def store_run(  # noqa: PLR0913 - what a run is
    store: Store,
    session_id: str,
    data: RunData,
    *,
    at: datetime | None = None,
    priority: int = 0,
    queue: str = DEFAULT_QUEUE,
    tags: Mapping[str, str] | None = None,
) -> StoredRun:
    """Writes a run into a session, which is created if there is an input; the same one twice is one run.

    Raises:
        InvalidArgumentError: an argument is of another type or out of range, or a time has no zone or has passed.
        SessionError: the session has another run; or it has begun, and there is an input.
        SessionNotFoundError: it does not exist, and there is no input.
        StoreError: it cannot be written.
    """
    check_session_arguments("submit", session_id, tags)
    _check(data, at, priority, queue)
    now = store.now()
    if (at or data.deadline) and find_run(store, session_id) is None:  # submitted again, they may have passed
        _check_future(data, at, now)
    row = RunRow(session_id, 1, "open", queue, priority, "", at or now, now, codec(RunData).dump_json(data))
    new = StoredRun(row, data)
    session = SessionRow(session_id, {"agent": data.agent, **(tags or {})}, None, now)
    is_new = data.input is not None and store.create(session)
    run = None if is_new else find_run(store, session_id)
    if run is None:
        before = None if is_new or data.input is None else store.find(session_id)
        if before is not None and before.head:
            raise SessionError(
                f"session {session_id} has begun without workers; submit it without an input, so that they finish "
                "it, or use another session"
            )
        if write_run(store, new):
            return new
        run = find_run(store, session_id)  # another process has submitted it meanwhile
    if run is None:
        raise SessionNotFoundError(
            f"{store.url} has no session {session_id} that could be finished; submit it with an input",
            session_id=session_id,
        )
    if (run.data.agent, run.data.input) != (data.agent, data.input):
        raise SessionError(
            f"session {session_id} has another run of {run.data.agent} already, which is {run.row.status}; its id is "
            "the key of one run: use another session"
        )
    return run


def _check(data: RunData, at: datetime | None, priority: int, queue: str) -> None:
    limit, zone = data.request_limit, "a time with a zone: datetime.now(UTC) + timedelta(minutes=5)"
    arguments: tuple[tuple[str, object, object, str], ...] = (
        ("agent", data.agent, is_text(data.agent) and data.agent.strip(), "the name of an agent"),
        ("input", data.input, data.input is None or is_text(data.input), "text, or None to finish what there is"),
        ("at", at, _is_aware(at), zone),
        ("deadline", data.deadline, _is_aware(data.deadline), zone),
        ("priority", priority, type(priority) is int and abs(priority) <= HIGHEST_PRIORITY, _PRIORITY),
        ("request_limit", limit, limit is None or (type(limit) is int and limit > 0), "1 or more, or None"),
    )
    for name, value, fits, expected in arguments:
        if not fits:
            raise InvalidArgumentError(function="submit", argument=name, value=value, expected=expected)
    if at is not None and data.deadline is not None and data.deadline <= at:
        expected = f"a time after that at which it begins, {at.isoformat()}"
        raise InvalidArgumentError(function="submit", argument="deadline", value=data.deadline, expected=expected)
    check_queue(queue)


def _is_aware(moment: object) -> bool:
    return moment is None or (isinstance(moment, datetime) and moment.utcoffset() is not None)


def _check_future(data: RunData, at: datetime | None, now: datetime) -> None:
    # A time that is to come may be a little late when it is written; one of another day is a mistake.
    for name, moment, earliest in (("deadline", data.deadline, now), ("at", at, now - _A_DAY)):
        if moment is not None and moment <= earliest:
            expected = f"a time that is to come; it is {now.isoformat()} now"
            raise InvalidArgumentError(function="submit", argument=name, value=moment, expected=expected)


def check_queue(name: object, function: str = "submit") -> None:
    """Checks the name of a queue that a function was called with.

    Raises:
        InvalidArgumentError: it is empty, or too long.
    """
    if not (isinstance(name, str) and 0 < len(name.encode()) <= LONGEST_QUEUE):
        expected = f"a name of 1 to {LONGEST_QUEUE} bytes"
        raise InvalidArgumentError(function=function, argument="queue", value=name, expected=expected)


def wake_run(store: Store, session_id: str) -> None:
    """Has workers continue the run of a session, or of one above it, that waits for an answer which it has now."""
    row = store.find(session_id)
    while row is not None:
        if store.run(row.session_id) is not None:
            change_run(
                store,
                row.session_id,
                lambda run: run.change("open", due_at=store.now(), text="") if run.row.status == "waiting" else None,
            )
        row = None if row.parent is None else store.find(row.parent)


def cancel_run(store: Store, session_id: str, *, by: str = "", reason: str = "") -> StoredRun | None:
    """Ends a run that has not ended; a worker that carries it out stops within seconds. `None` if it has ended.

    Raises:
        SessionNotFoundError: the session has no run.
        StoreError: it cannot be read or written.
    """
    text = " ".join(filter(None, ("cancelled", by and f"by {by}", reason and f"because {reason}")))
    return change_run(
        store,
        session_id,
        lambda run: run.change("cancelled", text=text) if "cancelled" in MOVES[run.row.status] else None,
    )


def retry_run(store: Store, session_id: str, *, request_limit: int | None = None) -> StoredRun | None:
    """Has workers carry out a run again that has failed or was cancelled, from where it stopped.

    `request_limit` replaces that of the run, if it is given.

    Raises:
        SessionNotFoundError: the session has no run.
        SessionError: it has not failed.
        StoreError: it cannot be read or written.
    """

    def change(run: StoredRun) -> StoredRun:
        if run.row.status not in {"failed", "cancelled"}:
            raise SessionError(f"the run of session {session_id} is {run.row.status}, and has not failed")
        limit = run.data.request_limit if request_limit is None else request_limit
        return run.change("open", due_at=store.now(), attempts=0, text="", request_limit=limit)

    return change_run(store, session_id, change)
