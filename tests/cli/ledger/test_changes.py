"""`handrail ledger reconcile`, `invalidate` and `prune`."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from handrail.cli import ledger
from handrail.runtime import EffectLedger
from handrail.runtime.ledger import effects
from handrail.runtime.ledger.effects import Claimed, ClaimRequest, Hit, NotApplied, NotKnown
from handrail.store import EffectRow, Store
from handrail.store.protocol import UNTIL_APPLIED, ClaimOwner
from tests.cli.desk import SESSION, Command, Terminal
from tests.store.units import insert, replace
from tests.wording import Wording


def _row(store: Store, key: str, partition: str = "") -> EffectRow:
    row = store.get(partition, key)
    assert row is not None
    return row


# ------------------------------------------------------------------------------------------------------------ reconcile


def test_the_model_sees_the_value_that_a_person_records(handrail: Command, store: Store) -> None:
    """An unknown effect hides no value, because its handler has returned none."""
    ledger = EffectLedger(store)
    request = ClaimRequest("", "app:pay:lost", "pay", "ab" * 32, ClaimOwner(), timedelta(minutes=1))
    claimed = ledger.claim(request)
    assert isinstance(claimed, Claimed)
    assert ledger.end(claimed, NotKnown("timed out"))
    assert handrail("ledger", "reconcile", request.key, "--happened", "--value", "17").code == 0
    hit = ledger.claim(request)
    assert isinstance(hit, Hit)
    assert (hit.row.value, hit.row.exclude_value_from_context) == (b"17", False)


DAY, WAITS = timedelta(days=1), "session:pay:waits"


@pytest.mark.parametrize(
    "words, kept",
    [
        ("app:pay:unknown --happened", ("done", None, DAY)),
        ("app:pay:unknown --happened --message Paid. --value 17", ("done", b"17", DAY)),
        ('app:pay:unknown --happened --value {"n":"ü"} --ttl 36h', ("done", b'{"n":"\\u00fc"}', timedelta(hours=36))),
        ("app:pay:unknown --happened --value null --ttl never", ("done", b"null", None)),
        ("app:pay:unknown --not-happened", ("failed", None, DAY)),
        ("session:pay:lapsed --not-happened --why late", ("failed", None, DAY)),
        (f"{WAITS} --happened --message corrected", ("done", b'"receipt"', timedelta(days=36_500))),
        (f"{WAITS} --happened --value null", ("done", b"null", timedelta(days=36_500))),
    ],
)
def test_finding_is_recorded(
    handrail: Command, store: Store, words: str, kept: tuple[str, bytes | None, timedelta | None], wording: Wording
) -> None:
    """The same call is answered with it, or may run again; a value that nobody knows is lost, or stays as recorded."""
    _unapplied(store)
    ran = handrail("ledger", "reconcile", *words.split())
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == wording
    key = words.split(maxsplit=1)[0]
    row = _row(store, key, SESSION if key.startswith("session") else "")
    assert row.completed_at is not None
    assert (row.status, row.value, row.expires_at and row.expires_at - row.completed_at) == kept
    assert [row.message, row.note] == wording


@pytest.mark.parametrize(
    "words, code",
    [
        ("reconcile session:pay:running --happened", 1),
        ("reconcile session:pay:done --happened", 1),
        ("reconcile session:pay:waits --not-happened", 1),
        ("reconcile app:pay:unknown --applied", 1),
        ("reconcile app:pay:unknown", 2),
        ("reconcile app:pay:unknown --happened --why x", 2),
        ("reconcile app:pay:unknown --not-happened --message x", 2),
        ("reconcile app:pay:unknown --not-happened --value 1", 2),
        ("reconcile app:pay:unknown --applied --value 1", 2),
        ("reconcile app:pay:unknown --applied --happened", 2),
        ("reconcile app:pay:unknown --applied --not-happened", 2),
        ("reconcile app:pay:unknown --happened --value paid", 2),
        ("reconcile app:pay:unknown --happened --value NaN", 2),
        ("reconcile app:pay:unknown --happened --ttl=-1h", 2),
        ("reconcile app:pay:unknown --happened --ttl soon", 2),
        ("invalidate session:pay:running --yes", 1),
        ("invalidate session:pay:lapsed --yes", 1),
        ("invalidate app:pay:unknown --yes", 1),
        ("invalidate session:pay:waits --yes", 1),
        ("invalidate --yes", 2),
        ("invalidate k --tool pay --yes", 2),
        ("invalidate session:pay:done", 2),
        ("invalidate session:pay:done --dry-run", 0),
        ("invalidate --tool pay --dry-run", 0),
        ("prune", 2),
        ("prune --dry-run", 0),
    ],
)
def test_nothing_is_changed_by_a_guess(
    handrail: Command, store: Store, words: str, code: int, wording: Wording
) -> None:
    """An owner at work is not overruled, nor is a result; what could happen twice stays; a dry run only shows."""
    _unapplied(store)
    before = {*store.rows()}
    ran = handrail("ledger", *words.split())
    leases = (str(row.lease_until) for row in before if row.lease_until is not None)
    said = ran.err + ran.out
    for lease in leases:
        said = said.replace(lease, "UNTIL")
    assert (ran.code, said) == (code, wording)
    assert (ran.out == "") == (code != 0)
    assert {*store.rows()} == before


@pytest.mark.parametrize(
    "words, gone",
    [
        ("invalidate session:pay:done --yes", ["session:pay:done"]),
        ("invalidate session:pay:lapsed -y --force", ["session:pay:lapsed"]),
        ("invalidate app:pay:unknown -y --force", ["app:pay:unknown"]),
        ("invalidate session:pay:waits -y --force", [WAITS]),
        ("prune --yes", ["app:pay:expired"]),
    ],
)
def test_what_is_to_go_is_removed(
    handrail: Command, store: Store, words: str, gone: list[str], wording: Wording
) -> None:
    """And nothing else; by force also what may happen twice."""
    _unapplied(store)
    before = {row.key for row in store.rows()}
    ran = handrail("ledger", *words.split())
    assert (ran.code, ran.out, ran.err) == (0, wording, "")
    assert sorted(before - {row.key for row in store.rows()}) == gone


@pytest.mark.parametrize(
    "words, document",
    [
        ("prune --dry-run", {"removed": 0, "would_remove": 1, "bytes": 24, "dry_run": True}),
        ("prune --yes", {"removed": 1, "would_remove": 0, "bytes": 24, "dry_run": False}),
        ("invalidate --tool pay --dry-run", {"removed": 0, "kept": 3, "changed": 0, "dry_run": True, "effects": 3}),
        ("invalidate --tool pay --yes", {"removed": 3, "kept": 3, "changed": 0, "dry_run": False, "effects": 3}),
    ],
)
def test_programs_are_told_what_was_removed(handrail: Command, words: str, document: dict[str, object]) -> None:
    """One document."""
    told = json.loads(handrail("ledger", *words.split(), "--format", "json").out)
    if "effects" in told:
        told["effects"] = len(told["effects"])
    assert told == document


def _unapplied(store: Store) -> str:
    """The key of an effect that is done, and whose result waits for `apply`."""
    done, key = _row(store, "session:pay:done", SESSION), "session:pay:waits"
    assert done.completed_at is not None
    kept = done._replace(
        key=key, effect_id="f" * 32, applied_at=None, expires_at=done.completed_at + UNTIL_APPLIED, value=b'"receipt"'
    )
    assert insert(store, kept) is None
    return key


def test_a_person_records_that_a_result_has_been_applied_by_hand(
    handrail: Command, store: Store, wording: Wording
) -> None:
    """It is not applied any more, and can be removed; what has no result is not applied."""
    key = _unapplied(store)
    ran = handrail("ledger", "reconcile", key, "--applied", "--why", "ada has booked it")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == wording
    row = _row(store, key, SESSION)
    assert (row.status, row.note, row.value) == ("done", wording, b'"receipt"')
    assert row.applied_at is not None
    assert row.expires_at == row.applied_at + timedelta(days=1)
    assert handrail("ledger", "reconcile", key, "--applied").err == wording
    assert handrail("ledger", "reconcile", "app:pay:unknown", "--applied").err == wording
    assert handrail("ledger", "invalidate", key, "--yes").code == 0


def test_a_finding_about_a_row_that_has_changed_is_not_written(
    handrail: Command, store: Store, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Between looking and writing somebody else may have decided; that stands."""

    def looked(store: Store, key: str, partition: str | None) -> EffectRow:
        row = _row(store, key)
        assert EffectLedger(store).resolve(row, NotApplied("somebody else"))
        return row

    monkeypatch.setattr(ledger, "find_effect", looked)
    ran = handrail("ledger", "reconcile", "app:pay:unknown", "--happened")
    assert ran.code == 1
    assert ran.err == wording
    assert _row(store, "app:pay:unknown").note == "somebody else"


# ----------------------------------------------------------------------------------------------------------- invalidate


def test_the_effects_of_a_tool_are_forgotten_together(
    handrail: Command, terminal: Terminal, store: Store, wording: Wording
) -> None:
    """What is running or unknown stays, and that is said; before a terminal it is asked first."""
    assert terminal.run("ledger", "invalidate", "--tool", "pay", typed="\n") == 1
    assert terminal.lines == wording
    ran = handrail("ledger", "invalidate", "--tool", "pay", "--yes")
    assert (ran.code, ran.out, ran.err) == (0, wording, "")
    assert {row.key for row in store.rows()} == {
        "session:pay:running",
        "session:pay:lapsed",
        "app:pay:unknown",
        "app:mail:kept",
    }
    again = handrail("ledger", "invalidate", "--tool", "pay", "--yes")
    assert again.code == 1
    assert again.err == wording


@pytest.mark.parametrize("typed, code", [("y\n", 0), ("\n", 1), ("", 1)])
def test_a_person_is_asked_before_something_is_forgotten(
    terminal: Terminal, store: Store, typed: str, code: int, wording: Wording
) -> None:
    """Only a clear yes removes."""
    assert terminal.run("ledger", "invalidate", "session:pay:done", typed=typed) == code
    assert [line for line in terminal.lines if "session:pay:done?" in line] == wording
    assert (store.get(SESSION, "session:pay:done") is None) == (code == 0)


def test_a_row_that_has_changed_is_not_forgotten(
    handrail: Command, store: Store, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """What is removed is what was seen."""

    def looked(store: Store, key: str, partition: str | None) -> EffectRow:
        row = _row(store, key, SESSION)
        assert replace(store, row, effects.unknown_row(row, "somebody else"))
        return row

    monkeypatch.setattr(ledger, "find_effect", looked)
    ran = handrail("ledger", "invalidate", "session:pay:done", "--yes")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == wording
    assert _row(store, "session:pay:done", SESSION).note == "somebody else"


# ---------------------------------------------------------------------------------------------------------------- prune


def test_pruning_asks_first(handrail: Command, terminal: Terminal, store: Store, wording: Wording) -> None:
    """It says how much it would remove; anything but a yes removes nothing, and without a terminal it refuses."""
    assert handrail("ledger", "prune").code == 2
    assert terminal.run("ledger", "prune", typed="\n", width=80) == 1
    assert terminal.lines == wording
    assert len(list(store.rows())) == 7
    assert terminal.run("ledger", "prune", typed="y\n", width=80) == 0
    assert terminal.lines == wording
    assert len(list(store.rows())) == 6
