"""`handrail sessions`: which ones are meant, their entries, forks, and what is deleted and kept."""

from __future__ import annotations

import json
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.operations.sessions import last_used
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.conversation import Conversation, ConversationPart
from handrail.session.open_calls import PostponedCall, record_postponed
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.store import Store
from handrail.store.protocol import ClaimOwner
from handrail.testing import FakeClock
from tests.cli.desk import FORK, SESSION, Command, Terminal, effect, record
from tests.cli.desk import fill as fill_desk
from tests.store.kit import append, at_point, fill, insert
from tests.store.postgres_server import fresh_url
from tests.wording import Wording

DAY = timedelta(days=1)


NOW = timedelta(0)


def add(store: Store, session_id: str, age: timedelta, *said: tuple[str, str, bytes], **tags: str) -> None:
    """A session with some entries, each with its type, the id of its call, and its items."""
    assert store.create(SessionRow(session_id, tags, None, store.now() - age))
    lock = store.acquire(session_id, wait=NOW)
    entries = [
        SessionEntry(number, "r1" if call else "", call, "log", kind, 1, 0, 0, 1, items)
        for number, (kind, call, items) in enumerate(said, 1)
    ]
    append(store, lock, 0, entries, None)
    store.release(lock)


def session_ids(handrail: Command, *words: str) -> list[str]:
    """The ids of the sessions that are session_ids."""
    ran = handrail("sessions", "list", *words, "--format", "json")
    assert ran.code == 0
    return [json.loads(line)["session_id"] for line in ran.out.splitlines()]


def message(age: timedelta, store: Store, agent: str = "desk") -> bytes:
    """A message of a conversation, as a store holds it."""
    at = (store.now() - age).isoformat()
    messages = [{"kind": "request", "parts": [{"content": "hi", "timestamp": at, "part_kind": "user-prompt"}]}]
    return json.dumps([{"messages": messages, "speaker": "agent", "name": agent, "ended": True, "at": at}]).encode()


def test_sessions_are_filtered_by_agent(handrail: Command, store: Store) -> None:
    """That of the conversation, or else that in the tag."""
    add(store, "said", NOW, ("handrail.said", "", message(NOW, store, "night")), agent="day")
    add(store, "tagged", NOW, agent="night")
    add(store, "cut", NOW, ("handrail.said", "", b"{"), agent="night")
    assert sorted(session_ids(handrail, "--agent", "night")) == ["cut", "said", "tagged"]
    assert session_ids(handrail, "--agent", "day") == []


def test_sessions_are_filtered_by_state(handrail: Command, store: Store) -> None:
    """Any of those that are given: a process holds it, it has open calls, or none of that."""
    with Session.open(store, "waits") as session:
        record_postponed(session[PostponedCall], CallRef("r1", "c1"), "pay", store.now())
        assert session_ids(handrail, "--state", "held") == ["waits"]
    assert session_ids(handrail, "--state", "held") == []
    assert session_ids(handrail, "--state", "waiting") == ["waits"]
    row = effect("call:r1/c1", "unknown", store.now(), partition=FORK, owner=ClaimOwner(FORK, "r1", "c1"))
    insert(store, row._replace(effect_id="e" * 32))
    add(store, "broken", NOW, ("handrail.said", "", b"[7]"))
    add(store, "done", NOW)
    assert session_ids(handrail, "--state", "unknown") == [FORK]
    assert sorted(session_ids(handrail, "--state", "open")) == sorted(["waits", SESSION, FORK])
    assert session_ids(handrail, "--state", "unreadable") == ["broken"]
    assert session_ids(handrail, "--state", "ended") == ["done"]
    assert len(session_ids(handrail, "--state", "ended", "--state", "open")) == 4
    assert session_ids(handrail, "--state", "open", "--tag", "desk") == [SESSION]


def test_age_counts_from_the_last_use_that_is_recorded(handrail: Command, store: Store) -> None:
    """A call, or a message; a session that was made long ago and used today is not old."""
    now = store.now()
    record = json.dumps([{"at": (now - 2 * DAY).isoformat()}]).encode()
    add(store, "unused", 40 * DAY)
    add(store, "called", 40 * DAY, ("handrail.tool_invoked", "c1", record))
    add(store, "talked", 40 * DAY, ("handrail.said", "", message(3 * DAY, store)))
    add(store, "said", 40 * DAY)
    with Session.open(store, "said") as session:
        Conversation(session[ConversationPart], session.calls, clock=FakeClock(now - 3 * DAY)).append({"role": "user"})
    add(store, "odd", 40 * DAY, ("handrail.said", "", b"[7]"), ("x", "c1", b"[{}]"))
    rows = {row.session_id: last_used(store, row) for row in store.sessions()}
    assert rows["called"] == now - 2 * DAY
    for name in ("talked", "said"):
        assert timedelta(0) <= rows[name] - (now - 3 * DAY) < timedelta(minutes=5)
    assert sorted(session_ids(handrail, "--older-than", "30d")) == ["odd", "unused"]
    assert sorted(session_ids(handrail, "--older-than", "1d")) == ["called", "odd", "said", "talked", "unused"]


CALLS = [CallRef("resp_1", "call_1"), *(CallRef(reply, "call_0") for reply in ("resp_1", "a/b", None))]


ODD = [CallRef("resp_1", call_id) for call_id in ("a\0b", "\ud800", "x" * 100_000)]


FORKS = [
    *((None, 10), ("resp_1/call_1", 4), ("resp_1/call_0", 5), ("a%2Fb/call_0", 6), ("/call_0", 7)),
    *((str(call), number) for number, call in enumerate(ODD, 8)),
]


@pytest.mark.parametrize("at, entries", FORKS, ids=lambda value: str(value)[:20])
def test_fork_shares_the_past_up_to_a_call(
    handrail: Command, store: Store, at: str | None, entries: int, wording: Wording
) -> None:
    """It has the tags of the other, and the other as its origin; without a name it gets a random one."""
    record(store, 3, *CALLS, *(call.storable for call in ODD))
    words = () if at is None else ("--at", at)
    ran = handrail("sessions", "fork", SESSION, *words, "--as", "branch")
    assert (ran.code, ran.out, ran.err) == (0, wording, "")
    fork = store.find("branch")
    assert fork is not None
    assert (fork.parent, fork.origin, dict(fork.tags)) == (None, SESSION, {"desk": "berlin", "customer": "ada"})
    assert (fork.head, fork.origin_head, fork.new_keys) == (entries, entries, False)
    told = handrail.document("sessions", "fork", SESSION, *words, "--new-keys")
    assert (told["origin"], told["entries"]) == (SESSION, entries)
    again = store.find(told["session_id"])
    assert again is not None
    assert again.new_keys


UNCLEAR = [
    *((("--at", at), 1) for at in ("call_9", "call_1", "call_7", "resp_9/call_1", "%ff", f"{ODD[-1]}z")),
    *((("--as", FORK), 1), (("--as", " "), 2)),
]


@pytest.mark.parametrize("words, code", UNCLEAR, ids=lambda words: str(words)[:30])
def test_fork_that_is_not_clear_is_refused(
    handrail: Command, store: Store, words: tuple[str, ...], code: int, wording: Wording
) -> None:
    """Nothing is written, and nothing overwritten."""
    twice = [CallRef("resp_1", "call_7"), *(CallRef(reply, "call_7") for reply in ("resp_2", "a/b"))]
    record(store, 3, *CALLS, *(call.storable for call in ODD), *twice)
    before = list(store.sessions())
    ran = handrail("sessions", "fork", SESSION, *words)
    assert (ran.code, ran.out, ran.err) == (code, "", wording)
    assert len(ran.err) < 1_000
    assert list(store.sessions()) == before


@pytest.fixture
def family(store: Store) -> Store:
    """Sessions that were used 40 days ago: one with a child and a grandchild, a fork of it, and a lone one."""
    made = store.now() - 40 * DAY
    parents = {"old": None, "old/r1/c1": "old", "old/r1/c1/r2/c2": "old/r1/c1", "old/fork": None, "lone": None}
    for session_id, parent in parents.items():
        store.create(SessionRow(session_id, {}, parent, made))
    for letter, partition in (("a", "old"), ("b", "old/r1/c1")):
        row = effect("call:r1/c1", "done", store.now(), partition=partition, applied_at=store.now())
        insert(store, row._replace(owner=ClaimOwner(partition, "r1", "c1"), effect_id=letter * 32))
    return store


def fork(store: Store, session_id: str, origin: str) -> None:
    """Add a fork of a session of the family, of the same age."""
    store.create(SessionRow(session_id, {}, None, store.now() - 40 * DAY, origin=origin))


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
    told: dict[str, object] = {"dry_run": False, "would_delete": [], "kept": []}
    told |= {"deleted": ["old/r1/c1/r2/c2", "old/r1/c1", "old"]}
    assert json.loads(ran.out) == told
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


def test_origin_of_a_fork_that_stays_is_kept(handrail: Command, family: Store, wording: Wording) -> None:
    """Named or pruned, also if it is a child; the fork is named."""
    fork(family, "what-if", "old/r1/c1")
    ran = handrail("sessions", "delete", "old", "--yes")
    assert (ran.code, ran.out) == (1, wording)
    family.release(family.acquire("what-if", wait=timedelta(0)))
    recent = SessionRow("new", {}, None, family.now(), origin="lone")
    family.create(recent)
    pruned = handrail("sessions", "prune", "--older-than", "30d", "--yes")
    assert pruned.code == 0
    assert [line for line in pruned.out.splitlines() if "lone" in line] == wording
    assert ids(family) == sorted([FORK, SESSION, "lone", "new"])


def test_forks_are_deleted_before_their_origins(handrail: Command, family: Store) -> None:
    """In whatever order they are named: a fork of a fork, and of a child."""
    fork(family, "b", "old/r1/c1")
    fork(family, "a", "b")
    fork(family, "c", "a")
    told = handrail.document("sessions", "delete", "old", "a", "b", "c", "--yes")
    assert told["deleted"] == ["c", "a", "b", "old/r1/c1/r2/c2", "old/r1/c1", "old"]


def test_old_sessions_are_pruned_and_children_go_with_their_parent(
    handrail: Command, family: Store, wording: Wording
) -> None:
    """A child is not looked at on its own: `old` was used 40 days ago, and so were they. A dry run only shows it."""
    dry = handrail("sessions", "prune", "--older-than", "30d", "--dry-run")
    assert (dry.code, dry.out.splitlines()[-1], len(ids(family))) == (0, wording, 7)
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


@pytest.fixture
def on_postgres(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Generator[Command]:
    """The command, over a schema of its own that has been filled."""
    with fresh_url() as url:
        with stores.open(url) as store:
            fill_desk(store)
        monkeypatch.setenv("HANDRAIL_STORE", url)
        yield Command(url, capsys)


def test_effects_are_reconciled_and_pruned(on_postgres: Command, wording: Wording) -> None:
    """As over SQLite; time is the server's."""
    states = [row["state"] for row in on_postgres.rows("ledger", "list")]
    assert states == ["running", "lapsed", "done", "failed", "unknown", "expired", "done"]
    assert on_postgres("ledger", "reconcile", "app:pay:unknown", "--happened", "--value", "7").code == 0
    assert "status          done" in on_postgres("ledger", "show", "app:pay:unknown").out
    assert on_postgres("ledger", "prune", "--yes").out == wording


def test_a_server_that_does_not_answer_is_told_in_one_line(on_postgres: Command) -> None:
    """Exit code 1, without the password, and without what the driver logs."""
    ran = on_postgres("ledger", "list", "--store", "postgresql://ada:secret@127.0.0.1:1/desk")
    assert (ran.code, ran.out) == (1, "")
    assert len(ran.err.splitlines()) == 1
    assert "secret" not in ran.err


def test_a_backup_has_what_was_committed_before_it(
    handrail: Command, store: Store, tmp_path: Path, wording: Wording
) -> None:
    """It is taken while the store is open, replaces an older one, and is a store; nothing else is left."""
    copy = tmp_path / "copy.db"
    with store.session("before"):
        assert handrail("backup", str(copy)).out.replace(str(tmp_path), "/srv") == wording
        before = copy.read_bytes()
        with store.session("after"):
            assert handrail("backup", str(copy), "--format", "json").code == 0
    assert before != copy.read_bytes()
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.db"]
    with stores.open(f"sqlite:///{copy}", read_only=True) as copied:
        assert {row.session_id for row in copied.sessions()} == {row.session_id for row in store.sessions()}


def test_no_backup_takes_the_place_of_its_store(handrail: Command, tmp_path: Path, wording: Wording) -> None:
    """Nor is a copy that is not complete left under the name of one."""
    ran = handrail("backup", str(tmp_path / "desk.db"))
    assert (ran.code, ran.err.replace(str(tmp_path), "/srv")) == (2, wording)
    (tmp_path / "desk.db").write_bytes((tmp_path / "desk.db").read_bytes()[:-4096])
    assert handrail("backup", str(tmp_path / "copy.db")).code == 1
    assert not (tmp_path / "copy.db").exists()


def test_a_server_is_not_backed_up(on_postgres: Command, tmp_path: Path) -> None:
    """The message names its own program."""
    ran = on_postgres("backup", str(tmp_path / "copy.db"))
    assert (ran.code, "pg_dump" in ran.err, [*tmp_path.iterdir()]) == (1, True, [])
