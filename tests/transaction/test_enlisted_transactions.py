"""The transaction of another database that a call has enlisted: through both entries, on a real server."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest

import handrail.store
from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import EnlistedTransactionError, InvalidArgumentError, SessionError
from handrail.prompt import Prompt, PromptTemplate, ToolContext, ToolsSection
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.store import Store
from handrail.testing import FakeClock
from handrail.transaction import (
    CommitsLast,
    PreparedTransaction,
    Recovered,
    TwoPhaseParticipant,
    UnitOfWork,
    UnitStore,
    enlist,
)
from handrail.transaction.dbapi_connections import database_of
from handrail.transaction.participants import CommitRecordStore
from tests.docs.mistaken_programs import wrong
from tests.store.postgres_server import fresh_url, server_of_its_own
from tests.store.stores import STORES
from tests.wording import Wording

Handler = Callable[[psycopg.Connection], None]
"""What a tool does on the connection that it has enlisted."""


class Enlists(Protocol):
    """Makes the participant of a connection."""

    def __call__(self, connection: psycopg.Connection, session: Session, /) -> TwoPhaseParticipant: ...


class Entry(Protocol):
    """Makes a call through one of the entries."""

    async def __call__(self, executor: ToolExecutor, call: ToolCall, /) -> ToolMessage: ...


async def synchronous(executor: ToolExecutor, call: ToolCall) -> ToolMessage:
    """Blocks."""
    return executor.execute(call, reply="r")


async def asynchronous(executor: ToolExecutor, call: ToolCall) -> ToolMessage:
    """Awaits, with the loop guard on."""
    return await executor.execute_async(call, reply="r")


def prepared(connection: psycopg.Connection, session: Session) -> TwoPhaseParticipant:
    """In two phases."""
    return PreparedTransaction(connection, session=session)


def last(connection: psycopg.Connection, session: Session) -> TwoPhaseParticipant:
    """After the call."""
    return CommitsLast(connection)


both_entries = pytest.mark.parametrize("entry", [synchronous, asynchronous])
both_kinds = pytest.mark.parametrize("enlists", [prepared, last])


@pytest.fixture(params=["sqlite", "postgres"])
def session(request: pytest.FixtureRequest) -> Generator[Session]:
    """A session in a store of each kind."""
    store: Store = STORES[request.param](FakeClock())
    with Session.open(store, "desk") as opened:
        yield opened


@pytest.fixture
def shop() -> Generator[str]:
    """The URL of another database, which has ten lamps."""
    with fresh_url() as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE stock (article text PRIMARY KEY, pieces integer NOT NULL)")
            connection.execute("INSERT INTO stock VALUES ('lamp', 10)")
        yield url
        roll_back_prepared(url)


def pieces(shop: str) -> int:
    """How many lamps there are; an update that is prepared does not count."""
    with psycopg.connect(shop) as connection:
        ((found,),) = connection.execute("SELECT pieces FROM stock").fetchall()
        return int(found)


def take(connection: psycopg.Connection) -> None:
    """Take a lamp."""
    connection.execute("UPDATE stock SET pieces = pieces - 1")


def take_soon(connection: psycopg.Connection) -> None:
    """Take a lamp, or fail where another transaction holds the row."""
    connection.execute("SET LOCAL lock_timeout = '5s'")
    take(connection)


class LosesConnection:
    """A participant after whose `write` a connection is lost; what is prepared stays prepared.

    Attributes:
        refuses: whether it lets nothing commit then.
    """

    store: UnitStore | None = None

    def __init__(self, shop: str, connection: psycopg.Connection, *, refuses: bool = False) -> None:
        self.shop = shop
        self.pid = connection.info.backend_pid
        self.refuses = refuses

    def prepare(self) -> None:
        """It has nothing to prepare."""

    def write(self) -> Sequence[object]:
        with psycopg.connect(self.shop, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 60000)", (self.pid,))
        if self.refuses:
            raise ValueError("refused")
        return ()

    def after_commit(self) -> None:
        """It has nothing to commit."""

    def in_doubt(self) -> None:
        """It has nothing to recover."""

    def after_rollback(self) -> None:
        """It has nothing to undo."""


def prepared_gids(shop: str) -> list[str]:
    """The transactions that are prepared and have used the table of this test: the server is that of all workers."""
    with psycopg.connect(shop) as connection:
        sql = (
            "SELECT gid FROM pg_prepared_xacts JOIN pg_locks AS own ON own.transactionid = transaction "
            "JOIN pg_locks AS used USING (virtualtransaction) WHERE used.relation = 'stock'::regclass"
        )
        return [gid for (gid,) in connection.execute(sql).fetchall()]


def prepared_count(shop: str) -> int:
    """How many there are."""
    return len(prepared_gids(shop))


def roll_back_prepared(shop: str) -> None:
    """After a test that has failed: the schema could not be dropped."""
    with psycopg.connect(shop, autocommit=True) as connection:
        for gid in prepared_gids(shop):
            connection.tpc_rollback(gid)


def recover(shop: str, session: Session) -> Recovered:
    """Settle what is prepared."""
    with psycopg.connect(shop) as connection:
        return PreparedTransaction.recover(connection, session=session)


def executor_of(session: Session, shop: str, enlists: Enlists, handler: Handler = take) -> ToolExecutor:
    """An executor of one tool, which enlists a connection to the shop."""

    @tool
    def reserve(context: ToolContext) -> str:
        """Reserves a lamp."""
        connection = psycopg.connect(shop)
        enlist(enlists(connection, context.session))
        handler(connection)
        return "reserved"

    template = PromptTemplate[str](ns="tests", key="shop", sections=[ToolsSection(title="Shop", tools=[reserve])])
    return ToolExecutor(prompt=Prompt(template), session=session)


def take_and_log(connection: psycopg.Connection) -> None:
    """Catch the failure of a statement that is optional, and leave the transaction aborted."""
    take(connection)
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("INSERT INTO reservations VALUES ('lamp')")


def take_and_log_in_a_savepoint(connection: psycopg.Connection) -> None:
    """As the error says."""
    take(connection)
    with pytest.raises(psycopg.errors.UndefinedTable), connection.transaction():
        connection.execute("INSERT INTO reservations VALUES ('lamp')")


def undo_by_sql(connection: psycopg.Connection) -> None:
    """End the transaction behind the driver's back."""
    take(connection)
    connection.execute("ROLLBACK")


@both_entries
@both_kinds
@pytest.mark.anyio
async def test_an_aborted_transaction_fails_the_call(
    session: Session, shop: str, enlists: Enlists, entry: Entry
) -> None:
    """PostgreSQL answers PREPARE and COMMIT with a rollback then, and reports no error. The developer is told."""
    executor = executor_of(session, shop, enlists, take_and_log)
    with pytest.raises(EnlistedTransactionError) as raised:
        await entry(executor, ToolCall("1", "reserve"))
    assert raised.value.state == "aborted"
    assert raised.value.participant == ("CommitsLast" if enlists is last else "PreparedTransaction")
    (event,) = session[ToolInvoked].all()
    assert not event.success
    assert pieces(shop) == 10


@both_entries
@both_kinds
@pytest.mark.anyio
async def test_a_statement_that_fails_in_a_savepoint_fails_nothing(
    session: Session, shop: str, enlists: Enlists, entry: Entry
) -> None:
    """The cure that the error names."""
    executor = executor_of(session, shop, enlists, take_and_log_in_a_savepoint)
    assert (await entry(executor, ToolCall("1", "reserve"))).success
    assert pieces(shop) == 9


@both_entries
@pytest.mark.anyio
async def test_a_transaction_that_was_ended_is_not_prepared(session: Session, shop: str, entry: Entry) -> None:
    """PREPARE TRANSACTION would be answered with a warning."""
    with pytest.raises(EnlistedTransactionError) as raised:
        await entry(executor_of(session, shop, prepared, undo_by_sql), ToolCall("1", "reserve"))
    assert raised.value.state == "ended"


@both_entries
@both_kinds
@pytest.mark.anyio
async def test_a_connection_that_is_known_to_be_lost_fails_the_call(
    session: Session, shop: str, enlists: Enlists, entry: Entry
) -> None:
    """With the driver's own error: it is not a mistake of the program."""

    def lose(connection: psycopg.Connection) -> None:
        take(connection)
        connection.close()

    message = await entry(executor_of(session, shop, enlists, lose), ToolCall("1", "reserve"))
    assert not message.success
    assert "OperationalError" in message.content
    assert pieces(shop) == 10


def test_a_transaction_that_is_aborted_after_the_call_is_not_said_to_be_committed(shop: str) -> None:
    """A late statement of the handler has failed; the database reports no error. What is raised here is logged."""
    connection = psycopg.connect(shop)
    part = CommitsLast(connection)
    take(connection)
    part.prepare()
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("INSERT INTO reservations VALUES ('lamp')")
    with pytest.raises(EnlistedTransactionError):
        part.after_commit()
    assert connection.closed
    assert pieces(shop) == 10


@both_entries
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.anyio
async def test_the_next_call_settles_what_a_lost_connection_has_left(
    session: Session, shop: str, entry: Entry, *, same: bool
) -> None:
    """Whatever its session: otherwise it would wait for the row without limit."""

    def lose(connection: psycopg.Connection) -> None:
        take(connection)
        enlist(LosesConnection(shop, connection))

    assert (await entry(executor_of(session, shop, prepared, lose), ToolCall("1", "reserve"))).success
    assert (pieces(shop), prepared_count(shop)) == (10, 1)
    with Session.open(STORES["memory"](FakeClock()), "other") as other:
        executor = executor_of(session if same else other, shop, prepared, take_soon)
        assert (await entry(executor, ToolCall("2", "reserve"))).success
    assert (pieces(shop), prepared_count(shop)) == (8, 0)
    assert recover(shop, session) == Recovered(0, 0)


@both_entries
@pytest.mark.anyio
async def test_the_next_call_rolls_back_what_a_lost_connection_has_left_of_a_call_that_failed(
    session: Session, shop: str, entry: Entry
) -> None:
    """The outcome is that of its call."""

    def lose(connection: psycopg.Connection) -> None:
        take(connection)
        enlist(LosesConnection(shop, connection, refuses=True))

    assert not (await entry(executor_of(session, shop, prepared, lose), ToolCall("1", "reserve"))).success
    assert (pieces(shop), prepared_count(shop)) == (10, 1)
    assert (await entry(executor_of(session, shop, prepared, take_soon), ToolCall("2", "reserve"))).success
    assert (pieces(shop), prepared_count(shop)) == (9, 0)


@pytest.mark.parametrize("same", [True, False])
def test_recovery_settles_it_in_the_open_session(session: Session, shop: str, *, same: bool) -> None:
    """A program that calls it by a timer makes no other program wait; one session of the process is enough."""
    lost_after_prepare(session, shop)
    with Session.open(STORES["memory"](FakeClock()), "other") as other:
        assert recover(shop, session if same else other) == Recovered(1, 0)
    assert (pieces(shop), prepared_count(shop)) == (9, 0)


def lost_after_prepare(session: Session, shop: str) -> PreparedTransaction:
    """A transaction of a call that is committed, whose connection was lost before it could be committed."""
    connection = psycopg.connect(shop)
    part = PreparedTransaction(connection, session=session)
    take(connection)
    part.prepare()
    assert session.store is not None
    session.store.apply(UnitOfWork(tuple(part.write())))
    LosesConnection(shop, connection).write()
    part.after_commit()
    return part


def test_what_is_not_prepared_any_more_is_reported_and_its_commit_record_deleted(
    session: Session, shop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has settled it by hand, or the answer to the commit was lost."""
    (record,) = lost_after_prepare(session, shop).write()
    store: object = session.store
    assert isinstance(store, CommitRecordStore)
    assert store.is_committed(record.journal_id)
    roll_back_prepared(shop)
    caplog.set_level(logging.WARNING, "handrail.transaction")
    caplog.clear()
    assert recover(shop, session) == Recovered(0, 0, missing=1)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert record.journal_id in caplog.text
    assert not store.is_committed(record.journal_id)
    assert recover(shop, session) == Recovered(0, 0)


def test_a_store_that_was_closed_keeps_nobody_from_settling(session: Session, shop: str, tmp_path: Path) -> None:
    """Its commit record stays, which is logged."""
    with (
        handrail.store.open(f"sqlite:///{tmp_path}/other.db") as store,
        Session.open(store, "other") as other,
    ):
        lost_after_prepare(other, shop)
    assert recover(shop, session) == Recovered(1, 0)
    assert (pieces(shop), prepared_count(shop)) == (9, 0)


def test_what_cannot_be_settled_fails_no_other_call(
    session: Session, shop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It may belong to another user of the database; it stays, and is logged."""
    lost_after_prepare(session, shop)
    clerk = f"clerk_{os.getpid()}"  # the server is that of all workers
    with psycopg.connect(shop, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {clerk}".encode())
        try:
            caplog.clear()
            with psycopg.connect(shop) as connection:
                connection.execute(f"SET ROLE {clerk}".encode())
                connection.commit()
                PreparedTransaction(connection, session=session, release=lambda: None).after_rollback()
        finally:
            owner.execute(f"DROP ROLE {clerk}".encode())
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert prepared_count(shop) == 1
    assert recover(shop, session) == Recovered(1, 0)


class Interrupted(psycopg.Connection[Any]):
    """A connection at whose commit Ctrl-C is pressed."""

    def tpc_commit(self, xid: psycopg.Xid | str | None = None) -> None:
        if self.info.transaction_status >= 0:
            raise KeyboardInterrupt


def test_an_interrupted_commit_is_left_as_well(session: Session, shop: str) -> None:
    """And Ctrl-C propagates."""
    connection = Interrupted.connect(shop)
    part = PreparedTransaction(connection, session=session)
    take(connection)
    part.prepare()
    with pytest.raises(KeyboardInterrupt):
        part.after_commit()
    assert connection.closed
    with psycopg.connect(shop) as other:
        PreparedTransaction(other, session=session, release=lambda: None).after_rollback()
    assert (pieces(shop), prepared_count(shop)) == (9, 0)


def test_a_session_that_has_to_be_opened_again_recovers_nothing(session: Session, shop: str) -> None:
    """What is in doubt in its store may still be committed there; the next owner of the session finds out."""
    session.close()
    with pytest.raises(SessionError):
        recover(shop, session)


class StandbyInfo:
    """What psycopg shows of a connection to a server that may be a standby."""

    host, port, dbname, transaction_status = "db", 5432, "shop", 0

    def __init__(self, *, standby: bool) -> None:
        self.standby = standby

    def parameter_status(self, name: str) -> str | None:
        return ("off", "on")[self.standby] if name == "in_hot_standby" else None


class ConnectionTo:
    """A connection with such an `info`."""

    def __init__(self, info: object) -> None:
        self.info = info


def test_a_standby_server_is_not_asked_what_is_missing() -> None:
    """It does not list what is prepared on its primary; neither does a driver say where it is that shows nothing."""
    assert database_of(ConnectionTo(StandbyInfo(standby=False))) == ("db", 5432, "shop")
    assert database_of(ConnectionTo(StandbyInfo(standby=True))) is None
    assert database_of(object()) is None


def url_with_password() -> str:
    """A URL, in the place of a connection."""
    return "postgresql://clerk:hunter2canary@localhost/shop"


def in_a_transaction(shop: str) -> psycopg.Connection:
    """A connection on which something has been executed."""
    connection = psycopg.connect(shop)
    connection.execute("SELECT 1")
    return connection


async def open_async(shop: str) -> psycopg.AsyncConnection:
    """A connection whose methods are coroutines."""
    return await psycopg.AsyncConnection.connect(shop)


@pytest.mark.anyio
async def test_what_cannot_prepare_is_refused_when_the_participant_is_made(session: Session, shop: str) -> None:
    """By type and state; a password is not shown."""
    mistaken: list[Any] = [
        url_with_password(),
        psycopg.Connection,
        sqlite3.connect(":memory:"),
        await open_async(shop),
        in_a_transaction(shop),
    ]
    for connection in mistaken:
        for use in (PreparedTransaction, PreparedTransaction.recover):
            with pytest.raises(InvalidArgumentError) as raised:
                use(connection, session=session)
            assert raised.value.argument == "connection"
            assert "canary" not in str(raised.value)
    mistaken[2].close()
    mistaken[4].close()
    for connection in (mistaken[0], mistaken[3]):
        with pytest.raises(InvalidArgumentError) as raised:
            CommitsLast(connection)
        assert (raised.value.function, raised.value.argument) == ("CommitsLast", "connection")
    await mistaken[3].close()
    with psycopg.connect(shop, autocommit=True) as connection:
        assert recover(shop, session) == PreparedTransaction.recover(connection, session=session) == Recovered(0, 0)
        with pytest.raises(InvalidArgumentError):
            PreparedTransaction(connection, session=session)
    with psycopg.connect(shop) as connection, pytest.raises(InvalidArgumentError) as raised:
        PreparedTransaction(connection, session=wrong("desk"))
    assert raised.value.argument == "session"


@both_entries
@pytest.mark.anyio
async def test_a_mistaken_connection_is_never_told_to_the_model(session: Session, shop: str, entry: Entry) -> None:
    """It is raised to the developer."""

    def enlists(connection: psycopg.Connection, session: Session) -> TwoPhaseParticipant:
        connection.close()
        return CommitsLast(wrong(shop))

    with pytest.raises(InvalidArgumentError):
        await entry(executor_of(session, shop, enlists), ToolCall("1", "reserve"))
    (event,) = session[ToolInvoked].all()
    assert shop not in event.result.message


def test_a_server_that_cannot_prepare_is_refused_at_the_start(session: Session, wording: Wording) -> None:
    """With the setting and the restart: by `recover`, and by a participant before anything is executed on it."""
    with server_of_its_own() as (url, _):
        for use in (PreparedTransaction.recover, PreparedTransaction):
            with psycopg.connect(url) as connection:
                with pytest.raises(InvalidArgumentError) as raised:
                    use(connection, session=session)
                assert raised.value.expected == wording
                assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
