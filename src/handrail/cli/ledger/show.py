"""`handrail ledger list|show`: the effects of a ledger. `handrail.cli.ledger.changes` changes them.

The agent beside an effect is the one whose call has claimed it last.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

from cyclopts import CycloptsError, Parameter

from handrail.cli.entities import Entity
from handrail.cli.options import AS_SET, PAGE, Limit, StoreOptions
from handrail.cli.screen import NO_VALUE_CELL, Column, format_duration, format_time, format_when
from handrail.errors import LedgerError
from handrail.process_identity import process_in_words
from handrail.prompt import BinaryPart
from handrail.prompt.content_parts import ContentPart
from handrail.runtime.ledger.effects import key_expired, lacks_value, lease_expired
from handrail.runtime.ledger.records import read_arguments, split_parts
from handrail.session.conversation import ConversationPart
from handrail.session.open_calls import open_calls_in_store
from handrail.session.persistence.protocol import SessionRow
from handrail.session.persistence.stored_types import stored_type
from handrail.store import EffectRow, Store
from handrail.store.protocol import proved

EffectState = Literal["running", "lapsed", "done", "failed", "unknown", "expired"]
"""The status of an effect, with two states that depend on time: `lapsed` is running with an expired lease, and
`expired` is done or failed so long ago that it counts as absent."""

CONVERSATION: Final = stored_type(ConversationPart)
"""How the parts of conversations are stored."""

_STYLES = {"running": "yellow", "lapsed": "bold yellow", "failed": "red", "unknown": "bold red", "done": "green"}
_NOT_RECORDED = "not recorded"
_TAG: Final = "agent"
"""The tag of a session that names its agent, if a program has set it."""

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


class ShownEffect(NamedTuple):
    """An effect as it is shown.

    Attributes:
        row: its row.
        now: the time of the store, with which its lease and its expiry are compared.
        agent: the agent, or the prompt, whose call has claimed it last; empty if that is not known.
    """

    row: EffectRow
    now: datetime
    agent: str = ""

    @property
    def state(self) -> EffectState:
        """The state, as in tables and `--status`."""
        # First, because an expired lease is still the status `running` in its row.
        if lease_expired(self.row, self.now):
            return "lapsed"
        return "expired" if key_expired(self.row, self.now) else self.row.status

    @property
    def term(self) -> str:
        """How long the state lasts, or how long ago it ended."""
        row, now = self.row, self.now
        if row.lease_until is not None:
            lasts = format_duration(row.lease_until - now)
            return f"lease expired {lasts} ago" if lease_expired(row, now) else f"lease for {lasts}"
        if row.expires_at is None:
            return "needs a person" if row.status == "unknown" else "for ever"
        if row.status == "done" and row.is_kept_until_applied:
            return "until it is applied"
        lasts = format_duration(row.expires_at - now)
        return f"expired {lasts} ago" if key_expired(row, now) else f"expires in {lasts}"

    def arguments(self, *, indent: int | None = None) -> tuple[str, str]:
        """The arguments as text, and what the model wrote if that differs; in one line, or indented."""
        if self.row.arguments is None:
            return _NOT_RECORDED, ""
        try:
            recorded = read_arguments(self.row.arguments)
        except ValueError:
            return f"not JSON: {self.row.arguments.decode(errors='replace')}", ""
        written = "" if recorded.written is None else format_json(recorded.written, indent=indent)
        return format_json(recorded.arguments, indent=indent), written

    @property
    def line(self) -> str:
        """Both in one line."""
        arguments, written = self.arguments()
        return f"{arguments} (the model wrote {written})" if written else arguments

    def result(self) -> tuple[bytes, tuple[ContentPart, ...]]:
        """The recorded value, and the parts of the result; what cannot be read is the value as it is recorded."""
        recorded = self.row.value or b""
        try:
            value, parts = split_parts(recorded)
        except ValueError:
            return recorded, ()
        return value or b"", parts

    @property
    def value(self) -> str:
        """The value of a done effect, indented; empty for others, and for a result of files."""
        if self.row.status != "done":
            return ""
        if self.row.value is None:
            return f"{NO_VALUE_CELL} (it is not recorded)"
        recorded, parts = self.result()
        try:
            value = json.loads(recorded)
        except ValueError:
            return f"not JSON: {recorded.decode(errors='replace')}"
        return "" if value is None and parts else json.dumps(value, ensure_ascii=False, indent=2)


def format_json(value: object, *, indent: int | None = None) -> str:
    """A value as JSON; arguments that were cut are text already."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=indent)


def effect_json(effect: ShownEffect) -> dict[str, Any]:
    """All that is known about an effect, for programs.

    `owner` is the call that claimed the effect last, and its process. A value that is not JSON is given as text in
    `value_text`, and `value` is null then. If `value_unavailable` is true, `value` is null, or has the mask in place of
    secrets. `arguments` is null if they were not recorded, and a string if they were cut; `written` is what the model
    wrote, and null if that is the arguments. `parts` are the files of the result, with their sizes and without their
    bytes, and texts between.
    """
    row = effect.row
    values = {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in row._asdict().items()
    }
    values |= {"state": effect.state, "value_unavailable": row.status == "done" and lacks_value(row)}
    values["owner"] = {**row.owner._asdict(), "in_words": row.owner.in_words}
    values |= {"agent": effect.agent or None, "value": None, "arguments": None, "written": None}
    recorded, parts = effect.result()
    values["parts"] = [
        {"media_type": part.media_type, "size": len(part.data)} if isinstance(part, BinaryPart) else {"text": part.text}
        for part in parts
    ]
    for name, text in (("value", recorded), ("arguments", row.arguments)):
        if text:
            try:
                values |= {"value": json.loads(text)} if name == "value" else read_arguments(text)._asdict()
            except ValueError:
                values[f"{name}_text"] = text.decode(errors="replace")
    return values


EFFECT: Entity[ShownEffect] = Entity(
    "effect",
    (
        Column("key", lambda each: each.row.key),
        Column("partition", lambda each: each.row.partition or NO_VALUE_CELL, spare=4),
        Column("tool", lambda each: each.row.tool),
        Column("status", lambda each: each.state, styles=_STYLES),
        Column("fence", lambda each: str(each.row.fence), right=True, spare=7),
        Column("lease / expiry", lambda each: each.term),
        Column("owner", lambda each: str(each.row.owner), spare=6),
        Column("agent", lambda each: each.agent or NO_VALUE_CELL, spare=3),
        Column("created (UTC)", lambda each: format_time(each.row.created_at), spare=5),
        Column("arguments", lambda each: each.line, cut=True, spare=1),
    ),
    effect_json,
    (
        ("key", lambda each: each.row.key),
        ("partition", lambda each: each.row.partition or f"{NO_VALUE_CELL} (shared by all sessions)"),
        ("tool", lambda each: each.row.tool),
        ("status", lambda each: f"{each.state} ({each.term})"),
        ("note", lambda each: each.row.note),
        ("session", lambda each: each.row.owner.session_id),
        ("agent", lambda each: each.agent),
        ("owner", lambda each: str(each.row.owner)),
        ("process", lambda each: process_in_words(each.row.owner.process)),
        ("created", lambda each: format_when(each.row.created_at)),
        ("arguments", lambda each: each.arguments(indent=2)[0]),
        ("model wrote", lambda each: each.arguments(indent=2)[1]),
        ("hash", lambda each: each.row.params_hash),
        ("fence", lambda each: str(each.row.fence)),
        ("effect", lambda each: each.row.effect_id),
        ("lease until", lambda each: format_when(each.row.lease_until)),
        ("completed", lambda each: format_when(each.row.completed_at)),
        ("applied", lambda each: format_when(each.row.applied_at)),
        ("expires", lambda each: "" if each.row.is_kept_until_applied else format_when(each.row.expires_at)),
        ("message", lambda each: each.row.message),
        ("value", lambda each: each.value),
        ("parts", lambda each: "\n".join(map(str, each.result()[1]))),
    ),
    is_counted=False,
)
"""An effect."""


def with_agents(store: Store, rows: Iterable[EffectRow]) -> list[ShownEffect]:
    """Effects, each with its agent; each session is read once.

    Raises:
        StoreError: the store cannot be read.
    """
    now, agents = store.now(), dict[str, str]()
    effects: list[ShownEffect] = []
    for row in rows:
        session_id = row.owner.session_id or row.partition
        if session_id not in agents:
            session = store.find(session_id) if session_id else None
            agents[session_id] = "" if session is None else agent_of_session(store, session)
        effects.append(ShownEffect(row, now, agents[session_id]))
    return effects


def agent_of_session(store: Store, session: SessionRow) -> str:
    """The agent of a session: that of its conversation, or that in its tag; empty if there is neither.

    Raises:
        StoreError: the store cannot be read.
    """
    # The first entry of a conversation names its speaker.
    for entry in store.entries(session.session_id, until=session.head, type_name=CONVERSATION.name):
        try:
            return json.loads(entry.items)[0].get("name") or session.tags.get(_TAG, "")
        # The agent is only shown, so an unreadable one is left out.
        except (ValueError, LookupError, AttributeError):
            break
    return session.tags.get(_TAG, "")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFilter:
    """Which effects to list.

    Attributes:
        status: Only those in this state. May be repeated. `lapsed` is running with an expired lease, `expired` is done
            or failed so long ago that it counts as absent.
        tool: Only effects of this tool.
        session: Only its own keys, and the shared ones that it was the last to claim.
        unapplied: Only those that have happened, and whose results no session has applied: their calls are open.
    """

    status: Annotated[tuple[EffectState, ...], Parameter(metavar="STATE")] = ()
    tool: Annotated[str | None, Parameter(metavar="NAME")] = None
    session: Annotated[str | None, Parameter(metavar="SESSION")] = None

    unapplied: Annotated[bool, Parameter(negative="")] = False

    def check(self) -> None:
        """Check the options, before the store is opened.

        Raises:
            CycloptsError: no effect can fit both of two of them.
        """
        if self.unapplied and self.status and "done" not in self.status:
            raise CycloptsError(msg="--unapplied and --status contradict each other: what is not applied is done")

    def fits(self, store: Store, row: EffectRow, now: datetime) -> bool:
        """Whether a row matches."""
        return (
            (not self.status or ShownEffect(row, now).state in self.status)
            and self.tool in {None, row.tool}
            and self.session in {None, row.partition, row.owner.session_id}
            and not (self.unapplied and not _is_unapplied(store, row, now))
        )


def _is_unapplied(store: Store, row: EffectRow, now: datetime) -> bool:
    """Whether an effect has happened, and its call is open because the session has not applied the result."""
    if row.status != "done" or row.applied_at is not None or key_expired(row, now):
        return False
    session = store.find(row.owner.session_id)
    calls = () if session is None else open_calls_in_store(store, session)
    return any((call.state, call.key, call.call) == ("unapplied", row.key, row.owner.call) for call in calls)


def list_effects(
    *,
    wanted: EffectFilter = EffectFilter(),
    limit: Limit = None,
    options: StoreOptions = AS_SET,
) -> int:
    """List the effects, the newest first."""
    wanted.check()
    with options.open() as store:
        now = store.now()
        rows = (row for row in (proved(store, each, now) for each in store.rows()) if wanted.fits(store, row, now))
        size = None if limit is None and options.as_json else (limit or PAGE)
        # One more than is shown, to know whether there are more.
        effects = with_agents(store, newest(rows, None if size is None else size + 1))
        none = f"No effect{'s' if wanted == EffectFilter() else ' matches'} in {store.url}."
        EFFECT.print_list(effects, limit, options, none=none)
    return 0


def show_effect(
    key: Key,
    /,
    *,
    partition: Partition = None,
    options: StoreOptions = AS_SET,
) -> int:
    """Show all that is known about one effect."""
    with options.open() as store:
        # The time is read after the row, so that a state is never computed with a time from before it was written.
        (effect,) = with_agents(store, [find_effect(store, key, partition)])
    EFFECT.print_one(effect, options)
    return 0


def newest(rows: Iterable[EffectRow], limit: int | None) -> list[EffectRow]:
    """The newest rows first; at most `limit` of them, without holding the others in memory."""
    if limit is None:
        return sorted(rows, key=_age, reverse=True)
    # `nlargest` holds at most `limit` rows, and a ledger may have millions.
    return heapq.nlargest(limit, rows, key=_age)


def _age(row: EffectRow) -> datetime:
    return row.created_at


def find_effect(store: Store, key: str, partition: str | None) -> EffectRow:
    """The row of a key by what is proved of its owner; without a partition, of the only one that has it.

    Raises:
        LedgerError: it does not exist, or several partitions have the key.
    """
    # Keys are unique only within a partition.
    rows = [row for row in store.rows(key) if partition in {None, row.partition}]
    if len(rows) == 1:
        return proved(store, rows[0], store.now())
    if not rows:
        where = "" if partition is None else f" in the partition {partition!r}"
        raise LedgerError(
            f"{store.url} has no effect {key}{where}; handrail ledger list shows all", key=key, status="absent"
        )
    partitions = ", ".join(sorted(row.partition or '""' for row in rows))
    raise LedgerError(
        f"{len(rows)} sessions have an effect {key}; name one with --partition: {partitions}",
        key=key,
        status="ambiguous",
    )
