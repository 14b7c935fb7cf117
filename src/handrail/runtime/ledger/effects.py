"""The effects of a ledger: requests and answers as values, and the state machine of a row, as pure functions.

Theory of operation
    An effect has a row from the moment it is claimed. Its status is *running* (an owner holds a lease), *done* (with
    its result), *failed* (it has certainly not happened), or *unknown* (it was started, and its outcome is not known).
    Each time a row passes to another owner, or is taken from one, its fence goes up by one; a write succeeds only if
    the row still has the effect id, fence and status that the writer last read (the store's condition). So an owner
    that was considered dead and resumes cannot change the row.

    Guarantees: (P1) a key has at most one *done*, and its result never changes; (P2) at most one owner may write;
    (P3) an old fence never writes; (P4) with `on_orphan="unknown"` a handler starts at most once, until it has failed,
    has expired, or its outcome has been determined.

    An owner that learns the outcome after it has lost the row, or after its handler has timed out, settles the row only
    if that is to be accepted, and the row is unsettled and has not passed to another owner. Otherwise it is logged.

`tests/runtime/ledger/test_states.py` reads this table and checks it against the code. "Expired" is a done or failed row
whose time is up; "corrupt" is one that no ledger can have written; "lapsed" is a running row whose lease has expired. A
row is read by what is proved of its owner (`handrail.store.locks`): the lease of one that lives has not expired,
whatever the clock says, and that of a dead one has ended. A write by any but the current owner of the row is answered
`refused`, and changes nothing; but an owner that records the same outcome again is answered `kept`, because the first
answer may have been lost.

    ==========  ========================  ==================  ==========
    row         event                     becomes             answer
    ==========  ========================  ==================  ==========
    absent      claim                     running, fence 1    claimed
    expired     claim                     running, fence 1    claimed
    running     claim                     as it was           busy
    lapsed      claim, retry              running, fence + 1  claimed
    lapsed      claim, unknown            unknown, fence + 1  unknown
    lapsed      claim, reconcile          unknown, fence + 1  unknown
    done        claim                     as it was           hit
    failed      claim                     running, fence + 1  claimed
    unknown     claim                     as it was           unknown
    unknown     claim, retry              running, fence + 1  claimed
    running     claim, other arguments    as it was           conflict
    lapsed      claim, other arguments    as it was           conflict
    done        claim, other arguments    as it was           conflict
    failed      claim, other arguments    running, fence + 1  claimed
    failed      claim, other tool         as it was           conflict
    unknown     claim, other arguments    as it was           conflict
    running     claim, any arguments      as it was           busy
    lapsed      claim, any arguments      unknown, fence + 1  unknown
    done        claim, any arguments      as it was           hit
    failed      claim, any arguments      running, fence + 1  claimed
    unknown     claim, any arguments      as it was           unknown
    done        claim, other tool         as it was           conflict
    expired     claim, other arguments    running, fence 1    claimed
    running     renew                     running, same       kept
    lapsed      renew                     running, same       kept
    running     owner found dead          running, lapsed     kept
    lapsed      owner found alive         running, same       kept
    running     complete                  done, same          kept
    lapsed      complete                  done, same          kept
    done        apply                     done, same          kept
    running     fail                      failed, same        kept
    running     mark unknown              unknown, fence + 1  kept
    running     give up                   as it was           kept
    unknown     resolve: it happened      done, same          kept
    unknown     resolve: it did not       failed, same        kept
    lapsed      resolve: it happened      done, fence + 1     kept
    lapsed      resolve: it did not       failed, fence + 1   kept
    running     resolve: it happened      as it was           error
    done        resolve: it did not       as it was           error
    done        resolve: applied by hand  done, same          kept
    unknown     resolve: applied by hand  as it was           error
    running     resolve: applied by hand  as it was           error
    failed      resolve: applied by hand  as it was           error
    failed      resolve: it happened      as it was           error
    absent      record                    done, fence 1       kept
    expired     record                    done, fence 1       kept
    failed      record                    done, fence + 1     kept
    done        record                    as it was           kept
    done        record, other arguments   as it was           error
    running     record                    as it was           error
    lapsed      record                    as it was           error
    unknown     record                    as it was           error
    done        invalidate                absent              kept
    failed      invalidate                absent              kept
    running     invalidate                as it was           error
    unknown     invalidate                as it was           error
    running     invalidate by force       absent              kept
    unknown     invalidate by force       absent              kept
    running     settle late               done, fence + 1     settled
    lapsed      settle late               done, fence + 1     settled
    unknown     settle late               done, same          settled
    unknown     settle late, did not      failed, same        settled
    absent      settle late               as it was           logged
    expired     settle late               as it was           logged
    done        settle late               as it was           logged
    failed      settle late               as it was           logged
    unknown     settle late, declined     as it was           logged
    running     settle late, earlier one  as it was           logged
    unknown     settle late, earlier one  as it was           logged
    expired     prune                     absent              kept
    running     prune                     as it was           kept
    lapsed      prune                     as it was           kept
    done        prune                     as it was           kept
    unknown     prune                     as it was           kept
    expired     look up                   absent              nothing
    done        look up                   as it was           effect
    running     look up                   as it was           nothing
    unknown     look up                   as it was           nothing
    ==========  ========================  ==================  ==========
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from handrail.errors import LedgerError
from handrail.prompt.idempotency import OnOrphan
from handrail.prompt.signature import DAY, MINUTE
from handrail.redaction import MASK
from handrail.session.persistence.protocol import SessionHeld
from handrail.store.protocol import UNTIL_APPLIED, ClaimOwner, EffectRow, MarkApplied

NOT_AGAIN: Final = "Do not ask for it again: another call would do it again."
"""What the model reads of an effect that is named by its call: the next call would have another id."""

FOR_A_PERSON: Final = "Do not ask for it again; a person has to find out what happened."
"""What the model reads of an effect that is unknown, and that nothing of the program finds out about."""


class ClaimRequest(NamedTuple):
    """A request to run an effect. A named tuple, because one is created for each external call.

    Attributes:
        partition: the session id, or `""` for a key that all sessions share.
        key: the idempotency key, or the slot of the call.
        params_hash: sha256 of the canonical JSON of all arguments, hexadecimal; see `handrail.prompt.idempotency`.
        owner: the call, by its session, reply and id. The ledger adds the process.
        lease: how long the claim is valid without a renewal.
        on_orphan: how an effect is treated whose owner's lease has expired.
        beat_until: when the ledger stops renewing the lease, aware; `None` for never. Pass the call's deadline, so that
            a handler that hangs does not hold its key for ever.
        arguments: the arguments for people, as `recorded_arguments` writes them; `None` to record none.
        conditions: the locks that must be valid for the claim to be granted: that of the session of the call, if the
            session is in the store of the ledger.
        replays_other_arguments: a result of other arguments answers the claim; otherwise that is a conflict.
    """

    partition: str
    key: str
    tool: str
    params_hash: str
    owner: ClaimOwner = ClaimOwner()
    lease: timedelta = MINUTE
    on_orphan: OnOrphan = "unknown"
    beat_until: datetime | None = None
    arguments: bytes | None = None
    conditions: tuple[SessionHeld, ...] = ()
    replays_other_arguments: bool = False


class EffectResult(NamedTuple):
    """The outcome of an effect that has happened.

    Attributes:
        message: the message for the model.
        value: the JSON of what the handler returned (`b"null"` for `None`); `None` if it cannot be serialised: the
            effect has happened nevertheless, and a replay says that the value is unavailable.
        exclude_value_from_context: the model sees only the message.
        why: how a person knows it, for people; empty for what a handler has returned.
    """

    message: str
    value: bytes | None = b"null"
    exclude_value_from_context: bool = False
    why: str = ""


class NotApplied(NamedTuple):
    """The finding that an effect has certainly not happened; `why` is for people."""

    why: str = ""


class AppliedByHand(NamedTuple):
    """The finding that a person has applied the result of an effect that has happened; `why` is for people."""

    why: str = ""


Finding = EffectResult | NotApplied | AppliedByHand
"""What a person, or a program, has found out about an effect; see `EffectLedger.resolve`."""


class NotKnown(NamedTuple):
    """The finding that it is not known whether an effect has happened; `why` is for people."""

    why: str = ""


OwnerFinding = EffectResult | NotApplied | NotKnown
"""What the owner of a claim knows of its effect."""


@dataclass(slots=True, eq=False)
class Claimed:
    """The right to run an effect, until it is completed, failed, abandoned or lost. Equal only to itself.

    Attributes:
        row: the row as it was claimed.
        lease: how long each renewal is valid.
        beat_until: when the ledger stops renewing the lease; `None` for never.
        retried: an earlier owner has started the effect, and its outcome is unknown.
    """

    row: EffectRow
    lease: timedelta
    beat_until: datetime | None
    retried: bool = False


class Rejection(NamedTuple):
    """The answer to a claim that is not granted."""

    row: EffectRow


class Hit(Rejection):
    """The effect has happened: its result is replayed, and the handler is skipped."""


class Busy(Rejection):
    """Another owner runs the effect: wait for a change (`LeaseRenewer.watch`) and claim again, or refuse the call."""

    @property
    def message(self) -> str:
        """The message for the model if the call does not wait, or has waited long enough."""
        busy = f"{self.row.tool} is already running with the idempotency key {self.row.key}, so it was not run again."
        if self.row.is_slot:
            return f"{busy} Its result is recorded when it ends. {NOT_AGAIN}"
        return f"{busy} When it has ended, the same arguments are answered with its result."


class Conflict(Rejection):
    """The key belongs to another effect: another tool, or other arguments. Nothing was changed."""

    @property
    def message(self) -> str:
        """The message for the model."""
        other = f"the idempotency key {self.row.key} already belongs to a call of {self.row.tool} with other arguments"
        return f"{other}, which is {self.row.status}. Nothing was run. Other arguments need another key."


class Unknown(Rejection):
    """The effect was started, and its outcome is unknown. It is not run again before it is resolved."""

    @property
    def message(self) -> str:
        """The message for the model."""
        reason = f" ({self.row.note})" if self.row.note else ""
        text = f"an earlier call of {self.row.tool} with the idempotency key {self.row.key} was started"
        return f"{text}, and it is not known whether it took effect{reason}. It was not run again. {FOR_A_PERSON}"


ClaimAnswer = Claimed | Rejection
"""The answer to a claim."""


def lacks_value(row: EffectRow) -> bool:
    """True if the row of an effect that has happened lacks a part of its value, or has masks in place of secrets."""
    return row.value is None or f'"{MASK}"'.encode() in row.value


@dataclass(slots=True, frozen=True)
class ToolEffect:
    """A recorded effect, as `EffectLedger.lookup` returns it.

    Attributes:
        idempotency_key: the key it was recorded under.
        tool_name: the tool that was executed.
        params_hash: sha256 of the canonical JSON of all arguments, hexadecimal.
        result_message: the message of the result.
        result_value: the value of the result, serialised; `None` also if it is unavailable.
        result_success: always true: only successes are recorded.
        created_at: when the result was recorded.
        expires_at: when the entry expires; `None` for never.
        effect_id: identifies the effect as long as its entry exists.
        partition: the session id, or `""` for a key that all sessions share.
        value_unavailable: the value could not be serialised, is not JSON, or has the mask in place of a secret.
        exclude_value_from_context: the model sees only the message.
    """

    idempotency_key: str
    tool_name: str
    params_hash: str
    result_message: str
    result_value: Any
    result_success: bool
    created_at: datetime
    expires_at: datetime | None
    effect_id: UUID
    partition: str = ""
    value_unavailable: bool = False
    exclude_value_from_context: bool = False

    @classmethod
    def of(cls, row: EffectRow) -> ToolEffect:
        """The effect that a done row records; a value that is not JSON is unavailable."""
        value, unavailable = None, True
        with suppress(ValueError):
            value, unavailable = json.loads(row.value or b"null"), lacks_value(row)
        result = (row.key, row.tool, row.params_hash, row.message, value)
        at, effect_id = row.completed_at or row.created_at, UUID(row.effect_id)
        hidden = row.exclude_value_from_context
        return cls(*result, True, at, row.expires_at, effect_id, row.partition, unavailable, hidden)  # noqa: FBT003 - a column


_STANDING: dict[str, type[Rejection]] = {"done": Hit, "running": Busy, "unknown": Unknown}


def key_expired(row: EffectRow, now: datetime) -> bool:
    """True if a row counts as absent: it is done or failed, and has expired."""
    return row.expires_at is not None and row.expires_at <= now and row.status in {"done", "failed"}


def lease_expired(row: EffectRow, now: datetime) -> bool:
    """True if a row is running, and its owner's lease has expired."""
    return row.status == "running" and (row.lease_until is None or row.lease_until <= now)


def answer_claim(
    row: EffectRow | None, fresh: EffectRow, request: ClaimRequest
) -> tuple[type[Rejection] | None, EffectRow]:
    """Answers a claim: why it is not granted, and the row to be written for it; `row` itself if nothing changes."""
    now, retries = fresh.created_at, request.on_orphan == "retry"
    if row is None or key_expired(row, now):
        return None, fresh
    # Those of a failed effect may be other ones: the caller has fixed its arguments.
    is_same = request.replays_other_arguments or row.status == "failed" or row.params_hash == fresh.params_hash
    if row.tool != fresh.tool or not is_same:
        return Conflict, row
    if row.status == "failed" or (retries and (row.status == "unknown" or lease_expired(row, now))):
        # The same effect, under the next fence. Its id stays, because the sessions that applied it refer to it.
        return None, fresh._replace(effect_id=row.effect_id, fence=row.fence + 1, created_at=row.created_at)
    if lease_expired(row, now):
        why = row.note or f"the lease of its owner ({str(row.owner) or 'unnamed'}) expired"
        return Unknown, unknown_row(row, why)
    return _STANDING.get(row.status, Unknown), row


def ended_row(row: EffectRow, finding: OwnerFinding, *, now: datetime, ttl: timedelta | None = None) -> EffectRow:
    """The row of an effect by what is known of it; if that is unknown, its last owner is fenced."""
    if isinstance(finding, NotKnown):
        return unknown_row(row, finding.why)
    if isinstance(finding, NotApplied):
        failed = (row.fence, row.created_at, None, now, now + DAY)
        return EffectRow(*row[:6], "failed", *failed, note=finding.why, arguments=row.arguments)
    times = (row.created_at, None, now, None if ttl is None else now + ttl)
    return EffectRow(*row[:6], "done", row.fence, *times, *finding, row.arguments)


def applied(row: EffectRow, *, now: datetime, ttl: timedelta | None = None) -> EffectRow:
    """The row of an effect whose result is applied in the unit that writes the row, and replayed for `ttl` from now."""
    if row.expires_at is not None and not row.is_kept_until_applied:
        return row._replace(applied_at=now)
    return row._replace(applied_at=now, expires_at=None if ttl is None else now + ttl)


def mark_applied(row: EffectRow, *, now: datetime, ttl: timedelta | None = None) -> MarkApplied:
    """The write that marks a result as applied; refused if another call has applied it meanwhile."""
    return MarkApplied(row, applied(row, now=now, ttl=ttl))


def unknown_row(row: EffectRow, why: str) -> EffectRow:
    """The row of an effect whose outcome is unknown; its last owner is fenced."""
    return EffectRow(*row[:6], "unknown", row.fence + 1, row.created_at, note=why, arguments=row.arguments)


def resolved_row(row: EffectRow, finding: Finding, *, now: datetime, ttl: timedelta | None) -> EffectRow:
    """The row once its outcome has been determined; a row that was not yet unknown is fenced as well.

    A slot that has happened never expires, whatever `ttl` is. A result that was found can be corrected until it is
    applied, which a person may do by hand.

    Raises:
        LedgerError: the row is running within its lease, or already done or failed; or it has no result to be applied.
    """
    # The call of a slot may be repeated at any time: its model may not have read the outcome yet.
    ttl = None if row.is_slot else ttl
    if isinstance(finding, AppliedByHand):
        if row.status != "done" or row.applied_at is not None:
            raise refusal(row, "and has no result that could have been applied by hand")
        return applied(row, now=now, ttl=ttl)._replace(note=finding.why)
    if is_correctable(row) and isinstance(finding, EffectResult):
        return ended_row(row, finding, now=now, ttl=UNTIL_APPLIED if row.is_kept_until_applied else ttl)
    if row.status != "unknown":
        if not lease_expired(row, now):
            raise refusal(row, "so there is nothing to resolve")
        # An owner whose lease has expired may still write: the higher fencing token makes its write fail.
        row = unknown_row(row, "")
    return ended_row(row, finding, now=now, ttl=ttl)


def is_correctable(row: EffectRow) -> bool:
    """True if a person may still correct the result of an effect: it was found, and is not applied."""
    return row.status == "done" and row.applied_at is None and (row.fence > 1 or row.is_kept_until_applied)


def is_left_by(row: EffectRow, claimed_row: EffectRow) -> bool:
    """True if a row is unsettled, and has not passed to another owner since it was claimed."""
    later = {"running": 0, "unknown": 1}.get(row.status)
    return row.effect_id == claimed_row.effect_id and row.fence - claimed_row.fence == later


def same_outcome(current: EffectRow | None, row: EffectRow) -> bool:
    """True if a row is there and equal to another one but for its times of lease, end and expiry."""
    # Times are left out, because each attempt to write an outcome reads the clock anew.
    return current is not None and current[:9] + current[12:17] == row[:9] + row[12:17]


def removable(row: EffectRow) -> bool:
    """True if a row may be removed without the risk that its effect happens twice."""
    return row.status in {"done", "failed"} and not row.is_kept_until_applied


def refusal(row: EffectRow, why: str, *, force: bool = False) -> LedgerError:
    """The error for an act that a row does not permit, with what a person can do."""
    status: str = row.status
    cure = "Find out whether it has happened, and resolve it."
    if row.status == "running":
        status = f"running (owner {str(row.owner) or 'unnamed'}, lease until {row.lease_until})"
        cure = "Wait for its end, or until its lease has expired."
    elif row.is_kept_until_applied:
        status = "done, and its result is not applied"
        cure = "ToolExecutor.settle_open() applies it, and resolve(row, AppliedByHand(why)) records that a person has."
    elif row.status in {"done", "failed"}:
        cure = "It is not run again, unless it is invalidated."
    forced = " force=True removes it anyway." if force else ""
    return LedgerError(
        f"the effect {row.key} of {row.tool} is {status}, {why}. {cure}{forced}", key=row.key, status=row.status
    )
