"""What a store keeps, in words for people and as JSON for programs. Nothing here reads or prints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from handrail.cli.text import moment, span
from handrail.errors import StoreCorruptError
from handrail.runtime.ledger.recorded_arguments import read_arguments
from handrail.runtime.ledger.states import expired, lapsed, possible_duplicate
from handrail.session.calls import CallRef, OpenCall
from handrail.session.persistence.protocol import Entry, SessionRow
from handrail.store import EffectRow, Testimony
from handrail.store.processes import process_in_words

State = Literal["running", "lapsed", "done", "failed", "unknown", "expired"]
"""The status of an effect, and what the time has made of it: `lapsed` is running no longer in anybody's hands, and
`expired` is done or failed so long ago that it counts as absent."""

STATE_STYLES = {"running": "yellow", "lapsed": "bold yellow", "failed": "red", "unknown": "bold red", "done": "green"}
"""How the states look on a terminal."""

_TESTIMONY, _DUPLICATE = "testimony", "possible duplicate"

CELL_STYLES = {
    **STATE_STYLES,
    **{f"{name}, {_TESTIMONY}": style for name, style in STATE_STYLES.items()},
    **{f"{name}, {_DUPLICATE}": "bold red" for name in get_args(State)},
}
"""The same for `state_cell`."""

_NONE = "-"
_NOT_RECORDED = "not recorded"
_AWAITED = {
    "unknown": "being resolved: it may have happened",
    "unapplied": "being asked again: its effect has happened",
    "postponed": "an approval",
    "unrecorded": "being carried out",
}

# --------------------------------------------------------------------------------------------------------- the sessions


def tags_of(row: SessionRow) -> str:
    """The tags of a session, as `--tag` takes them."""
    return " ".join(f"{name}={value}" for name, value in sorted(row.tags.items())) or _NONE


def session_cells(row: SessionRow) -> tuple[str, ...]:
    """A session, for people: id, entries, creation, parent, tags."""
    return (row.session_id, f"{row.head:,}", moment(row.created_at), row.parent or _NONE, tags_of(row))


def session_fields(row: SessionRow) -> list[tuple[str, str]]:
    """A session, for people."""
    return [
        ("session", row.session_id),
        ("parent", row.parent or _NONE),
        ("tags", tags_of(row)),
        ("created", f"{moment(row.created_at)} UTC"),
        ("entries", f"{row.head:,}"),
    ]


def session_json(row: SessionRow) -> dict[str, Any]:
    """A session, for programs."""
    return {
        "session_id": row.session_id,
        "parent": row.parent,
        "tags": dict(row.tags),
        "created_at": row.created_at.isoformat(),
        "entries": row.head,
    }


def change(entry: Entry) -> str:
    """What an entry does to its slice: `-2 +1 at 4` takes two items away at index 4, and puts one there."""
    if entry.role == "event":
        return _NONE
    parts = [f"-{entry.removed}"] if entry.removed else []
    parts += [f"+{entry.added}"] if entry.added or not parts else []
    return f"{' '.join(parts)} at {entry.start}"


def entry_cells(entry: Entry) -> tuple[str, ...]:
    """An entry, for people: number, call, role, type, change, items."""
    return (
        str(entry.number),
        call_of(entry),
        entry.role,
        type_of(entry),
        change(entry),
        entry.items.decode(errors="replace"),
    )


def call_of(entry: Entry) -> str:
    """The call of an entry, as `sessions fork --at` takes it: `REPLY/CALL`, or the id where no reply was stated."""
    return str(CallRef(entry.reply or None, entry.call_id)) if entry.call_id else _NONE


def type_of(entry: Entry) -> str:
    """The type of an entry's items, with its version where it has had more than one."""
    return entry.type_name if entry.type_version == 1 else f"{entry.type_name} v{entry.type_version}"


def entry_json(entry: Entry, *, session_id: str, store: str) -> dict[str, Any]:
    """An entry, for programs.

    Raises:
        StoreCorruptError: its items are not JSON.
    """
    try:
        items = json.loads(entry.items)
    except ValueError as error:
        raise StoreCorruptError(
            f"the items of entry {entry.number} of session {session_id} are no JSON ({error}); look at them with "
            f"handrail sessions show {session_id} --after {entry.number - 1} --limit 1 --full",
            store=store,
        ) from error
    return {
        "number": entry.number,
        "reply": entry.reply or None,
        "call_id": entry.call_id,
        "role": entry.role,
        "type_name": entry.type_name,
        "version": entry.type_version,
        "start": entry.start,
        "removed": entry.removed,
        "added": entry.added,
        "items": items,
    }


def open_call_cells(call: OpenCall, now: datetime) -> tuple[str, ...]:
    """An open call, for people: call, tool, state, what it waits for."""
    return (str(call.call), call.tool, call.state, awaited(call, now))


def awaited(call: OpenCall, now: datetime) -> str:
    """What an open call waits for, and until when."""
    if call.state != "running":
        return _AWAITED[call.state]
    owner = call.owner or "its owner"
    if call.lease_until is None:
        return f"nothing: {owner} has ended"
    if call.lease_until <= now:
        return "nothing: its lease has passed"
    return f"{owner}, or the end of its lease at {moment(call.lease_until)} UTC"


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


def state(row: EffectRow, now: datetime) -> State:
    """The state of an effect, as tables show it and `--status` takes it."""
    if lapsed(row, now):
        return "lapsed"
    return "expired" if expired(row, now) else row.status


def term(row: EffectRow, now: datetime) -> str:
    """How long the state of an effect lasts, or since when it has been over."""
    if row.lease_until is not None:
        left = row.lease_until - now
        return f"lease passed {span(left)} ago" if lapsed(row, now) else f"lease for {span(left)}"
    if row.expires_at is not None:
        left = row.expires_at - now
        return f"expired {span(left)} ago" if expired(row, now) else f"expires in {span(left)}"
    return "needs a person" if row.status == "unknown" else "for ever"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What is known of an effect from elsewhere than its row.

    Attributes:
        agent: the agent, or the prompt, whose call has claimed it last; empty if that is not known.
        testimony: what former owners have said of it, in the order of their fencing tokens.
    """

    agent: str = ""
    testimony: tuple[Testimony, ...] = ()


_NOTHING_BESIDE = Beside()


def state_cell(row: EffectRow, now: datetime, beside: Beside) -> str:
    """The state of an effect, and whether former owners have said something of it, or it may have happened twice."""
    if any(possible_duplicate(row, said) for said in beside.testimony):
        return f"{state(row, now)}, {_DUPLICATE}"
    return f"{state(row, now)}, {_TESTIMONY}" if beside.testimony else state(row, now)


def effect_cells(row: EffectRow, now: datetime, beside: Beside = _NOTHING_BESIDE) -> tuple[str, ...]:
    """An effect, for people: key, partition, tool, status, fence, lease or expiry, owner, agent, time, arguments."""
    return (
        row.key,
        row.partition or _NONE,
        row.tool,
        state_cell(row, now, beside),
        str(row.fence),
        term(row, now),
        str(row.owner),
        beside.agent or _NONE,
        moment(row.created_at),
        arguments_line(row),
    )


def effect_fields(row: EffectRow, now: datetime, beside: Beside = _NOTHING_BESIDE) -> list[tuple[str, str]]:
    """All that is known of an effect, for people."""
    arguments, written = arguments_texts(row)
    fields = [
        ("key", row.key),
        ("partition", row.partition or f"{_NONE} (shared by all sessions)"),
        ("tool", row.tool),
        ("status", f"{state(row, now)} ({term(row, now)})"),
        ("note", row.note),
        ("session", row.owner.session_id),
        ("agent", beside.agent),
        ("owner", str(row.owner)),
        ("process", process_in_words(row.owner.process)),
        ("created", _when(row.created_at)),
        ("arguments", arguments),
        ("model wrote", written),
        ("hash", row.params_hash),
        ("fence", str(row.fence)),
        ("effect", row.effect_id),
        ("lease until", _when(row.lease_until)),
        ("completed", _when(row.completed_at)),
        ("applied", _when(row.applied_at)),
        ("expires", _when(row.expires_at)),
        ("message", row.message),
        ("value", value_text(row)),
        ("testimony", "\n".join(_testimony_line(row, said) for said in beside.testimony)),
    ]
    return [(name, value) for name, value in fields if value]


def _testimony_line(row: EffectRow, said: Testimony) -> str:
    """What a former owner says, in one line."""
    words = said.message or said.note.partition("\n")[0]
    duplicate = "; the effect may have happened twice" if possible_duplicate(row, said) else ""
    return f"{_when(said.given_at)}, fence {said.fence}: {said.status}{f', {words}' if words else ''}{duplicate}"


def arguments_texts(row: EffectRow) -> tuple[str, str]:
    """The arguments of an effect, and what the model wrote if that was something else; both set in."""
    if row.arguments is None:
        return _NOT_RECORDED, ""
    try:
        found = read_arguments(row.arguments)
    except ValueError:
        return f"not JSON: {row.arguments.decode(errors='replace')}", ""
    return _set_in(found.arguments), "" if found.written is None else _set_in(found.written)


def arguments_line(row: EffectRow) -> str:
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
    """The value of a done effect, set in; empty for the others."""
    if row.status != "done":
        return ""
    if row.value is None:
        return f"{_NONE} (it could not be kept)"
    try:
        return json.dumps(json.loads(row.value), ensure_ascii=False, indent=2)
    except ValueError:
        return f"no JSON: {row.value.decode(errors='replace')}"


def effect_json(row: EffectRow, now: datetime, beside: Beside = _NOTHING_BESIDE) -> dict[str, Any]:
    """All that is known of an effect, for programs.

    `owner` is the call that claimed the effect last, and its process. A value that is not JSON is given as text in
    `value_text`, and `value` is null then, as it is where `value_unavailable` says that there is none. `arguments` is
    null if they were not recorded, and a string if they were cut; `written` is what the model wrote, and null if that
    is the arguments.
    """
    told = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row._asdict().items()}
    told |= {"state": state(row, now), "value_unavailable": row.status == "done" and row.value is None}
    told["owner"] = {**row.owner._asdict(), "in_words": row.owner.in_words}
    told |= {"agent": beside.agent or None, "value": None, "arguments": None, "written": None}
    told["testimony"] = [
        {
            "given_at": said.given_at.isoformat(),
            "fence": said.fence,
            "status": said.status,
            "message": said.message,
            "note": said.note,
            "possible_duplicate": possible_duplicate(row, said),
        }
        for said in beside.testimony
    ]
    if row.value is not None:
        try:
            told["value"] = json.loads(row.value)
        except ValueError:
            told["value_text"] = row.value.decode(errors="replace")
    if row.arguments is not None:
        try:
            told |= read_arguments(row.arguments)._asdict()
        except ValueError:
            told["arguments_text"] = row.arguments.decode(errors="replace")
    return told


def _when(time: datetime | None) -> str:
    return "" if time is None else f"{moment(time)} UTC"
