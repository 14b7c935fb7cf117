"""`handrail sessions delete` and `prune`: what is shown, asked, deleted and kept."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from handrail.session import Session
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.store import Store
from handrail.store.protocol import ClaimOwner
from tests.cli.desk import FORK, SESSION, Command, Terminal, effect
from tests.store.kit import append, at_point, delete_in_steps, fill, insert
from tests.wording import Wording

DAY = timedelta(days=1)


NOW = timedelta(0)


@pytest.fixture
def family(store: Store) -> Store:
    """Sessions that were used 40 days ago: one with a child and a grandchild, a fork of it, and a lone one."""
    made = store.now() - 40 * DAY
    for session_id, parent in (
        ("old", None),
        ("old/r1/c1", "old"),
        ("old/r1/c1/r2/c2", "old/r1/c1"),
        ("old/fork", None),
        ("lone", None),
    ):
        store.create(SessionRow(session_id, {}, parent, made))
    for letter, partition in (("a", "old"), ("b", "old/r1/c1")):
        row = effect("call:r1/c1", "done", store.now(), partition=partition, applied_at=store.now())
        insert(store, row._replace(owner=ClaimOwner(partition, "r1", "c1"), effect_id=letter * 32))
    return store


def ids(store: Store) -> list[str]:
    """The sessions that are there."""
    return sorted(row.session_id for row in store.sessions())


def test_deleting_without_a_terminal_needs_yes(handrail: Command, family: Store, wording: Wording) -> None:
    """Nothing is deleted unasked."""
    ran = handrail("sessions", "delete", "old")
    assert (ran.code, ran.err) == (2, wording)
    assert handrail("sessions", "prune", "--older-than", "30d").code == 2
    assert len(ids(family)) == 7


def test_session_is_deleted_with_its_children_and_their_effects(handrail: Command, family: Store) -> None:
    """Children by their ids and parents; a session that only has such an id is none."""
    ran = handrail("sessions", "delete", "old", "--yes", "--format", "json")
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "dry_run": False,
        "deleted": ["old/r1/c1/r2/c2", "old/r1/c1", "old"],
        "would_delete": [],
        "completed": [],
        "kept": [],
        "entries": 0,
        "calls": 0,
        "effects": 2,
        "bytes": 48,
    }
    assert ids(family) == sorted([FORK, SESSION, "lone", "old/fork"])
    assert {row.partition for row in family.rows()} == {"", SESSION, FORK}


def test_person_is_asked_before_sessions_are_deleted(terminal: Terminal, family: Store, wording: Wording) -> None:
    """The table and the question fit 80 columns; anything but a yes deletes nothing."""
    assert terminal.run("sessions", "delete", "old", "lone", typed="\n", width=80) == 1
    assert [line for line in terminal.lines if "old  " not in line and "lone" not in line] == wording
    assert max(map(len, terminal.lines[:3])) <= 80
    assert len(ids(family)) == 7
    assert terminal.run("sessions", "delete", "old", "lone", typed="y\n", width=80) == 0
    assert ids(family) == sorted([FORK, SESSION, "old/fork"])


def test_dry_run_deletes_nothing(handrail: Command, family: Store, wording: Wording) -> None:
    """It opens the store for reading, and shows the same."""
    ran = handrail("sessions", "prune", "--older-than", "30d", "--dry-run")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, wording)
    assert len(ids(family)) == 7


def test_old_sessions_are_pruned_and_children_go_with_their_parent(handrail: Command, family: Store) -> None:
    """A child is not looked at on its own: `old` was used 40 days ago, and so were they."""
    ran = handrail("sessions", "prune", "--older-than", "30d", "--yes")
    assert ran.code == 0
    assert ids(family) == sorted([FORK, SESSION])
    assert handrail("sessions", "prune", "--older-than", "30d", "--yes").code == 0
    assert handrail("sessions", "prune", "--yes").code == 2
    assert handrail("sessions", "delete", "--yes").code == 2


def test_child_of_a_parent_that_stays_is_not_pruned(handrail: Command, family: Store) -> None:
    """However old it is."""
    family.create(SessionRow("new", {}, None, family.now()))
    family.create(SessionRow("new/r1/c1", {}, "new", family.now() - 40 * DAY))
    family.create(SessionRow("gone/r1/c1", {}, "gone", family.now() - 40 * DAY))
    assert handrail("sessions", "prune", "--older-than", "30d", "--yes").code == 0
    assert ids(family) == sorted([FORK, SESSION, "new", "new/r1/c1"])


def test_session_with_open_calls_is_kept_unless_it_is_asked_for(
    handrail: Command, store: Store, wording: Wording
) -> None:
    """It is shown with the call; the option deletes it, and effects that sessions share stay all the same."""
    ran = handrail("sessions", "delete", SESSION, FORK, "--yes")
    assert ran.code == 1
    assert SESSION in ran.out
    assert ids(store) == [SESSION]
    assert handrail("sessions", "prune", "--older-than", "1m", "--yes").code == 0
    assert ids(store) == [SESSION]
    assert handrail("sessions", "delete", SESSION, "--yes", "--with-open-calls").out.splitlines()[-1] == wording
    assert ids(store) == []
    assert sorted(row.key for row in store.rows()) == ["app:mail:kept", "app:pay:expired", "app:pay:unknown"]


def test_unknown_effect_of_a_child_keeps_its_parent(handrail: Command, family: Store) -> None:
    """The parent, and everything below it."""
    row = effect("call:r9/c9", "unknown", family.now(), partition="old/r1/c1/r2/c2", effect_id="c" * 32)
    insert(family, row._replace(owner=row.owner._replace(session_id="old/r1/c1/r2/c2")))
    kept = handrail.document("sessions", "delete", "old", "--yes")["kept"]
    assert [each["session_id"] for each in kept] == ["old"]
    assert "old/r1/c1/r2/c2" in ids(family)


def test_session_that_a_process_holds_is_never_deleted(handrail: Command, family: Store, wording: Wording) -> None:
    """Whatever is asked for; nor one whose child is held."""
    for name in ("old", "old/r1/c1"):
        with Session.open(family, name):
            ran = handrail("sessions", "delete", "old", "--yes", "--with-open-calls")
            assert ran.code == 1
            assert ran.out == wording
    assert len(ids(family)) == 7


def test_session_that_is_used_after_it_was_shown_is_kept(handrail: Command, store: Store, wording: Wording) -> None:
    """Another process has written to it, or opened it, in between."""
    store.release(fill(store, store, "old"))  # type: ignore[arg-type]  # only `now` is asked for
    opened: list[Session] = []

    def use() -> None:
        if not opened:
            opened.append(Session.open(store, "lone"))

    store.create(SessionRow("lone", {}, None, store.now()))
    store.create(SessionRow("first", {}, None, store.now()))
    with at_point("unit-after-commit", use):
        ran = handrail("sessions", "delete", "first", "lone", "--yes")
    assert (ran.code, ran.err) == (1, wording)
    assert "lone" in ids(store)
    opened[0].close()


def test_deletion_that_was_cut_off_is_completed(handrail: Command, store: Store, wording: Wording) -> None:
    """The same command completes it, and any other deletion does, too."""

    class Cut(Exception):
        pass

    def cut() -> None:
        raise Cut

    for name in ("s1", "s2"):
        lock = fill(store, store, name)  # type: ignore[arg-type]  # only `now` is asked for
        store.release(lock)
        with pytest.raises(Cut), at_point("unit-after-commit", cut):
            delete_in_steps(handrail.url, name)
    assert handrail("sessions", "show", "s1").code == 1
    ran = handrail("sessions", "delete", "s1", "--yes")
    assert (ran.code, ran.out) == (0, wording)
    assert store.unfinished_deletions() == ()


def test_child_that_is_named_beside_its_parent_is_deleted_once(handrail: Command, family: Store) -> None:
    """With the parent; named alone, it goes alone."""
    ran = handrail("sessions", "delete", "old/r1/c1", "old", "--yes", "--format", "json")
    assert json.loads(ran.out)["deleted"] == ["old/r1/c1/r2/c2", "old/r1/c1", "old"]
    family.create(SessionRow("s", {}, None, family.now()))
    family.create(SessionRow("s/r1/c1", {}, "s", family.now()))
    assert handrail("sessions", "delete", "s/r1/c1", "--yes").code == 0
    assert ids(family) == sorted([FORK, SESSION, "lone", "old/fork", "s"])


def test_session_whose_calls_cannot_be_read_is_kept(handrail: Command, store: Store) -> None:
    """Nobody can say whether one is open; the option deletes it."""
    store.create(SessionRow("broken", {}, None, store.now()))
    lock = store.acquire("broken", wait=NOW)
    append(store, lock, 0, [SessionEntry(1, "", "", "log", "handrail.said", 1, 0, 0, 1, b"[7]")], None)
    store.release(lock)
    ran = handrail("sessions", "delete", "broken", "--yes", "--format", "json")
    assert (ran.code, [each["session_id"] for each in json.loads(ran.out)["kept"]]) == (1, ["broken"])
    assert handrail("sessions", "delete", "broken", "--yes", "--with-open-calls").code == 0
    assert "broken" not in ids(store)


@pytest.mark.parametrize("what", ["written", "claimed", "child claimed", "child written", "deleted", "child deleted"])
def test_session_is_looked_at_again_once_it_is_held(
    handrail: Command, family: Store, what: str, wording: Wording
) -> None:
    """What another process has done since it was shown counts: it is kept, unless it is gone."""
    who = "old/r1/c1" if what.startswith("child") else "old"
    done: list[str] = []

    def meanwhile() -> None:
        if done:
            return
        done.append(what)
        if what.endswith("claimed"):
            row = effect("call:r9/c9", "unknown", family.now(), partition=who, owner=ClaimOwner(who, "r9", "c9"))
            insert(family, row._replace(effect_id="d" * 32))
            return
        lock = family.acquire(who, wait=NOW)
        if what.endswith("written"):
            append(family, lock, 0, [SessionEntry(1, "", "", "state", "x", 1, 0, 0, 1, b"[{}]")], None)
        else:
            family.delete_session(lock)
        family.release(lock)

    with at_point("unit-after-commit", meanwhile):
        ran = handrail("sessions", "delete", "lone", "old", "--yes")
    assert "lone" not in ids(family)
    is_kept = not what.endswith("deleted")
    assert ("old" in ids(family)) is is_kept
    assert (ran.code, ran.err) == (int(is_kept), wording)


def test_session_of_a_process_that_died_is_deleted(handrail: Command, store: Store) -> None:
    """Its lock ended with it, although the row of the session still names it as the holder."""
    store.acquire(FORK, wait=NOW)
    store.close()
    assert handrail("sessions", "delete", FORK, "--yes").code == 0
    assert handrail("sessions", "show", FORK).code == 1
