"""`handrail sessions`: which ones are meant, their entries, and forks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.cli.sessions.listing import last_used
from handrail.events import Dispatcher
from handrail.prompt import ToolResult
from handrail.runtime import ToolCall, ToolInvoked
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.conversation import Conversation, ConversationPart
from handrail.session.open_calls import PostponedCall, record_postponed
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.store import Store
from handrail.store.protocol import ClaimOwner
from handrail.testing import FakeClock
from tests.architecture.sources import ROOT
from tests.cli.agent_folders import call, script, write
from tests.cli.desk import ENTRY, FORK, SESSION, Command, Ran, effect, record
from tests.store.kit import append, insert
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
    assert sorted(session_ids(handrail, "--agent", "night")) == ["said", "tagged"]
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
    assert sorted(session_ids(handrail, "--older-than", "1d", "--newer-than", "30d")) == ["called", "said", "talked"]
    assert session_ids(handrail, "--newer-than", "30m") == [FORK]


ENDING = """\
from handrail.errors import RunAbortedError


def note(text: str) -> str:
    "Notes something."
    if text == "fail":
        raise ConnectionError("no answer")
    if text == "end":
        raise RunAbortedError("the desk closes")
    return f"noted {text}"


TOOLS = [note]
"""
"""A tool that can fail, so that the run goes on, and that can end the run in the middle of a reply."""


def test_a_session_is_shown_with_its_entries_in_order(handrail: Command) -> None:
    """Its row, and a table: number, call, role, type, change, items."""
    ran = handrail("sessions", "show", SESSION, "--entries")
    assert (ran.code, ran.err) == (0, "")
    told, calls, table = ran.out.split("\n\n")
    assert told.splitlines()[0] == f"session  {SESSION}"
    assert "tags     customer=ada desk=berlin" in told
    assert [line.split(maxsplit=4) for line in table.splitlines()] == [
        ["no.", "call", "role", "type", "change      items"],
        ["1", "-", "state", "desk.plan", '+1 at 0     [{"title": "Buy milk"}]'],
        ["2", "resp_1/call_1", "event", "desk.asked", '-           [{"amount": 7}]'],
        ["3", "resp_1/call_2", "state", "desk.plan", '-1 +2 at 0  [{"title": "Buy milk"}, {"title": "Zürich"}]'],
    ]
    assert calls.splitlines()[0].split() == ["open", "call", "tool", "state", "waits", "for"]


def test_a_call_that_was_not_begun_waits_for_its_program(handrail: Command, store: Store, wording: Wording) -> None:
    """Nobody carries it out while no process has the session open."""
    with Session.open(store, "loop") as session:
        session.conversation.append({"role": "assistant"}, calls=[ToolCall("a", "pay", "{}")], reply="r1")
        record_postponed(
            session[PostponedCall], CallRef(None, "later"), "pay", store.now()
        )  # the reply is stored with it
        calls = handrail("sessions", "show", "loop", "--entries").out.split("\n\n")[1]
        assert calls.splitlines()[2].split(maxsplit=3)[3] == wording
    calls = handrail("sessions", "show", "loop", "--entries").out.split("\n\n")[1]
    assert calls.splitlines()[2].split(maxsplit=3)[3] == wording


def test_open_calls_are_shown_with_what_they_wait_for(handrail: Command, store: Store, wording: Wording) -> None:
    """Above the entries: the process, and the end of the lease."""
    found = store.get(SESSION, "session:pay:running")
    assert found is not None
    assert found.lease_until is not None
    until = found.lease_until
    calls = handrail("sessions", "show", SESSION, "--entries").out.split("\n\n")[1]
    assert calls.replace(f"{until:%Y-%m-%d %H:%M:%S} UTC", "UNTIL").splitlines()[1:] == [wording]
    assert f"{until:%Y-%m-%d %H:%M:%S} UTC" in calls
    (call,) = handrail.document("sessions", "show", SESSION, "--entries")["open_calls"]
    assert call == {
        "reply": "resp_1",
        "call_id": "call_1",
        "tool": "pay",
        "state": "running",
        "key": "session:pay:running",
        "lease_until": until.isoformat(),
        "owner": "process 4711 on desk-host",
    }
    assert len(handrail("sessions", "show", SESSION, "--entries", "--after", "1").out.split("\n\n")) == 2


def test_a_postponed_call_is_open_until_it_is_recorded(handrail: Command, store: Store, wording: Wording) -> None:
    """The session is not opened for it, so it may be open elsewhere."""
    with Session.open(store, "desk", dispatcher=Dispatcher()) as session:
        record_postponed(session[PostponedCall], CallRef("resp_7", "call_0"), "pay", store.now())
        shown = handrail.document("sessions", "show", "desk", "--entries")
        assert [(call["reply"], call["state"]) for call in shown["open_calls"]] == [("resp_7", "postponed")]
        assert handrail("sessions", "show", "desk", "--entries").out.splitlines()[7] == wording
        result: ToolResult[None] = ToolResult("paid", None)
        call = ToolCall("call_0", "pay", "{}")
        event = ToolInvoked(call, None, result, "desk", None, store.now(), "resp_7", handler_seconds=0.0)
        session.slices.record(event, event.ref)
    assert handrail.document("sessions", "show", "desk", "--entries")["open_calls"] == []


def test_calls_of_the_last_reply_are_open_until_they_have_a_final_record(run: Callable[..., Ran], folder: Path) -> None:
    """As the stored conversation lists them. The command runs in a process of its own, in which no agent has run."""
    write(folder, desk__agent="---\nname: desk\ntools: [note]\n---\nYou keep notes.\n", tools__py=ENDING)
    url = f"sqlite:///{folder / 'desk.db'}"
    texts = {"call-1": "fail", "call-2": "milk", "call-3": "end", "call-4": "bread"}
    first, *last = [call("note", call_id, text=text) for call_id, text in texts.items()]
    model = script(folder, {"calls": [first]}, {"calls": last})
    ran = run("note it", "--model", model, "--approve", "approve-all", "--store", url, "--session", "monday")
    assert ran.code == 1
    with stores.open(url) as store, Session.open(store, "monday") as session:
        records = session[ToolInvoked].all()
    finals = [(record.call_id, record.final) for record in records]
    assert finals == [("call-1", False), ("call-2", True), ("call-3", False), ("call-4", False)]
    words = (*ENTRY, "sessions", "show", "monday", "--entries", "--store", url, "--format", "json")
    done = subprocess.run(words, capture_output=True, check=True, cwd=ROOT, timeout=60)
    shown = json.loads(done.stdout)["open_calls"]
    expected = [(record.reply, record.call_id, "note", "unrecorded") for record in records[2:]]
    assert [(each["reply"], each["call_id"], each["tool"], each["state"]) for each in shown] == expected


def test_entries_are_paged(handrail: Command, wording: Wording) -> None:
    """`--after` and `--limit` walk through a long session, and the remark says how to go on."""
    first = handrail("sessions", "show", SESSION, "--entries", "--limit", "2")
    *_, last, note = first.out.splitlines()
    assert last.split()[0] == "2"
    assert note == wording
    rest = handrail("sessions", "show", SESSION, "--entries", "--after", "2")
    assert rest.out.splitlines()[-1].split()[0] == "3"
    assert rest.err == ""
    none = handrail("sessions", "show", SESSION, "--entries", "--after", "3")
    assert none.out.splitlines()[-1] == wording


def test_entries_of_one_type_are_shown_alone(handrail: Command) -> None:
    """By the name under which the type is stored."""
    ran = handrail("sessions", "show", SESSION, "--entries", "--type", "desk.asked", "--format", "json")
    assert [entry["number"] for entry in json.loads(ran.out)["shown"]] == [2]


def test_items_are_printed_whole_when_asked_for(handrail: Command, wording: Wording) -> None:
    """`--full` shows each entry as names and values, with its JSON set in."""
    ran = handrail("sessions", "show", SESSION, "--entries", "--after", "2", "--full")
    assert ran.out.partition("\n\n")[2] == wording


def test_items_that_are_no_json_are_shown_to_people_as_they_are(
    handrail: Command, store: Store, wording: Wording
) -> None:
    """Who looks for a fault needs to see it; a program is refused."""
    hold = store.acquire(FORK, wait=timedelta(0))
    append(store, hold, 0, [SessionEntry(1, "", "", "log", "desk.note", 1, 0, 0, 1, b'[{"title":"\x1b[2J')], None)
    store.release(hold)
    assert '[{"title":"\\x1b[2J' in handrail("sessions", "show", FORK, "--entries").out
    assert 'items   [{"title":"\\x1b[2J' in handrail("sessions", "show", FORK, "--entries", "--full").out
    refused = handrail("sessions", "show", FORK, "--entries", "--format", "json")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == wording


CALLS = [CallRef("resp_1", "call_1"), *(CallRef(reply, "call_0") for reply in ("resp_1", "a/b", None))]


ODD = [CallRef("resp_1", call_id) for call_id in ("a\0b", "\ud800", "x" * 100_000)]


@pytest.mark.parametrize(
    "at, entries",
    [
        (None, 10),
        ("call_1", 4),
        ("resp_1/call_1", 4),
        ("resp_1/call_0", 5),
        ("a%2Fb/call_0", 6),
        ("/call_0", 7),
        *((str(call), number) for number, call in enumerate(ODD, 8)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_fork_shares_the_past_up_to_a_call(
    handrail: Command, store: Store, at: str | None, entries: int, wording: Wording
) -> None:
    """It has the tags of the other, and the other as its parent; without a name it gets a random one."""
    record(store, 3, *CALLS, *(call.storable for call in ODD))
    words = () if at is None else ("--at", at)
    ran = handrail("sessions", "fork", SESSION, *words, "--as", "branch")
    assert (ran.code, ran.out, ran.err) == (0, wording, "")
    fork = store.find("branch")
    assert fork is not None
    assert (fork.parent, dict(fork.tags), fork.head) == (SESSION, {"desk": "berlin", "customer": "ada"}, entries)
    told = handrail.document("sessions", "fork", SESSION, *words)
    assert (told["parent"], told["entries"]) == (SESSION, entries)
    assert store.find(told["session_id"]) is not None


@pytest.mark.parametrize(
    "words, code",
    [
        (("--at", "call_0"), 1),
        (("--at", "call_9"), 1),
        (("--at", "resp_9/call_1"), 1),
        (("--at", "%ff"), 1),
        (("--at", f"{ODD[-1]}z"), 1),
        (("--as", FORK), 1),
        (("--as", " "), 2),
    ],
    ids=lambda words: str(words)[:30],
)
def test_fork_that_is_not_clear_is_refused(
    handrail: Command, store: Store, words: tuple[str, ...], code: int, wording: Wording
) -> None:
    """A call that several replies have is named with them; nothing is written, and nothing overwritten."""
    record(store, 3, *CALLS, *(call.storable for call in ODD))
    before = list(store.sessions())
    ran = handrail("sessions", "fork", SESSION, *words)
    assert (ran.code, ran.out, ran.err) == (code, "", wording)
    assert len(ran.err) < 1_000
    assert list(store.sessions()) == before
