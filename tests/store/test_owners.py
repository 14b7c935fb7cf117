"""What proves that an owner lives or is dead, over SQLite and PostgreSQL, with real processes and real kills."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

import handrail.store
from handrail.runtime import EffectLedger
from handrail.runtime.ledger.effects import Claimed, ClaimRequest
from handrail.session import Session
from handrail.store.locks import StoreOwner, is_of_this_process
from handrail.store.postgres.server import Server
from handrail.store.postgres.store import PostgresDriver
from handrail.store.protocol import ClaimOwner, prove_owner
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from handrail.testing import FakeClock
from tests.store.kit import NOW, running_row
from tests.store.processes import SESSION, Service, ask, child, in_the_handler

DAY = timedelta(days=1)


@pytest.fixture
def observer(url: str) -> Generator[StoreOwner]:
    """What another store knows of owners."""
    handrail.store.open(url).close()  # makes the tables
    path = Path(url.removeprefix("sqlite:///"))
    driver = SqliteDriver(SqliteFile(path)) if url.startswith("sqlite") else PostgresDriver(Server(url, url))
    with closing(driver):
        yield driver.owner


def test_owner_whose_process_was_killed_is_dead(observer: StoreOwner, url: str) -> None:
    """At once, also while it is a zombie; before, it lived."""
    with child(url) as other:
        assert observer.lives(other.name) is True
        other.kill(reaped=False)
        assert observer.lives(other.name) is False


def test_owner_whose_process_was_stopped_lives(observer: StoreOwner, url: str) -> None:
    """It may go on."""
    with child(url) as other:
        other.stop()
        assert observer.lives(other.name) is True


def test_process_that_is_forked_off_does_not_keep_the_owner_of_its_parent_alive(observer: StoreOwner, url: str) -> None:
    """It leaves the lock to its parent, and takes one of its own with the store that it opens."""
    with child(url) as other:
        forked = other.fork()
        other.kill()
        assert observer.lives(other.name) is False
        assert observer.lives(forked) is True


def test_nothing_is_proved_to_claims_of_the_stores_of_this_process(url: str) -> None:
    """Which of them live, its ledgers know."""
    with handrail.store.open(url) as one, handrail.store.open(url) as other:
        row = running_row(FakeClock())._replace(owner=ClaimOwner("s1", process=other.process()))
        assert is_of_this_process(row.owner.process)
        assert one.owner_lives(row) is None
        assert other.owner_lives(row) is None


@pytest.mark.parametrize("name", ["", "night/call_1", "a b c d e", "host - 1 0", "\ud800"])
def test_name_that_no_store_has_written_proves_nothing(observer: StoreOwner, name: str) -> None:
    """As in a row that was written by hand."""
    assert observer.lives(name) is None


def test_owner_that_lives_keeps_its_claim_past_the_lease_and_a_day_that_the_clock_jumps(url: str) -> None:
    """And it has lost it at once when its process is killed, also to a store whose clock says that the lease lasts."""
    with in_the_handler(url, "shared-retry") as process:
        for jump in (DAY, -DAY):
            with handrail.store.open(url) as now_store:
                clock = FakeClock(now_store.now() + jump)
            with handrail.store.open(url, clock=clock) as store:
                (row,) = store.rows()
                assert row.lease_until is not None
                assert (row.lease_until < store.now()) == (jump > NOW)
                until = prove_owner(store, row, store.now()).lease_until
                assert until is not None
                assert until > store.now()
                request = ClaimRequest(*row[:2], row.tool, row.params_hash, ClaimOwner("day"), on_orphan="retry")
                assert not isinstance(EffectLedger(store).claim(request), Claimed)
        process.kill()
        process.wait()
        with handrail.store.open(url, clock=clock) as store, Session.open(store, SESSION, wait=NOW) as session:
            (row,) = store.rows()
            assert row.lease_until == store.now()
            assert row.owner.process != ""
            service = Service()
            assert ask(session, "shared-retry", service).success
            assert service.done == [row.key]


def test_a_store_in_memory_proves_nothing() -> None:
    """No other process can reach it."""
    owner = StoreOwner()
    assert (owner.own(), owner.own_waits, owner.lives(""), owner.lives("host - 1 0 x")) == ("", False, None, None)
    owner.close()
