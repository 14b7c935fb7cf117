"""The requests and answers of the effect ledger."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from handrail.prompt.effect import MINUTE
from handrail.prompt.idempotency import OnOrphan
from handrail.redaction import MASK
from handrail.session.persistence.protocol import SessionHeld
from handrail.store.protocol import ClaimOwner, EffectRow

_MASK_JSON: Final = f'"{MASK}"'.encode()

NOT_AGAIN: Final = "Do not ask for it again: another call would do it again."
"""What the model reads of an effect that is named by its call: the next call would have another id."""

FOR_A_PERSON: Final = "Do not ask for it again; a person has to find out what happened."
"""What the model reads of an effect that is unknown, and that nothing of the program finds out about."""


class ClaimRequest(NamedTuple):
    """A request to run an effect. A named tuple, because one is created for each external call.

    Attributes:
        partition: the session id, or `""` for a key that all sessions share.
        key: the idempotency key, or the slot of the call.
        tool: name of the tool.
        params_hash: sha256 of the canonical JSON of all arguments, hexadecimal; see `handrail.prompt.idempotency`.
        owner: the call, by its session, reply and id. The ledger adds the process.
        lease: how long the claim is valid without a renewal.
        on_orphan: how an effect is treated whose owner's lease has expired.
        beat_until: when the ledger stops renewing the lease, an aware datetime; `None` for never. Pass the call's
            deadline, so that a handler that hangs does not hold its key for ever.
        arguments: the arguments for people, as `recorded_arguments` writes them; `None` to record none.
        conditions: the locks that must be valid for the claim to be granted: that of the session of the call, if the
            session is in the store of the ledger.
        replays_other_arguments: whether a result of other arguments answers the claim; otherwise that is a conflict.
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
            effect has happened nevertheless, and a replay notes that the value is unavailable.
        exclude_value_from_context: whether the model sees only the message.
    """

    message: str
    value: bytes | None = b"null"
    exclude_value_from_context: bool = False


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


class Claimed:
    """The right to run an effect, until it is completed, failed, abandoned or lost. Equal only to itself.

    Attributes:
        row: the row as it was claimed.
        lease: how long each renewal is valid.
        beat_until: when the ledger stops renewing the lease; `None` for never.
        retried: whether an earlier owner has started the effect and its outcome is unknown.
        name: what names the claim among those of all effects; see `EffectRow.claim`.
    """

    __slots__ = ("beat_until", "lease", "name", "retried", "row")

    def __init__(self, row: EffectRow, lease: timedelta, beat_until: datetime | None, *, retried: bool = False) -> None:
        self.row: EffectRow = row
        self.lease: timedelta = lease
        self.beat_until: datetime | None = beat_until
        self.retried: bool = retried
        self.name: tuple[str, int] = row.claim

    @property
    def key(self) -> str:
        """The idempotency key, to be forwarded to the external API."""
        return self.row.key

    @property
    def fence(self) -> int:
        """The fencing token: one more for each owner; an external API may use it to reject stale owners."""
        return self.row.fence


class Hit(NamedTuple):
    """The effect has happened: skip the handler and replay the result."""

    row: EffectRow


class Busy(NamedTuple):
    """Another owner runs the effect. Wait for a change (`LeaseRenewer.watch`) and claim again, or refuse the call."""

    row: EffectRow

    @property
    def message(self) -> str:
        """The message for the model if the call does not wait, or has waited long enough."""
        busy = f"{self.row.tool} is already running with the idempotency key {self.row.key}, so it was not run again."
        if self.row.is_slot:
            return f"{busy} Its result is recorded when it ends. {NOT_AGAIN}"
        return f"{busy} When it has ended, the same arguments are answered with its result."


class Conflict(NamedTuple):
    """The key belongs to another effect: another tool, or other arguments. Nothing was changed."""

    row: EffectRow

    @property
    def message(self) -> str:
        """The message for the model."""
        other = f"the idempotency key {self.row.key} already belongs to a call of {self.row.tool} with other arguments"
        return f"{other}, which is {self.row.status}. Nothing was run. Other arguments need another key."


class Unknown(NamedTuple):
    """The effect was started, and its outcome is unknown. It is not run again before it is resolved."""

    row: EffectRow

    @property
    def message(self) -> str:
        """The message for the model."""
        note = self.row.note.partition("\n")[0]
        reason = f" ({note})" if note else ""
        started = f"an earlier call of {self.row.tool} with the idempotency key {self.row.key} was started"
        return f"{started}, and it is not known whether it took effect{reason}. It was not run again. {FOR_A_PERSON}"


Rejection = Hit | Busy | Conflict | Unknown
"""The answer to a claim that is not granted."""

ClaimAnswer = Claimed | Rejection
"""The answer to a claim."""


def lacks_value(row: EffectRow) -> bool:
    """Whether the row of an effect that has happened has not all of its value: none, or masks in place of secrets."""
    return row.value is None or _MASK_JSON in row.value
