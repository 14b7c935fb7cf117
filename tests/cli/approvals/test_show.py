"""`handrail approvals list` and `show`, and the command lines of the family."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.agents import Answer
from handrail.session import Session
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from tests.agents.stored_desks import Asked, Clerk, Desk, Reader, Replies
from tests.cli.approvals.loops import Loop
from tests.cli.desk import Command, Terminal
from tests.store.kit import append
from tests.wording import Wording

LATER = Clerk({"pay": Answer("later"), "sign": Answer("later")})
LONG = "Dear customer, the amount of 12,500.00 EUR " * 4
ONE: Replies = {"desk": [[Asked("d1", "sign", {"text": LONG})], "Done."]}


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store in a file alone: the tests of `answer` read those of each kind."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    with stores.open(url):
        return url


@pytest.fixture
def waiting(desk: Desk) -> Desk:
    """A desk whose agent wants to sign something."""
    assert desk.run(Reader(ONE), "Do it.", asker=LATER).status == "waiting"
    return desk


def test_screens_fit_80_columns(terminal: Terminal, waiting: Desk, loop: Loop, wording: Wording) -> None:
    """Arguments are cut with an ellipsis, and never within a figure; `show` has them whole."""
    loop.waits()
    assert terminal.run("approvals", "list", width=80) == 0
    assert max(map(len, terminal.lines)) <= 80
    # A slow machine takes more than a second.
    assert [re.sub(r"\b\d s ago", "0 s ago", line) for line in terminal.lines] == wording
    assert terminal.run("approvals", "show", "s", "d1", width=80) == 0
    shown = "".join(line.strip() + " " for line in terminal.lines)
    assert shown.count("12,500.00 EUR") == 4
    assert max(len(line) for line in terminal.lines if "sqlite" not in line) <= 80


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
    answer = json.loads(handrail("approvals", "show", "loop", "resp_2/c1", "--format", "json").out)["answer"]
    assert answer["reason"] == wording
    assert handrail("approvals", "show", "loop", "resp_2/c1").out.count(answer["reason"]) == 1
    listed = [json.loads(line)["reply"] for line in handrail("approvals", "list", "--format", "json").out.splitlines()]
    assert listed == ["resp_1"]


def test_call_without_a_reply_is_named_by_a_slash(handrail: Command, url: str) -> None:
    """Where a reply has a call of the same id, too."""
    loop = Loop(url)
    with stores.open(url) as store, Session.open(store, "loop") as session:
        loop.ask(session, reply=None)
        loop.ask(session, reply="resp_1")
    assert [line.split()[1] for line in handrail("approvals", "list").out.splitlines()[1:]] == ["/c1", "resp_1/c1"]
    shown = json.loads(handrail("approvals", "show", "loop", "/c1", "--format", "json").out)
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
    ran = handrail("approvals", "answer", "--all", "yes", "--yes")
    assert (ran.code, "loop: " in ran.out) == (1, True)


@pytest.mark.parametrize(
    "words",
    [
        ("s", "d2"),
        ("yes",),
        ("s", "d2", "maybe"),
        ("--all", "s", "d2", "yes"),
        ("--all", "maybe"),
        ("--all", "yes"),
        ("s", "d2", "yes", "--tool", "pay"),
        ("--all", "yes", "--yes", "--older-than", "0s"),
    ],
)
def test_wrong_command_line_records_nothing(words: tuple[str, ...], handrail: Command, wording: Wording) -> None:
    """Before the store is opened."""
    ran = handrail("approvals", "answer", *words, "--store", "sqlite:///nowhere.db")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == wording
