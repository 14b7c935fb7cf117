"""What a store has many of: sessions, effects and questions, each listed, shown, filtered, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.cli.options import PAGE
from handrail.session import Session
from handrail.session.open_calls import PostponedCall
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.store.protocol import ClaimOwner
from tests.cli.desk import FORK, SESSION, Command, Terminal, effect
from tests.store.kit import insert
from tests.wording import Wording

EVIL = "\x1b[2J\x07\x9b31m\u202efed"
CONTROLS = ("\x1b[2J", "\x9b", "\u202e", "\x07", "\x1b]")
QUESTION = ("approvals", "show", "loop", "c1")


@pytest.fixture(autouse=True)
def loop(store: Store) -> None:
    """A session with a call of a program that waits for its result, beside those of the desk."""
    with Session.open(store, "loop", tags={"agent": "cashier"}) as session:
        session[PostponedCall].append(PostponedCall("loop", "resp_1", "c1", "pay", store.now()))


LISTS = {"sessions": "session_id", "ledger": "key", "approvals": "session_id"}
"""The groups of commands that list entities, and what names one in JSON."""

IDS = {
    "sessions": ["loop", FORK, SESSION],
    "ledger": [
        *("session:pay:running", "session:pay:lapsed", "session:pay:done", "session:pay:failed"),
        *("app:pay:unknown", "app:pay:expired", "app:mail:kept"),
    ],
    "approvals": ["loop"],
}
"""What is there, in the order of the lists: the newest first, and the questions the oldest first."""


def listed(handrail: Command, *words: str) -> list[str]:
    """The ids that a list in JSON has, an object a line."""
    ran = handrail(words[0], "list", *words[1:], "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(line)[LISTS[words[0]]] for line in ran.out.splitlines()]


@pytest.mark.parametrize("group", LISTS)
def test_list_is_a_table_in_order(handrail: Command, group: str, wording: Wording) -> None:
    """A heading, and a line for each; nothing is cut in a pipe, and nothing goes to standard error."""
    ran = handrail(group, "list")
    heading, *rows = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert " ".join(heading.split()) == wording
    assert [row.split()[0] for row in rows] == IDS[group] == listed(handrail, group)


FILTERS: list[tuple[str, str, list[str]]] = [
    *(("ledger", f"--status {state}", [f"session:pay:{state}"]) for state in ("lapsed", "running")),
    ("ledger", "--status unknown --status expired", ["session:pay:lapsed", "app:pay:unknown", "app:pay:expired"]),
    *(("ledger", "--tool mail", ["app:mail:kept"]), ("ledger", f"--session {FORK}", ["session:pay:failed"])),
    *(("ledger", "--session f", []), ("ledger", "--unapplied --status failed", [])),
    ("ledger", f"--session {SESSION} --status done --status expired", ["session:pay:done", "app:pay:expired"]),
    ("ledger", "--limit 2", ["session:pay:running", "session:pay:lapsed"]),
    *(("sessions", words, [SESSION]) for words in ("--tag desk", "--tag desk=berlin --tag customer")),
    *(("sessions", words, []) for words in ("--tag desk=", "--tag colour", "--tag desk --tag desk=paris")),
    *(("sessions", "--agent cashier", ["loop"]), ("sessions", "--older-than 30m", [SESSION])),
    *(("sessions", "--limit 1", ["loop"]), ("approvals", f"--session {FORK}", [])),
    *(("approvals", words, ["loop"]) for words in ("--session loop", "--session loop --limit 1", "--limit 1")),
    ("approvals", "--older-than 1h", []),
]


@pytest.mark.parametrize("group, words, ids", FILTERS)
def test_filters_are_combined_with_and(handrail: Command, group: str, words: str, ids: list[str]) -> None:
    """A filter that is repeated has one of its values, but tags have all; of what contradicts each other nothing."""
    assert listed(handrail, group, *words.split()) == ids


@pytest.mark.parametrize("group", LISTS)
def test_nothing_found_is_said_to_people(handrail: Command, tmp_path: Path, group: str, wording: Wording) -> None:
    """An empty table would look like a fault; a program reads nothing."""
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    stores.open(url).close()
    ran = handrail(group, "list", "--store", url)
    assert (ran.code, ran.out, ran.err) == (0, wording, "")
    assert handrail(group, "list", "--store", url, "--format", "json").out == ""


@pytest.mark.parametrize("group", ["sessions", "ledger"])
def test_table_is_a_page_and_json_is_everything(handrail: Command, store: Store, group: str, wording: Wording) -> None:
    """Whoever needs more says so, and is told that there is more."""
    now = store.now()
    for number in range(PAGE):
        store.create(SessionRow(f"s{number}", {}, None, now))
        insert(store, effect(f"k{number}", "done", now, partition="many"))
    lines = handrail(group, "list").out.splitlines()
    assert (len(lines), lines[-1]) == (PAGE + 2, wording)
    assert len(handrail(group, "list", "--limit", "3").out.splitlines()) == 3 + 2
    assert len(handrail(group, "list", "--limit", "100").out.splitlines()) == PAGE + len(IDS[group]) + 1
    assert len(listed(handrail, group)) == PAGE + len(IDS[group])


MISSING = (
    *("sessions show nobody", "sessions fork nobody", "sessions delete nobody --yes", "ledger show nothing"),
    *(f"ledger show session:pay:done --partition {FORK}", "ledger reconcile nothing --happened"),
    "approvals show nobody c1",
    *("approvals show loop c9", "approvals answer loop c9 yes", "approvals list --session nobody"),
)
WRONG = (
    *("sessions list --older-than 0s", "sessions list --state asleep", "ledgr"),
    *("sessions list --limit 0", "ledger list --status gone", "approvals list --older-than 0s", "ledger show"),
    *("ledger list --stat done", "sessions list --limit many", "sessions list --format xml", "sessions list b\udcff"),
)
REFUSALS = dict.fromkeys(MISSING, 1) | dict.fromkeys(WRONG, 2)
"""Commands that are refused: 1 for what is not there, 2 for a command line that is not valid."""


@pytest.mark.parametrize("line", REFUSALS, ids=ascii)
def test_refused_command_says_why_in_one_line(handrail: Command, line: str, wording: Wording) -> None:
    """A slip in a name is not a success; the error names the store and the name, or where the help is."""
    ran = handrail(*line.split())
    assert (ran.code, ran.out, ran.err) == (REFUSALS[line], "", wording)
    assert len(ran.err.splitlines()) == 1


SHOWN = [("sessions", "show", SESSION), ("ledger", "show", "session:pay:done"), QUESTION]


@pytest.mark.parametrize("words", SHOWN, ids=lambda words: words[0])
def test_one_is_shown_whole(handrail: Command, words: Sequence[str], wording: Wording) -> None:
    """Names and values for people; one document for programs, with all that a list has."""
    ran = handrail(*words)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in ran.out.partition("\n\n")[0].splitlines()] == wording
    document = handrail.document(*words)
    line = handrail(words[0], "list", "--format", "json").out.splitlines()[
        IDS[words[0]].index(document[LISTS[words[0]]])
    ]
    assert json.loads(line).items() <= document.items()
    assert list(document) == wording


@pytest.mark.parametrize("form", [[], ["--format", "json"]])
@pytest.mark.parametrize("words", ["ledger list", "ledger show evil", "sessions list"])
def test_no_text_of_a_model_steers_the_terminal(terminal: Terminal, store: Store, words: str, form: list[str]) -> None:
    """It is shown with escapes, whatever the command and the format."""
    both = json.dumps({"arguments": {"to": EVIL}, "written": f"{EVIL}\x1b]0;title"}, ensure_ascii=False).encode()
    insert(store, effect("evil", "unknown", store.now(), arguments=both, note=EVIL))
    store.create(SessionRow("evil", {"by": EVIL}, None, store.now()))
    assert terminal.run(*words.split(), *form, width=300) == 0
    assert "fed" in terminal.screen
    assert not [part for part in CONTROLS if part in terminal.screen]


def test_key_of_several_sessions_needs_the_partition(handrail: Command, store: Store, wording: Wording) -> None:
    """The error lists them; one that all share is the empty one."""
    insert(store, effect("session:pay:done", "done", store.now(), message="another"))
    ran = handrail("ledger", "show", "session:pay:done")
    assert (ran.code, ran.err) == (1, wording)
    assert "another" in handrail("ledger", "show", "session:pay:done", "--partition", "").out
    assert "Paid 7" in handrail("ledger", "show", "session:pay:done", "--partition", SESSION).out


def test_unapplied_effects_are_those_whose_calls_are_open(handrail: Command, store: Store) -> None:
    """With `--unapplied`: what is done and not applied; not what is expired."""
    now = store.now()
    waits = effect("waits", "done", now)._replace(owner=ClaimOwner(SESSION, "resp_9", "call_9"), expires_at=None)
    for row in (
        waits,
        waits._replace(key="applied", owner=ClaimOwner(SESSION, "resp_9", "call_10"), applied_at=now),
        waits._replace(key="expired", owner=ClaimOwner(SESSION, "resp_9", "call_11"), expires_at=now),
        waits._replace(key="elsewhere", owner=ClaimOwner("no session", "resp_9", "call_9")),
    ):
        insert(store, row)
    keys = listed(handrail, "ledger", "--unapplied")
    assert "waits" in keys
    assert {*keys}.isdisjoint({"applied", "expired", "elsewhere"})
