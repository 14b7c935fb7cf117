"""Another database in the commit of a call, over a real server and a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import handrail.store
from handrail.errors import InvalidArgumentError, StoreUnavailableError
from handrail.runtime import Session
from handrail.store import MemoryStore
from handrail.transaction import CommitsLast, PreparedTransaction, Recovered, UnitOfWork, enlist
from tests.session.faulty_stores import FaultyStore
from tests.store.postgres_server import fresh_url
from tests.transaction.notebooks import call


@pytest.fixture
def url() -> Generator[str]:
    """A database with an empty table."""
    with fresh_url() as found:
        with psycopg.connect(found) as connection:
            connection.execute("CREATE TABLE orders (item text NOT NULL)")
        yield found


@pytest.fixture
def session() -> Generator[Session]:
    """One in a store that fails when it is told to."""
    with Session.open(FaultyStore(MemoryStore()), "desk") as opened:
        yield opened


def items(url: str) -> list[str]:
    """What is in the table."""
    with psycopg.connect(url) as connection:
        return [item for (item,) in connection.execute("SELECT item FROM orders").fetchall()]


def recover(url: str, session: Session) -> Recovered:
    """Settle what is prepared."""
    with psycopg.connect(url) as connection:
        return PreparedTransaction.recover(connection, session=session)


def begun(url: str, session: Session) -> tuple[psycopg.Connection, PreparedTransaction]:
    """A transaction that has written."""
    connection = psycopg.connect(url)
    part = PreparedTransaction(connection, session=session)
    connection.execute("INSERT INTO orders VALUES ('tea')")
    return connection, part


@pytest.mark.parametrize("kept", [True, False])
def test_a_prepared_transaction_is_committed_with_the_call(url: str, session: Session, *, kept: bool) -> None:
    """Or rolled back with it; in the end its connection is closed and nothing is left to recover."""
    with call() as transaction:
        connection, part = begun(url, session)
        enlist(part)
        if kept:
            transaction.commit()
    assert items(url) == ["tea"] * kept
    assert connection.closed
    assert recover(url, session) == Recovered(0, 0)


def test_a_prepared_transaction_is_rolled_back_if_the_call_cannot_commit(url: str, session: Session) -> None:
    """It holds no locks afterwards."""
    store = session.store
    assert isinstance(store, FaultyStore)
    with call() as transaction:
        enlist(begun(url, session)[1])
        store.lose("commit", 3)
        with pytest.raises(StoreUnavailableError):
            transaction.commit()
    assert items(url) == []
    assert recover(url, session) == Recovered(0, 0)


@pytest.mark.parametrize("committed", [True, False])
def test_recovery_asks_the_store_whether_the_call_was_committed(url: str, session: Session, *, committed: bool) -> None:
    """For each transaction that is prepared: those of other sessions, and of calls that run here, stay."""
    with Session.open(MemoryStore(), "other") as other:
        _, theirs = begun(url, other)
        theirs.prepare()
        connection, part = begun(url, session)
        part.prepare()
        assert recover(url, session) == Recovered(0, 0)
        if committed:
            assert session.store is not None
            session.store.apply(UnitOfWork(tuple(part.write())))
        part.in_doubt()
        assert connection.closed
        assert recover(url, session) == Recovered(int(committed), int(not committed))
        assert recover(url, session) == Recovered(0, 0)
        theirs.after_rollback()
    assert items(url) == ["tea"] * committed


def test_recovery_leaves_the_transactions_of_another_store_with_the_same_url_and_session(url: str) -> None:
    """As two machines have them whose stores are at the same path; the URL of a memory store is always the same."""
    with Session.open(MemoryStore(), "desk") as theirs, Session.open(MemoryStore(), "desk") as ours:
        _, part = begun(url, theirs)
        part.prepare()
        assert theirs.store is not None
        theirs.store.apply(UnitOfWork(tuple(part.write())))
        part.in_doubt()
        assert recover(url, ours) == Recovered(0, 0)
        assert recover(url, theirs) == Recovered(1, 0)
    assert items(url) == ["tea"]


def test_a_store_is_the_same_under_another_url(url: str, tmp_path: Path) -> None:
    """Its file may have been moved since the crash."""
    with handrail.store.open(f"sqlite:///{tmp_path}/desk.db") as store, Session.open(store, "desk") as session:
        _, part = begun(url, session)
        part.prepare()
        store.apply(UnitOfWork(tuple(part.write())))
        part.in_doubt()
    (tmp_path / "desk.db").rename(tmp_path / "moved.db")
    with handrail.store.open(f"sqlite:///{tmp_path}/moved.db") as store, Session.open(store, "desk") as session:
        assert recover(url, session) == Recovered(1, 0)
    assert items(url) == ["tea"]


def test_recovery_leaves_the_transactions_of_another_database_of_the_server(url: str, session: Session) -> None:
    """The server lists them as well, and settles them only on a connection to their own database."""
    _, part = begun(url, session)
    part.prepare()
    part.in_doubt()
    with psycopg.connect(url, dbname="template1") as connection:
        assert PreparedTransaction.recover(connection, session=session) == Recovered(0, 0)
    assert recover(url, session) == Recovered(0, 1)


def test_a_connection_that_is_lost_before_it_prepares_fails_the_call(url: str, session: Session) -> None:
    """Nothing of it is left; that it cannot be rolled back any more is logged."""
    with call() as transaction:
        connection, part = begun(url, session)
        enlist(part)
        connection.close()
        with pytest.raises(psycopg.Error):
            transaction.commit()
    assert items(url) == []


def test_a_session_in_memory_has_nothing_to_recover_from(url: str) -> None:
    """It is refused before anything is begun."""
    with psycopg.connect(url) as connection:
        for use in (PreparedTransaction, PreparedTransaction.recover):
            with pytest.raises(InvalidArgumentError) as raised:
                use(connection, session=Session())
            assert raised.value.argument == "session"


@pytest.mark.parametrize("kept", [True, False])
def test_a_connection_that_commits_last_commits_after_the_call(tmp_path: Path, *, kept: bool) -> None:
    """Or rolls back with it; `release` is called in the end, in place of closing it."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE orders (item text NOT NULL)")
        released: list[bool] = []
        with call() as transaction:
            connection.execute("INSERT INTO orders VALUES ('tea')")
            enlist(CommitsLast(connection, release=lambda: released.append(connection.in_transaction)))
            if kept:
                transaction.commit()
        assert released == [False]
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (int(kept),)


def test_a_connection_that_commits_last_is_rolled_back_in_doubt(tmp_path: Path) -> None:
    """It is not known whether the call was committed; a connection that was closed before is no failure."""
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("CREATE TABLE orders (item text NOT NULL)")
    connection.execute("INSERT INTO orders VALUES ('tea')")
    part = CommitsLast(connection)
    part.in_doubt()
    part.after_rollback()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as again:
        assert again.execute("SELECT count(*) FROM orders").fetchone() == (0,)


def test_a_connection_in_autocommit_mode_is_refused(url: str) -> None:
    """Its statements would stay although the call fails."""
    with psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(InvalidArgumentError) as raised:
            CommitsLast(connection)
        assert raised.value.argument == "connection"
