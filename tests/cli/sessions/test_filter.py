"""Which sessions `list` and `prune` mean: by agent, tags, state and age."""

from __future__ import annotations

import json
from datetime import timedelta

from handrail.cli.sessions.listing import last_used
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.conversation import Conversation, ConversationPart
from handrail.session.open_calls import PostponedCall, record_postponed
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.store import Store
from handrail.store.protocol import ClaimOwner
from handrail.testing import FakeClock
from tests.cli.desk import FORK, SESSION, Command, effect
from tests.store.units import append, insert

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


def listed(handrail: Command, *words: str) -> list[str]:
    """The ids of the sessions that are listed."""
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
    assert sorted(listed(handrail, "--agent", "night")) == ["said", "tagged"]
    assert listed(handrail, "--agent", "day") == []


def test_sessions_are_filtered_by_state(handrail: Command, store: Store) -> None:
    """Any of those that are given: a process holds it, it has open calls, or none of that."""
    with Session.open(store, "waits") as session:
        record_postponed(session[PostponedCall], CallRef("r1", "c1"), "pay", store.now())
        assert listed(handrail, "--state", "held") == ["waits"]
    assert listed(handrail, "--state", "held") == []
    assert listed(handrail, "--state", "waiting") == ["waits"]
    row = effect("call:r1/c1", "unknown", store.now(), partition=FORK, owner=ClaimOwner(FORK, "r1", "c1"))
    insert(store, row._replace(effect_id="e" * 32))
    add(store, "broken", NOW, ("handrail.said", "", b"[7]"))
    add(store, "done", NOW)
    assert listed(handrail, "--state", "unknown") == [FORK]
    assert sorted(listed(handrail, "--state", "open")) == sorted(["waits", SESSION, FORK])
    assert listed(handrail, "--state", "unreadable") == ["broken"]
    assert listed(handrail, "--state", "ended") == ["done"]
    assert len(listed(handrail, "--state", "ended", "--state", "open")) == 4
    assert listed(handrail, "--state", "open", "--tag", "desk") == [SESSION]


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
    assert sorted(listed(handrail, "--older-than", "30d")) == ["odd", "unused"]
    assert sorted(listed(handrail, "--older-than", "1d", "--newer-than", "30d")) == ["called", "said", "talked"]
    assert listed(handrail, "--newer-than", "30m") == [FORK]
