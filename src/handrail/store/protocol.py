"""What a ledger needs of a store: one kind of row, and a handful of atomic operations on it; and what a store is.

The store decides nothing. It stores rows, has a clock, and changes a row only if the row is still the one that the
caller has seen. What the rows mean, and how one follows from another, is the ledger's
(`handrail.runtime.ledger.ledger`).

The rules that every store keeps:

1. A row is identified by `(partition, key)`; there is at most one.
2. Every operation is atomic and sees the effect of all that returned before it, whichever thread or process asked.
3. A row is *still the one seen* if `effect_id`, `fence`, `status` and the call of its owner are equal. `effect_id`
   counts because a fence starts anew when a row has been removed and its key is claimed again; the call, because of two
   that claim a failed effect again the one that is refused has had the same fence in mind.
4. Leases and expiries are measured on the store's own clock, `now()`: the machines that share it may disagree.
5. Nothing expires by itself: an expired row stays until it is removed.
6. A row that cannot be decoded raises `StoreCorruptError`, which names its key; it is never left out.
7. A store that cannot answer raises. It never answers as if a row were absent.
8. Everything is written by `apply`, and a unit of work may change any number of rows. Watchers are notified when it
   has been committed. Only expired rows, and those of a deleted session, are removed without it: no call waits for
   them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol, Self, Unpack, get_args, runtime_checkable

from handrail.errors import AppliedMeanwhileError, LeaseLostError, SessionError
from handrail.process import process_in_words
from handrail.session import Session
from handrail.session.calls import CallRef, OpenCall
from handrail.session.persistence.protocol import AnswerChange, SessionAppend, SessionHeld, SessionStore
from handrail.session.session import OpenOptions
from handrail.transaction import RecordCommit, UnitOfWork, UnitStore

EffectStatus = Literal["running", "done", "failed", "unknown"]
"""What is known of an effect; an effect that has no row has not been started."""

EFFECT_STATUSES: frozenset[str] = frozenset(get_args(EffectStatus))
"""All values of `EffectStatus`."""


class ClaimOwner(NamedTuple):
    """Who has claimed an effect: a call of a session, and the opened store in whose process it runs.

    Attributes:
        session_id: the session; empty if the claim was made without one.
        reply: the reply whose call it is; `None` if it has none.
        call_id: the id of the call.
        process: the opened store (`handrail.store.owners`); empty if that is not known. The store fills it in.
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
        """Session and call, for people; empty if neither is known."""
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
"""What the keys of slots begin with, and no other key."""


class EffectRow(NamedTuple):
    """What a store keeps of one effect. All times are aware and in UTC.

    It is a named tuple and no dataclass, because a row is a tuple of columns (`EffectRow(*columns)`), and because two
    are made for each call of an external tool: a frozen dataclass of this size costs four times as much.

    Attributes:
        partition: the session id for keys of one session, `""` for keys that all share.
        key: the idempotency key, or the slot of a call.
        effect_id: 32 hexadecimal digits that name the effect; a key claimed anew after its row was removed or had
            expired gets another.
        tool: name of the tool.
        params_hash: sha256 of the canonical JSON of the arguments, hexadecimal: for a slot as the model wrote them, for
            a declared key as they were parsed. Where the tool's parameters have secrets it is the HMAC-SHA256 with the
            key of the store.
        owner: who claimed it last.
        status: what is known of the effect.
        fence: 1 for the first owner; one more each time the row passes on. Only the holder of the newest may write.
        created_at: when the effect was first claimed.
        lease_until: until when the owner may be believed to be at work; `None` unless running.
        completed_at: when it became done or failed; `None` before.
        expires_at: when the row may be forgotten; `None` for never. Only what is done or failed has one.
        message: the message of the handler to the model.
        value: the JSON of what the handler returned; `None` if it could not be serialised (the value `None` is
            `b"null"`).
        exclude_value_from_context: whether the model sees only the message.
        note: why it failed, or why its outcome is unknown; for people.
        arguments: the arguments as JSON in UTF-8, for people, without secrets; `None` if they were not recorded. The
            ledger writes at most 64 KiB (`handrail.runtime.ledger.records`).
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
        """What names the claim of its owner: the effect and the fence."""
        return self.effect_id, self.fence

    @property
    def is_slot(self) -> bool:
        """Whether the key is the slot of a call: the tool has not declared any."""
        return self.key.startswith(_SLOT)

    @property
    def is_kept_until_applied(self) -> bool:
        """Whether the tool has `apply`, and the result has been recorded on its own.

        A result that a person has recorded is not marked so.
        """
        if self.applied_at is not None or self.expires_at is None or self.completed_at is None:
            return False
        return self.expires_at - self.completed_at >= UNTIL_APPLIED

    @property
    def is_unread(self) -> bool:
        """Whether this is the slot of an effect that is done, and that no call has succeeded with.

        Such a row never expires before it is applied; that of an effect which a call has succeeded with does.
        """
        return self.is_slot and self.status == "done" and (self.expires_at is None or self.is_kept_until_applied)

    @property
    def size(self) -> int:
        """The bytes of its message, value and arguments."""
        return len(self.message.encode("utf-8", "surrogatepass")) + len(self.value or b"") + len(self.arguments or b"")

    def has_expired(self, now: datetime) -> bool:
        """Whether the effect is done or failed, and counts as absent by now."""
        return self.expires_at is not None and self.expires_at <= now and self.status in {"done", "failed"}

    def is_below(self, root: str) -> bool:
        """Whether the session of the effect is that one, or below it."""
        return f"{self.partition}/".startswith(f"{root}/")

    @property
    def is_unresolved_slot(self) -> bool:
        """Whether this is a slot that is running, unknown or unread."""
        return self.is_slot and (self.status in {"running", "unknown"} or self.is_unread)


class ExpiredEffects(NamedTuple):
    """How much the expired effects of a ledger are.

    Attributes:
        rows: how many they are.
        bytes: the bytes of their arguments, messages and values.
    """

    rows: int
    bytes: int


class EffectInsert(NamedTuple):
    """A row that a unit of work adds to the ledger, if its key has none."""

    row: EffectRow

    @property
    def seen(self) -> EffectRow:
        """The row itself, by which the write is identified."""
        return self.row

    def fits(self, standing: EffectRow | None) -> bool:
        """Whether the key has no row."""
        return standing is None


class EffectChange(NamedTuple):
    """A change that a unit of work makes to a row of the ledger, if the row is still the one seen.

    Attributes:
        seen: the row as it was seen.
        row: what comes in its place; `None` removes it.
    """

    seen: EffectRow
    row: EffectRow | None

    @property
    def is_renewal(self) -> bool:
        """Whether nothing changes but the lease."""
        return self.row is not None and (self.row.status, self.row.fence) == (self.seen.status, self.seen.fence)

    def fits(self, standing: EffectRow | None) -> bool:
        """Whether a row is still the one seen."""
        seen = self.seen
        compared = (seen.effect_id, seen.fence, seen.status, seen.owner[:3])
        return standing is not None and (standing[2], standing.fence, standing.status, standing.owner[:3]) == compared


class MarkApplied(NamedTuple):
    """A mark that a unit of work sets on a row of the ledger: the call of this unit has its effect, which is done.

    It is written if the key still has the effect, done, and no call has been given it meanwhile. No fence is compared,
    because a done effect has no owner.

    Attributes:
        seen: the row as it was seen.
        row: what it becomes; its `applied_at` and `expires_at` are written.
    """

    seen: EffectRow
    row: EffectRow

    def fits(self, standing: EffectRow | None) -> bool:
        """Whether a row is that of the effect, done, and neither applied nor given to a call since."""
        seen = (self.seen.effect_id, "done", self.seen.applied_at, self.seen.expires_at)
        return standing is not None and seen == (standing[2], standing.status, standing.applied_at, standing.expires_at)


EFFECT_WRITES = EffectInsert | EffectChange | MarkApplied
"""The writes that change a row of the ledger."""


class RefusedWrite(NamedTuple):
    """Why a unit of work was not written.

    A row is not the one seen, a key has a row, or an effect is applied already.

    Attributes:
        write: what was refused.
        standing: the present row of the key; `None` if there is none, and for answers.
    """

    write: EffectInsert | EffectChange | MarkApplied | AnswerChange
    standing: EffectRow | None = None

    def error(self) -> LeaseLostError | AppliedMeanwhileError | SessionError:
        """The call has lost its claim, because another owner or a person has changed the row; or its turn to apply.

        For an answer: there is another one.
        """
        if isinstance(self.write, MarkApplied):
            return AppliedMeanwhileError(self.write.seen.key)
        if isinstance(self.write, AnswerChange):
            return SessionError(
                f"another answer to call {self.write.row.call} was given meanwhile; nothing was written"
            )
        return LeaseLostError(self.write.seen.key, self.write.seen.fence)


def points_of(writes: Sequence[object]) -> list[str]:
    """The crash points that a store which writes a unit in one step reaches before it: nothing is written yet."""
    if not any(isinstance(write, SessionAppend) for write in writes):
        return []  # a claim has points of its own
    points = {SessionAppend: "unit-session-written", **dict.fromkeys(get_args(EFFECT_WRITES), "unit-ledger-written")}
    return ["unit-begun", *(points[kind] for kind in map(type, writes) if kind in points), "unit-before-commit"]


WatchCallback = Callable[[EffectRow | None], object]
"""Called with a change: the row as the change left it, `None` if it was removed."""


@runtime_checkable
class LedgerStore(UnitStore, Protocol):
    """Keeps the rows of a ledger, for many threads and, where it is durable, many processes."""

    @property
    def poll_every(self) -> timedelta | None:
        """How often to look for what other processes have changed; `None` if `watch` sees every change."""
        ...

    def hash_key(self) -> bytes:
        """The random key of this store, for hashes of secrets: 32 bytes that never change. It is read once.

        Raises:
            StoreError: it cannot be read.
        """
        ...

    @property
    def claim_waits(self) -> bool:
        """Whether what a claim needs to know, `now` and `process`, waits for a disk or a server at this moment."""
        ...

    def now(self) -> datetime:
        """The store's time, aware and in UTC."""
        ...

    def process(self) -> str:
        """Names this store in the claims that it makes, with its lock held; empty where no other process can reach it.

        Raises:
            StoreError: the lock cannot be taken, so that the death of this process could not be proved.
        """
        ...

    def owner_lives(self, row: EffectRow) -> bool | None:
        """Whether the owner of a running row lives; `None` if neither is proved: `handrail.store.owners`."""
        ...

    def get(self, partition: str, key: str) -> EffectRow | None:
        """The present row; `None` if there is none."""
        ...

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Write all of a unit, and return `None`; or nothing of it, and return the first write that was refused.

        A unit of several writes that has been written already changes nothing and is answered with `None`.
        """
        ...

    def rows(self, key: str | None = None) -> Iterator[EffectRow]:
        """All rows, or those of a key, expired ones included; each as it stood at some moment of the iteration."""
        ...

    def expired(self, now: datetime) -> ExpiredEffects:
        """How many rows are done or failed and expired by `now`, and how much they hold."""
        ...

    def remove_expired(self, now: datetime) -> int:
        """Remove these rows; returns how many they were.

        It is not one transaction but many short ones, so others can write in between; one that fails leaves those
        before it removed.

        Raises:
            StoreError: the store cannot be written.
        """
        ...

    def open_claims(self, session_id: str) -> tuple[OpenCall, ...]:
        """As of `SessionStore`."""
        ...

    def unresolved_slots(self, root: str, tool: str = "") -> tuple[EffectRow, ...]:
        """The slots of a tool, or all, in a session and those below it, that are running, unknown or unread.

        A session is below another one if its id begins with the id of that and `/`. It is written by one process at a
        time: what another one has changed since this store was last asked to acquire the session may be missing.
        """
        ...

    def has_no_slots(self, root: str, tool: str) -> bool:
        """Whether it is known without reading that `unresolved_slots` would find none."""
        ...

    def effects_below(self, root: str) -> tuple[EffectRow, ...]:
        """All rows of a session and those below it; expired ones included."""
        ...

    def watch(self, partition: str, key: str, wake: WatchCallback) -> Callable[[], None]:
        """Call `wake` after each change of the key's row that this store learns of; returns how to stop that.

        `wake` is given the row as the change left it, `None` if it was removed. It is called without any lock held, in
        the thread that made the change, perhaps once more after stopping, and must be quick. Stopping twice is stopping
        once.
        """
        ...


def change_effect(store: LedgerStore, seen: EffectRow, row: EffectRow | None, *conditions: SessionHeld) -> bool:
    """Change a row of the ledger, or remove it, in a unit of its own; returns whether it was still the one seen.

    Raises:
        SessionLostError: a lock of the conditions is not valid.
    """
    return store.apply(UnitOfWork((EffectChange(seen, row), *conditions))) is None


def with_proof(row: EffectRow, lives: bool | None, now: datetime) -> EffectRow:  # noqa: FBT001 - an answer
    """A running row by what is proved of its owner: the lease of a dead one has ended, and of a living one has not."""
    if lives is None or row.lease_until is None:
        return row
    if lives:
        return row if row.lease_until > now else row._replace(lease_until=now + _NEXT_PROOF)
    note = f"the process of its owner ({str(row.owner) or 'unnamed'}) has ended"
    return row._replace(lease_until=now, note=note)


def proved(store: LedgerStore, row: EffectRow, now: datetime) -> EffectRow:
    """A row by what the store knows of its owner; see `with_proof`."""
    return with_proof(row, store.owner_lives(row), now) if row.status == "running" else row


def disowned(row: EffectRow) -> EffectRow:
    """A running row that its process does not renew any more: nothing is proved of it, and its lease decides."""
    return row._replace(owner=row.owner._replace(process=""))


class Store(LedgerStore, SessionStore, Protocol):
    """Keeps a ledger, sessions, and what was decided of journals, with one unit of work over all of them.

    `handrail.store.open` makes one. A journal of changes on disk survives a crash; whether the call that wrote it was
    committed, and so whether it is to be undone, is what a `RecordCommit` in the same unit records.
    """

    def session(self, session_id: str, **options: Unpack[OpenOptions]) -> Session:
        """Resumes or begins a session; short for `Session.open(store, session_id)`.

        Args:
            session_id: the id.
            options: as of `Session.open`.

        Raises:
            SessionError: as for `Session.open`.
            StoreError: the store cannot be used.
        """
        ...

    def holder(self, session_id: str) -> tuple[str, int] | None:
        """The token of the lock of a session that is valid, and the number of its newest entry; `None` for none."""
        ...

    def is_committed(self, journal_id: str) -> bool:
        """Whether the call that a journal belongs to has been committed."""
        ...

    def delete_commit_record(self, journal_id: str) -> None:
        """Delete the commit record of a journal; one that does not exist is not an error."""
        ...

    def close(self) -> None:
        """Release all sessions, and close all connections. Idempotent."""
        ...

    async def close_async(self) -> None:
        """As `close`, on a thread."""
        ...

    def __enter__(self) -> Self:
        """Return the store."""
        ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object, /) -> None:
        """Close it."""
        ...


def has_written(store: Store, unit: UnitOfWork) -> bool:
    """Whether a unit has been committed, although its answer was lost: what it writes is there."""
    proofs = [is_written for write in unit.writes if (is_written := _is_written(store, write)) is not None]
    return bool(proofs) and all(proofs)


def _is_written(store: Store, write: object) -> bool | None:
    match write:
        case EffectInsert(row):
            return store.get(*row[:2]) == row
        case EffectChange(seen, row) | MarkApplied(seen, row):
            # Who has removed a row is not known, so a removal counts once.
            return row is not None and store.get(*seen[:2]) == row
        case SessionAppend(lock, head, entries):
            return store.holder(lock.session_id) == (lock.token, head + len(entries))
        case AnswerChange(_, row):
            return row in store.answers(row.session_id)
        case RecordCommit(journal_id):
            return store.is_committed(journal_id)
        case _:  # a condition; or what a handler has written, which is committed with the rest
            return None
