"""What a store keeps, in words and as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from handrail.cli.ledger.show import EFFECT, ShownEffect, effect_json
from handrail.cli.sessions.show import ENTRY as ENTRIES
from handrail.prompt import BinaryPart, TextPart, Tool, ToolResult
from handrail.runtime.ledger.records import dump_result
from handrail.session.persistence.protocol import SessionEntry
from handrail.store import EffectRow
from tests.cli.desk import HOUR, SESSION, effect
from tests.wording import Wording

DRAW = Tool[None, str | None](name="draw", description="Draw.")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ENTRY = SessionEntry(3, "resp_1", "call_2", "state", "desk.plan", 2, 4, 2, 1, b'[{"title":"Z\xc3\xbcrich"}]')


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
    shown = ShownEffect(row, NOW)
    assert (shown.state, shown.term) == (state, wording)


def cells(entry: SessionEntry) -> dict[str, str]:
    """The cells of an entry, by their columns."""
    return {column.name: column.text(entry) for column in ENTRIES.columns}


@pytest.mark.parametrize(
    "row, text",
    [
        (effect("k", "done", NOW), '{\n  "receipt": 7\n}'),
        (effect("k", "done", NOW, value=b"null"), "null"),
        pytest.param(effect("k", "done", NOW, value=None), None, id="not recorded"),
        pytest.param(effect("k", "done", NOW, value=b"{\xff"), None, id="not JSON"),
        (effect("k", "done", NOW, value=b'{"$parts":[],"values":1}'), '{\n  "$parts": [],\n  "values": 1\n}'),
        (effect("k", "running", NOW), ""),
    ],
)
def test_a_value_is_shown_as_it_is(row: EffectRow, text: str | None, wording: Wording) -> None:
    """`null` is a value, and a value that was lost is none."""
    assert ShownEffect(row, NOW).value == (wording if text is None else text)


def test_an_effect_is_told_whole_to_programs(wording: Wording) -> None:
    """All columns, times in ISO 8601, the value as JSON, and the state beside the status."""
    row = effect("k", "running", NOW, lease_until=NOW - timedelta(minutes=1))
    told = effect_json(ShownEffect(row, NOW))
    assert (told["status"], told["state"], told["value"], told["value_unavailable"]) == (
        "running",
        "lapsed",
        None,
        False,
    )
    assert told["lease_until"] == "2026-01-01T11:59:00+00:00"
    assert set(told) == {*EffectRow._fields, "state", "value_unavailable", "agent", "written", "parts"}
    assert told["owner"] == {
        "session_id": SESSION,
        "reply": "resp_1",
        "call_id": "call_1",
        "process": "desk-host - 4711 0",
        "in_words": wording,
    }
    assert (told["agent"], told["arguments"], told["written"], told["applied_at"]) == (None, None, None, None)
    assert effect_json(ShownEffect(row, NOW, "desk"))["agent"] == "desk"
    applied = effect("k", "done", NOW, applied_at=NOW, arguments=b'{"order":7}')
    assert effect_json(ShownEffect(applied, NOW))["applied_at"] == "2026-01-01T12:00:00+00:00"
    assert effect_json(ShownEffect(applied, NOW))["arguments"] == {"order": 7}
    assert effect_json(ShownEffect(effect("k", "done", NOW), NOW))["value"] == {"receipt": 7}
    assert effect_json(ShownEffect(effect("k", "done", NOW, value=None), NOW))["value_unavailable"] is True


def test_files_of_a_result_are_shown_by_kind_and_size() -> None:
    """Their bytes would fill the screen."""
    parts = (TextPart("By month:"), BinaryPart(bytes(12_000), "image/png"))
    for value, shown in ((None, None), ("drawn", '"drawn"')):
        result = dump_result(DRAW, ToolResult("Sales.", value, parts=parts))
        row = effect("k", "done", NOW, value=result.value)
        fields = dict(EFFECT.shown(ShownEffect(row, NOW)))
        assert (fields.get("value"), fields["parts"]) == (shown, "By month:\n[image/png, 12 kB]")
        told = effect_json(ShownEffect(row, NOW))
        assert (told["value"], told["parts"]) == (
            value,
            [{"text": "By month:"}, {"media_type": "image/png", "size": 12_000}],
        )


ORDER = {"order": 7, "to": "Zürich"}
CHANGED = {"arguments": ORDER, "written": {"order": 70}}


@pytest.mark.parametrize(
    "recorded, arguments, written",
    [
        pytest.param(None, None, "", id="not recorded"),
        pytest.param(ORDER, '{\n  "order": 7,\n  "to": "Zürich"\n}', "", id="as written"),
        pytest.param(CHANGED, '{\n  "order": 7,\n  "to": "Zürich"\n}', '{\n  "order": 70\n}', id="changed"),
        pytest.param('{"text":"aaa... (cut)', '{"text":"aaa... (cut)', "", id="cut"),
    ],
)
def test_arguments_are_shown_with_what_the_model_wrote(
    recorded: object, arguments: str | None, written: str, wording: Wording
) -> None:
    """Set in where there is room, else in one line; what was cut is text."""
    data = None if recorded is None else json.dumps(recorded).encode()
    row = effect("k", "unknown", NOW, arguments=data)
    line = EFFECT.columns[-1].text(ShownEffect(row, NOW))
    assert line == wording
    arguments = line if arguments is None else arguments
    assert ShownEffect(row, NOW).arguments(indent=2) == (arguments, written)
    fields = dict(EFFECT.shown(ShownEffect(row, NOW, "desk")))
    assert (fields["agent"], fields["arguments"], fields.get("model wrote", "")) == ("desk", arguments, written)
    told = effect_json(ShownEffect(row, NOW))
    pair = isinstance(recorded, dict) and "written" in recorded
    assert (told["arguments"], told["written"]) == ((ORDER, {"order": 70}) if pair else (recorded, None))


def test_recorded_arguments_that_are_not_json_are_shown_as_text(wording: Wording) -> None:
    """Something other than Handrail has written them; nothing is held back."""
    row = effect("k", "unknown", NOW, arguments=b"{\xff")
    assert ShownEffect(row, NOW).arguments(indent=2) == (wording, "")
    told = effect_json(ShownEffect(row, NOW))
    assert (told["arguments"], told["written"], told["arguments_text"]) == (None, None, "{\ufffd")
