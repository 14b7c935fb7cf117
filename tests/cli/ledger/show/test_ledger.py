"""`handrail ledger list` and `show`."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from handrail.cli.ledger import with_agents
from handrail.session.conversation import ConversationPart
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.session.persistence.stored_types import stored_type
from handrail.store import Store
from handrail.store.protocol import ClaimOwner
from tests.cli.desk import SESSION, Command, effect
from tests.store.units import append, insert, replace

SAID = stored_type(ConversationPart)
TALK = SAID.dump([ConversationPart((), speaker="agent", name="research")])


def test_an_effect_is_shown_with_its_arguments_and_its_agent(handrail: Command, store: Store) -> None:
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


@pytest.mark.parametrize("value", [b'{"cut": ', b"\xff", b'{"of": "another type"}'])
def test_a_done_effect_whose_result_cannot_be_read_is_shown_as_done(
    handrail: Command, store: Store, value: bytes
) -> None:
    """It has happened, whatever can be read of its result."""
    [row] = [each for each in store.rows() if each.key == "session:pay:done"]
    assert replace(store, row, row._replace(value=value))
    listed = handrail("ledger", "list", "--status", "done", "--session", SESSION)
    assert [line.split()[2] for line in listed.out.splitlines()[1:]] == ["done"]
    shown = handrail("ledger", "show", "session:pay:done")
    assert (listed.code, shown.code, shown.err) == (0, 0, "")
    assert "done" in shown.out
    assert "Paid 7 EUR." in shown.out
