"""The values of the ledger: what they say, and to whom."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from handrail.runtime.ledger.effects import Busy, Conflict, ToolEffect, Unknown
from handrail.runtime.ledger.records import load_result
from handrail.store import ClaimOwner, EffectRow
from tests.kit import tool
from tests.serde.kit import Json
from tests.wording import Wording

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROW = EffectRow("s1", "session:pay:1", "0" * 31 + "7", "pay", "a" * 64, ClaimOwner(), "done", 3, NOW, completed_at=NOW)


@pytest.mark.parametrize(
    "value, replayed",
    [(b"0", 0), (b'""', ""), (b"[]", []), (b"false", False), (b"{}", {}), (b"null", None), (b'{"a":[1]}', {"a": [1]})],
)
def test_effect_shows_the_value_as_it_was(value: bytes, replayed: Json) -> None:
    """A falsy value is a value, and so is None."""
    effect = ToolEffect.of(ROW._replace(value=value))
    assert effect.result_value == replayed
    assert type(effect.result_value) is type(replayed)
    assert not effect.value_unavailable


def test_effect_has_the_fields_of_the_documents() -> None:
    """A done row becomes the record that the documents describe, and nobody can change it."""
    later = NOW + timedelta(hours=1)
    row = ROW._replace(message="paid", value=b"{}", completed_at=later, expires_at=later, created_at=NOW)
    effect = ToolEffect.of(row)
    assert effect == ToolEffect(
        idempotency_key="session:pay:1",
        tool_name="pay",
        params_hash="a" * 64,
        result_message="paid",
        result_value={},
        result_success=True,
        created_at=later,
        expires_at=later,
        effect_id=UUID(int=7),
        partition="s1",
    )
    with pytest.raises(FrozenInstanceError):
        effect.result_message = "changed"  # type: ignore[misc]


def test_value_that_was_lost_is_told(wording: Wording) -> None:
    """A value that could not be serialised is marked, and a replay says so."""
    lost = ROW._replace(message="paid", value=None, exclude_value_from_context=True)
    effect = ToolEffect.of(lost)
    assert (effect.result_value, effect.value_unavailable, effect.exclude_value_from_context) == (None, True, True)
    replayed = load_result(tool("pay"), lost)
    assert (replayed.value, replayed.exclude_value_from_context, replayed.message) == (None, True, wording)


def test_refusals_tell_the_model_what_to_do(wording: Wording) -> None:
    """Each names the tool and the key, says that nothing was run, and what would be right."""
    busy, conflict = Busy(ROW).message, Conflict(ROW).message
    unknown = Unknown(ROW._replace(status="unknown", note="its owner (call 1) gave no sign in time")).message
    assert all("pay" in message and "session:pay:1" in message for message in (busy, conflict, unknown))
    assert busy == wording
    assert conflict == wording
    assert unknown == wording
    assert Unknown(ROW).message == wording


def test_a_call_that_runs_is_not_asked_for_again(wording: Wording) -> None:
    """Its slot belongs to its identity: an equal call would have another one, and be another effect."""
    assert Busy(ROW._replace(key="call:r/c", status="running")).message == wording


def test_unreadable_value_is_unavailable() -> None:
    """The effect is done all the same; it is never taken for one whose value is None."""
    found = ToolEffect.of(ROW._replace(value=b'{"a":'))
    assert (found.result_success, found.result_value, found.value_unavailable) == (True, None, True)
