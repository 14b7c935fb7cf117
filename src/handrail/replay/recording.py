"""A recorded session as one file, so that a test can replay it.

The file has what the store has, so secrets are masked. It is JSON: a line for each session, entry and effect.

| of | the file has |
|---|---|
| the session, those below it, and those that it was forked from | rows and entries |
| the keys of their calls | the effects, also of other sessions |
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic_core import ValidationError, from_json

from handrail.errors import SessionError, SessionNotFoundError
from handrail.serde.json_schema import is_array
from handrail.session.conversation import ConversationPart
from handrail.session.persistence.protocol import SessionAppend, SessionEntry, SessionRow
from handrail.session.persistence.stored_types import stored_type
from handrail.store import Store
from handrail.store.memory import MemoryStore
from handrail.store.protocol import EffectInsert, EffectRow
from handrail.transaction import UnitOfWork

if TYPE_CHECKING:
    from pydantic import TypeAdapter

RECORDING_FORMAT: Final = "handrail.recording/1"
"""The format of a recording in a file."""

_NOW: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded session with all that a replay needs.

    Attributes:
        session_id: the session.
        rows: the rows of it, of its origins before it, and of the sessions below it after it.
        entries: their own entries, each with its session.
        effects: the effects of their keys.
        format: the format of the file.
    """

    session_id: str
    rows: tuple[SessionRow, ...]
    entries: tuple[tuple[str, SessionEntry], ...]
    effects: tuple[EffectRow, ...] = ()
    format: str = RECORDING_FORMAT

    @staticmethod
    def of(store: Store, session_id: str) -> Recording:
        """The recording of a session.

        Raises:
            SessionNotFoundError: there is no such session.
            StoreError: the store cannot be read.
        """
        own = find_row(store, session_id)
        rows = [own, *(row for row in store.sessions() if row.session_id.startswith(f"{session_id}/"))]
        while (origin := rows[0].origin) is not None:
            rows.insert(0, find_row(store, origin)._replace(head=rows[0].origin_head))
        entries = [
            (row.session_id, entry)
            for row in rows
            for entry in store.entries(row.session_id, after=row.origin_head, until=row.head)
        ]
        keys = {from_json(entry.items)[0].get("effect_key") for _, entry in entries if entry.tool}
        names = ("", *(row.session_id for row in rows))
        effects = [row for key in sorted(keys - {None}) for name in names if (row := store.get(name, key)) is not None]
        plain = (row._replace(owner=row.owner._replace(process="")) for row in effects)
        return Recording(session_id, tuple(rows), tuple(entries), tuple(plain))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a file, or replaces that; `OSError` if it cannot."""
        Path(path).write_text(self.text, encoding="utf-8")

    @property
    def text(self) -> str:
        """The text of its file."""
        parts = _adapter().dump_python(self, mode="json")
        return "{{{}}}\n".format(",\n".join(f'"{name}": {_lines(value)}' for name, value in parts.items()))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Recording:
        """The recording of a file.

        Raises:
            SessionError: the file is not a recording of this format.
            OSError: it cannot be read.
        """
        try:
            recording = _adapter().validate_json(Path(path).read_bytes())
        except ValidationError as error:
            raise SessionError(f"{os.fspath(path)} is not a recording: {error.errors()[0]['msg']}") from error
        if recording.format != RECORDING_FORMAT:
            raise SessionError(f"{os.fspath(path)} has the format {recording.format!r}, and not {RECORDING_FORMAT!r}")
        for row in recording.rows:
            numbers = [entry.number for name, entry in recording.entries if name == row.session_id]
            if numbers != [*range(row.origin_head + 1, row.head + 1)]:
                raise SessionError(
                    f"{os.fspath(path)} has {len(numbers)} of the {row.head - row.origin_head} entries of session "
                    f"{row.session_id!r}: it was cut or changed. Write it anew by handrail sessions export"
                )
        return recording

    def restore(self) -> MemoryStore:
        """A store in memory that has it."""
        store = MemoryStore()
        for row in self.rows:
            store.create(row)
            lock = store.acquire(row.session_id, wait=_NOW)
            own = tuple(entry for name, entry in self.entries if name == row.session_id)
            store.apply(UnitOfWork((SessionAppend(lock, row.origin_head, own),)))
            store.release(lock)
        for effect in self.effects:
            store.apply(UnitOfWork((EffectInsert(effect),)))
        return store


def find_row(store: Store, session_id: str) -> SessionRow:
    """The row of a session; raises `SessionNotFoundError`."""
    if (row := store.find(session_id)) is None:
        raise SessionNotFoundError(f"{store.url} has no session {session_id!r}", session_id=session_id)
    return row


def find_beginning(store: Store, row: SessionRow, *, is_run: bool = False) -> int:
    """The number of the entry before the first reply with calls, or for a run before the first message."""
    if row.origin is not None:
        return row.origin_head
    kind = stored_type(ConversationPart).name
    for entry in store.entries(row.session_id, until=row.head):
        is_part = entry.type_name == kind
        if entry.call_id or (is_part and (is_run or from_json(entry.items)[0]["calls"])):
            return entry.number - 1
    return row.head


def _lines(value: object) -> str:
    dump = partial(json.dumps, ensure_ascii=False)
    return "[\n{}\n]".format(",\n".join(map(dump, value))) if is_array(value) else dump(value)


@cache
def _adapter() -> TypeAdapter[Recording]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - only recordings need it

    return TypeAdapter(Recording)
