"""A participant of the program in the commit of a call: another database, a queue.

The store decides. Each participant prepares, so that it can still commit and still roll back, even after a crash. Then
the unit of the call is committed in the store. After that each participant commits. What a crash leaves:

| the process is killed | the unit | a participant that has prepared | one that cannot prepare |
|---|---|---|---|
| before `prepare` has ended | is not written | is rolled back by its own side | is rolled back by its own side |
| after it, before the unit is committed | is not written | stays prepared; recovery rolls it back | as above |
| after that, before `after_commit` has ended | is committed | stays prepared; recovery commits it | **is lost** |

Recovery needs to know whether the unit was committed. So `write` returns a `RecordCommit`, which is written in the
unit.
"""

from __future__ import annotations

from functools import partial

from handrail.crash_points import reached
from handrail.errors import InvalidArgumentError, SessionUseError
from handrail.transaction.commit import TwoPhaseParticipant
from handrail.transaction.transaction import current
from handrail.transaction.unit_of_work import UnitStore

_METHODS = ("prepare", "write", "after_commit", "in_doubt", "after_rollback")


def enlist(participant: TwoPhaseParticipant) -> None:
    """Have a participant committed with the call that runs here, or rolled back with it.

    A nested call commits with its parent. If this raises, the participant is not enlisted, and nothing of it is called.

    Raises:
        InvalidArgumentError: a method of the protocol is missing; or the participant is enlisted already, in this call
            or in one that it is nested in.
        SessionUseError: no call runs here.
        ReadOnlyViolation: the call may only read.
        SecondStoreError: the participant names another store than that of the call.
        TransactionClosedError: the call has ended.
    """
    refused = partial(InvalidArgumentError, function="transaction.enlist", argument="participant", value=participant)
    if isinstance(participant, type) or not all(callable(getattr(participant, name, None)) for name in _METHODS):
        raise refused(expected=f"an object with the methods {', '.join(_METHODS)}, and the attribute store")
    transaction = current()
    if transaction is None:
        raise SessionUseError("no call runs here, so nothing is committed; use transaction.enlist inside a handler")
    if not transaction.writes:
        raise transaction.read_only_violation(f"enlist a {type(participant).__name__}")
    parts = (part for each in transaction.chain() for part in each.enlisted)
    if any(isinstance(part, _Enlisted) and part.wraps is participant for part in parts):
        raise refused(expected="a participant that is not enlisted yet: each is committed once, or rolled back once")
    transaction.enlist(_Enlisted(participant))


class _Enlisted:
    """A participant of the program, as a transaction settles it."""

    queue = None
    waits = True

    def __init__(self, participant: TwoPhaseParticipant) -> None:
        self.wraps = participant
        self.store: UnitStore | None = participant.store
        self.write = participant.write
        self.in_doubt = participant.in_doubt
        self.after_rollback = participant.after_rollback

    def prepare(self) -> None:
        """Prepare the participant."""
        self.wraps.prepare()
        reached("participant-prepared")

    def after_commit(self) -> None:
        """Commit the participant."""
        reached("participant-before-commit")
        self.wraps.after_commit()
        reached("participant-after-commit")
