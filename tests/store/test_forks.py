"""Forks, over every store: they are read through their origins, which stay as long as they have forks."""

from __future__ import annotations

import threading

import pytest

import handrail.store
from handrail.clock import SYSTEM_CLOCK
from handrail.errors import SessionError, SessionNotFoundError, StoreCorruptError
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import Checkpoint, SessionEntry
from handrail.store import Store
from handrail.testing import Completed, Crashed, FakeClock
from tests.crash.forks import fork_to_crash
from tests.kit import raises
from tests.store import kit
from tests.wording import Wording

HEAD = 9
CHECKPOINTS = (2, 5, 8)


def history() -> list[SessionEntry]:
    """Entries of two types, which record calls, change a slice, or do neither."""
    own = [kit.entry(number, f"c{number % 4}", "desk:Note" if number % 3 else "desk:Plan") for number in range(1, HEAD)]
    own[3] = own[3]._replace(role="state", reply="")
    own[6] = own[6]._replace(role="state", reply="")
    return [*own, kit.entry(HEAD, "c1", reply="")]


def write(store: Store, session_id: str, after: int, until: int) -> None:
    """Append a part of the history to a session, an entry at a time."""
    lock = store.acquire(session_id, wait=kit.NOW)
    for one in history()[after:until]:
        covered = Checkpoint(one.number, b"%d" % one.number) if one.number in CHECKPOINTS else None
        kit.append(store, lock, one.number - 1, [one], covered)
    store.release(lock)


def write_family(store: Store, clock: FakeClock, first: int, second: int) -> None:
    """The history once in a session, and once in a fork of a fork; both origins have other entries after that."""
    for session_id, origin, after, until in (
        ("whole", None, 0, HEAD),
        ("a", None, 0, first),
        ("b", "a", first, second),
        ("c", "b", second, HEAD),
    ):
        row = kit.session_row(clock, session_id) if origin is None else kit.fork_row(clock, session_id, origin, after)
        assert store.create(row)
        write(store, session_id, after, until)
        if session_id in {"a", "b"}:
            lock = store.acquire(session_id, wait=kit.NOW)
            others = [kit.entry(until + 1, "other", reply="r9"), kit.entry(until + 2, "c1")]
            kit.append(store, lock, until, others, Checkpoint(until + 2, b"other"))


@pytest.mark.parametrize("first, second", [(4, 7), (2, 5), (5, 5), (0, 3), (3, HEAD), (HEAD, HEAD)])
def test_fork_is_read_as_one_session(store: Store, clock: FakeClock, first: int, second: int) -> None:
    """Through its origin and the origin of that, whatever is asked for; what they have got since is not read."""
    write_family(store, clock, first, second)
    whole, fork = kit.stored(store, "whole"), kit.stored(store, "c")
    assert (fork.head, fork.origin, fork.origin_head) == (HEAD, "b", second)
    checkpoint, positions = store.contents(whole)
    assert store.contents(fork)[0] == checkpoint
    assert list(store.contents(fork)[1]) == list(positions)
    assert store.recorded_calls("c", limit=99) == store.recorded_calls("whole", limit=99)
    for number in range(HEAD + 1):
        assert store.checkpoint("c", until=number) == store.checkpoint("whole", until=number)
        assert store.recorded_calls("c", limit=number) == store.recorded_calls("whole", limit=number)
        for until in (*range(number, HEAD + 1), None):
            assert list(store.entries("c", after=number, until=until)) == history()[number:until]
            for kind in ("desk:Note", "desk:Plan"):
                own = list(store.entries("whole", after=number, until=until, type_name=kind))
                assert list(store.entries("c", after=number, until=until, type_name=kind)) == own
                for limit in (1, 2, 9):
                    reads = [
                        store.newest_changes(name, kind, after=number, until=until or HEAD, limit=limit)
                        for name in ("c", "whole")
                    ]
                    assert reads[0] == reads[1]
    for call in (*(CallRef("r1", f"c{number}") for number in range(5)), CallRef(None, "c1"), CallRef("r9", "other")):
        assert store.record_of_call("c", call) == store.record_of_call("whole", call)


def test_fork_is_all_that_its_row_says(store: Store, clock: FakeClock) -> None:
    """With the origin, the last common entry, and whether it has new keys; also when it is listed and opened."""
    store.release(kit.fill(store, clock))
    row = kit.fork_row(clock, "fork", "s1", 3)._replace(new_keys=True)
    assert store.create(row)
    full = row._replace(head=3)
    assert store.find("fork") == store.acquire("fork", wait=kit.NOW).row == full
    assert full in list(store.sessions())
    assert (store.forks("s1"), store.forks("fork")) == (("fork",), ())


def test_fork_needs_its_origin_and_an_id_of_its_own(store: Store, clock: FakeClock, wording: Wording) -> None:
    """An origin of fewer entries was deleted meanwhile, and made anew; nothing is written."""
    store.release(kit.fill(store, clock))
    for origin, head in (("none", 0), ("s1", kit.ENTRIES + 1)):
        with kit.refused(SessionNotFoundError, wording, store):
            store.create(kit.fork_row(clock, "fork", origin, head))
    assert not store.create(kit.fork_row(clock, "s1", "s1", 1))
    assert [row.session_id for row in store.sessions()] == ["s1"]


def test_origin_is_not_deleted_before_its_forks(store: Store, clock: FakeClock, wording: Wording) -> None:
    """The forks are named; nothing is deleted."""
    lock = kit.fill(store, clock)
    names = [f"fork-{number}" for number in range(6)]
    for name in names:
        assert store.create(kit.fork_row(clock, name, "s1", 2))
    with raises(SessionError, wording):
        store.delete_session(lock)
    assert (list(store.entries("s1")), len(list(store.rows()))) == (kit.entries(1, kit.ENTRIES), 3)
    for name in names:
        store.delete_session(store.acquire(name, wait=kit.NOW))
    store.delete_session(lock)
    assert list(store.sessions()) == []


def test_session_is_forked_or_deleted(url: str) -> None:
    """Of two processes that do so at once, one is refused."""
    with handrail.store.open(url) as store, handrail.store.open(url) as other:
        lock, refused = kit.fill(store, SYSTEM_CLOCK), list[str]()

        def delete() -> None:
            try:
                store.delete_session(lock)
            except SessionError as error:
                refused.append(str(error))

        thread = threading.Thread(target=delete)
        with kit.at_point("unit-before-commit", lambda: None if thread.ident else thread.start()):
            assert other.create(kit.fork_row(FakeClock(), "fork", "s1", 2))
        thread.join()
        assert len(refused) == 1
        assert list(store.entries("fork")) == kit.entries(1, 2)


def test_entry_that_an_origin_lacks_is_damage(database: Store, clock: FakeClock, wording: Wording) -> None:
    """Of the fork, whose entries cannot be read; the number is named."""
    write_family(database, clock, 4, 7)
    with kit.database_of(database).transaction() as connection:
        connection.execute("DELETE FROM handrail_entries WHERE session_id = ? AND number = ?", ("a", 3))
    read = database.entries("c")
    with pytest.raises(StoreCorruptError) as caught:
        list(read)
    assert str(caught.value).partition(" in ")[0] == wording


def test_id_of_a_deleted_fork_names_another_session(store: Store, clock: FakeClock) -> None:
    """What is known of the fork is not taken for it."""
    store.release(kit.fill(store, clock))
    assert store.create(kit.fork_row(clock, "fork", "s1", 2))
    store.delete_session(store.acquire("fork", wait=kit.NOW))
    assert store.create(kit.session_row(clock, "fork"))
    lock = store.acquire("fork", wait=kit.NOW)
    kit.append(store, lock, 0, kit.entries(1, 1), None)
    assert list(store.entries("fork")) == kit.entries(1, 1)


# --------------------------------------------------------------------------------------------------------------- kills


def fork_stored(url: str) -> None:
    """Fork a session at its fourth entry; the target of a crash."""
    with handrail.store.open(url) as store:
        assert store.create(kit.fork_row(FakeClock(), "fork", "s1", 4))


@pytest.mark.parametrize("at", ["unit-begun", "unit-before-commit", "unit-after-commit"])
@pytest.mark.short(2)
def test_fork_that_is_killed_leaves_all_or_nothing_of_it(url: str, at: str) -> None:
    """And its origin whole, which can be written to, deleted and forked again."""
    with handrail.store.open(url) as store:
        store.release(kit.fill(store, SYSTEM_CLOCK))
    assert fork_to_crash(fork_stored, url, at=at) == Crashed(at)
    with handrail.store.open(url) as store:
        assert list(store.entries("s1")) == kit.entries(1, kit.ENTRIES)
        is_made = at == "unit-after-commit"
        assert list(store.entries("fork")) == (kit.entries(1, 4) if is_made else [])
        assert store.forks("s1") == (("fork",) if is_made else ())
    if not is_made:
        assert fork_to_crash(fork_stored, url, at=None) == Completed(None)
