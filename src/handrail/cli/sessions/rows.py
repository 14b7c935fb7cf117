"""How sessions and their entries are shown: as cells and fields for people, and as JSON for programs."""

from __future__ import annotations

import json
from typing import Any

from handrail.cli.ledger.show import call_of
from handrail.cli.screen import NO_VALUE_CELL, format_time
from handrail.errors import StoreCorruptError
from handrail.redaction import MASK
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.taint.state import DELIMITER_SECRET


def tags_of(row: SessionRow) -> str:
    """The tags of a session, in the form of `--tag`."""
    return " ".join(f"{name}={value}" for name, value in sorted(row.tags.items())) or NO_VALUE_CELL


def session_cells(row: SessionRow, state: str) -> tuple[str, ...]:
    """A session, for people: id, state, entries, creation, parent, tags."""
    parent = row.parent or NO_VALUE_CELL
    return (row.session_id, state, f"{row.head:,}", format_time(row.created_at), parent, tags_of(row))


def session_fields(row: SessionRow) -> list[tuple[str, str]]:
    """A session, for people."""
    return [
        ("session", row.session_id),
        ("parent", row.parent or NO_VALUE_CELL),
        ("tags", tags_of(row)),
        ("created", f"{format_time(row.created_at)} UTC"),
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


def change(entry: SessionEntry) -> str:
    """What an entry does to its slice: `-2 +1 at 4` removes two items at index 4, and inserts one there."""
    if entry.role == "event":
        return NO_VALUE_CELL
    parts = [f"-{entry.removed}"] if entry.removed else []
    parts += [f"+{entry.added}"] if entry.added or not parts else []
    return f"{' '.join(parts)} at {entry.start}"


def entry_cells(entry: SessionEntry) -> tuple[str, ...]:
    """An entry, for people: number, call, role, type, change, items."""
    return (
        str(entry.number),
        call_of(entry),
        entry.role,
        type_of(entry),
        change(entry),
        _items(entry).decode(errors="replace"),
    )


def _items(entry: SessionEntry) -> bytes:
    """The items of an entry as JSON; of the secret that delimiters are made from, the mask."""
    return b'[{"secret":"%s"}]' % MASK.encode() if entry.type_name == DELIMITER_SECRET else entry.items


def type_of(entry: SessionEntry) -> str:
    """The type of an entry's items, with its version where it has had more than one."""
    return entry.type_name if entry.type_version == 1 else f"{entry.type_name} v{entry.type_version}"


def entry_json(entry: SessionEntry, *, session_id: str, store: str) -> dict[str, Any]:
    """An entry, for programs.

    Raises:
        StoreCorruptError: its items are not JSON.
    """
    try:
        items = json.loads(_items(entry))
    except ValueError as error:
        raise StoreCorruptError(
            f"the items of entry {entry.number} of session {session_id} are not JSON ({error}); look at them with "
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
