"""The transaction of another database that a call has enlisted: through both entries, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol

import psycopg
import pytest

from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import EnlistedTransactionError
from handrail.prompt import Prompt, PromptTemplate, ToolContext, ToolsSection
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.store import Store
from handrail.testing import FakeClock
from handrail.transaction import CommitsLast, PreparedTransaction, TwoPhaseParticipant, enlist
from tests.store.postgres_server import fresh_url
from tests.store.stores import STORES

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


def pieces(shop: str) -> int:
    """How many lamps there are; an update that is prepared does not count."""
    with psycopg.connect(shop) as connection:
        ((found,),) = connection.execute("SELECT pieces FROM stock").fetchall()
        return int(found)


def take(connection: psycopg.Connection) -> None:
    """Take a lamp."""
    connection.execute("UPDATE stock SET pieces = pieces - 1")


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
