"""Stores that were written while the tables had version 1: whatever version is newest, nothing in them is lost.

The files are in `tests/store/version_1/`; `write.py` beside them says what they contain. What becomes of calls and runs
is in `test_version_1_calls.py`.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import pytest

import handrail.store
from handrail.prompt.idempotency import OnOrphan
from handrail.runtime import EffectLedger, Session, Step, ToolCall, ToolInvoked
from handrail.runtime.ledger.effects import (
    ClaimAnswer,
    Claimed,
    ClaimRequest,
    Conflict,
    EffectResult,
    Hit,
    NotApplied,
    Unknown,
)
from handrail.store import EffectRow, Store
from handrail.testing import FakeClock
from tests.store.conftest import VERSION_1
from tests.store.version_1.desk import (
    JOURNAL,
    RUN,
    START,
    Note,
    Order,
    Receipt,
    Sale,
    Till,
    Visit,
    desk_tools,
    executor,
    receipt,
)
from tests.wording import Wording

MINUTE = timedelta(minutes=1)
RICH = Order("A-1", 500, date(2024, 3, 4), ("ribbon", "card"))

EFFECTS = {
    ("", "shop:parcel-A-1"): ("parcel", "done", 1, 14),
    ("", "shop:parcel-A-2"): ("parcel", "failed", 1, 14),
    ("", "shop:parcel-A-3"): ("parcel", "unknown", 2, 14),
    ("", "shop:parcel-A-4"): ("parcel", "done", 2, 14),
    ("", "shop:refund-A-1"): ("refund", "done", 1, 10),
    ("", "shop:refund-A-8"): ("refund", "running", 1, 33),
    ("desk", "call:call-20"): ("ship", "done", 1, 30),
    ("desk", "call:call-21"): ("charge", "running", 1, 31),
    ("desk", "call:call-4"): ("charge", "done", 1, 4),
    ("desk", "call:call-5"): ("charge", "failed", 1, 5),
    ("desk", "call:call-6"): ("charge", "unknown", 2, 6),
    ("desk", "session:mail-A-1"): ("mail", "done", 1, 7),
    ("desk", "session:mail-A-2"): ("mail", "unknown", 2, 9),
    ("desk", "session:mail-A-8"): ("mail", "running", 1, 32),
    ("monday", "call:call-2"): ("charge", "done", 1, 15),
    ("tuesday", "call:call-2"): ("charge", "running", 1, 20),
}
"""Every effect by partition and key: its tool, its status, its fencing token, and the minute when it was claimed."""

EXPIRED = {("", "shop:parcel-A-1"), ("monday", "call:call-2")}
"""Effects that were done, and whose results expired a day later."""

RECORDS = [
    ("call-1", "look", True, None, None, False),
    ("call-2", "note", True, None, None, False),
    ("call-3", "note", False, Step.HANDLER, None, False),
    ("call-4", "charge", True, None, "call:call-4", False),
    ("call-5", "charge", False, Step.HANDLER, "call:call-5", False),
    ("call-6", "charge", False, Step.HANDLER, "call:call-6", False),
    ("call-7", "mail", True, None, "session:mail-A-1", False),
    ("call-8", "mail", True, None, "session:mail-A-1", True),
    ("call-9", "mail", False, Step.HANDLER, "session:mail-A-2", False),
    ("call-10", "refund", True, None, "shop:refund-A-1", False),
    ("call-11", "note", True, None, None, False),
    ("call-12", "fly", False, Step.LOOK_UP, None, False),
    ("call-13", "note", False, Step.PARSE, None, False),
]
"""The recorded calls of the session `desk`: id, tool, success, the step that failed, key, whether replayed."""


def row_of(store: Store, partition: str, key: str) -> EffectRow:
    """The row of an effect, which is there."""
    row = EffectLedger(store).row(key, partition=partition)
    assert row is not None
    return row


def claim(store: Store, partition: str, key: str, *, on_orphan: OnOrphan = "unknown") -> ClaimAnswer:
    """The answer to another claim of an effect, by the same tool with the same arguments; nothing is run."""
    row, ledger = row_of(store, partition, key), EffectLedger(store)
    answer = ledger.claim(ClaimRequest(partition, key, row.tool, row.params_hash, on_orphan=on_orphan))
    if isinstance(answer, Claimed):
        ledger.fail(answer)
    return answer


# ------------------------------------------------------------------------------------------------------------ sessions


def test_the_files_have_version_1() -> None:
    """They are copied before they are opened, so no migration ever changes them."""
    with closing(sqlite3.connect(f"{(VERSION_1 / 'desk.db').as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        assert connection.execute("SELECT version FROM handrail_schema").fetchall() == [(1,)]
    assert "INSERT INTO handrail_schema (version) VALUES (1);\n" in (VERSION_1 / "desk.sql").read_text("utf-8")


@pytest.mark.parametrize("table", ["handrail_entries", "handrail_effects"])
def test_a_process_of_version_1_cannot_write_after_the_migration(tmp_path: Path, table: str, wording: Wording) -> None:
    """Its statements name a column that has another name now; the dump has them as that version wrote them."""
    dumped = (VERSION_1 / "desk.sql").read_text("utf-8").splitlines()
    (columns,) = {line.partition(" VALUES ")[0] for line in dumped if line.startswith(f"INSERT INTO {table} (")}
    marks = ", ".join("?" for _ in columns.split(", "))
    path = shutil.copyfile(VERSION_1 / "desk.db", tmp_path / "desk.db")
    handrail.store.open(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.OperationalError) as raised:
        connection.execute(f"{columns} VALUES ({marks})", (0,) * marks.count("?"))
    assert str(raised.value) == wording


def test_sessions_keep_their_parents_tags_and_times(version_1: Store) -> None:
    """Forks and children included."""
    tags = {"desk": "Büro", "shift": "late"}
    found = {row.session_id: (row.parent, row.tags, row.created_at - START) for row in version_1.sessions()}
    assert found == {
        "desk": (None, tags, 0 * MINUTE),
        "desk-b": ("desk", tags, 14 * MINUTE),
        "desk-none": ("desk", {}, 14 * MINUTE),
        "desk-note": ("desk", {"agent": "research"}, 14 * MINUTE),
        "monday": (None, {"agent": "desk"}, 15 * MINUTE),
        "monday/call-6": ("monday", {}, 15 * MINUTE),
        "sunday": (None, {}, 15 * MINUTE),
        "tuesday": (None, {}, 20 * MINUTE),
    }


def test_slices_keep_their_values(version_1: Store) -> None:
    """STATE and LOG, with values of many kinds; an event that a reducer took is in no slice."""
    with Session.open(version_1, "desk", create=False) as session:
        assert session[Note].all() == (Note("by hand"), Note("milk"), Note("bread"))
        assert session[Till].all() == (Till(9, 2),)
        assert session[Sale].all() == ()
        assert session[Visit].all() == (Visit("Zoë", START),)
        assert session[Receipt].all() == (receipt(RICH), *[receipt(Order("A-1", 500))] * 2)


def test_records_of_calls_are_read_back(version_1: Store) -> None:
    """With what the model asked for, the parsed parameters, the result, and the time."""
    with Session.open(version_1, "desk") as session:
        records = session[ToolInvoked].all()
    assert [
        (record.call_id, record.name, record.success, record.refused_at, record.effect_key, record.replayed)
        for record in records
    ] == RECORDS
    assert [record.at - START for record in records] == [number * MINUTE for number in range(1, 14)]
    assert {record.run_context for record in records} == {RUN}
    charge, written = records[3], records[10]
    assert charge.call.arguments == {"number": "A-1", "cents": 500, "day": "2024-03-04", "extras": ["ribbon", "card"]}
    assert (charge.params, charge.result.value) == (RICH, receipt(RICH))
    assert charge.result.message == "charge A-1: done"
    assert (written.call.arguments, written.result.exclude_value_from_context) == ('{"text": "bread"}', True)


def test_a_fork_and_children_are_opened(version_1: Store) -> None:
    """The fork shares the past up to its call, and has gone its own way since."""
    with Session.open(version_1, "desk-b", create=False) as fork:
        assert fork[Note].all() == (Note("by hand"), Note("milk"), Note("wine"))
        assert fork[Till].all() == (Till(8, 2),)
        assert [record.call_id for record in fork[ToolInvoked]] == ["call-1", "call-2", "call-3", "call-4", "call-4b"]
    with Session.open(version_1, "desk-note", create=False) as child:
        assert child[Note].all() == (Note("found it"),)
    with Session.open(version_1, "desk-none", create=False) as empty:
        assert empty.kinds == ()


def test_a_session_is_written_to_and_forked_at_an_old_call(version_1_url: str, wording: Wording) -> None:
    """What is new comes after what was there, also for the next process."""
    with handrail.store.open(version_1_url) as store, Session.open(store, "desk", checkpoint_every=2) as session:
        session.install(Till, initial=Till)
        runs = executor(session, *desk_tools([]))
        assert runs.execute(ToolCall("call-30", "look")).content == wording
        assert runs.execute(ToolCall("call-31", "note", {"text": "jam"})).success
        with session.fork(at="call-2", session_id="desk-c") as fork:
            assert fork[Note].all() == (Note("by hand"), Note("milk"))
    with handrail.store.open(version_1_url) as store, Session.open(store, "desk") as session:
        assert session[Note].all() == (Note("by hand"), Note("milk"), Note("bread"), Note("jam"))
        assert session[Till].all() == (Till(12, 3),)
        assert [record.call_id for record in session[ToolInvoked]][12:] == ["call-13", "call-30", "call-31"]


def test_commits_of_journals_stay_recorded(version_1: Store) -> None:
    """The files of a call that was committed are not rolled back."""
    assert version_1.is_committed(JOURNAL)
    assert not version_1.is_committed(JOURNAL[::-1])


# ------------------------------------------------------------------------------------------------------------- effects


def test_effects_keep_their_statuses_and_fencing_tokens(version_1: Store) -> None:
    """Under declared keys and slots, expired or not."""
    found = {
        (row.partition, row.key): (row.tool, row.status, row.fence, (row.created_at - START) // MINUTE)
        for row in version_1.rows()
    }
    assert {effect: found.get(effect) for effect in EFFECTS} == EFFECTS


@pytest.mark.parametrize("effect", EFFECTS, ids="/".join)
def test_an_effect_is_claimed_as_its_status_says(effect: tuple[str, str], version_1: Store) -> None:
    """Done is replayed until it expires; what is unknown, or was started by a process that died, is not run."""
    _, status, _, _ = EFFECTS[effect]
    rerun = status == "failed" or effect in EXPIRED
    expected = Claimed if rerun else Hit if status == "done" else Unknown
    assert type(claim(version_1, *effect)) is expected


def test_results_are_replayed_with_their_values(version_1: Store, wording: Wording) -> None:
    """Under a slot, under a declared key, and after a person had resolved the effect."""
    for key, message in (("call:call-4", "charge A-1: done"), ("session:mail-A-1", "mail A-1: done")):
        hit = claim(version_1, "desk", key)
        assert isinstance(hit, Hit)
        assert hit.result.message == message
        assert hit.result.value is not None
        assert b'"number":"A-1","cents":500' in hit.result.value
    found = EffectLedger(version_1).lookup("shop:parcel-A-4")
    assert found is not None
    assert (found.result_message, found.result_value) == (wording, {"place": "depot"})
    assert found.expires_at is None


def test_results_that_expire_are_replayed_until_then(version_1_url: str) -> None:
    """One whose value was lost says so, and its message need not be valid Unicode."""
    with handrail.store.open(version_1_url, clock=FakeClock(START + 60 * MINUTE)) as store:
        parcel, charge = (claim(store, *effect) for effect in sorted(EXPIRED))
    assert isinstance(parcel, Hit)
    assert parcel.result == EffectResult("sent \ud83d", None, exclude_value_from_context=True)
    assert parcel.caveat
    assert isinstance(charge, Hit)
    assert charge.result.value == b'"charged A-1"'


def test_an_effect_that_failed_runs_again_under_the_next_fencing_token(version_1_url: str, wording: Wording) -> None:
    """It keeps its identity, and until then its note for people."""
    with handrail.store.open(version_1_url, clock=FakeClock(START + 60 * MINUTE)) as store:
        before = row_of(store, "", "shop:parcel-A-2")
        answer = claim(store, "", "shop:parcel-A-2")
    assert before.note == wording
    assert isinstance(answer, Claimed)
    assert (answer.fence, answer.effect_id.hex) == (before.fence + 1, before.effect_id)


def test_an_effect_of_a_process_that_died_runs_again_where_its_tool_says_so(version_1: Store) -> None:
    """Its lease expired long ago; it keeps its identity, and the next owner has the next fencing token."""
    before = row_of(version_1, "", "shop:refund-A-8")
    answer = claim(version_1, "", "shop:refund-A-8", on_orphan="retry")
    assert isinstance(answer, Claimed)
    assert (answer.fence, answer.effect_id.hex) == (before.fence + 1, before.effect_id)


def test_a_person_resolves_effects(version_1: Store, wording: Wording) -> None:
    """One that was started by a process that died, and one that a handler did not know the outcome of."""
    ledger = EffectLedger(version_1)
    started, unknown = row_of(version_1, "desk", "call:call-21"), row_of(version_1, "desk", "call:call-6")
    assert unknown.note == wording
    assert ledger.resolve(started, EffectResult("the account shows it"), ttl=None)
    assert ledger.resolve(unknown, NotApplied("the account shows nothing"))
    assert isinstance(claim(version_1, "desk", "call:call-21"), Hit)
    assert isinstance(claim(version_1, "desk", "call:call-6"), Claimed)


def test_a_key_stands_for_its_arguments(version_1: Store) -> None:
    """Other arguments are a conflict, never a replay."""
    request = ClaimRequest("", "shop:refund-A-1", "refund", "f" * 64)
    assert isinstance(EffectLedger(version_1).claim(request), Conflict)
