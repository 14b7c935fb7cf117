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

from collections.abc import Iterator, Sequence

from handrail.crash_points import reached
from handrail.errors import InvalidArgumentError, SessionUseError
from handrail.redaction import redacted_logger
from handrail.transaction.participants import TwoPhaseParticipant
from handrail.transaction.transaction import Transaction, current
from handrail.transaction.unit_of_work import UnitStore

_log = redacted_logger("handrail.transaction")

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
    if isinstance(participant, type) or not all(callable(getattr(participant, name, None)) for name in _METHODS):
        expected = f"an object with the methods {', '.join(_METHODS)}, and the attribute store"
        raise InvalidArgumentError(
            function="transaction.enlist", argument="participant", given=participant, expected=expected
        )
    transaction = current()
    if transaction is None:
        raise SessionUseError("no call runs here, so nothing is committed; use transaction.enlist inside a handler")
    if not transaction.writes:
        raise transaction.read_only_violation(f"enlist a {type(participant).__name__}")
    if any(part.stands_for(participant) for part in _enlisted_in(transaction)):
        expected = "a participant that is not enlisted yet: each is committed once, or rolled back once"
        raise InvalidArgumentError(
            function="transaction.enlist", argument="participant", given=participant, expected=expected
        )
    transaction.enlist(_Enlisted(participant))


class _Enlisted:
    """A participant of the program, as a transaction settles it."""

    queue = None
    waits = True

    def __init__(self, participant: TwoPhaseParticipant) -> None:
        self._participant = participant
        self._prepared = False
        self.store: UnitStore | None = participant.store

    def stands_for(self, participant: TwoPhaseParticipant) -> bool:
        """Whether this is the same object, enlisted."""
        return self._participant is participant

    def prepare(self) -> None:
        """Prepare the participant."""
        self._prepared = True
        self._participant.prepare()
        reached("participant-prepared")

    def write(self) -> Sequence[object]:
        """What the participant writes in the unit."""
        if not self._prepared:  # a transaction without a store has no unit, and does not ask for this before
            self.prepare()
        return self._participant.write()

    def after_commit(self) -> None:
        """Commit the participant; if it fails, that is logged, because the call is committed."""
        reached("participant-before-commit")
        try:
            self._participant.after_commit()
        except Exception:  # noqa: BLE001 - logged: the unit of the call cannot be undone any more
            _log.exception("a call is committed, and its %s failed to commit", type(self._participant).__name__)
        reached("participant-after-commit")

    def in_doubt(self) -> None:
        """Leave the participant to recovery."""
        self._participant.in_doubt()

    def after_rollback(self) -> None:
        """Roll the participant back."""
        self._participant.after_rollback()


def _enlisted_in(transaction: Transaction) -> Iterator[_Enlisted]:
    for each in transaction.chain():
        for part in each.enlisted:
            if isinstance(part, _Enlisted):
                yield part
