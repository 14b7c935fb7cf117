"""Resuming after a kill does not wait: claims of dead processes end at once, with real processes and real kills."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import closing
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

import handrail.store
from handrail.prompt import ToolResult
from handrail.runtime import EffectAwaited, EffectLedger
from handrail.runtime.ledger.effects import Claimed, ClaimRequest
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.store import Store
from handrail.store.locks import StoreOwner
from handrail.store.postgres.server import Server
from handrail.store.postgres.store import PostgresDriver
from handrail.store.protocol import ClaimOwner, prove_owner
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from handrail.testing import FakeClock
from tests.extent import some
from tests.runtime.ledger_calls import stop_renewing
from tests.store.kit import NOW
from tests.store.processes import (
    CHILD,
    CONFIGS,
    REPLY,
    SESSION,
    Order,
    Service,
    Where,
    ask,
    child,
    in_the_handler,
    killed,
    opened,
)
from tests.wording import Wording

SECONDS = 2.0
"""By when a resumed call must have been answered; the lease is a minute."""
SOON = timedelta(seconds=SECONDS)
CALL = CallRef(REPLY, "call_0")


@pytest.fixture
def store(url: str) -> Generator[Store]:
    """The store as this process has opened it."""
    with handrail.store.open(url) as opened_store:
        yield opened_store


def waits_of(session: Session) -> list[EffectAwaited]:
    """The waits that the subscribers of a session are notified of."""
    waits: list[EffectAwaited] = []
    session.dispatcher.subscribe(EffectAwaited, waits.append)
    return waits


@pytest.mark.parametrize("name, where", some([*product(CONFIGS, get_args(Where))], 5))
@pytest.mark.short(2)
def test_call_that_was_killed_is_answered_at_once(store: Store, url: str, name: str, where: Where) -> None:
    """As its `on_orphan` says, and before the deadline; so is that of a child session, and one under a shared key."""
    killed(url, name, where)
    service = Service()
    with Session.open(store, SESSION, wait=SOON) as session, opened(session, where) as owner:
        waits = waits_of(owner)
        message = ask(owner, name, service, seconds=SECONDS)
        (row,) = store.rows()
        assert row.owner[:3] == (CHILD if where == "child" else SESSION, REPLY, "call_0")
    assert waits == []
    if name in {"slot", "key-unknown", "shared-unknown"}:
        assert (message.success, row.status, row.fence, service.done) == (False, "unknown", 2, [])
        assert row.note.endswith("has ended")
    else:
        assert (message.success, row.status, message.replayed) == (True, "done", False)
        assert service.done == [row.key]


@pytest.mark.parametrize("name", ["key-reconcile", "shared-reconcile"])
@pytest.mark.short(2)
def test_call_that_was_killed_after_it_was_done_is_answered_by_the_other_side(
    store: Store, url: str, name: str, wording: Wording
) -> None:
    """`reconcile` is asked at once, too."""
    killed(url, name)
    service = Service()
    service.found = ToolResult.ok("A-1", "paid, says the bank")
    with Session.open(store, SESSION, wait=SOON) as session:
        message = ask(session, name, service, seconds=SECONDS)
    assert (message.content, message.replayed, service.done) == (wording, True, [])


@pytest.mark.short(1)
def test_opening_ends_the_leases_of_the_dead(
    store: Store, url: str, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Only those of the session: others are found when theirs is opened, or by the call that meets them."""
    killed(url, "key-unknown")
    (before,) = store.rows()
    assert before.lease_until is not None
    with Session.open(store, "day"):
        assert list(store.rows()) == [before]
    with caplog.at_level(logging.WARNING, "handrail"), Session.open(store, SESSION, wait=SOON) as session:
        (row,) = store.rows()
        assert row == before._replace(lease_until=row.lease_until)
        assert row.lease_until is not None
        assert row.lease_until <= store.now() < before.lease_until
        (call,) = session.open_calls
    assert (call.call, call.tool, call.state, call.key, call.lease_until) == (CALL, "pay", "running", row.key, None)
    assert str(call).replace(call.owner, "<owner>") == wording
    assert caplog.records == []  # nothing is waited for


@pytest.mark.short(1)
def test_call_that_meets_a_dead_owner_is_answered_at_once(store: Store, url: str) -> None:
    """Another session has claimed the shared key, and nobody opens that session."""
    killed(url, "shared-retry")
    service = Service()
    with Session.open(store, "day") as session:
        waits = waits_of(session)
        assert ask(session, "shared-retry", service, seconds=SECONDS).success
    assert (len(service.done), waits) == (1, [])


@pytest.mark.short(1)
def test_wait_ends_when_the_owner_dies(store: Store, url: str) -> None:
    """The one that waits finds the death out by itself, long before the lease expires."""
    with in_the_handler(url, "shared-retry") as process, Session.open(store, "day") as session:
        (row,) = store.rows()
        session.dispatcher.subscribe(EffectAwaited, lambda _: process.kill())  # while it waits
        service = Service()
        assert ask(session, "shared-retry", service, seconds=20).success
        (after,) = store.rows()
        assert (after.fence, service.done) == (row.fence + 1, [row.key])


@pytest.mark.short(1)
def test_live_owner_is_waited_for_which_is_said_at_once(
    store: Store, url: str, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """By the log and by one event: what is waited for, whose it is, and until when."""
    with in_the_handler(url, "shared-retry"), Session.open(store, "day") as session:
        (row,) = store.rows()
        waits = waits_of(session)
        with caplog.at_level(logging.WARNING, "handrail"):
            message = ask(session, "shared-retry", Service(), seconds=0.5)
        (wait,) = waits
        assert session.open_calls == ()
        assert session[EffectAwaited].all() == ()
    assert not message.success
    assert message.content == wording
    assert (wait.session_id, wait.ref, wait.tool, wait.key) == ("day", CALL, "pay", row.key)
    assert (wait.owner, wait.until) == (row.owner, row.lease_until)
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert row.key in record.getMessage()
    assert wait.owner.in_words.startswith(f"night/{REPLY}/call_0, process ")


def claimed_by_this_process(store: Store) -> Claimed:
    """A claim of the call, as a handler leaves it behind that goes on after its session was closed."""
    ledger = EffectLedger(store)
    config = CONFIGS["key-retry"]
    assert config is not None
    key = config.effect_key("pay", Order("A-1"), session_id=SESSION)
    assert key is not None
    claim = ledger.claim(ClaimRequest(*key[:2], "pay", key.params_hash, ClaimOwner(SESSION, REPLY, "call_0")))
    assert isinstance(claim, Claimed)
    stop_renewing(ledger, claim)
    return claim


def test_handler_left_behind_in_a_live_process_is_waited_for(
    store: Store, url: str, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Nothing proves that it has ended; opening the session says so, and until when."""
    with handrail.store.open(url) as first:
        left_open = Session.open(first, SESSION)
        claim = claimed_by_this_process(first)
    assert left_open.session_id == SESSION  # the lock of the session has gone with the store
    with caplog.at_level(logging.WARNING, "handrail"), Session.open(store, SESSION) as session:
        (call,) = session.open_calls
    until = claim.row.lease_until
    assert until is not None
    assert (call.call, call.tool, call.state, call.key) == (CALL, "pay", "running", claim.row.key)
    assert call.lease_until == until
    assert call.owner == ""
    (record,) = [one for one in caplog.records if one.name == "handrail.session"]
    assert record.getMessage() == f"session {SESSION}: {call}"
    shown = str(call).replace(until.isoformat(timespec="seconds"), "<until>")
    assert shown == wording


def test_closed_store_leaves_the_claim_of_a_running_handler_to_its_lease(store: Store, url: str) -> None:
    """It can record nothing any more, so its row names no process, of which neither life nor death is proved then."""
    with handrail.store.open(url) as first:
        claimed_by_this_process(first)
    assert store.end_leases_of_dead(SESSION) != ()
    (row,) = store.rows()
    assert (row.status, row.owner.process) == ("running", "")


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
