"""The effects of a ledger as people see them, and what a person has found out about one.

The agent beside an effect is the one whose call has claimed it last. A row is changed only if it is still the one that
was read, so that a decision never applies to another state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from handrail.errors import LedgerError
from handrail.operations.sessions import agent_of_session
from handrail.prompt.signature import DAY
from handrail.prompt.tool_result import ContentPart
from handrail.readable import format_duration, format_json
from handrail.runtime import EffectLedger
from handrail.runtime.ledger import effects
from handrail.runtime.ledger.effects import Finding
from handrail.runtime.ledger.records import RecordedArguments, read_arguments, split_parts
from handrail.session.open_calls import open_calls_in_store
from handrail.store import EffectRow, Store
from handrail.store.protocol import prove_owner

EffectState = Literal["running", "lapsed", "done", "failed", "unknown", "expired"]
"""The status of an effect, with two states that depend on time: `lapsed` is running with an expired lease, and
`expired` is done or failed so long ago that it counts as absent."""


class EffectView(NamedTuple):
    """An effect as people see it; `now` is the time of the store, `agent` that of the last claim, empty if unknown."""

    row: EffectRow
    now: datetime
    agent: str = ""

    @property
    def state(self) -> EffectState:
        """The state, as people see it."""
        # First, because an expired lease is still the status `running` in its row.
        if effects.lease_expired(self.row, self.now):
            return "lapsed"
        return "expired" if effects.key_expired(self.row, self.now) else self.row.status

    @property
    def term(self) -> str:
        """The remaining time of the state, or the time since it ended."""
        row, now = self.row, self.now
        if row.lease_until is not None:
            lasts = format_duration(row.lease_until - now)
            return f"lease expired {lasts} ago" if effects.lease_expired(row, now) else f"lease for {lasts}"
        if row.expires_at is None:
            return "needs a person" if row.status == "unknown" else "for ever"
        if row.status == "done" and row.is_kept_until_applied:
            return "until it is applied"
        lasts = format_duration(row.expires_at - now)
        return f"expired {lasts} ago" if effects.key_expired(row, now) else f"expires in {lasts}"

    @property
    def stored_arguments(self) -> RecordedArguments:
        """The arguments, and what the model wrote if that differs; text if something else has written them."""
        try:
            return read_arguments(self.row.arguments)
        except ValueError:
            return RecordedArguments(f"cannot be read: {(self.row.arguments or b'').decode(errors='replace')}")

    @property
    def result(self) -> tuple[Any, tuple[ContentPart, ...]]:
        """The recorded value, and the parts of the result; a value that cannot be read is text."""
        content = self.row.value or b"null"
        try:
            value, parts = split_parts(content)
            return json.loads(value or b"null"), parts
        except ValueError:
            return f"cannot be read: {content.decode(errors='replace')}", ()

    @property
    def value(self) -> str:
        """The value of a done effect, indented; empty for others, and for a result of files."""
        value, parts = self.result
        if self.row.status != "done" or (value is None and parts):
            return ""
        return "- (it is not recorded)" if self.row.value is None else format_json(value, indent=2)


def with_agents(store: Store, rows: Iterable[EffectRow]) -> Iterator[EffectView]:
    """Effects, each with its agent, which is read when the effect is asked for; each session is read once."""
    now, agents = store.now(), dict[str, str]()
    for row in rows:
        session_id = row.owner.session_id or row.partition
        if session_id not in agents:
            session = store.find(session_id) if session_id else None
            agents[session_id] = "" if session is None else agent_of_session(store, session)
        yield EffectView(row, now, agents[session_id])


def is_unapplied(store: Store, row: EffectRow, now: datetime) -> bool:
    """Returns whether an effect has happened, and no session has applied its result: its call is open."""
    if row.status != "done" or row.applied_at is not None or effects.key_expired(row, now):
        return False
    session = store.find(row.owner.session_id)
    calls = () if session is None else open_calls_in_store(store, session)
    return any((call.state, call.key, call.call) == ("unapplied", row.key, row.owner.call) for call in calls)


def newest(rows: Iterable[EffectRow]) -> list[EffectRow]:
    """The newest rows first."""
    return sorted(rows, key=attrgetter("created_at"), reverse=True)


def find_effect(store: Store, key: str, partition: str | None) -> EffectRow:
    """The row of a key by what is proved of its owner; `partition` is needed where several have the key.

    Raises:
        LedgerError: there is none, or there are several.
    """
    # Keys are unique only within a partition.
    rows = [row for row in store.rows(key) if partition in {None, row.partition}]
    if len(rows) == 1:
        return prove_owner(store, rows[0], store.now())
    if rows:
        partitions = ", ".join(sorted(row.partition or '""' for row in rows))
        text = f"{len(rows)} sessions have an effect {key}; name one with --partition: {partitions}"
        raise LedgerError(text, key=key, status="ambiguous")
    where = "" if partition is None else f" in the partition {partition!r}"
    text = f"{store.url} has no effect {key}{where}; handrail ledger list shows all"
    raise LedgerError(text, key=key, status="absent")


# ------------------------------------------------------------------------------------------------------------- findings


FindingKind = Literal["happened", "not happened", "applied"]
"""What a person has found out about an effect; `applied` if what its tool would write has been written by hand."""


def result_value(text: str) -> bytes:
    """The value of a result from JSON that a person has written, in the form of the ledger.

    Raises:
        ValueError: it is not JSON, or has NaN or Infinity.
    """
    # Python reads `NaN` and `Infinity` by default, which are not JSON; their values cannot be written as JSON.
    value = json.loads(text)
    try:
        # ASCII: a lone surrogate is valid JSON, but not valid UTF-8.
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except ValueError as error:  # in other words in each version of Python
        raise ValueError("NaN and Infinity are not JSON.") from error


def make_finding(
    row: EffectRow, kind: FindingKind, *, message: str = "", value: bytes | None = None, why: str = ""
) -> Finding:
    """The finding of a person about an effect, in the form of the ledger.

    Args:
        row: the effect.
        kind: what has been found out.
        message: if it has happened: the message for a model that asks for it again.
        value: if it has happened: the `result_value`; `None` for that of a result that is recorded, or a lost one.
        why: how that is known, or who has applied it, and how; for people.
    """
    if kind == "applied":
        return effects.AppliedByHand(f"applied by hand: {why}" if why else "applied by hand")
    if kind == "not happened":
        return effects.NotApplied(why or "a person has found that it did not happen")
    confirmed = f"{row.tool} has been carried out; a person has confirmed it."
    text = message or (row.message if effects.is_correctable(row) else confirmed)
    # Only the row of a result that is corrected has a value.
    return effects.EffectResult(text, value or row.value, row.exclude_value_from_context, why)


def settle_effect(store: Store, row: EffectRow, finding: Finding, *, ttl: timedelta | None = DAY) -> EffectRow:
    """Records the outcome of an effect that was started and has no recorded end, or corrects a result; returns its row.

    Args:
        store: the store, open for writing.
        row: the effect, as it was read or shown.
        finding: what has been found out.
        ttl: if it has happened: how long until the same call may run again; `None` for never.

    Raises:
        LedgerError: the row has changed since; or it runs, has ended already, or has no result to be applied.
    """
    # Compares the row that was read with the one in the store, so that a decision never applies to another state.
    if not EffectLedger(store).resolve(row, finding, ttl=ttl):
        raise concurrent_change(row)
    # The row may have been removed since, and then the one that was read is shown.
    return store.get(row.partition, row.key) or row


def concurrent_change(row: EffectRow) -> LedgerError:
    """The error of a row that is not the one in the store any more."""
    return LedgerError(
        f"the effect {row.key} has been changed concurrently, so it was left unchanged; look at it again",
        key=row.key,
        status=row.status,
    )
