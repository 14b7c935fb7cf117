"""What the journal of a stored session says of its calls: which have happened, what they changed, whose effects are.

The entries of a session have the changes of its STATE slices, each with the call that has made it, and the records of
calls. So the value of a slice before a call is in the store already: it is not kept for undo.

An effect belongs to one call, which alone is compensated:

| the record of a call says | the effect belongs to |
|---|---|
| a success, not replayed | this call |
| a success, replayed | the earlier call of the session with that key; else this one, unless another session has it |
| a failure | this call, if its row says that it has happened; unknown, if it is running or unknown there |
| nothing, and the ledger has a claim | unknown: it has to be settled first |

A fork has the records of its original. Its calls, and their effects, are those of the original: they are not undone.
So is the effect that a call of the fork was answered with from there, which the ledger has for no call of the fork.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from handrail.prompt import ToolResult
from handrail.runtime.calls import ToolInvoked
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.session.calls import CallRef, OpenCall
from handrail.session.persistence.loading import decode_items, origin_ids
from handrail.session.persistence.protocol import (
    EntryIndex,
    ItemRange,
    SessionEntry,
    SessionRow,
    SessionStore,
    runs_between,
)
from handrail.session.persistence.stored_types import find_type, stored_type
from handrail.store.protocol import EffectRow

UNDO = "undo:"
"""What the id of a call that undoes another one begins with, before the id of that one."""

UNDO_TOOL = "undo_"
"""What the name of its tool begins with."""


def find_undone(ref: CallRef, tool: str) -> CallRef | None:
    """The call that a call of a tool undoes; `None` if it is not an undo."""
    is_undo = ref.call_id.startswith(UNDO) and tool.startswith(UNDO_TOOL)
    return CallRef(ref.reply, ref.call_id.removeprefix(UNDO)) if is_undo else None


OF_SESSION: Final = ("call:", "session:")
"""How the keys begin that belong to one session."""

EffectOwner = Literal["none", "this", "other", "unknown"]
"""Whose effect the record of a call is about: it has none; it is its own; another call's; or its outcome is unknown."""


class SliceEntry(NamedTuple):
    """A change of a STATE slice: its entry, where the items are that it has removed, and how many there were before."""

    entry: SessionEntry
    removed: tuple[ItemRange, ...]
    length: int

    @property
    def is_append(self) -> bool:
        """True if it has added items behind all others, and removed none."""
        return not self.entry.removed and self.entry.start == self.length

    @property
    def call(self) -> CallRef | None:
        """The call that has made it; `None` for a write outside of calls."""
        reply, call_id = self.entry.reply, self.entry.call_id
        return CallRef(reply or None, call_id) if reply or call_id else None


@dataclass(slots=True, eq=False)
class CallHistory:
    """A call of a session, as its journal has it.

    Attributes:
        ref: its identity, as a store names it.
        tool: its tool.
        number: its place in the order of commits; a call without a record comes last.
        event: its newest record; `None` for a call that has none.
        changes: its changes of STATE slices, but for those that survive an undo.
        effect: whose effect its record is about.
        row: the row of its effect in the ledger, if it was read.
        claim: its open claim, if there is one.
        undo: the call that undoes it, which may have failed; `None` if there is none.
    """

    ref: CallRef
    tool: str = ""
    number: int = 0
    event: ToolInvoked | None = None
    changes: list[SliceEntry] = field(default_factory=list[SliceEntry])
    effect: EffectOwner = "none"
    row: EffectRow | None = None
    claim: OpenCall | None = None
    undo: CallHistory | None = None

    @property
    def result(self) -> ToolResult[Any] | None:
        """The result in its record, if that is a success."""
        return self.event.result if self.event is not None and self.event.success else None

    @property
    def cancelled(self) -> tuple[CallRef, ...]:
        """Itself and the call that has undone it, of which together nothing is left; empty if none has."""
        undo = self.undo
        return () if undo is None or undo.result is None else (self.ref, undo.ref)


class SessionHistory(NamedTuple):
    """The calls of a session by their identity, in the order of their commits, and the changes of its STATE slices.

    Calls that undo others are with these alone, and what both have changed is left out.
    """

    calls: dict[CallRef, CallHistory]
    slices: dict[str, list[SliceEntry]]


def read_history(
    store: SessionStore, row: SessionRow, ledger: EffectLedger, kinds: Mapping[str, type[Any]]
) -> SessionHistory:
    """Reads the journal of a session up to the head of its row, and the rows of effects that its records leave open.

    `kinds` are the classes of an open session, by their stored names.

    Raises:
        StoreError: it cannot be read.
    """
    history = _read_entries(store, row, kinds)
    claims = {claim.call.storable: claim for claim in store.open_claims(row.session_id)}
    owners: dict[str, CallRef] = {}
    is_fork = bool(origin_ids(store, row))
    for call in list(history.calls.values()):
        _find_owner(call, owners, row.session_id, ledger, is_fork=is_fork)
    for ref, claim in claims.items():
        call = history.calls.setdefault(ref, CallHistory(ref, claim.tool, row.head + 1))
        call.claim = claim
        if claim.state != "unapplied" or call.result is None:
            call.effect = "unknown"
    for ref, call in list(history.calls.items()):
        if (undone := find_undone(ref, call.tool)) is not None and undone in history.calls:
            history.calls[undone].undo = history.calls.pop(ref)
    cancelled = {ref for call in history.calls.values() for ref in call.cancelled}
    for name, changes in history.slices.items():
        history.slices[name] = [change for change in changes if change.call not in cancelled]
    return history


def _read_entries(store: SessionStore, row: SessionRow, kinds: Mapping[str, type[Any]]) -> SessionHistory:
    history, kind = SessionHistory({}, {}), stored_type(ToolInvoked)
    layouts, stays = dict[str, EntryIndex](), dict[str, bool]()
    changes: dict[CallRef, list[SliceEntry]] = {}
    for entry in store.entries(row.session_id, until=row.head):
        if entry.role == "log" and (entry.reply or entry.call_id) and entry.type_name == kind.name:
            event: ToolInvoked = decode_items(kind, entry, row.session_id, store)[0]
            ref = CallRef(entry.reply or None, entry.call_id)
            if event.session_id == row.session_id:
                _add_record(history, ref, event, entry.number).changes += changes.pop(ref, [])
        elif entry.role == "state":
            name = entry.type_name
            layout = layouts.get(name, EntryIndex("state"))
            layouts[name] = layout.after(entry)
            if name not in stays:
                stays[name] = survives_undo(kinds.get(name) or find_type(name))
            if stays[name]:
                continue
            removed = runs_between(layout.runs, entry.start, entry.start + entry.removed)
            change = SliceEntry(entry, removed, layout.length)
            history.slices.setdefault(name, []).append(change)
            if change.call is not None:
                changes.setdefault(change.call, []).append(change)
    return history


def survives_undo(kind: type[Any] | None) -> bool:
    """Returns whether a slice is left as it is: its class declares `survives_undo` or `survives_reset`."""
    return getattr(kind, "survives_undo", False) or getattr(kind, "survives_reset", False)


def _add_record(history: SessionHistory, ref: CallRef, event: ToolInvoked, number: int) -> CallHistory:
    call = history.calls.pop(ref, None) or CallHistory(ref)
    # A record that a late interrupt has appended says less than the one before.
    if call.event is None or event.success or not call.event.success:
        call.event = event
    call.tool, call.number = event.name, number
    history.calls[ref] = call  # the last, by its newest record
    return call


def _find_owner(
    call: CallHistory, owners: dict[str, CallRef], session_id: str, ledger: EffectLedger, *, is_fork: bool
) -> None:
    event = call.event
    if event is None or (key := event.effect_key) is None:
        return
    if event.success and not event.replayed:
        call.effect, owners[key] = "this", call.ref
        return
    rows = (ledger.row(key, partition=partition) for partition in (session_id, ""))
    row = call.row = next((row for row in rows if row is not None), None)
    is_of_session = key.startswith(OF_SESSION) and not is_fork if row is None else row.owner.session_id == session_id
    if event.success:
        call.effect = "this" if is_of_session and key not in owners else "other"
        owners.setdefault(key, call.ref)
    elif row is not None and is_of_session and row.owner.call.storable == call.ref:
        if row.status in {"running", "unknown"}:
            call.effect = "unknown"
        elif row.status == "done" and key not in owners:
            call.effect, owners[key] = "this", call.ref
