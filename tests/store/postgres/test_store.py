"""What only the store on a server promises: its clock, restarts, lost connections, forks, and the lock of an owner."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from datetime import UTC, timedelta
from functools import partial

import psycopg
import pytest
from psycopg.pq.abc import PGconn

import handrail.store
from handrail.errors import CommitInDoubtError, SessionLockedError, StoreClosedError, StoreError, StoreUnavailableError
from handrail.process import ProcessName, own_name
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import EffectLedger, ToolCall
from handrail.runtime.ledger.effects import Claimed, ClaimRequest
from handrail.session import Session
from handrail.store.postgres import server as owners
from handrail.store.postgres.server import PsycopgConnection, Server, ServerOwner
from handrail.store.postgres.store import PostgresDriver
from handrail.store.protocol import EffectInsert
from handrail.store.sql.database import Database
from handrail.store.sql.driver import Durability
from handrail.store.sql.units import write_unit
from handrail.testing import FakeClock
from handrail.transaction import RecordCommit, UnitOfWork
from tests.kit import Note, executor, tool
from tests.open_files import open_files
from tests.store import kit
from tests.store.postgres_server import doomed, end_connections, fresh_url, server_of_its_own
from tests.store.processes import child, in_fork, refusal_in_fork
from tests.wording import Wording

CLOCK = FakeClock()


@pytest.fixture
def url() -> Iterator[str]:
    """An empty schema."""
    with fresh_url() as url:
        yield url


def test_time_is_the_servers(url: str) -> None:
    """Two stores on one server agree, whatever their machines believe."""
    with handrail.store.open(url) as store, psycopg.connect(url) as connection:
        before, now = connection.execute("SELECT clock_timestamp()").fetchall(), store.now()
        connection.rollback()
        after = connection.execute("SELECT clock_timestamp()").fetchall()
    slack = timedelta(milliseconds=100)  # the server is asked a moment earlier or later than it answers
    assert before[0][0] - slack <= now <= after[0][0] + slack
    assert now.tzinfo is UTC


def test_connections_that_were_ended_are_replaced(url: str) -> None:
    """Nothing had been sent on them, so nobody notices; holds are kept, and keep others out again."""
    with handrail.store.open(doomed(url)) as store, handrail.store.open(url) as other:
        hold = kit.held(store, CLOCK)
        end_connections(url)
        store.check_lock(hold, 0)
        with pytest.raises(SessionLockedError):
            other.acquire("s1", wait=kit.NOW)
        end_connections(url)
        kit.append(store, hold, 0, kit.entries(1, 1), None)
        store.release(hold)
        kit.append(other, other.acquire("s1", wait=kit.NOW), 1, kit.entries(2, 2), None)


def test_query_whose_connection_is_lost_is_asked_once_more(url: str) -> None:
    """And no more often: the second answer counts."""
    ending = "SELECT CASE WHEN nextval('asked') < {} THEN pg_terminate_backend(pg_backend_pid()) END"
    with closing(PostgresDriver(Server(doomed(url), "postgresql://tests", busy=timedelta(seconds=2)))) as driver:
        Database(driver).execute("CREATE SEQUENCE asked")
        assert driver.query(ending.format(2)) == [(None,)]
        with pytest.raises(StoreUnavailableError):
            driver.query(ending.format(9))
        with pytest.raises(StoreUnavailableError):
            driver.query("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)")


def test_connection_lost_in_a_unit_leaves_nothing(url: str) -> None:
    """The unit may be tried again; only in the moment of the commit would it be in doubt."""
    row = kit.running_row(CLOCK)
    with handrail.store.open(doomed(url)) as store:
        unit = UnitOfWork((EffectInsert(row), RecordCommit("j1")))
        for point, in_doubt in (("unit-ledger-written", False), ("unit-before-commit", True)):
            with kit.at_point(point, lambda: end_connections(url)), pytest.raises(StoreUnavailableError) as raised:
                store.apply(unit)
            assert raised.value.in_doubt is in_doubt
            assert list(store.rows()) == []
        assert store.apply(unit) is None
        assert list(store.rows()) == [row]


def test_unit_whose_statement_failed_is_not_taken_for_committed(url: str, wording: Wording) -> None:
    """PostgreSQL would answer such a commit with a rollback, and no error."""
    with handrail.store.open(url) as store:
        driver = PostgresDriver(Server(url, url))
        connection = driver.acquire()
        connection.begin()
        assert write_unit(connection, [EffectInsert(kit.running_row(CLOCK))]) is None
        with pytest.raises(StoreError, match="NUL"):
            connection.query("SELECT ?", ("\0",))
        with pytest.raises(StoreError, match="out of range"):
            write_unit(connection, [EffectInsert(kit.running_row(CLOCK, "far")._replace(fence=2**70))])
        with pytest.raises(StoreError) as raised:
            connection.commit()
        assert str(raised.value).replace(url, "<store>") == wording
        driver.release(connection)
        driver.close()
        assert list(store.rows()) == []


def test_many_may_open_a_fresh_database_at_once(url: str) -> None:
    """One makes the tables, the others wait for it."""

    def use(number: int) -> bool:
        with handrail.store.open(url) as store:
            return store.create(kit.session_row(CLOCK, str(number)))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(use, range(6))) == [True] * 6


@pytest.mark.parametrize("durability, setting", [("full", "on"), ("normal", "off")])
def test_durability_is_a_setting_of_the_server(url: str, durability: Durability, setting: str) -> None:
    """`full` waits for the disk even where the server's default does not."""
    own = url.replace("options=", "options=-csynchronous_commit%3Doff%20")
    with handrail.store.open(own, durability=durability) as store, kit.call():
        assert store.connection().execute("SHOW synchronous_commit").fetchone() == (setting,)


def test_call_that_writes_keeps_no_other_from_writing(url: str) -> None:
    """What is written beside it is written at once, and stays if the call is undone."""
    row = kit.running_row(CLOCK)
    with handrail.store.open(url) as store:
        kit.with_orders(store)
        kit.insert(store, row)
        later = row._replace(lease_until=CLOCK.now() + timedelta(hours=1))
        with kit.call():
            kit.add(store.connection(), "tea")
            assert kit.insert(store, kit.running_row(CLOCK, "nested", effect_id="2" * 32)) is None
            assert kit.replace(store, row, later)
        assert kit.items(store) == []
        assert store.get("s1", row.key) == later
        assert store.get("s1", "nested") is not None


def test_process_that_is_forked_off_leaves_the_sessions_with_its_parent(url: str) -> None:
    """Closing its copy of the store, it neither gives them away nor ends the connections."""
    with handrail.store.open(url) as store, handrail.store.open(url) as other:
        hold = kit.held(store, CLOCK)
        child = os.fork()
        if child == 0:  # pragma: no cover - another process, which leaves without a word to pytest
            try:
                with store, suppress(StoreError):
                    store.release(hold)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(SessionLockedError):
            other.acquire("s1", wait=kit.NOW)
        kit.append(store, hold, 0, kit.entries(1, 1), None)
        store.release(hold)
        kit.append(other, other.acquire("s1", wait=kit.NOW), 1, kit.entries(2, 2), None)


def sockets() -> set[str]:
    """The sockets that this process has open, by the names that the kernel gives them."""
    return {name for name in map(str, open_files()) if name.startswith("socket:")}


def inherits_none(opened: set[str]) -> bool:
    """Whether this process has none of its parent's sockets."""
    return not opened & sockets()


def test_forked_process_inherits_no_connection(url: str) -> None:
    """Neither that of the locks nor those of units; the parent goes on with all of them."""
    before = sockets()
    with handrail.store.open(url) as store:
        store.create(kit.session_row(CLOCK))
        hold = store.acquire("s1", wait=kit.NOW)

        def look() -> None:
            assert len(sockets() - before) >= 2
            # The pool may be opening one more at this moment: that is closed in the parent, and not in the first child.
            assert any(in_fork(partial(inherits_none, sockets() - before)) for _ in range(5))

        with kit.at_point("unit-session-written", look):
            kit.append(store, hold, 0, kit.entries(1, 1), None)
        kit.append(store, hold, 1, kit.entries(2, 2), None)
        assert list(store.entries("s1")) == kit.entries(1, 2)


def test_forked_process_may_not_write_in_a_transaction_of_its_parent(url: str, wording: Wording) -> None:
    """The error says what to do, and the parent's transaction is as it was."""
    with handrail.store.open(url) as store:
        with kit.call() as transaction:
            store.connection().execute("CREATE TABLE orders (id INTEGER)")
            text = refusal_in_fork(store, lambda: store.connection().execute("INSERT INTO orders VALUES (1)"))
            assert text == wording
            store.connection().execute("INSERT INTO orders VALUES (2)")
            transaction.commit()
        with kit.call():
            assert store.connection().execute("SELECT id FROM orders").fetchall() == [(2,)]


def test_connection_that_a_fork_has_met_half_open_is_replaced(url: str) -> None:
    """The forked process has a copy that it does not know of, so the parent closes the connection on the server."""
    opened: list[psycopg.Connection] = []

    class Meeting(PsycopgConnection):
        def __init__(self, pgconn: PGconn) -> None:
            super().__init__(pgconn)
            opened.append(self)
            if len(opened) == 1:
                assert in_fork(lambda: True)

    with Meeting.connect(url) as connection:
        first, second = opened
        assert (first.closed, second.closed, connection) == (True, False, second)


def test_server_that_is_down_is_unavailable_until_it_is_back() -> None:
    """Nothing that was written is lost, and holds outlive the restart."""
    with server_of_its_own() as (url, server):
        with handrail.store.open(url, busy=timedelta(seconds=1)) as store:
            hold = kit.held(store, CLOCK)
            kit.append(store, hold, 0, kit.entries(1, 2), None)
            server.stop()
            with pytest.raises(StoreUnavailableError):
                store.check_lock(hold, 2)
            for _ in range(3):  # a later attempt to connect is not made the later for it
                with pytest.raises(StoreUnavailableError):
                    kit.append(store, hold, 2, kit.entries(3, 3), None)
            server.ensure_postgres_running()
            assert list(store.entries("s1")) == kit.entries(1, 2)
        with handrail.store.open(url) as store:
            assert list(store.entries("s1")) == kit.entries(1, 2)


def test_commit_of_a_session_whose_connection_is_lost_is_looked_up(url: str) -> None:
    """The row of the session shows that it was rolled back, so the call has failed and the session can be used."""
    with handrail.store.open(url) as store, Session.open(store, "s") as session:
        kit.with_orders(store)
        pid: list[int] = []

        def sell(params: Note, *, context: ToolContext) -> ToolResult[Note]:
            connection = context.connection
            pid[:] = connection.execute("SELECT pg_backend_pid()").fetchone()
            kit.add(connection, params.text)
            return ToolResult.ok(params)

        def terminate() -> None:
            with psycopg.connect(url, autocommit=True) as server:
                server.execute("SELECT pg_terminate_backend(%s, 60000)", (pid[0],))

        door = executor(tool("sell", sell), session=session)
        with kit.at_point("unit-before-commit", terminate):
            assert not door.execute(ToolCall("1", "sell", {"text": "tea"}), reply="r").success
        assert kit.items(store) == []
        assert door.execute(ToolCall("2", "sell", {"text": "milk"}), reply="r").success
        assert kit.items(store) == ["milk"]


def test_commit_in_doubt_is_told_and_not_repeated_without_the_handlers_writes(url: str, wording: Wording) -> None:
    """The connection that a handler has written on is lost in the moment of the commit."""
    with handrail.store.open(url) as store:
        row = kit.running_row(CLOCK)
        with ExitStack() as blocks:
            raised = blocks.enter_context(pytest.raises(CommitInDoubtError))
            transaction = blocks.enter_context(kit.call())
            pid = store.connection().execute("SELECT pg_backend_pid()").fetchone()

            def terminate() -> None:
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute("SELECT pg_terminate_backend(%s, 60000)", pid)

            record = kit.Record(store, EffectInsert(row))
            transaction.enlist(record)
            blocks.enter_context(kit.at_point("unit-before-commit", terminate))
            transaction.commit()
        assert str(raised.value).replace(store.url, "<store>") == wording
        assert record.heard == ["in doubt"]
        assert store.get("s1", row.key) is None


@pytest.fixture
def observer(url: str) -> Generator[ServerOwner]:
    """Another store."""
    handrail.store.open(url).close()  # makes the tables
    with closing(ServerOwner(Server(url, url))) as owner:
        yield owner


def elsewhere(name: str, part: int = 0) -> str:
    """The name of an owner as if it were of another boot (0), PID namespace (1) or time namespace (2)."""
    text, _, word = name.rpartition(" ")
    process = ProcessName.parse(text)
    assert process is not None
    parts = process.boot.split("/")
    parts[part] += "0"
    return f"{process._replace(boot='/'.join(parts))} {word}"


@pytest.mark.parametrize("part", [0, 1, 2])
def test_owner_of_another_machine_is_known_by_its_lock_alone(
    url: str, observer: ServerOwner, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """There its pid is that of another process, or of none: this one's runs, and proves nothing."""
    other = ServerOwner(Server(doomed(url), url))
    with monkeypatch.context() as patched:
        patched.setattr(owners, "new_owner", lambda: elsewhere(f"{own_name()} a1", part))
        name = other.own()
    assert observer.lives(name) is True
    monkeypatch.setattr(owners, "_START_SECONDS", 0)
    end_connections(url)
    assert observer.lives(name) is False
    other.close()


def test_start_of_the_server_proves_no_death_elsewhere(observer: ServerOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    """It frees all locks; owners of other machines take theirs again, at the latest when they renew a lease."""
    monkeypatch.setattr(owners, "_START_SECONDS", 1e9)
    assert observer.lives(elsewhere(f"{own_name()} a1")) is None


def test_owner_whose_boot_is_not_known_is_known_by_its_lock_alone(
    observer: ServerOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its system does not say in which boot it counts processes."""
    monkeypatch.setattr(owners, "_START_SECONDS", 0)
    assert observer.lives(f"{own_name()._replace(boot='')} a1") is False


@pytest.mark.parametrize("started", [-1, 1])
def test_pid_that_was_used_again_is_another_process(observer: ServerOwner, started: int) -> None:
    """The start time distinguishes the two: the pid of a live process does not keep a dead owner alive."""
    own = own_name()
    assert observer.lives(f"{own._replace(start=str(int(own.start) + started))} a1") is False


def test_connection_that_was_cut_proves_nothing_and_the_lock_is_taken_again(url: str, observer: ServerOwner) -> None:
    """The process runs; its next claim or call finds out."""
    with closing(ServerOwner(Server(doomed(url), url))) as other:
        name = other.own()
        assert (observer.lives(name), other.own_waits) == (True, False)
        end_connections(url)
        assert (observer.lives(name), other.own_waits) == (None, True)
        assert (other.own(), observer.lives(name), other.own_waits) == (name, True, False)


def test_lock_that_a_lost_connection_has_still_is_taken_when_the_server_has_noticed(
    url: str, observer: ServerOwner
) -> None:
    """Until then it is held; each claim and call tries again."""
    with closing(ServerOwner(Server(doomed(url), url))) as first, closing(ServerOwner(Server(url, url))) as second:
        second.name = name = first.own()  # as after a cut that only one side knows of
        assert (second.own(), second.own_waits, observer.lives(name)) == (name, True, True)
        end_connections(url)
        assert (second.own(), second.own_waits, observer.lives(name)) == (name, False, True)


def test_cut_connection_of_a_killed_process_does_not_keep_it_alive(url: str, observer: ServerOwner) -> None:
    """The kernel says that it has ended, whatever the server knows."""
    with child(doomed(url)) as other:
        end_connections(url)
        assert observer.lives(other.name) is None
        other.kill()
        assert observer.lives(other.name) is False


def test_owner_that_renews_a_lease_takes_its_lock_again(url: str, observer: ServerOwner) -> None:
    """A handler may run for hours in which nothing else happens."""
    clock = FakeClock()
    with handrail.store.open(doomed(url)) as store:
        ledger = EffectLedger(store, clock=clock)
        assert isinstance(ledger.claim(ClaimRequest("s1", "key", "pay", "a" * 64)), Claimed)
        (row,) = store.rows()
        end_connections(url)
        assert observer.lives(row.owner.process) is None
        clock.advance(timedelta(seconds=21))
        assert ledger.leases.tick() == 1
        assert observer.lives(row.owner.process) is True


def test_owner_of_a_store_that_was_closed_connects_no_more(url: str) -> None:
    """To whoever uses it still it says so."""
    owner = ServerOwner(Server(url, url))
    owner.close()
    owner.close()
    with pytest.raises(StoreClosedError):
        owner.own()
    with pytest.raises(StoreClosedError):
        owner.lives(f"{own_name()} a1")
