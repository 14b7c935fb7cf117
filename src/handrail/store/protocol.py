"""The protocol of a store: one kind of row for ledgers, a handful of atomic operations on it, and sessions.

The store decides nothing. It stores rows, has a clock, and changes a row only if the row is still the one that the
caller has read. The meaning of the rows is the ledger's (`handrail.runtime.ledger.ledger`).

The rules of every store:

1. A row is identified by `(partition, key)`; there is at most one.
2. Every operation is atomic and sees the effect of all that returned before it, of any thread or process.
3. A row is *still the one read* if `effect_id`, `fence`, `status` and the call of its owner are equal. `effect_id`
   counts because a fence starts anew when a row has been removed and its key is claimed again; the call, because of two
   that claim a failed effect again the refused one has computed the same fence.
4. Leases and expiries are measured on the store's own clock, `now()`: the machines that share it may disagree.
5. Nothing expires by itself: an expired row stays until it is removed.
6. A row that cannot be decoded raises `StoreCorruptError`, which names its key; it is never left out.
7. A store that cannot answer raises. It never answers as if a row were absent.
8. Everything is written by `apply`, and a unit of work may change any number of rows. Watchers are notified after its
   commit. Only expired rows, and those of a deleted session, are removed without it: no call waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol, Self, TypeAlias, Unpack, get_args, runtime_checkable

from handrail.errors import AppliedMeanwhileError, LeaseLostError, SessionError
from handrail.process import process_in_words
from handrail.session import Session
from handrail.session.calls import CallRef, OpenCall
from handrail.session.persistence.protocol import AnswerChange, RunChange, SessionAppend, SessionHeld, SessionStore
from handrail.session.session import OpenOptions
from handrail.transaction import RecordCommit, UnitOfWork, UnitStore

EffectStatus = Literal["running", "done", "failed", "unknown"]
"""The state of an effect; an effect that has no row has not been started."""


class ClaimOwner(NamedTuple):
    """The call of a session that has claimed an effect, and the opened store in whose process it runs.

    Attributes:
        session_id: the session; empty if the claim was made without one.
        reply: the reply whose call it is; `None` if it has none.
        call_id: the id of the call.
        process: the opened store (`handrail.store.locks`); empty if that is not known. The store fills it in.
    """

    session_id: str = ""
    reply: str | None = None
    call_id: str = ""
    process: str = ""

    @property
    def call(self) -> CallRef:
        """The identity of the call within the session."""
        return CallRef(self.reply, self.call_id)

    def __str__(self) -> str:
        return "/".join(part for part in (self.session_id, str(self.call)) if part)

    @property
    def in_words(self) -> str:
        """Session, call and process, for people; empty if none is known."""
        return ", ".join(part for part in (str(self), process_in_words(self.process)) if part)


UNTIL_APPLIED = timedelta(days=36_500)
"""How long a result is kept that waits for the `apply` of its tool: in effect for ever. A row without an expiry is that
of a slot whose call did not learn that its effect is done."""

_NEXT_PROOF = timedelta(seconds=1)
"""How long a living owner is believed in after its lease has expired, before it is looked for again."""

_SLOT = "call:"
"""The prefix of the keys of slots, and of no other key."""


class EffectRow(NamedTuple):
    """One effect in a store. All times are aware and in UTC.

    It is a named tuple, because a row is a tuple of columns, and because two are made for each call of an external
    tool: a frozen dataclass of this size costs four times as much.

    Attributes:
        partition: the session id for keys of one session, `""` for keys that all share.
        key: the idempotency key, or the slot of a call.
        effect_id: 32 hexadecimal digits; a key claimed anew after its row was removed or had expired gets another.
        tool: name of the tool.
        params_hash: sha256 of the canonical JSON of the arguments, hexadecimal: for a slot as the model wrote them, for
            a declared key as parsed. If the parameters have secrets, the HMAC-SHA256 with the key of the store.
        owner: who claimed it last.
        status: what is known of the effect.
        fence: 1 for the first owner; one more each time the row passes on. Only the holder of the newest may write.
        created_at: when the effect was first claimed.
        lease_until: until when the owner may be believed to be at work; `None` unless running.
        completed_at: when it became done or failed; `None` before.
        expires_at: when the row may be forgotten; `None` for never. Only what is done or failed has one.
        message: the message of the handler to the model.
        value: the JSON of the handler's return value; `None` if it has no JSON (the value `None` is `b"null"`).
        exclude_value_from_context: whether the model sees only the message.
        note: why it failed, why its outcome is unknown, or how a person knows that it has happened; for people.
        arguments: their JSON in UTF-8, at most 64 KiB, without secrets; `None` if they were not recorded.
        applied_at: when the result was applied in the unit that committed the call; `None` before, and for a result
            that was recorded on its own, until the tool's `apply` has run.
    """

    partition: str
    key: str
    effect_id: str
    tool: str
    params_hash: str
    owner: ClaimOwner
    status: EffectStatus
    fence: int
    created_at: datetime
    lease_until: datetime | None = None
    completed_at: datetime | None = None
    expires_at: datetime | None = None
    message: str = ""
    value: bytes | None = None
    exclude_value_from_context: bool = False
    note: str = ""
    arguments: bytes | None = None
    applied_at: datetime | None = None

    @property
    def claim(self) -> tuple[str, int]:
        """The identity of its owner's claim: the effect and the fence."""
        return self.effect_id, self.fence

    @property
    def is_slot(self) -> bool:
        """True if the key is the slot of a call: the tool has not declared any."""
        return self.key.startswith(_SLOT)

    @property
    def is_kept_until_applied(self) -> bool:
        """True if the tool has `apply`, and the result was recorded on its own, and not by a person."""
        if self.applied_at is not None or self.expires_at is None or self.completed_at is None:
            return False
        return self.expires_at - self.completed_at >= UNTIL_APPLIED

    @property
    def is_unread(self) -> bool:
        """True if this is the slot of an effect that is done, and that no call has succeeded with.

        Such a row never expires before it is applied; that of an effect which a call has succeeded with does.
        """
        return self.is_slot and self.status == "done" and (self.expires_at is None or self.is_kept_until_applied)

    def has_expired(self, now: datetime) -> bool:
        """Tests whether the effect is done or failed, and counts as absent by now."""
        return self.expires_at is not None and self.expires_at <= now and self.status in {"done", "failed"}

    def is_below(self, root: str) -> bool:
        """Tests whether the session of the effect is that one, or below it."""
        return f"{self.partition}/".startswith(f"{root}/")

    @property
    def is_unresolved_slot(self) -> bool:
        """True for a slot that is running, unknown or unread."""
        return self.is_slot and (self.status in {"running", "unknown"} or self.is_unread)


class EffectInsert(NamedTuple):
    """A row that a unit of work adds to the ledger, if its key has none."""

    row: EffectRow

    @property
    def before(self) -> EffectRow:
        """The row itself, by which the write is identified."""
        return self.row

    def fits(self, present: EffectRow | None) -> bool:
        """Tests whether the key has no row."""
        return present is None


class EffectChange(NamedTuple):
    """A change of a row of the ledger from `before` to `row`, `None` to remove it, if it is still the one read."""

    before: EffectRow
    row: EffectRow | None

    @property
    def is_renewal(self) -> bool:
        """True if nothing changes but the lease."""
        return self.row is not None and (self.row.status, self.row.fence) == (self.before.status, self.before.fence)

    def fits(self, present: EffectRow | None) -> bool:
        """Tests whether a row is still the one read."""
        claim = self.before
        compared = (claim.effect_id, claim.fence, claim.status, claim.owner[:3])
        return present is not None and (present[2], present.fence, present.status, present.owner[:3]) == compared


class MarkApplied(NamedTuple):
    """A mark on a row of the ledger: the call of this unit has its effect, which is done.

    It is written if the key still has the effect, done, and no call has been given it meanwhile. No fence is compared,
    because a done effect has no owner. Of `row`, `applied_at` and `expires_at` are written.
    """

    before: EffectRow
    row: EffectRow

    def fits(self, present: EffectRow | None) -> bool:
        """Tests whether a row is that of the effect, done, and neither applied nor given to a call since."""
        effect = (self.before.effect_id, "done", self.before.applied_at, self.before.expires_at)
        return present is not None and effect == (present[2], present.status, present.applied_at, present.expires_at)


EffectWrite: TypeAlias = EffectInsert | EffectChange | MarkApplied
"""The writes that change a row of the ledger."""


class RefusedWrite(NamedTuple):
    """Why a unit of work was not written: a row is not the one read, a key has a row, or an effect is applied already.

    Attributes:
        write: the write that was refused.
        present: the present row of the key; `None` if there is none, and for answers and runs.
    """

    write: EffectWrite | AnswerChange | RunChange
    present: EffectRow | None = None

    def error(self) -> LeaseLostError | AppliedMeanwhileError | SessionError:
        """Describes the refusal: the call has lost its claim, or its turn to apply; or the call has another answer."""
        if isinstance(self.write, MarkApplied):
            return AppliedMeanwhileError(self.write.before.key)
        if isinstance(self.write, AnswerChange):
            return SessionError(
                f"another answer to call {self.write.row.call} was given meanwhile; nothing was written"
            )
        if isinstance(self.write, RunChange):
            return SessionError(f"the run of session {self.write.row.session_id} was changed meanwhile")
        return LeaseLostError(self.write.before.key, self.write.before.fence)


def list_crash_points(writes: Sequence[object]) -> list[str]:
    """Lists the crash points that a store which writes a unit in one step reaches before it."""
    if not any(isinstance(write, SessionAppend) for write in writes):
        return []  # a claim has points of its own
    points = {SessionAppend: "unit-session-written", **dict.fromkeys(get_args(EffectWrite), "unit-ledger-written")}
    return ["unit-begun", *(points[kind] for kind in map(type, writes) if kind in points), "unit-before-commit"]


WatchCallback = Callable[[EffectRow | None], object]
"""Called with a change: the row as the change left it, `None` if it was removed."""


@runtime_checkable
class LedgerStore(UnitStore, Protocol):
    """Stores the rows of a ledger, for many threads and, where it is durable, many processes."""

    @property
    def poll_every(self) -> timedelta | None:
        """How often to look for changes of other processes; `None` if `watch` sees every change."""
        ...

    def hash_key(self) -> bytes:
        """Returns 32 random bytes that never change, for hashes of secrets; may raise a `StoreError`."""
        ...

    @property
    def claim_waits(self) -> bool:
        """True if a claim waits for a disk or a server at this moment, for `now` or `process`."""
        ...

    def now(self) -> datetime:
        """Returns the store's time, aware and in UTC."""
        ...

    def process(self) -> str:
        """Names this store in the claims that it makes, with its lock held; empty where no other process can reach it.

        Raises:
            StoreError: the lock cannot be acquired, so that the death of this process could not be proved.
        """
        ...

    def owner_lives(self, row: EffectRow) -> bool | None:
        """Tests whether the owner of a running row lives; `None` if neither is proved: `handrail.store.locks`."""
        ...

    def get(self, partition: str, key: str) -> EffectRow | None:
        """Returns the present row; `None` if there is none."""
        ...

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Writes all of a unit and returns `None`, or nothing of it and returns the first write that was refused.

        A unit of several writes that has been written already changes nothing and is answered with `None`.

        Raises:
            SessionLostError: the lock of a session is not valid, or it has been written to. Nothing was written.
            SessionError: the entries do not follow the newest one. Nothing was written.
            StoreUnavailableError: the store does not answer; nothing was written, unless `in_doubt` is true.
        """
        ...

    def rows(self, key: str | None = None) -> Iterator[EffectRow]:
        """Returns all rows, or those of a key, also expired ones; each as it stood at some moment of the iteration."""
        ...

    def rows_by_age(self, *, is_settled: bool, after: tuple[datetime, str] | None = None) -> Iterator[EffectRow]:
        """Returns the rows that are done or failed, or else those that are running or unknown; the newest first.

        After a row, given by its `created_at` and its `effect_id`, only those that follow it in this order.
        """
        ...

    def expired(self, now: datetime) -> int:
        """Counts the rows that are done or failed and expired by `now`."""
        ...

    def remove_expired(self, now: datetime) -> int:
        """Removes these rows in many short transactions, so others can write in between; returns how many."""
        ...

    def open_claims(self, session_id: str) -> tuple[OpenCall, ...]:
        """Returns the calls of a session whose effects are open; as of `SessionStore`."""
        ...

    def unresolved_slots(self, root: str, tool: str = "") -> tuple[EffectRow, ...]:
        """Returns the slots of a tool, or all, in a session and those below it, that are running, unknown or unread.

        A session is below another one if its id begins with the id of that and `/`. Changes of other processes since
        this store last acquired the session may be missing.
        """
        ...

    def has_no_slots(self, root: str, tool: str) -> bool:
        """Tests without reading whether `unresolved_slots` would return none."""
        ...

    def effects_below(self, root: str) -> tuple[EffectRow, ...]:
        """Returns all rows of a session and those below it; expired ones included."""
        ...

    def watch(self, partition: str, key: str, wake: WatchCallback) -> Callable[[], None]:
        """Calls `wake` after each change of the key's row that this store learns of; returns how to stop that.

        `wake` gets the row as the change left it, `None` if it was removed. It is called without any lock held, in the
        thread that made the change, perhaps once more after stopping, and must be quick. Stopping is idempotent.
        """
        ...


def change_effect(store: LedgerStore, before: EffectRow, row: EffectRow | None, *conditions: SessionHeld) -> bool:
    """Changes a row of the ledger, or removes it, in a unit of its own; returns whether it was still the one read."""
    return store.apply(UnitOfWork((EffectChange(before, row), *conditions))) is None


def with_proof(row: EffectRow, lives: bool | None, now: datetime) -> EffectRow:  # noqa: FBT001 - an answer
    """Applies the proof of its owner to a running row: the lease of a dead one has ended, of a living one has not."""
    if lives is None or row.lease_until is None:
        return row
    if lives:
        return row if row.lease_until > now else row._replace(lease_until=now + _NEXT_PROOF)
    note = f"the process of its owner ({str(row.owner) or 'unnamed'}) has ended"
    return row._replace(lease_until=min(row.lease_until, now), note=note)


def prove_owner(store: LedgerStore, row: EffectRow, now: datetime) -> EffectRow:
    """Applies what the store knows of its owner to a row; see `with_proof`."""
    return with_proof(row, store.owner_lives(row), now) if row.status == "running" else row


def disown(row: EffectRow) -> EffectRow:
    """Returns a running row that its process does not renew any more, so that its lease decides."""
    return row._replace(owner=row.owner._replace(process=""))


class Store(LedgerStore, SessionStore, Protocol):
    """Stores a ledger, sessions, and the decisions about journals, with one unit of work over all of them.

    `handrail.store.open` makes one. A journal of changes on disk survives a crash; a `RecordCommit` in the unit of the
    call records that it was committed, so that the journal is not undone.
    """

    def session(self, session_id: str, **options: Unpack[OpenOptions]) -> Session:
        """Resumes or begins a session; short for `Session.open(store, session_id)`, with its options and errors."""
        ...

    def holder(self, session_id: str) -> tuple[str, int] | None:
        """Returns the valid token of a session, and the number of its newest entry; `None` if it does not exist."""
        ...

    def is_committed(self, journal_id: str) -> bool:
        """Tests whether the call that a journal belongs to has been committed."""
        ...

    def delete_commit_record(self, journal_id: str) -> None:
        """Deletes the commit record of a journal; one that does not exist is not an error."""
        ...

    def close(self) -> None:
        """Releases all sessions, and closes all connections. Idempotent."""
        ...

    async def close_async(self) -> None:
        """Closes the store on a thread."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object, /) -> None: ...


def has_written(store: Store, unit: UnitOfWork) -> bool:
    """Tests whether a unit has been committed, although its answer was lost: what it writes is there."""
    proofs = [is_written for write in unit.writes if (is_written := _is_written(store, write)) is not None]
    return bool(proofs) and all(proofs)


def _is_written(store: Store, write: object) -> bool | None:
    is_there: bool | None = None  # a condition; or what a handler has written, which is committed with the rest
    match write:
        case EffectInsert(row):
            is_there = store.get(*row[:2]) == row
        case EffectChange(before, row) | MarkApplied(before, row):
            # Who has removed a row is not known, so a removal counts once.
            is_there = row is not None and store.get(*before[:2]) == row
        case SessionAppend(lock, head, entries):
            is_there = store.holder(lock.session_id) == (lock.token, head + len(entries))
        case AnswerChange(_, row):
            is_there = row in store.answers(row.session_id)
        case RunChange(row):
            is_there = store.run(row.session_id) == row
        case RecordCommit(journal_id):
            is_there = store.is_committed(journal_id)
        case _:
            pass
    return is_there
