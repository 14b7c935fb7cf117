"""`handrail ledger list` and `show`."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.cli.ledger import newest
from handrail.store import Store
from tests.cli.desk import FORK, SESSION, Command, Terminal, effect


def _keys(out: str) -> list[str]:
    return [json.loads(line)["key"] for line in out.splitlines()]


def test_effects_are_listed_newest_first_with_their_state(handrail: Command) -> None:
    """A running effect whose lease has passed is shown as lapsed."""
    ran = handrail("ledger", "list")
    heading, *rows = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert heading.split() == ["key", "partition", "tool", "status", "fence", "lease", "/", "expiry", "owner"]
    assert [(row.split()[0], row.split()[3]) for row in rows] == [
        ("session:pay:running", "running"),
        ("session:pay:lapsed", "lapsed"),
        ("session:pay:done", "done"),
        ("session:pay:failed", "failed"),
        ("app:pay:unknown", "unknown"),
        ("app:pay:expired", "expired"),
        ("app:mail:kept", "done"),
    ]
    assert f"lease passed 5 min ago  {SESSION}/resp_1/call_1" in rows[1]
    assert rows[6].endswith("for ever")


@pytest.mark.parametrize(
    "words, keys",
    [
        (("--status", "lapsed"), ["session:pay:lapsed"]),
        (("--status", "running"), ["session:pay:running"]),
        (("--status", "unknown", "--status", "expired"), ["app:pay:unknown", "app:pay:expired"]),
        (("--tool", "mail"), ["app:mail:kept"]),
        (("--session", FORK), ["session:pay:failed"]),
        (("--session", "f"), []),
        (
            ("--session", SESSION, "--status", "done", "--status", "unknown"),
            ["session:pay:done", "app:pay:unknown"],
        ),
        (("--limit", "2"), ["session:pay:running", "session:pay:lapsed"]),
    ],
)
def test_effects_are_found_by_state_tool_and_session(
    handrail: Command, words: tuple[str, ...], keys: list[str]
) -> None:
    """All that is asked for must fit; a session has its own keys, and the shared ones that it claimed last."""
    assert _keys(handrail("ledger", "list", *words, "--format", "json").out) == keys


def test_a_state_that_is_none_is_a_usage_error(handrail: Command) -> None:
    """It names what there is."""
    ran = handrail("ledger", "list", "--status", "lost")
    assert ran.code == 2
    assert "lapsed" in ran.err


def test_nothing_found_is_said(handrail: Command, tmp_path: Path) -> None:
    """An empty table would look like a fault."""
    ran = handrail("ledger", "list", "--tool", "nothing")
    assert (ran.code, ran.out, ran.err) == (0, "", f"No effect is as asked for in {handrail.url}.\n")
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    stores.open(url).close()
    assert handrail("ledger", "list", "--store", url).err == f"No effects in {url}.\n"
    assert handrail("ledger", "list", "--store", url, "--format", "json").out == ""


def test_a_limit_says_that_there_are_more(handrail: Command) -> None:
    """Nothing is left out in silence."""
    ran = handrail("ledger", "list", "--limit", "3")
    assert len(ran.out.splitlines()) == 4
    assert ran.err == "These are the newest 3; --limit shows more.\n"
    assert handrail("ledger", "list", "--limit", "7").err == ""


def test_an_effect_is_shown_whole(handrail: Command) -> None:
    """Everything that the store keeps of it, message and value too."""
    ran = handrail("ledger", "show", "session:pay:done")
    assert (ran.code, ran.err) == (0, "")
    told = dict(line.split(maxsplit=1) for line in ran.out.splitlines() if line[0] != " ")
    assert (told["key"], told["partition"], told["tool"]) == ("session:pay:done", SESSION, "pay")
    assert told["status"] == "done (expires in 23 h)"
    assert told["message"] == "Paid 7 EUR."
    assert '"receipt": 7' in ran.out
    document = json.loads(handrail("ledger", "show", "session:pay:done", "--format", "json").out)
    assert (document["message"], document["value"], document["state"]) == ("Paid 7 EUR.", {"receipt": 7}, "done")


def test_a_key_that_is_not_there_is_said_to_be_not_there(handrail: Command) -> None:
    """The error names the store, the key and where to look."""
    ran = handrail("ledger", "show", "nothing")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"handrail: {handrail.url} knows of no effect nothing; handrail ledger list shows all\n"
    elsewhere = handrail("ledger", "show", "session:pay:done", "--partition", FORK)
    assert f"no effect session:pay:done in the partition '{FORK}'" in elsewhere.err


def test_a_key_of_several_sessions_needs_the_partition(handrail: Command, store: Store) -> None:
    """The error lists them; one that all share is the empty one."""
    store.insert(effect("session:pay:done", "done", store.now(), message="another"))
    ran = handrail("ledger", "show", "session:pay:done")
    assert ran.code == 1
    assert f'2 sessions have an effect session:pay:done; say which with --partition: "", {SESSION}' in ran.err
    assert "another" in handrail("ledger", "show", "session:pay:done", "--partition", "").out
    assert "Paid 7" in handrail("ledger", "show", "session:pay:done", "--partition", SESSION).out


def test_the_newest_rows_are_kept(store: Store) -> None:
    """With a limit and without."""
    now = store.now()
    rows = [effect(str(age), "done", now, created_at=now - timedelta(age)) for age in (2, 0, 1)]
    assert [row.key for row in newest(rows, None)] == ["0", "1", "2"]
    assert [row.key for row in newest(rows, 2)] == ["0", "1"]


def test_a_message_cannot_steer_the_terminal(terminal: Terminal, store: Store) -> None:
    """What models write is shown, not obeyed."""
    store.insert(effect("evil", "done", store.now(), message="[bold]\x1b]0;title\x07", tool="\x1b[2J"))
    assert terminal.run("ledger", "show", "evil") == 0
    assert "[bold]\\x1b]0;title\\x07" in terminal.screen
    assert "\\x1b[2J" in terminal.screen


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_table_of_effects_fits_every_terminal(terminal: Terminal, width: int) -> None:
    """Key, state and term stay whole; what does not fit is named."""
    assert terminal.run("ledger", "list", width=width) == 0
    assert "\x1b[1;33mlapsed" in terminal.screen
    assert ("Left out" in terminal.lines[-1]) == (width < 200)
    assert all(len(line) <= width for line in terminal.lines[:-1])
    assert any("session:pay:lapsed" in line and "lease passed 5 min ago" in line for line in terminal.lines)
