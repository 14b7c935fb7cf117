"""The same commands over a real server of PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Generator
from datetime import timedelta

import pytest

from handrail import store as stores
from handrail.session.calls import CallRef
from tests.cli.desk import FORK, SESSION, Command, fill, record
from tests.store.postgres_server import fresh_url
from tests.wording import Wording


@pytest.fixture
def handrail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Generator[Command]:
    """The command, over a schema of its own that has been filled."""
    with fresh_url() as url:
        with stores.open(url) as store:
            fill(store)
        monkeypatch.setenv("HANDRAIL_STORE", url)
        yield Command(url, capsys)


def test_sessions_are_listed_shown_and_forked(handrail: Command) -> None:
    """As over SQLite."""
    with stores.open(handrail.url) as store:
        record(store, 3, CallRef("resp_1", "call_1"), CallRef("resp_2", "call_1"))
    assert handrail("sessions", "fork", SESSION, "--at", "resp_1/call_1", "--as", "branch").code == 0
    listed = handrail.rows("sessions", "list")
    assert next((row["session_id"], row["entries"]) for row in listed) == ("branch", 4)
    shown = handrail.document("sessions", "show", SESSION, "--entries")
    assert [entry["number"] for entry in shown["shown"]] == [1, 2, 3, 4, 5]
    assert [(call["reply"], call["call_id"], call["state"]) for call in shown["open_calls"]] == [
        ("resp_1", "call_1", "running")
    ]
    assert handrail("sessions", "show", "nobody").code == 1


def test_effects_are_reconciled_forgotten_and_pruned(handrail: Command, wording: Wording) -> None:
    """As over SQLite; time is the server's."""
    states = [row["state"] for row in handrail.rows("ledger", "list")]
    assert states == ["running", "lapsed", "done", "failed", "unknown", "expired", "done"]
    assert handrail("ledger", "reconcile", "app:pay:unknown", "--happened", "--value", "7").code == 0
    assert "status          done" in handrail("ledger", "show", "app:pay:unknown").out
    assert handrail("ledger", "invalidate", "app:pay:unknown", "--yes").code == 0
    assert handrail("ledger", "prune", "--yes").out == wording


def test_a_server_that_does_not_answer_is_told_in_one_line(handrail: Command) -> None:
    """Exit code 1, without the password, and without what the driver logs."""
    ran = handrail("ledger", "list", "--store", "postgresql://ada:secret@127.0.0.1:1/desk")
    assert (ran.code, ran.out) == (1, "")
    assert len(ran.err.splitlines()) == 1
    assert "secret" not in ran.err


def test_sessions_are_filtered_deleted_and_pruned(handrail: Command) -> None:
    """As over SQLite; a session that this process holds is kept."""
    with stores.open(handrail.url) as store:
        store.acquire(FORK, wait=timedelta(0))
        held = handrail("sessions", "list", "--state", "held", "--format", "json").out
        assert [json.loads(line)["session_id"] for line in held.splitlines()] == [FORK]
        assert handrail("sessions", "delete", FORK, "--yes").code == 1
    assert handrail("sessions", "delete", FORK, SESSION, "--yes", "--with-open-calls").code == 0
    assert handrail("sessions", "list", "--format", "json").out == ""
