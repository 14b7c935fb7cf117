"""What a store keeps, in words and as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from handrail.cli.ledger import EFFECT, EffectView
from handrail.prompt import BinaryPart, TextPart, Tool, ToolResult
from handrail.runtime.ledger.records import dump_result
from handrail.store import EffectRow
from tests.cli.desk import HOUR, effect
from tests.wording import Wording

DRAW = Tool[None, str | None](name="draw", description="Draw.")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "row, state",
    [
        pytest.param(effect("k", "running", NOW), "running", id="running"),
        pytest.param(effect("k", "running", NOW, lease_until=NOW - HOUR), "lapsed", id="lapsed"),
        pytest.param(effect("k", "running", NOW, lease_until=None), "running", id="running without a lease"),
        pytest.param(effect("k", "done", NOW), "done", id="done"),
        pytest.param(effect("k", "done", NOW, expires_at=None), "done", id="done and kept"),
        pytest.param(effect("k", "done", NOW, expires_at=NOW), "expired", id="expired now"),
        pytest.param(effect("k", "failed", NOW, expires_at=NOW - 3 * HOUR), "expired", id="expired before"),
        pytest.param(effect("k", "unknown", NOW), "unknown", id="unknown"),
    ],
)
def test_a_state_says_what_the_time_has_made_of_the_status(row: EffectRow, state: str, wording: Wording) -> None:
    """An effect whose lease has passed is lapsed, one whose time is up expired."""
    shown = EffectView(row, NOW)
    assert (shown.state, shown.term) == (state, wording)


@pytest.mark.parametrize(
    "row, text",
    [
        (effect("k", "done", NOW), '{\n  "receipt": 7\n}'),
        (effect("k", "done", NOW, value=b"null"), "null"),
        pytest.param(effect("k", "done", NOW, value=None), None, id="not recorded"),
        pytest.param(effect("k", "done", NOW, value=b"{\xff"), None, id="not JSON"),
        pytest.param(effect("k", "done", NOW, value=b'{"$parts":[],"values":1}'), None, id="other parts"),
        (effect("k", "running", NOW), ""),
    ],
)
def test_a_value_is_shown_as_it_is(row: EffectRow, text: str | None, wording: Wording) -> None:
    """`null` is a value, and a value that was lost is none."""
    assert EffectView(row, NOW).value == (wording if text is None else text)


ORDER = {"order": 7, "to": "Zürich"}
CHANGED = {"arguments": ORDER, "written": {"order": 70}}


def test_an_effect_is_told_whole_to_programs(wording: Wording) -> None:
    """All columns, the value as JSON, and the state beside the status."""
    row = effect("k", "running", NOW, lease_until=NOW - timedelta(minutes=1))
    told = EFFECT.json(EffectView(row, NOW))
    assert set(told) == {*EffectRow._fields, "state", "value_unavailable", "agent", "written", "parts"}
    assert (told["status"], told["state"], told["value"], told["value_unavailable"]) == (
        "running",
        "lapsed",
        None,
        False,
    )
    assert told["owner"] == {**row.owner._asdict(), "in_words": wording}
    done = effect("k", "done", NOW, applied_at=NOW)
    assert EFFECT.json(EffectView(done, NOW, "desk"))["agent"] == "desk"
    assert EFFECT.json(EffectView(done, NOW))["value"] == {"receipt": 7}
    assert EFFECT.json(EffectView(done._replace(value=None), NOW))["value_unavailable"] is True


def test_files_of_a_result_are_shown_by_kind_and_size() -> None:
    """Their bytes would fill the screen."""
    parts = (TextPart("By month:"), BinaryPart(bytes(12_000), "image/png"))
    for value, shown in ((None, None), ("drawn", "drawn")):
        result = dump_result(DRAW, ToolResult("Sales.", value, parts=parts))
        row = effect("k", "done", NOW, value=result.value)
        fields = dict(EFFECT.record(EffectView(row, NOW)))
        assert (fields.get("value"), fields["parts"]) == (shown, "By month:\n[image/png, 12 kB]")
        told = EFFECT.json(EffectView(row, NOW))
        assert told["parts"] == [{"text": "By month:"}, {"media_type": "image/png", "size": 12_000}]


@pytest.mark.parametrize(
    "recorded, arguments, written",
    [
        pytest.param(None, None, None, id="not recorded"),
        pytest.param(json.dumps(ORDER), ORDER, None, id="as written"),
        pytest.param(json.dumps({"arguments": ORDER, "written": {}}), ORDER, {}, id="changed"),
        pytest.param('"{\\"text\\":\\"aaa... (cut)"', '{"text":"aaa... (cut)', None, id="cut"),
        pytest.param("{cut", "cannot be read: {cut", None, id="not JSON"),
    ],
)
def test_arguments_are_shown_with_what_the_model_wrote(
    recorded: str | None, arguments: object, written: object, wording: Wording
) -> None:
    """Indented where there is room; what was cut, or something else has written, is text."""
    row = effect("k", "unknown", NOW, arguments=None if recorded is None else recorded.encode())
    fields = dict(EFFECT.record(EffectView(row, NOW)))
    assert [fields["arguments"], fields.get("model wrote", "")] == wording
    told = EFFECT.json(EffectView(row, NOW))
    assert (told["arguments"], told["written"]) == (arguments, written)
