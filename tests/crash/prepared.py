"""A transaction of another database that commits with its call, as `docs/how-to/your-own-database.md` has one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from uuid import uuid4

import psycopg

from handrail.runtime import Session
from handrail.transaction import RecordCommit, UnitStore
from handrail.transaction.unit_of_work import CommitRecordStore


class PreparedRow:
    """It is prepared before the unit of the call, and committed after it.

    Attributes:
        connection: what executes its statements.
        store: where the unit is written.
    """

    def __init__(self, url: str, session: Session) -> None:
        self.connection: psycopg.Connection = psycopg.connect(url)
        self.store: UnitStore | None = session.store
        self._records = _records(session)
        self._name = uuid4().hex
        self.connection.tpc_begin(self.connection.xid(1, session.session_id, self._name))

    def prepare(self) -> None:
        self.connection.tpc_prepare()

    def write(self) -> Sequence[object]:
        return (RecordCommit(self._name),)

    def after_commit(self) -> None:
        with closing(self.connection):
            self.connection.tpc_commit()
        self._records.delete_commit_record(self._name)

    def after_rollback(self) -> None:
        with closing(self.connection):
            self.connection.tpc_rollback()

    def in_doubt(self) -> None:
        self.connection.close()


def recover(url: str, session: Session) -> None:
    """Settle what a killed process has left prepared of a session."""
    store = _records(session)
    with closing(psycopg.connect(url)) as connection:
        for xid in connection.tpc_recover():
            if xid.gtrid == session.session_id:
                settle = connection.tpc_commit if store.is_committed(xid.bqual or "") else connection.tpc_rollback
                settle(xid)


def _records(session: Session) -> CommitRecordStore:
    store: object = session.store
    assert isinstance(store, CommitRecordStore)
    return store
