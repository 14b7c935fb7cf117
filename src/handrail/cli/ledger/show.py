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

from cyclopts import Parameter

from handrail.cli.options import PAGE, Entity, Limit, StoreOptions
from handrail.cli.screen import Field, format_duration, format_json
from handrail.errors import LedgerError
from handrail.process_identity import process_in_words
from handrail.prompt import BinaryPart
from handrail.prompt.content_parts import ContentPart
from handrail.runtime.ledger.effects import key_expired, lacks_value, lease_expired
from handrail.runtime.ledger.records import RecordedArguments, read_arguments, split_parts
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
# The tag of a session that names its agent, if a program has set it.
_TAG: Final = "agent"

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

    @property
    def recorded(self) -> RecordedArguments:
        """The arguments, and what the model wrote if that differs; text if something else has written them."""
        try:
            return read_arguments(self.row.arguments)
        except ValueError:
            return RecordedArguments(f"cannot be read: {(self.row.arguments or b'').decode(errors='replace')}")

    @property
    def result(self) -> tuple[Any, tuple[ContentPart, ...]]:
        """The recorded value, and the parts of the result; a value that cannot be read is text."""
        recorded = self.row.value or b"null"
        try:
            value, parts = split_parts(recorded)
            return json.loads(value or b"null"), parts
        except ValueError:
            return f"cannot be read: {recorded.decode(errors='replace')}", ()

    @property
    def value(self) -> str:
        """The value of a done effect, indented; empty for others, and for a result of files."""
        value, parts = self.result
        if self.row.status != "done" or (value is None and parts):
            return ""
        return "- (it is not recorded)" if self.row.value is None else format_json(value, indent=2)


def _part_json(part: ContentPart) -> dict[str, Any]:
    """A part of a result, with its size and without its bytes."""
    if isinstance(part, BinaryPart):
        return {"media_type": part.media_type, "size": len(part.data)}
    return {"text": part.text}


def _owner_json(effect: ShownEffect) -> dict[str, Any]:
    owner = effect.row.owner
    return {**owner._asdict(), "in_words": owner.in_words}


def _arguments(effect: ShownEffect) -> Any:  # noqa: ANN401 - any value of JSON
    return _NOT_RECORDED if effect.row.arguments is None else effect.recorded.arguments


EFFECT: Entity[ShownEffect] = Entity(
    "effects",
    ("key", "tool", "status", "lease / expiry", "arguments"),
    (
        Field("key", lambda each: each.row.key),
        Field("partition", lambda each: each.row.partition),
        Field("tool", lambda each: each.row.tool),
        Field("status", lambda each: each.state, key="state", styles=_STYLES),
        Field("", lambda each: each.row.status, key="status"),
        Field("lease / expiry", lambda each: each.term, key=""),
        Field("note", lambda each: each.row.note),
        Field("session", lambda each: each.row.owner.session_id, key=""),
        Field("agent", lambda each: each.agent or None),
        Field("owner", _owner_json, lambda each: str(each.row.owner)),
        Field("process", lambda each: process_in_words(each.row.owner.process), key=""),
        Field("created", lambda each: each.row.created_at, key="created_at"),
        Field("arguments", lambda each: each.recorded.arguments, _arguments),
        Field("model wrote", lambda each: each.recorded.words, key="written"),
        Field("hash", lambda each: each.row.params_hash, key="params_hash"),
        Field("fence", lambda each: each.row.fence),
        Field("effect", lambda each: each.row.effect_id, key="effect_id"),
        Field("lease until", lambda each: each.row.lease_until, key="lease_until"),
        Field("completed", lambda each: each.row.completed_at, key="completed_at"),
        Field("applied", lambda each: each.row.applied_at, key="applied_at"),
        Field("", lambda each: each.row.expires_at, key="expires_at"),
        Field("message", lambda each: each.row.message),
        Field("value", lambda each: each.result[0], lambda each: each.value),
        # Then the value is null, or has the mask in place of secrets.
        Field("", lambda each: each.row.status == "done" and lacks_value(each.row), key="value_unavailable"),
        Field("", lambda each: each.row.exclude_value_from_context, key="exclude_value_from_context"),
        Field(
            "parts",
            lambda each: list(map(_part_json, each.result[1])),
            lambda each: "\n".join(map(str, each.result[1])),
        ),
    ),
)
"""An effect. `owner` is the call that claimed it last, and its process; `arguments` is null if they were not recorded,
and a string if they were cut; `written` is what the model wrote, and null if that is the arguments."""


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
    """Which effects to list; filters are combined with AND.

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
    unapplied: bool = False

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
    options: StoreOptions = StoreOptions(),
) -> None:
    """List the effects, the newest first.

    Example: `handrail ledger list --status unknown --status lapsed`
    """
    with options.open() as store:
        now = store.now()
        rows = (row for row in (proved(store, each, now) for each in store.rows()) if wanted.fits(store, row, now))
        size = None if limit is None and options.as_json else (limit or PAGE)
        # One more than is shown, to know whether there are more.
        effects = with_agents(store, newest(rows, None if size is None else size + 1))
        EFFECT.print_list(effects, limit, options)


def show_effect(key: str, /, *, partition: Partition = None, options: StoreOptions = StoreOptions()) -> None:
    """Show all that is known about one effect.

    Example: `handrail ledger show session:refund:cfb3066e1951`

    Args:
        key: The key of the effect, as `ledger list` shows it.
        partition: Whose key is meant.
        options: The store and the output format.
    """
    with options.open() as store:
        # The time is read after the row, so that a state is never computed with a time from before it was written.
        (effect,) = with_agents(store, [find_effect(store, key, partition)])
    EFFECT.print_one(effect, options)


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
