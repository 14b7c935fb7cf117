"""`handrail ledger list` and `show`."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.cli.ledger.show import with_agents
from handrail.session.conversation import ConversationPart
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.session.persistence.stored_types import stored_type
from handrail.store import Store
from handrail.store.protocol import ClaimOwner
from tests.cli.desk import FORK, SESSION, Command, Terminal, effect
from tests.store.units import append, insert, replace
from tests.wording import Wording


def _keys(out: str) -> list[str]:
    return [json.loads(line)["key"] for line in out.splitlines()]


def test_effects_are_listed_newest_first_with_their_state(handrail: Command, wording: Wording) -> None:
    """A running effect whose lease has passed is shown as lapsed."""
    ran = handrail("ledger", "list")
    heading, *rows = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert " ".join(heading.split()) == wording
    assert [(row.split()[0], row.split()[3]) for row in rows] == [
        ("session:pay:running", "running"),
        ("session:pay:lapsed", "lapsed"),
        ("session:pay:done", "done"),
        ("session:pay:failed", "failed"),
        ("app:pay:unknown", "unknown"),
        ("app:pay:expired", "expired"),
        ("app:mail:kept", "done"),
    ]
    assert f"  {SESSION}/resp_1/call_1" in rows[1]
    term, owner, arguments = (heading.index(name) for name in ("lease", "owner", "arguments"))
    assert [row[term:owner].strip() for row in (rows[1], rows[6])] == wording
    assert [row[arguments:] for row in rows] == wording


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


def test_nothing_found_is_said(handrail: Command, tmp_path: Path, wording: Wording) -> None:
    """An empty table would look like a fault."""
    ran = handrail("ledger", "list", "--tool", "nothing")
    assert (ran.code, ran.out, ran.err) == (0, wording, "")
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    stores.open(url).close()
    assert handrail("ledger", "list", "--store", url).out == wording
    assert handrail("ledger", "list", "--store", url, "--format", "json").out == ""


def test_an_effect_is_shown_whole(handrail: Command, wording: Wording) -> None:
    """Everything that the store keeps of it, message and value too."""
    ran = handrail("ledger", "show", "session:pay:done")
    assert (ran.code, ran.err) == (0, "")
    told = dict(line.split(maxsplit=1) for line in ran.out.splitlines() if line[0] != " ")
    assert (told["key"], told["partition"], told["tool"]) == ("session:pay:done", SESSION, "pay")
    assert told["status"] == wording
    assert told["message"] == "Paid 7 EUR."
    assert '"receipt": 7' in ran.out
    document = json.loads(handrail("ledger", "show", "session:pay:done", "--format", "json").out)
    assert (document["message"], document["value"], document["state"]) == ("Paid 7 EUR.", {"receipt": 7}, "done")


def test_a_key_that_is_not_there_is_said_to_be_not_there(handrail: Command, wording: Wording) -> None:
    """The error names the store, the key and where to look."""
    ran = handrail("ledger", "show", "nothing")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == wording
    elsewhere = handrail("ledger", "show", "session:pay:done", "--partition", FORK)
    assert elsewhere.err == wording


def test_a_key_of_several_sessions_needs_the_partition(handrail: Command, store: Store, wording: Wording) -> None:
    """The error lists them; one that all share is the empty one."""
    insert(store, effect("session:pay:done", "done", store.now(), message="another"))
    ran = handrail("ledger", "show", "session:pay:done")
    assert ran.code == 1
    assert ran.err == wording
    assert "another" in handrail("ledger", "show", "session:pay:done", "--partition", "").out
    assert "Paid 7" in handrail("ledger", "show", "session:pay:done", "--partition", SESSION).out


SAID = stored_type(ConversationPart)
TALK = SAID.dump([ConversationPart((), speaker="agent", name="research")])
EVIL = {"to": "\x1b[2J\x07", "by": "\x9b31m\u202efed"}
BOTH = json.dumps({"arguments": EVIL, "written": "\x1b]0;title\x07"}, ensure_ascii=False).encode()


@pytest.mark.parametrize("words", [("list",), ("show", "evil"), ("show", "evil", "--format", "json")], ids=" ".join)
def test_arguments_cannot_steer_the_terminal(terminal: Terminal, store: Store, words: tuple[str, ...]) -> None:
    """What a model wrote is shown with escapes, whatever the command and the format."""
    insert(store, effect("evil", "unknown", store.now(), arguments=BOTH))
    assert terminal.run("ledger", *words, width=300) == 0
    assert "fed" in terminal.screen
    assert not [part for part in ("\x1b[2J", "\x9b", "\u202e", "\x07", "\x1b]") if part in terminal.screen]


def test_an_effect_is_shown_with_its_arguments_and_its_agent(handrail: Command, store: Store, wording: Wording) -> None:
    """What a person needs who has to decide: who asked for what, when, and in what words."""
    changed = b'{"arguments":{"order":"A-1"},"written":{"order":"A-7"}}'
    store.create(SessionRow("tagged", {"agent": "desk"}, None, store.now()))
    owner = ClaimOwner("tagged", "resp_1", "call_1")
    insert(store, effect("changed", "unknown", store.now(), owner=owner, arguments=changed))
    ran = handrail("ledger", "show", "changed")
    told = dict(line.split("  ", 1) for line in ran.out.splitlines() if line[0] != " ")
    assert {told[name].strip() for name in ("session", "agent")} == {"tagged", "desk"}
    assert '"order": "A-1"' in ran.out.partition("model wrote")[0]
    assert '"order": "A-7"' in ran.out.partition("model wrote")[2]
    document = json.loads(handrail("ledger", "show", "changed", "--format", "json").out)
    assert (document["agent"], document["arguments"], document["written"]) == (
        "desk",
        {"order": "A-1"},
        {"order": "A-7"},
    )
    assert json.loads(handrail("ledger", "list", "--session", "tagged", "--format", "json").out) == document
    (line,) = [line for line in handrail("ledger", "list").out.splitlines() if line.startswith("changed ")]
    assert line[line.index("{") :] == wording


@pytest.mark.parametrize(
    "numbers, length, items, agent",
    [
        ((1,), 1, TALK, "research"),
        ((300,), 300, TALK, "research"),
        ((3, 20), 40, TALK, "research"),
        ((), 20, b"", "tagged"),
        ((2,), 3, b"[]", "tagged"),
        ((2,), 3, b"{", "tagged"),
    ],
)
def test_the_agent_is_the_one_whose_conversation_the_session_holds(
    store: Store, numbers: tuple[int, ...], length: int, items: bytes, agent: str
) -> None:
    """Wherever it begins; else the one that the tag of the session names. A session that is gone has none."""
    store.create(SessionRow("talk", {"agent": "tagged"}, None, store.now()))
    hold = store.acquire("talk", wait=timedelta(0))
    entries = [SessionEntry(number, "", "", "state", "desk.plan", 1, 0, 0, 1, b"[]") for number in range(1, length + 1)]
    for number in numbers:
        entries[number - 1] = entries[number - 1]._replace(type_name=SAID.name, type_version=SAID.version, items=items)
    append(store, hold, 0, entries, None)
    row = effect("k", "unknown", store.now(), owner=ClaimOwner("talk", None, "c"))
    slot = effect("s", "unknown", store.now(), owner=ClaimOwner(), partition="talk")
    gone = effect("g", "unknown", store.now(), owner=ClaimOwner("gone", None, "c"))
    nobody = effect("n", "unknown", store.now(), owner=ClaimOwner())
    shown = with_agents(store, [row, slot, gone, nobody])
    assert [each.agent for each in shown] == [agent, agent, "", ""]


def test_list_picks_what_waits_to_be_applied(handrail: Command, store: Store) -> None:
    """With `--unapplied`: what is done and not applied, and whose call is open; not what is expired."""
    now = store.now()
    waits = effect("waits", "done", now)._replace(owner=ClaimOwner(SESSION, "resp_9", "call_9"), expires_at=None)
    for row in (
        waits,
        waits._replace(key="applied", owner=ClaimOwner(SESSION, "resp_9", "call_10"), applied_at=now),
        waits._replace(key="expired", owner=ClaimOwner(SESSION, "resp_9", "call_11"), expires_at=now),
        waits._replace(key="elsewhere", owner=ClaimOwner("no session", "resp_9", "call_9")),
    ):
        insert(store, row)
    keys = set(_keys(handrail("ledger", "list", "--unapplied", "--format", "json").out))
    assert "waits" in keys
    assert keys.isdisjoint({"applied", "expired", "elsewhere"})
    assert handrail("ledger", "list", "--unapplied", "--status", "failed").code == 2


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_table_of_effects_fits_every_terminal(terminal: Terminal, width: int, wording: Wording) -> None:
    """Key, state and term stay whole; what does not fit is named."""
    assert terminal.run("ledger", "list", width=width) == 0
    assert "\x1b[1;33mlapsed" in terminal.screen
    assert terminal.lines[8:] == wording
    assert all(len(line) <= width for line in terminal.lines)
    (lapsed,) = [line for line in terminal.lines if "session:pay:lapsed" in line]
    assert [cell for cell in re.split("  +", lapsed) if "5 min" in cell] == wording


@pytest.mark.parametrize("value", [b'{"cut": ', b"\xff", b'{"of": "another type"}'])
def test_a_done_effect_whose_result_cannot_be_read_is_shown_as_done(
    handrail: Command, store: Store, value: bytes
) -> None:
    """It has happened, whatever can be read of its result."""
    [row] = [each for each in store.rows() if each.key == "session:pay:done"]
    assert replace(store, row, row._replace(value=value))
    listed = handrail("ledger", "list", "--status", "done", "--session", SESSION)
    assert [line.split()[3] for line in listed.out.splitlines()[1:]] == ["done"]
    shown = handrail("ledger", "show", "session:pay:done")
    assert (listed.code, shown.code, shown.err) == (0, 0, "")
    assert "done" in shown.out
    assert "Paid 7 EUR." in shown.out
