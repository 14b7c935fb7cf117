"""`handrail ledger reconcile`, `invalidate` and `prune`."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from handrail.cli.ledger import changes
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


def test_a_person_records_that_an_effect_has_happened(handrail: Command, store: Store, wording: Wording) -> None:
    """The same call is answered from then on with what the person says."""
    ran = handrail(
        "ledger", "reconcile", "app:pay:unknown", "--happened", "--message", "Paid.", "--value", '{"n": "ü"}'
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == wording
    row = _row(store, "app:pay:unknown")
    assert (row.status, row.message, json.loads(row.value or b"")) == ("done", "Paid.", {"n": "ü"})
    assert row.expires_at is not None
    assert row.completed_at is not None
    assert row.expires_at - row.completed_at == timedelta(days=1)


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


def test_what_nobody_knows_of_a_result_counts_as_lost(handrail: Command, store: Store, wording: Wording) -> None:
    """Without --value the value is unavailable, which is not the value `null`; the message has a default."""
    handrail("ledger", "reconcile", "app:pay:unknown", "--happened")
    row = _row(store, "app:pay:unknown")
    assert (row.value, row.message) == (None, wording)


@pytest.mark.parametrize("ttl, kept", [("36h", timedelta(hours=36)), ("never", None)])
def test_a_finding_is_kept_as_long_as_is_said(
    handrail: Command, store: Store, ttl: str, kept: timedelta | None
) -> None:
    """`never` is for a record that never expires."""
    handrail("ledger", "reconcile", "app:pay:unknown", "--happened", "--ttl", ttl, "--value", "null")
    row = _row(store, "app:pay:unknown")
    assert row.completed_at is not None
    assert (row.expires_at and row.expires_at - row.completed_at) == kept
    assert row.value == b"null"


def test_a_person_records_that_a_lapsed_effect_has_not_happened(
    handrail: Command, store: Store, wording: Wording
) -> None:
    """Its owner is fenced off, and the same call may run again."""
    ran = handrail("ledger", "reconcile", "session:pay:lapsed", "--not-happened", "--why", "no such payment")
    assert ran.out == wording
    row = _row(store, "session:pay:lapsed", SESSION)
    assert (row.status, row.note, row.fence) == ("failed", "no such payment", 2)
    ran = handrail("ledger", "reconcile", "app:pay:unknown", "--not-happened", "--format", "json")
    assert json.loads(ran.out)["status"] == "failed"


@pytest.mark.parametrize("key", ["session:pay:running", "session:pay:done"])
def test_what_is_no_riddle_is_not_reconciled(handrail: Command, store: Store, key: str, wording: Wording) -> None:
    """An owner at work is not overruled, nor is a result; nothing changes."""
    before = _row(store, key, SESSION)
    ran = handrail("ledger", "reconcile", key, "--happened")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.replace(str(before.lease_until), "UNTIL") == wording
    assert _row(store, key, SESSION) == before


def test_a_result_that_is_not_applied_is_corrected(handrail: Command, store: Store, wording: Wording) -> None:
    """A slip of a person; the message stays unless another one is given."""
    key = "app:pay:lost"
    assert insert(store, _row(store, "app:pay:unknown")._replace(key=key, effect_id="e" * 32, fence=2)) is None
    assert handrail("ledger", "reconcile", key, "--happened", "--message", "paid", "--value", "17").code == 0
    refused = handrail("ledger", "reconcile", key, "--not-happened")
    corrected = handrail("ledger", "reconcile", key, "--happened", "--value", '{"number": "A"}')
    assert [refused.code, corrected.code] == [1, 0]
    assert refused.err + corrected.out == wording
    row = _row(store, key)
    assert (row.status, row.message, row.value) == ("done", "paid", b'{"number":"A"}')


def _unapplied(store: Store) -> str:
    """The key of an effect that is done, and whose result waits for `apply`."""
    done, key = _row(store, "session:pay:done", SESSION), "session:pay:waits"
    assert done.completed_at is not None
    kept = done._replace(
        key=key, effect_id="f" * 32, applied_at=None, expires_at=done.completed_at + UNTIL_APPLIED, value=b'"receipt"'
    )
    assert insert(store, kept) is None
    return key


def test_a_correction_keeps_the_value_that_is_recorded(handrail: Command, store: Store) -> None:
    """It is of another message, then of another value."""
    key = _unapplied(store)
    assert handrail("ledger", "reconcile", key, "--happened", "--message", "paid, says the bank").code == 0
    row = _row(store, key, SESSION)
    assert (row.message, row.value, row.is_kept_until_applied) == ("paid, says the bank", b'"receipt"', True)
    assert handrail("ledger", "reconcile", key, "--happened", "--value", "null").code == 0
    assert _row(store, key, SESSION).value == b"null"


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


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--happened", "--why", "x"),
        ("--not-happened", "--message", "x"),
        ("--not-happened", "--value", "1"),
        ("--applied", "--value", "1"),
        ("--applied", "--happened"),
        ("--applied", "--not-happened"),
        ("--happened", "--value", "paid"),
        ("--happened", "--value", "NaN"),
        ("--happened", "--ttl=-1h"),
        ("--happened", "--ttl", "soon"),
    ],
    ids=lambda words: " ".join(words) or "nothing",
)
def test_a_finding_that_makes_no_sense_is_a_usage_error(
    handrail: Command, store: Store, words: tuple[str, ...], wording: Wording
) -> None:
    """It is refused before anything is looked at."""
    before = _row(store, "app:pay:unknown")
    ran = handrail("ledger", "reconcile", "app:pay:unknown", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == wording
    assert _row(store, "app:pay:unknown") == before


def test_a_finding_about_a_row_that_has_changed_is_not_written(
    handrail: Command, store: Store, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Between looking and writing somebody else may have decided; that stands."""

    def looked(store: Store, key: str, partition: str | None) -> EffectRow:
        row = _row(store, key)
        assert EffectLedger(store).resolve(row, NotApplied("somebody else"))
        return row

    monkeypatch.setattr(changes, "find_effect", looked)
    ran = handrail("ledger", "reconcile", "app:pay:unknown", "--happened")
    assert ran.code == 1
    assert ran.err == wording
    assert _row(store, "app:pay:unknown").note == "somebody else"


# ----------------------------------------------------------------------------------------------------------- invalidate


def test_an_effect_is_forgotten(handrail: Command, store: Store, wording: Wording) -> None:
    """The same call runs again then."""
    ran = handrail("ledger", "invalidate", "session:pay:done", "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == wording
    assert store.get(SESSION, "session:pay:done") is None


@pytest.mark.parametrize("key, state", [("app:pay:unknown", "unknown"), ("session:pay:lapsed", "lapsed")])
def test_what_could_happen_twice_is_not_forgotten_unless_by_force(
    handrail: Command, store: Store, key: str, state: str, wording: Wording
) -> None:
    """The refusal says what else can be done."""
    ran = handrail("ledger", "invalidate", key, "-y")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == wording
    assert handrail("ledger", "invalidate", key, "-y", "--force").code == 0
    assert key not in {row.key for row in store.rows()}


def test_what_waits_to_be_applied_is_not_forgotten_unless_by_force(
    handrail: Command, store: Store, wording: Wording
) -> None:
    """It has happened; the refusal says what applies it."""
    key = _unapplied(store)
    ran = handrail("ledger", "invalidate", key, "-y")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == wording
    assert handrail("ledger", "invalidate", key, "-y", "--force").code == 0


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


def test_a_dry_run_removes_nothing(handrail: Command, store: Store, wording: Wording) -> None:
    """It shows what would go, and needs no --yes."""
    before = set(store.rows())
    ran = handrail("ledger", "invalidate", "--tool", "pay", "--dry-run")
    assert ran.code == 0
    assert ran.out.splitlines()[-2:] == wording
    assert "session:pay:done" in ran.out
    told = json.loads(handrail("ledger", "invalidate", "--tool", "pay", "--dry-run", "--format", "json").out)
    assert (told["removed"], told["kept"], told["dry_run"], len(told["effects"])) == (0, 3, True, 3)
    assert set(store.rows()) == before


@pytest.mark.parametrize(
    "words",
    [
        ("--yes",),
        ("k", "--tool", "pay", "--yes"),
        ("session:pay:done",),
    ],
    ids=" ".join,
)
def test_a_removal_that_is_not_clear_is_a_usage_error(
    handrail: Command, store: Store, words: tuple[str, ...], wording: Wording
) -> None:
    """Nothing is removed by a guess."""
    before = set(store.rows())
    ran = handrail("ledger", "invalidate", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == wording
    assert set(store.rows()) == before


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

    monkeypatch.setattr(changes, "find_effect", looked)
    ran = handrail("ledger", "invalidate", "session:pay:done", "--yes")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == wording
    assert _row(store, "session:pay:done", SESSION).note == "somebody else"


# ---------------------------------------------------------------------------------------------------------------- prune


def test_expired_effects_are_pruned(handrail: Command, store: Store, wording: Wording) -> None:
    """Only those; the second time there is nothing left to do."""
    assert handrail("ledger", "prune", "--yes").out == wording
    assert handrail("ledger", "prune", "--yes").out == wording
    assert len(list(store.rows())) == 6


def test_programs_are_told_how_many_were_pruned(handrail: Command) -> None:
    """One document."""
    dry = json.loads(handrail("ledger", "prune", "--dry-run", "--format", "json").out)
    assert dry == {"removed": 0, "would_remove": 1, "bytes": 24, "dry_run": True}
    done = json.loads(handrail("ledger", "prune", "--yes", "--format", "json").out)
    assert done == {"removed": 1, "would_remove": 0, "bytes": 24, "dry_run": False}


def test_pruning_asks_first(handrail: Command, terminal: Terminal, store: Store, wording: Wording) -> None:
    """It says how much it would remove; anything but a yes removes nothing, and without a terminal it refuses."""
    assert handrail("ledger", "prune").code == 2
    assert terminal.run("ledger", "prune", typed="\n", width=80) == 1
    assert terminal.lines == wording
    assert len(list(store.rows())) == 7
    assert terminal.run("ledger", "prune", typed="y\n", width=80) == 0
    assert terminal.lines == wording
    assert len(list(store.rows())) == 6
