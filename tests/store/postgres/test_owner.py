"""The lock of an owner on a server of PostgreSQL: what it proves of other machines, and when it is lost."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from datetime import timedelta

import pytest

import handrail.store
from handrail.errors import StoreClosedError
from handrail.process import ProcessName, own_name
from handrail.runtime import EffectLedger
from handrail.runtime.ledger.effects import Claimed, ClaimRequest
from handrail.store.postgres import server as owners
from handrail.store.postgres.server import Server, ServerOwner
from handrail.testing import FakeClock
from tests.store.postgres_server import doomed, end_connections, fresh_url
from tests.store.processes import child


@pytest.fixture
def url() -> Generator[str]:
    """A schema with the tables of a store."""
    with fresh_url() as made:
        handrail.store.open(made).close()
        yield made


@pytest.fixture
def observer(url: str) -> Generator[ServerOwner]:
    """Another store."""
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
