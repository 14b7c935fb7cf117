"""What a store keeps, in words and as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from handrail.cli.ledger.show import EFFECT, ShownEffect, effect_json
from handrail.cli.sessions.show import ENTRY as ENTRIES
from handrail.prompt import BinaryPart, TextPart, Tool, ToolResult
from handrail.runtime.ledger.recorded_results import dump_result
from handrail.session.persistence.protocol import Role, SessionEntry
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


@pytest.mark.parametrize(
    "removed, added, role, told",
    [
        (0, 1, "state", "+1 at 4"),
        (2, 1, "state", "-2 +1 at 4"),
        (2, 0, "state", "-2 at 4"),
        (0, 0, "state", "+0 at 4"),
        (0, 1, "event", "-"),
    ],
)
def test_a_change_says_what_goes_and_what_comes(removed: int, added: int, role: Role, told: str) -> None:
    """An event changes no slice."""
    assert cells(ENTRY._replace(removed=removed, added=added, role=role))["change"] == told


def cells(entry: SessionEntry) -> dict[str, str]:
    """The cells of an entry, by their columns."""
    return {column.name: column.text(entry) for column in ENTRIES.columns}


def test_a_type_shows_its_version_once_it_has_had_more_than_one() -> None:
    """Most types have one version."""
    assert cells(ENTRY)["type"] == "desk.plan v2"
    assert cells(ENTRY._replace(type_version=1))["type"] == "desk.plan"


def test_items_are_json_for_programs() -> None:
    """They are embedded, not quoted."""
    told = ENTRIES.json(ENTRY)
    assert told["items"] == [{"title": "Zürich"}]
    assert (told["number"], told["reply"], told["call_id"], told["added"]) == (3, "resp_1", "call_2", 1)
    assert told["version"] == 2
    without_reply = ENTRIES.json(ENTRY._replace(reply=""))
    assert (without_reply["reply"], without_reply["call_id"]) == (None, "call_2")


def test_a_call_is_shown_as_a_fork_takes_it() -> None:
    """The reply and the id; the id alone where no reply was stated, and nothing for what is outside of calls."""
    assert cells(ENTRY)["call"] == "resp_1/call_2"
    assert cells(ENTRY._replace(reply=""))["call"] == "call_2"
    assert cells(ENTRY._replace(reply="a/b", call_id="c d"))["call"] == "a%2Fb/c%20d"
    assert cells(ENTRY._replace(reply="", call_id=""))["call"] == "-"


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


def test_a_value_that_is_no_json_is_told_as_text() -> None:
    """Nothing that the store keeps is held back."""
    told = effect_json(ShownEffect(effect("k", "done", NOW, value=b"{"), NOW))
    assert (told["value"], told["value_text"], told["value_unavailable"]) == (None, "{", False)


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


def test_fields_of_an_effect_leave_out_what_is_empty(wording: Wording) -> None:
    """What does not apply to a state is not shown."""
    fields = dict(EFFECT.shown(ShownEffect(effect("k", "unknown", NOW, partition="s1"), NOW)))
    assert fields["partition"] == "s1"
    assert fields["note"] == wording
    assert fields["owner"] == f"{SESSION}/resp_1/call_1"
    assert fields["process"] == "process 4711 on desk-host"
    assert (fields["session"], fields["created"]) == (SESSION, "2026-01-01 11:50:00 UTC")
    assert (fields["arguments"], fields["hash"]) == (wording, "ab" * 32)
    assert not {"agent", "model wrote", "lease until", "completed", "applied", "expires", "message", "value"} & set(
        fields
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
