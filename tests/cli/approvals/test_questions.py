"""`handrail approvals list` and `show`: which questions are listed, and how they are named."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.runtime import Session
from handrail.session.open_calls import PostponedCall
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from tests.cli.approvals.loops import Loop
from tests.cli.desk import Command
from tests.store.kit import append
from tests.wording import Wording

HOUR = timedelta(hours=1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store in a file alone: the tests of `answer` read those of each kind."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    with stores.open(url):
        return url


def test_age_counts_from_the_question(handrail: Command, url: str) -> None:
    """And not from the last use of the session."""
    with stores.open(url) as store, Session.open(store, "s") as session:
        session[PostponedCall].append(PostponedCall("s", "r1", "c1", "pay", store.now() - HOUR))
        session[PostponedCall].append(PostponedCall("s", "r2", "c2", "pay", store.now()))
    for options, calls in ((("--older-than", "1h"), ["c1"]), ((), ["c1", "c2"])):
        assert [row["call_id"] for row in handrail.rows("approvals", "list", *options)] == calls
    assert handrail("approvals", "list", "--session", "nobody").code == 1


def test_calls_of_one_id_are_named_with_their_replies(handrail: Command, url: str, wording: Wording) -> None:
    """As servers number them that count from 0; the error has the names of all."""
    for reply in ("resp_1", "resp_2"):
        loop = Loop(url, reply=reply, session_id="loop")
        with stores.open(url) as store, Session.open(store, "loop") as session:
            loop.ask(session)
    listed = [line.split()[1] for line in handrail("approvals", "list").out.splitlines()[1:]]
    assert listed == ["resp_1/c1", "resp_2/c1"]
    ran = handrail("approvals", "answer", "loop", "c1", "yes")
    assert (ran.code, ran.out, ran.err) == (1, "", wording)
    assert handrail("approvals", "answer", "loop", "resp_2/c1", "no").code == 0
    answer = handrail.document("approvals", "show", "loop", "resp_2/c1")["answer"]
    assert answer["reason"] == wording
    assert handrail("approvals", "show", "loop", "resp_2/c1").out.count(answer["reason"]) == 1
    listed = [row["reply"] for row in handrail.rows("approvals", "list")]
    assert listed == ["resp_1"]


def test_call_without_a_reply_is_named_by_a_slash(handrail: Command, url: str) -> None:
    """Where a reply has a call of the same id, too."""
    loop = Loop(url)
    with stores.open(url) as store, Session.open(store, "loop") as session:
        loop.ask(session, reply=None)
        loop.ask(session, reply="resp_1")
    assert [line.split()[1] for line in handrail("approvals", "list").out.splitlines()[1:]] == ["/c1", "resp_1/c1"]
    shown = handrail.document("approvals", "show", "loop", "/c1")
    assert shown["reply"] is None
    assert handrail("approvals", "show", "loop", "c9").code == 1


def test_session_that_cannot_be_read_does_not_hide_the_others(handrail: Command, loop: Loop, wording: Wording) -> None:
    """It is reported, in each form; a question of it that is named is an error."""
    loop.waits()
    with stores.open(loop.url) as store:
        store.create(SessionRow("broken", {}, None, store.now()))
        lock = store.acquire("broken", wait=timedelta(0))
        entry = SessionEntry(1, "", "", "log", "handrail.postponed_call", 1, 0, 0, 1, b'[{"session_id":7}]')
        append(store, lock, 0, [entry], None)
        store.release(lock)
    for form in ("json", "table"):
        ran = handrail("approvals", "list", "--format", form)
        assert (ran.code, "loop" in ran.out) == (1, True)
        assert ran.err.partition(": values")[0] == wording
    assert handrail("approvals", "show", "broken", "c1").code == 1


@pytest.mark.parametrize("words", ["s d2", "yes", "s d2 maybe"])
def test_wrong_command_line_records_nothing(words: str, handrail: Command, wording: Wording) -> None:
    """Before the store is opened."""
    ran = handrail("approvals", "answer", *words.split(), "--store", "sqlite:///nowhere.db")
    assert (ran.code, ran.out, ran.err) == (2, "", wording)
