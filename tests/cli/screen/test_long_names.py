"""A long name, of narrow or wide characters, is in its row, and makes no other row or column wider."""

from __future__ import annotations

import json

import pytest

from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from tests.cli.desk import SESSION, Command, Terminal


@pytest.mark.parametrize("name", ["a" * 50_000, "漢" * 20_000], ids=["narrow", "wide"])
def test_long_name_does_not_widen_the_table(handrail: Command, terminal: Terminal, store: Store, name: str) -> None:
    """In a pipe it is whole, and the cells after it stand out; a terminal cuts it, and shows other columns."""
    before = handrail("sessions", "list").out.splitlines()
    assert store.copy(SESSION, SessionRow(name, {}, None, store.now(), 0))
    lines = handrail("sessions", "list").out.splitlines()
    assert sum(name in line for line in lines) == 1
    assert max(len(line) for line in lines if name not in line) <= max(map(len, before)) + 100
    assert handrail("sessions", "show", name, "--entries").out.count(name) == 1
    assert name in [
        json.loads(line)["session_id"] for line in handrail("sessions", "list", "--format", "json").out.splitlines()
    ]
    assert terminal.run("sessions", "list", width=100) == 0
    assert "entries" in terminal.lines[0]
    assert len(terminal.lines) < 40


def test_ledger_list_has_the_tool_at_80_columns(terminal: Terminal) -> None:
    """Whatever else is left out."""
    assert terminal.run("ledger", "list", width=80) == 0
    assert "tool" in terminal.lines[0].split()
