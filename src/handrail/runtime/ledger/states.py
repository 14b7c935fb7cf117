"""The ledger's state machine of an effect row, as pure functions.

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
row is read by what is proved of its owner (`handrail.store.processes`): the lease of one that lives has not expired,
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
    corrupt     claim                     unknown, fence + 1  unknown
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
    corrupt     resolve: it happened      done, fence + 1     kept
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
    corrupt     look up                   unknown, fence + 1  nothing
    ==========  ========================  ==================  ==========
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from handrail.errors import LedgerError
from handrail.prompt.effect import DAY
from handrail.runtime.ledger import effects
from handrail.runtime.ledger.effects import AppliedByHand, ClaimRequest, EffectResult, Finding, NotApplied, Rejection
from handrail.serde.canonical import bytes_digest
from handrail.store.protocol import EFFECT_STATUSES, UNTIL_APPLIED, EffectRow, MarkApplied

_STANDING: dict[str, type[Rejection]] = {"done": effects.Hit, "running": effects.Busy, "unknown": effects.Unknown}

_EFFECT_ID = "[0-9a-f]{32}"


def key_expired(row: EffectRow, now: datetime) -> bool:
    """Whether a row counts as absent: it is done or failed, and has expired."""
    return row.expires_at is not None and row.expires_at <= now and row.status in {"done", "failed"}


def lease_expired(row: EffectRow, now: datetime) -> bool:
    """Whether a row is running, and its owner's lease has expired."""
    return row.status == "running" and row.lease_until is not None and row.lease_until <= now


def fault(row: EffectRow) -> str:
    """Why a row is corrupt: no ledger can have written it; empty if one can."""
    if row.status not in EFFECT_STATUSES:
        return f"its status is {row.status!r}"
    if not re.fullmatch(_EFFECT_ID, row.effect_id):
        return f"its id is {row.effect_id!r}"
    if row.status == "running" and row.lease_until is None:
        return "it is running without a lease"
    if row.status == "done" and row.completed_at is None:
        return "it is done, but has no time of completion"
    return ""


def claimed(row: EffectRow | None, fresh: EffectRow, request: ClaimRequest) -> tuple[type[Rejection] | None, EffectRow]:
    """Answer a claim: why it is not granted, and the row to be written for it; `row` itself if nothing changes.

    Args:
        row: the current row, if there is one.
        fresh: the running row that the claim would write if there were none.
        request: what is claimed, and how a row that is there already is treated.
    """
    now, retries = fresh.created_at, request.on_orphan == "retry"
    if row is None or key_expired(row, now):
        return None, fresh
    # Checked before the row is compared: the only answer from a corrupt row is `unknown`.
    wrong = fault(row)
    if wrong:
        return effects.Unknown, unknown_row(row, f"the stored row is corrupt: {wrong}")
    # Those of a failed effect may be other ones: the caller has fixed its arguments.
    is_same = request.replays_other_arguments or row.status == "failed" or row.params_hash == fresh.params_hash
    if row.tool != fresh.tool or not is_same:
        return effects.Conflict, row
    if row.status == "failed" or (retries and (row.status == "unknown" or lease_expired(row, now))):
        return None, taken_over(row, fresh)
    if lease_expired(row, now):
        why = row.note or f"the lease of its owner ({str(row.owner) or 'unnamed'}) expired"
        return effects.Unknown, unknown_row(row, why)
    return _STANDING[row.status], row


def taken_over(row: EffectRow, fresh: EffectRow) -> EffectRow:
    """The row of the next owner: the same effect, under the next fence."""
    # The effect id stays, because the sessions that applied the effect refer to it.
    return fresh._replace(effect_id=row.effect_id, fence=row.fence + 1, created_at=row.created_at)


def ended_row(
    row: EffectRow, finding: effects.OwnerFinding, *, now: datetime, ttl: timedelta | None = None
) -> EffectRow:
    """The row of an effect by what is known of it; if that is unknown, its last owner is fenced.

    Args:
        row: the row before.
        finding: whether it has happened, with its result.
        now: the store's time.
        ttl: how long a result is replayed; `None` for ever. That it has certainly not happened expires in a day.
    """
    if isinstance(finding, effects.NotKnown):
        return unknown_row(row, finding.why)
    if isinstance(finding, NotApplied):
        failed = (row.fence, row.created_at, None, now, now + DAY)
        return EffectRow(*row[:6], "failed", *failed, note=finding.why, arguments=row.arguments)
    times = (row.created_at, None, now, None if ttl is None else now + ttl)
    return EffectRow(*row[:6], "done", row.fence, *times, *finding, "", row.arguments)


def applied(row: EffectRow, *, now: datetime, ttl: timedelta | None = None) -> EffectRow:
    """The row of an effect that has happened, and whose result is applied in the unit that writes the row.

    Args:
        row: the row before.
        now: the store's time.
        ttl: how long the result is replayed, if it did not expire before; `None` for ever.
    """
    if row.expires_at is not None and not row.is_kept_until_applied:
        return row._replace(applied_at=now)
    return row._replace(applied_at=now, expires_at=None if ttl is None else now + ttl)


def mark_applied(row: EffectRow, *, now: datetime, ttl: timedelta | None = None) -> MarkApplied:
    """What records, in the unit that applies it, that a result is applied; refused if another call has it meanwhile."""
    return MarkApplied(row, applied(row, now=now, ttl=ttl))


def unknown_row(row: EffectRow, why: str) -> EffectRow:
    """The row of an effect whose outcome is unknown; its last owner is fenced."""
    unknown = EffectRow(*row[:6], "unknown", row.fence + 1, row.created_at, note=why, arguments=row.arguments)
    if re.fullmatch(_EFFECT_ID, row.effect_id):
        return unknown
    # A corrupt id is replaced, deterministically; otherwise the resolution of the effect could not be read either.
    return unknown._replace(effect_id=bytes_digest(row.effect_id.encode(errors="replace"))[:32])


def resolved_row(row: EffectRow, finding: Finding, *, now: datetime, ttl: timedelta | None) -> EffectRow:
    """The row once its outcome has been determined; a row that was not yet unknown is fenced as well.

    A slot that has happened never expires, whatever `ttl` is. A result that was found can be corrected until it is
    applied, which a person may do by hand.

    Raises:
        LedgerError: the row is not unresolved: it is running within its lease, or already done or failed. Or it has no
            result that could have been applied by hand.
    """
    # The call of a slot may be repeated at any time: its model may not have read the outcome yet.
    ttl = None if row.is_slot else ttl
    if isinstance(finding, AppliedByHand):
        if row.status != "done" or row.applied_at is not None or fault(row):
            raise refusal(row, "and has no result that could have been applied by hand")
        return applied(row, now=now, ttl=ttl)._replace(note=finding.why)
    if is_correctable(row) and isinstance(finding, EffectResult):
        return ended_row(row, finding, now=now, ttl=UNTIL_APPLIED if row.is_kept_until_applied else ttl)
    if row.status != "unknown":
        if not fault(row) and not lease_expired(row, now):
            raise refusal(row, "so there is nothing to resolve")
        # An owner whose lease has expired may still write: the higher fencing token makes its write fail.
        row = unknown_row(row, "")
    return ended_row(row, finding, now=now, ttl=ttl)


def is_correctable(row: EffectRow) -> bool:
    """Whether a person may still correct the result of an effect that is done: it was found, and is not applied.

    What its first owner has recorded by itself is not corrected, unless it waits for `apply`.
    """
    return row.status == "done" and row.applied_at is None and (row.fence > 1 or row.is_kept_until_applied)


def is_left_by(row: EffectRow, claimed_row: EffectRow) -> bool:
    """Whether a row is unsettled, and has not passed to another owner since it was claimed."""
    later = {"running": 0, "unknown": 1}.get(row.status)
    return row.effect_id == claimed_row.effect_id and row.fence - claimed_row.fence == later


def check_removable(row: EffectRow) -> None:
    """Permit only done and failed effects to be removed.

    Raises:
        LedgerError: the effect is running or unknown (or its row is corrupt): removed, it could happen twice. Or its
            result waits for `apply`: removed, it would be lost as well.
    """
    if not removable(row):
        raise refusal(row, "so its entry stays: without it, it could happen twice", force=True)


def same_outcome(standing: EffectRow | None, row: EffectRow) -> bool:
    """Whether a row is there, and equal to another one except for the times of its lease, its end and its expiry."""
    # Times are left out, because each attempt to write an outcome reads the clock anew.
    return standing is not None and standing[:9] + standing[12:17] == row[:9] + row[12:17]


def removable(row: EffectRow) -> bool:
    """Whether a row may be removed without the risk that its effect happens twice."""
    return row.status in {"done", "failed"} and not row.is_kept_until_applied


def refusal(row: EffectRow, why: str, *, force: bool = False) -> LedgerError:
    """The error of what a row does not permit, with what a person can do.

    Args:
        row: the row.
        why: what it does not permit.
        force: whether it can be forced.
    """
    status: str = row.status
    cure = "Find out whether it has happened, and resolve it."
    if row.status == "running":
        status = f"running (owner {str(row.owner) or 'unnamed'}, lease until {row.lease_until})"
        cure = "Wait for its end, or until its lease has expired."
    elif row.is_kept_until_applied:
        status = "done, and its result is not applied"
        cure = "ToolExecutor.settle_open() applies it, and resolve(row, AppliedByHand(why)) records that a person has."
    elif row.status in {"done", "failed"}:
        cure = "To run it again, invalidate it first."
    forced = " force=True removes it anyway." if force else ""
    return LedgerError(
        f"the effect {row.key} of {row.tool} is {status}, {why}. {cure}{forced}", key=row.key, status=row.status
    )
