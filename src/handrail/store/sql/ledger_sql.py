"""The ledger in a database: the statements of `handrail.store.LedgerStore`."""

# ruff: noqa: S608 - what is put into statements here are names of our own columns

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from handrail.crash_points import reached
from handrail.session.calls import OpenCall
from handrail.store.processes import Processes
from handrail.store.protocol import EffectRow, Testimony, Wake, open_call
from handrail.store.sql.database import Database
from handrail.store.sql.rows import (
    EFFECT,
    EFFECT_FIELDS,
    TESTIMONY,
    effect_columns,
    effect_of,
    micros,
    testimony_columns,
    testimony_of,
)
from handrail.store.units import open_unit

_MARKS = ", ".join("?" for _ in EFFECT_FIELDS)
_SET = ", ".join(f"{name} = ?" for name in EFFECT_FIELDS[2:])
_KEY = "partition = ? AND key = ?"
_SEEN = f"{_KEY} AND effect_id = ? AND fence = ? AND status = ?"
_EFFECTS_PER_PAGE = 500

GET = f"SELECT {EFFECT} FROM handrail_effects WHERE {_KEY}"
"""One row."""

INSERT = f"INSERT INTO handrail_effects ({EFFECT}) VALUES ({_MARKS}) ON CONFLICT (partition, key) DO NOTHING"
"""A row, if its key has none."""

REPLACE = f"UPDATE handrail_effects SET {_SET} WHERE {_SEEN}"
"""What a row becomes, if it is still the one seen."""

DELETE = f"DELETE FROM handrail_effects WHERE {_SEEN}"
"""No row, if it is still the one seen."""

_REPLACE_READ = f"UPDATE handrail_effects SET {_SET} WHERE {_KEY}"
_DELETE_READ = f"DELETE FROM handrail_effects WHERE {_KEY}"
_FIRST_ROWS = f"SELECT {EFFECT} FROM handrail_effects ORDER BY partition, key LIMIT {_EFFECTS_PER_PAGE}"
_NEXT_ROWS = f"SELECT {EFFECT} FROM handrail_effects WHERE (partition, key) > (?, ?) ORDER BY partition, key LIMIT {_EFFECTS_PER_PAGE}"
_OPEN = "status <> 'failed' AND applied_at IS NULL"
# A key of one session has that session as its partition; for the others there is an index on their owner.
_OPEN_OF_SESSION = (
    f"SELECT {EFFECT} FROM handrail_effects WHERE partition = ? AND {_OPEN} UNION ALL "
    f"SELECT {EFFECT} FROM handrail_effects WHERE partition = '' AND owner_session = ? AND {_OPEN}"
)
_RUNNING_OF_SESSION = (
    f"SELECT {EFFECT} FROM handrail_effects WHERE partition = ? AND status = 'running' UNION ALL "
    f"SELECT {EFFECT} FROM handrail_effects WHERE partition = '' AND owner_session = ? AND status = 'running'"
)
_UNRESOLVED_SLOTS = (
    f"SELECT {EFFECT} FROM handrail_effects WHERE partition = ? AND substr(key, 1, 5) = 'call:' AND (status IN "
    "('running', 'unknown') OR (status = 'done' AND expires_at IS NULL AND owner_reply <> ''))"
)
_RUNNING_PROCESSES = "SELECT DISTINCT owner_process FROM handrail_effects WHERE status = 'running'"
_END_LEASE = f"UPDATE handrail_effects SET lease_until = ? WHERE {_SEEN}"
_TESTIFY = (
    f"INSERT INTO handrail_testimony ({TESTIMONY}) VALUES ({', '.join('?' for _ in Testimony._fields)}) "
    "ON CONFLICT (effect_id, fence) DO NOTHING"
)
_TESTIMONY_OF = f"SELECT {TESTIMONY} FROM handrail_testimony WHERE effect_id = ?"
_FORGET_TESTIMONY = "DELETE FROM handrail_testimony WHERE effect_id = ?"


class SqlLedger:
    """The part of a store that is a `handrail.store.LedgerStore`.

    `_database` is where it keeps the rows, `_processes` what it knows of their owners, `_claimed` the keys that it has
    written as running last.
    """

    _database: Database
    _processes: Processes
    _claimed: set[tuple[str, str]]
    _now: Callable[[], datetime]

    def process(self) -> str:
        """Names this process in the claims that it makes.

        Raises:
            StoreError: the process cannot be named so that its death could be proved.
        """
        return self._processes.own(self._running_processes)

    def is_dead(self, process: str) -> bool:
        """Whether the process of that name is proved dead."""
        return self._processes.is_dead(process)

    def open_claims(self, session_id: str) -> tuple[OpenCall, ...]:
        """The effects of a session's calls that are running, unknown, or done without having been applied."""
        rows = [effect_of(columns) for columns in self._database.ask(_OPEN_OF_SESSION, (session_id, session_id))]
        return tuple(
            open_call(row, owner_is_dead=row.status == "running" and self.is_dead(row.owner.process)) for row in rows
        )

    def end_leases_of_dead(self, session_id: str) -> tuple[OpenCall, ...]:
        """End the leases of the session's running effects whose owner's process is proved dead; returns the others."""
        found = self._database.ask(_RUNNING_OF_SESSION, (session_id, session_id))
        now = self._now() if found else None
        others: list[OpenCall] = []
        for row in map(effect_of, found):
            if now is None or row.lease_until is None or row.lease_until <= now:
                continue
            if self.is_dead(row.owner.process):
                self._database.change(_END_LEASE, (micros(now), *row[:3], row.fence, row.status))
            else:
                others.append(open_call(row))
        return tuple(others)

    def _running_processes(self) -> list[str]:
        """The processes that running claims name."""
        return [str(process) for (process,) in self._database.ask(_RUNNING_PROCESSES)]

    def get(self, partition: str, key: str) -> EffectRow | None:
        """The row as it stands; `None` if there is none."""
        found = self._database.ask(GET, (partition, key))
        return effect_of(found[0]) if found else None

    def insert(self, row: EffectRow) -> EffectRow | None:
        """Add the row if its key has none, and return `None`; else change nothing and return the row that stands."""
        columns = effect_columns(row)
        while not self._database.change(INSERT, columns):
            standing = self.get(row.partition, row.key)
            if standing is not None:
                return standing
        self._written(row, row)
        return None

    def replace(self, seen: EffectRow, row: EffectRow) -> bool:
        """Put `row` in the place of `seen` if that is still the one seen; returns whether it was."""
        if row.effect_id == seen.effect_id:
            return self._replace(seen, row)
        with self._database.separate():
            return self._replace(seen, row) and self._forget_testimony(seen)

    def delete(self, seen: EffectRow) -> bool:
        """Remove the row, and the testimony about its effect, if it is still the one seen; returns whether it was."""
        with self._database.separate():
            return self._delete(seen) and self._forget_testimony(seen)

    def testify(self, testimony: Testimony) -> bool:
        """Add testimony; returns whether it is the first of its effect and fencing token."""
        added = bool(self._database.change(_TESTIFY, testimony_columns(testimony)))
        if added and open_unit(self._database) is not None:
            reached("unit-testimony-written")
        return added

    def testimony(self, effect_id: str) -> tuple[Testimony, ...]:
        """All testimony about an effect, in the order of the fencing tokens."""
        found = map(testimony_of, self._database.ask(_TESTIMONY_OF, (effect_id,)))
        return tuple(sorted(found, key=lambda testimony: testimony.fence))

    def rows(self) -> Iterator[EffectRow]:
        """All rows in the order of their keys; each as it stood when the iteration came near it."""
        found = self._database.ask(_FIRST_ROWS)
        while found:
            yield from map(effect_of, found)
            found = self._database.ask(_NEXT_ROWS, found[-1][:2]) if len(found) == _EFFECTS_PER_PAGE else []

    def unresolved_slots(self, partition: str, tool: str, reply: str | None) -> tuple[EffectRow, ...]:
        """The running and unknown slots of a partition and tool, and those of the reply that were resolved as happened.

        One query for each that is found.
        """
        unresolved = self._database.watchers.unresolved
        if unresolved.of(partition) is None:
            unresolved.load(partition, map(effect_of, self._database.ask(_UNRESOLVED_SLOTS, (partition,))))
        keys = unresolved.keys(partition, tool, reply)
        return tuple(row for key in keys if (row := self.get(partition, key)) is not None)

    def watch(self, partition: str, key: str, wake: Wake) -> Callable[[], None]:
        """Call `wake` after each change of the key's row that this store makes; returns how to stop that."""
        return self._database.watchers.watch(partition, key, wake)

    def _replace(self, seen: EffectRow, row: EffectRow) -> bool:
        values = (*effect_columns(row)[2:], seen.partition, seen.key, seen.effect_id, seen.fence, seen.status)
        a_sign_of_life = row.status == seen.status and row.fence == seen.fence
        change = self._database.change_with_call if a_sign_of_life else self._database.change
        done = bool(change(REPLACE, values)) or (
            seen.status == "unknown" and self._change_unread(seen, _REPLACE_READ, values[:-3])
        )
        if done:
            self._written(seen, row)
        return done

    def _delete(self, seen: EffectRow) -> bool:
        identity = (seen.partition, seen.key)
        done = bool(self._database.change(DELETE, (*identity, seen.effect_id, seen.fence, seen.status))) or (
            seen.status == "unknown" and self._change_unread(seen, _DELETE_READ, identity)
        )
        if done:
            self._written(seen, None)
        return done

    def _forget_testimony(self, seen: EffectRow) -> bool:
        """Remove the testimony about an effect whose row has been removed; true, because the row has been.

        On PostgreSQL testimony that another transaction is adding meanwhile is not seen. It stays, and is never
        read: testimony is looked up by the id in the row of its effect.
        """
        self._database.change(_FORGET_TESTIMONY, (seen.effect_id,))
        return True

    def _change_unread(self, seen: EffectRow, sql: str, values: tuple[object, ...]) -> bool:
        """Change a row that could not be read when it was seen, if it is still so: its status is another than shown."""
        with self._database.joined():
            standing = self.get(seen.partition, seen.key)
            if standing is None or (standing.effect_id, standing.fence, standing.status) != (
                *(seen.effect_id, seen.fence),
                seen.status,
            ):
                return False
            return bool(self._database.change(sql, values))

    def _written(self, seen: EffectRow, row: EffectRow | None) -> None:
        if row is not None and row.status == "running":
            self._claimed.add(row[:2])
        else:
            self._claimed.discard(seen[:2])
        unit = open_unit(self._database)
        if unit is not None:
            unit.tell(seen.partition, seen.key, row)
            reached("unit-ledger-written")
        else:
            self._database.watchers.tell(seen.partition, seen.key, row)
