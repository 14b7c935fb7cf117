"""`handrail ledger`: shows the effects of a ledger. `handrail.cli.ledger.changes` changes them.

Effects are shown as text for people and as JSON for programs. The agent beside an effect is the one whose
call has claimed it last.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

from cyclopts import Parameter

from handrail.cli.options import AS_SET, Limit, StoreOptions, paginate
from handrail.cli.screen import NO_VALUE_CELL, Screen, format_duration, format_time, format_when
from handrail.cli.table import Column
from handrail.errors import LedgerError, UnknownTypeError
from handrail.process_identity import process_in_words
from handrail.prompt import BinaryPart
from handrail.prompt.content_parts import ContentPart
from handrail.runtime.ledger.effects import lacks_value
from handrail.runtime.ledger.recorded_arguments import read_arguments
from handrail.runtime.ledger.recorded_results import split_parts
from handrail.runtime.ledger.states import key_expired, lease_expired
from handrail.session.call_records import OpenCall
from handrail.session.call_ref import CallRef
from handrail.session.conversation_parts import ConversationPart
from handrail.session.open_calls import open_calls_in_store
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.session.persistence.shared_texts import read_entries
from handrail.session.persistence.stored_types import stored_type
from handrail.store import EffectRow, Store
from handrail.store.protocol import proved

EffectState = Literal["running", "lapsed", "done", "failed", "unknown", "expired"]
"""The status of an effect, with two states that depend on time: `lapsed` is running with an expired lease, and
`expired` is done or failed so long ago that it counts as absent."""

STATE_STYLES = {"running": "yellow", "lapsed": "bold yellow", "failed": "red", "unknown": "bold red", "done": "green"}
"""The styles of the states on a terminal."""

_NOT_RECORDED = "not recorded"
_AWAITED = {
    "unknown": "being resolved: it may have happened",
    "unapplied": "being asked again: its effect has happened",
    "postponed": "an approval",
    "unrecorded": "the process that has the session open",
}

CONVERSATION: Final = stored_type(ConversationPart)
"""How the parts of conversations are stored."""

_TAG: Final = "agent"
"""The tag of a session that names its agent, if a program has set it."""

_FIRST_READ, _GROWTH = 16, 16

_COLUMNS = (
    Column("key"),
    Column("partition", spare=4),
    Column("tool", spare=2),
    Column("status", styles=STATE_STYLES),
    Column("fence", right=True, spare=7),
    Column("lease / expiry"),
    Column("owner", spare=6),
    Column("agent", spare=3),
    Column("created (UTC)", spare=5),
    Column("arguments", cut=True, spare=1),
)

Key = Annotated[str, Parameter(metavar="KEY", help="The key of the effect, as `ledger list` shows it.")]
"""Which effect."""

Partition = Annotated[
    str | None,
    Parameter(
        metavar="SESSION",
        help='The session that the key belongs to; "" for one that all share. Needed where several have the same key.',
    ),
]
"""Whose key is meant."""


def call_of(entry: SessionEntry) -> str:
    """The call of an entry, in the form of `sessions fork --at`: `REPLY/CALL`, or the id if it has no reply."""
    return str(CallRef(entry.reply or None, entry.call_id)) if entry.call_id else NO_VALUE_CELL


def open_call_cells(call: OpenCall, now: datetime, *, is_held: bool) -> tuple[str, ...]:
    """An open call, for people: call, tool, state, what it waits for; `is_held`: a process has its session open."""
    return (str(call.call), call.tool, call.state, format_awaited(call, now, is_held=is_held))


def format_awaited(call: OpenCall, now: datetime, *, is_held: bool) -> str:
    """What an open call waits for, and until when."""
    if call.state == "unrecorded" and not is_held:
        return "its program: it was interrupted, or has not begun"
    if call.state != "running":
        return _AWAITED[call.state]
    owner = call.owner or "its owner"
    if call.lease_until is None:
        return f"nothing: {owner} has ended"
    if call.lease_until <= now:
        return "nothing: its lease has expired"
    return f"{owner}, or the end of its lease at {format_time(call.lease_until)} UTC"


def open_call_json(call: OpenCall) -> dict[str, Any]:
    """An open call, for programs."""
    return {
        "reply": call.call.reply,
        "call_id": call.call.call_id,
        "tool": call.tool,
        "state": call.state,
        "key": call.key,
        "lease_until": None if call.lease_until is None else call.lease_until.isoformat(),
        "owner": call.owner,
    }


# ----------------------------------------------------------------------------------------------------------- the ledger


def state(row: EffectRow, now: datetime) -> EffectState:
    """The state of an effect, as in tables and `--status`."""
    # First, because an expired lease is still the status `running` in its row.
    if lease_expired(row, now):
        return "lapsed"
    return "expired" if key_expired(row, now) else row.status


def term(row: EffectRow, now: datetime) -> str:
    """How long the state of an effect lasts, or how long ago it ended."""
    if row.lease_until is not None:
        left = row.lease_until - now
        return (
            f"lease expired {format_duration(left)} ago"
            if lease_expired(row, now)
            else f"lease for {format_duration(left)}"
        )
    if row.expires_at is not None:
        if row.status == "done" and row.is_kept_until_applied:
            return "until it is applied"
        left = row.expires_at - now
        return (
            f"expired {format_duration(left)} ago" if key_expired(row, now) else f"expires in {format_duration(left)}"
        )
    return "needs a person" if row.status == "unknown" else "for ever"


def effect_cells(row: EffectRow, now: datetime, agent: str = "") -> tuple[str, ...]:
    """An effect, for people: key, partition, tool, status, fence, lease or expiry, owner, agent, time, arguments."""
    return (
        row.key,
        row.partition or NO_VALUE_CELL,
        row.tool,
        state(row, now),
        str(row.fence),
        term(row, now),
        str(row.owner),
        agent or NO_VALUE_CELL,
        format_time(row.created_at),
        format_arguments(row),
    )


def effect_fields(row: EffectRow, now: datetime, agent: str = "") -> list[tuple[str, str]]:
    """All that is known about an effect, for people."""
    arguments, written = arguments_texts(row)
    fields = [
        ("key", row.key),
        ("partition", row.partition or f"{NO_VALUE_CELL} (shared by all sessions)"),
        ("tool", row.tool),
        ("status", f"{state(row, now)} ({term(row, now)})"),
        ("note", row.note),
        ("session", row.owner.session_id),
        ("agent", agent),
        ("owner", str(row.owner)),
        ("process", process_in_words(row.owner.process)),
        ("created", format_when(row.created_at)),
        ("arguments", arguments),
        ("model wrote", written),
        ("hash", row.params_hash),
        ("fence", str(row.fence)),
        ("effect", row.effect_id),
        ("lease until", format_when(row.lease_until)),
        ("completed", format_when(row.completed_at)),
        ("applied", format_when(row.applied_at)),
        ("expires", "" if row.is_kept_until_applied else format_when(row.expires_at)),
        ("message", row.message),
        ("value", value_text(row)),
        ("parts", "\n".join(map(str, _value_and_parts(row)[1]))),
    ]
    return [(name, value) for name, value in fields if value]


def arguments_texts(row: EffectRow) -> tuple[str, str]:
    """The arguments of an effect, and what the model wrote if that differs; both indented."""
    if row.arguments is None:
        return _NOT_RECORDED, ""
    try:
        found = read_arguments(row.arguments)
    except ValueError:
        return f"not JSON: {row.arguments.decode(errors='replace')}", ""
    return _set_in(found.arguments), "" if found.written is None else _set_in(found.written)


def format_arguments(row: EffectRow) -> str:
    """The same in one line."""
    if row.arguments is None:
        return _NOT_RECORDED
    try:
        found = read_arguments(row.arguments)
    except ValueError:
        return row.arguments.decode(errors="replace")
    line = _in_line(found.arguments)
    return line if found.written is None else f"{line} (the model wrote {_in_line(found.written)})"


def _set_in(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, indent=2)


def _in_line(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def value_text(row: EffectRow) -> str:
    """The value of a done effect, indented; empty for others."""
    if row.status != "done":
        return ""
    if row.value is None:
        return f"{NO_VALUE_CELL} (it is not recorded)"
    value, parts = _value_and_parts(row)
    try:
        found = json.loads(value)
    except ValueError:
        return f"not JSON: {value.decode(errors='replace')}"
    # A result of files has no value.
    return "" if found is None and parts else json.dumps(found, ensure_ascii=False, indent=2)


def _value_and_parts(row: EffectRow) -> tuple[bytes, tuple[ContentPart, ...]]:
    """The recorded value, and the parts of the result; what cannot be read is the value as it is recorded."""
    recorded = row.value or b""
    try:
        value, parts = split_parts(recorded)
    except ValueError:
        return recorded, ()
    return value or b"", parts


def effect_json(row: EffectRow, now: datetime, agent: str = "") -> dict[str, Any]:
    """All that is known about an effect, for programs.

    `owner` is the call that claimed the effect last, and its process. A value that is not JSON is given as text in
    `value_text`, and `value` is null then. If `value_unavailable` is true, `value` is null, or has the mask in place of
    secrets. `arguments` is null if they were not recorded, and a string if they were cut; `written` is what the model
    wrote, and null if that is the arguments. `parts` are the files of the result, with their sizes and without their
    bytes, and texts between.
    """
    found = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row._asdict().items()}
    found |= {"state": state(row, now), "value_unavailable": row.status == "done" and lacks_value(row)}
    found["owner"] = {**row.owner._asdict(), "in_words": row.owner.in_words}
    found |= {"agent": agent or None, "value": None, "arguments": None, "written": None}
    value, parts = _value_and_parts(row)
    found["parts"] = [_part_json(part) for part in parts]
    if value:
        try:
            found["value"] = json.loads(value)
        except ValueError:
            found["value_text"] = value.decode(errors="replace")
    if row.arguments is not None:
        try:
            found |= read_arguments(row.arguments)._asdict()
        except ValueError:
            found["arguments_text"] = row.arguments.decode(errors="replace")
    return found


def _part_json(part: ContentPart) -> dict[str, str | int]:
    if isinstance(part, BinaryPart):
        return {"media_type": part.media_type, "size": len(part.data)}
    return {"text": part.text}


Shown: TypeAlias = tuple[EffectRow, str]
"""An effect, and the agent, or the prompt, whose call has claimed it last; empty if that is not known."""


def with_agents(store: Store, rows: Iterable[EffectRow]) -> list[Shown]:
    """Effects, each with its agent; each session is read once.

    Raises:
        StoreError: the store cannot be read.
    """
    agents: dict[str, str] = {}
    found: list[Shown] = []
    for row in rows:
        session_id = row.owner.session_id or row.partition
        if session_id not in agents:
            agents[session_id] = _agent_of(store, session_id)
        found.append((row, agents[session_id]))
    return found


def is_unapplied(store: Store, row: EffectRow, now: datetime) -> bool:
    """Whether an effect has happened, and its call is open because the session has not applied the result.

    Raises:
        StoreError: the store cannot be read.
    """
    if row.status != "done" or row.applied_at is not None or key_expired(row, now):
        return False
    session = store.find(row.owner.session_id)
    calls = () if session is None else open_calls_in_store(store, session)
    return any((call.state, call.key, call.call) == ("unapplied", row.key, row.owner.call) for call in calls)


def _agent_of(store: Store, session_id: str) -> str:
    """The agent of a session: that of its conversation, or that in its tag; empty if there is neither."""
    session = store.find(session_id) if session_id else None
    return "" if session is None else agent_of_session(store, session)


def agent_of_session(store: Store, session: SessionRow) -> str:
    """The agent of a session: that of its conversation, or that in its tag; empty if there is neither.

    Raises:
        StoreError: the store cannot be read.
    """
    # A conversation begins near the start of its session, so little of a long one is read.
    read, until = 0, _FIRST_READ
    while read < session.head:
        # The first entry of a conversation names its speaker, so the loop ends with it.
        until = min(until, session.head)
        for entry in read_entries(
            store, session.session_id, after=read, until=until, type_name=CONVERSATION.name, limit=1
        ):
            return _speaker(entry) or session.tags.get(_TAG, "")
        read, until = until, until * _GROWTH
    return session.tags.get(_TAG, "")


def _speaker(entry: SessionEntry) -> str:
    """The speaker of the first of these parts; empty for the program's own loop, or if they cannot be read."""
    try:
        parts: list[ConversationPart] = CONVERSATION.load(entry.items, entry.type_version)
        return parts[0].name
    # The agent is only shown, so an unreadable one is left out.
    except (ValueError, LookupError, UnknownTypeError):
        return ""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFilter:
    """Which effects to list.

    Attributes:
        status: their states; empty for all.
        tool: their tool; `None` for any.
        session: the session that they belong to; `None` for any.
        unapplied: whether to list only those that have happened, and whose results wait to be applied.
    """

    status: Annotated[
        tuple[EffectState, ...],
        Parameter(
            metavar="STATE",
            help="Only those in this state. May be repeated. `lapsed` is running with an expired lease, "
            "`expired` is done or failed so long ago that it counts as absent.",
        ),
    ] = ()
    tool: Annotated[str | None, Parameter(metavar="NAME", help="Only effects of this tool.")] = None
    session: Annotated[
        str | None,
        Parameter(metavar="SESSION", help="Only its own keys, and the shared ones that it was the last to claim."),
    ] = None

    unapplied: Annotated[
        bool,
        Parameter(
            negative="",
            help="Only those that have happened, and whose results no session has applied: their calls are open.",
        ),
    ] = False

    def fits(self, store: Store, row: EffectRow, now: datetime) -> bool:
        """Whether a row matches."""
        return (
            (not self.status or state(row, now) in self.status)
            and self.tool in {None, row.tool}
            and self.session in {None, row.partition, row.owner.session_id}
            and not (self.unapplied and not is_unapplied(store, row, now))
        )


def list_effects(
    *,
    wanted: EffectFilter = EffectFilter(),
    limit: Limit = None,
    options: StoreOptions = AS_SET,
) -> int:
    """List the effects, the newest first."""
    size = paginate(limit, options)
    screen = Screen()
    with options.open() as store:
        now = store.now()
        found = (row for row in (proved(store, each, now) for each in store.rows()) if wanted.fits(store, row, now))
        # One more than shown, to know whether there are more.
        rows = newest(found, None if size is None else size + 1)
        shown = with_agents(store, rows[:size])
    if options.as_json:
        for row, agent in shown:
            screen.json(effect_json(row, now, agent), lines=True)
        return 0
    if not rows:
        screen.note(f"No effect{'s' if wanted == EffectFilter() else ' matches'} in {store.url}.")
        return 0
    print_effects(screen, shown, now)
    if len(rows) > len(rows[:size]):
        screen.note(f"These are the newest {len(rows) - 1}; --limit shows more.")
    return 0


def show_effect(
    key: Key,
    /,
    *,
    partition: Partition = None,
    options: StoreOptions = AS_SET,
) -> int:
    """Show all that is known about one effect."""
    screen = Screen()
    with options.open() as store:
        row = found_effect(store, key, partition)
        # Read in this order, so that a state is never computed with a time from before the row was written.
        ((_, agent),) = with_agents(store, [row])
        now = store.now()
    if options.as_json:
        screen.json(effect_json(row, now, agent))
    else:
        screen.record(effect_fields(row, now, agent))
    return 0


def print_effects(screen: Screen, shown: Iterable[Shown], now: datetime) -> None:
    """Print effects as a table."""
    screen.table(_COLUMNS, [effect_cells(row, now, agent) for row, agent in shown])


def newest(rows: Iterable[EffectRow], limit: int | None) -> list[EffectRow]:
    """The newest rows first; at most `limit` of them, without holding the others in memory."""
    if limit is None:
        return sorted(rows, key=_age, reverse=True)
    # `nlargest` holds at most `limit` rows, and a ledger may have millions.
    return heapq.nlargest(limit, rows, key=_age)


def found_effect(store: Store, key: str, partition: str | None) -> EffectRow:
    """The row of a key by what is proved of its owner; without a partition, of the only one that has it.

    Raises:
        LedgerError: it does not exist, or several partitions have the key.
    """
    if partition is not None:
        row = store.get(partition, key)
        found = [] if row is None else [row]
    else:
        # Keys are unique only within a partition.
        found = list(store.rows(key))
    if len(found) == 1:
        return proved(store, found[0], store.now())
    if not found:
        where = "" if partition is None else f" in the partition {partition!r}"
        raise LedgerError(
            f"{store.url} has no effect {key}{where}; handrail ledger list shows all", key=key, status="absent"
        )
    partitions = ", ".join(sorted(row.partition or '""' for row in found))
    raise LedgerError(
        f"{len(found)} sessions have an effect {key}; name one with --partition: {partitions}",
        key=key,
        status="ambiguous",
    )


def _age(row: EffectRow) -> datetime:
    return row.created_at
