"""Effects as people see them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from handrail.operations.effects import EffectView
from handrail.store import EffectRow
from handrail.store.protocol import with_proof
from tests.cli.desk import HOUR, effect
from tests.wording import Wording

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)

STATES = [
    *((effect("k", "running", NOW), "running"), (effect("k", "running", NOW, lease_until=NOW - HOUR), "lapsed")),
    *((effect("k", "running", NOW, lease_until=None), "lapsed"), (effect("k", "done", NOW), "done")),
    *((effect("k", "done", NOW, expires_at=None), "done"), (effect("k", "done", NOW, expires_at=NOW), "expired")),
    (effect("k", "failed", NOW, expires_at=NOW - 3 * HOUR), "expired"),
    (effect("k", "unknown", NOW), "unknown"),
]


@pytest.mark.parametrize("row, state", STATES)
def test_a_state_says_what_the_time_has_made_of_the_status(row: EffectRow, state: str, wording: Wording) -> None:
    """An effect whose lease has passed is lapsed, one whose time is up expired."""
    shown = EffectView(row, NOW)
    assert (shown.state, shown.term) == (state, wording)


def test_lease_of_a_process_that_has_ended_has_expired_when_it_did() -> None:
    """Not when it is looked at, however late that is."""
    row = effect("k", "running", NOW, lease_until=NOW - HOUR)
    assert EffectView(with_proof(row, False, NOW), NOW).term == "lease expired 60 min ago"


VALUES = [
    (effect("k", "done", NOW), '{\n  "receipt": 7\n}'),
    (effect("k", "done", NOW, value=b"null"), "null"),
    pytest.param(effect("k", "done", NOW, value=None), None, id="not recorded"),
    pytest.param(effect("k", "done", NOW, value=b"{\xff"), None, id="not JSON"),
    pytest.param(effect("k", "done", NOW, value=b'{"$parts":[],"values":1}'), None, id="other parts"),
    (effect("k", "running", NOW), ""),
]


@pytest.mark.parametrize("row, text", VALUES)
def test_a_value_is_shown_as_it_is(row: EffectRow, text: str | None, wording: Wording) -> None:
    """`null` is a value, and a value that was lost is none."""
    assert EffectView(row, NOW).value == (wording if text is None else text)
