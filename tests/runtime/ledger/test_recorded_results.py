"""A recorded result is read after its class has been given a later version with `stored_as`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest

from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig
from handrail.session.persistence.stored_types import stored_as
from handrail.store import EffectRow, LedgerStore
from tests.kit import Note, Run, both_ways, call, events, executor
from tests.store.kit import replace
from tests.wording import Wording


@dataclass(frozen=True)
class Denied:
    """The other member of a union of results."""

    reason: str


def receipt(fields: Mapping[str, Any], version: int = 1) -> Any:
    """The class of a receipt in one of its versions."""
    upgrades: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
        1: lambda item: {"text": item["body"], "cents": 0},
        2: lambda item: {"text": item["text"], "euros": item["cents"] // 100},
    }
    made: Any = dataclasses.make_dataclass("Receipt", list(fields.items()), frozen=True)
    before = {number: upgrade for number, upgrade in upgrades.items() if number < version}
    return stored_as("tests.recorded_results.receipt", version=version, upgrades=before)(made)


FIRST = {"body": str}
SECOND = {"text": str, "cents": int}
THIRD = {"text": str, "euros": int}


def paying(result: Any, value: object) -> Any:
    """A tool whose result is of a type."""

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult.ok(value)

    made = cast("Any", Tool)[Note, result]
    return made(
        name="pay", description="Pays.", handler=pay, effect="external", idempotency=IdempotencyConfig(scope="shop")
    )


def paid(kind: Any, value: object, ledger: EffectLedger | None = None) -> tuple[EffectLedger, EffectRow]:
    """A ledger in which a value is recorded, and its row."""
    ledger = ledger or EffectLedger()
    assert executor(paying(kind, value), effect_ledger=ledger).execute(call("pay")).success
    [row] = ledger.rows()
    return ledger, row


def replayed(ledger: EffectLedger, result: Any) -> Any:
    """The recorded value as a program with the type reads it."""
    door = executor(paying(result, None), effect_ledger=ledger)
    message = door.execute(call("pay", id="again"))
    assert (message.success, message.replayed) == (True, True), message.content
    return events(door)[-1].result.value


@pytest.mark.parametrize("united", [False, True], ids=["alone", "in a union"])
@pytest.mark.parametrize(
    "fields, version, values",
    [(FIRST, 1, ("paid",)), (SECOND, 2, ("paid", 900)), (THIRD, 3, ("paid", 9))],
    ids=["of the first version", "of the second", "of the present"],
)
def test_a_result_of_an_older_version_is_upgraded(
    fields: Mapping[str, Any], version: int, values: tuple[object, ...], united: bool
) -> None:
    """As an item of a slice is, and by the version that was recorded with it."""
    old = receipt(fields, version)
    ledger, _ = paid(old | Denied if united else old, old(*values))
    new = receipt(THIRD, 3)
    value = replayed(ledger, new | Denied if united else new)
    assert type(value) is new
    assert value == new("paid", 0 if version == 1 else 9)


@pytest.mark.parametrize("data, cents", [(b'{"body":"paid"}', 0), (b'{"text":"paid","euros":9}', 9)])
def test_a_value_without_a_version_is_of_the_present_one_or_the_first(data: bytes, cents: int) -> None:
    """It was given by a person, or recorded while the class had one version."""
    new = receipt(THIRD, 3)
    ledger, row = paid(new, new("paid", 1))
    assert replace(ledger.store, row, row._replace(value=data))
    assert replayed(ledger, new) == new("paid", cents)


def test_a_result_of_a_newer_version_stays_done_and_is_not_shown(wording: Wording) -> None:
    """An older program that runs beside a newer one does not repeat the effect."""
    new = receipt(THIRD, 3)
    ledger, row = paid(new, new("paid", 1))
    message = executor(paying(receipt(SECOND, 2), None), effect_ledger=ledger).execute(call("pay", id="again"))
    assert message.content == wording
    assert not message.success
    assert list(ledger.rows()) == [row]


def failing(step: int) -> Any:
    """The third version of the receipt; one of its upgrades fails."""

    def fail(item: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("nope")

    def renamed(item: dict[str, Any]) -> dict[str, Any]:
        return {"text": item["body"], "cents": 0}

    upgrades: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: renamed, 2: dict, step: fail}
    made: Any = dataclasses.make_dataclass("Receipt", list(THIRD.items()), frozen=True)
    return stored_as("tests.recorded_results.receipt", version=3, upgrades=upgrades)(made)


@both_ways
@pytest.mark.parametrize(
    "case",
    [(None, 2), (b'{"body":"paid"}', 1), (b'{"body":"paid"}', 2)],
    ids=["second", "first of two", "second of two"],
)
def test_an_upgrade_that_fails_is_named(
    case: tuple[bytes | None, int], way: Run, store: LedgerStore, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Also where the record states no version, because it was of the first; the effect stays done."""
    data, step = case
    old = receipt(SECOND, 2)
    ledger, row = paid(old, old("paid", 9), EffectLedger(store))
    if data is not None:
        assert replace(ledger.store, row, row._replace(value=data))
    message = way(executor(paying(failing(step), None), effect_ledger=ledger), call("pay", id="again"))
    assert not message.success
    assert [row.status for row in ledger.rows()] == ["done"]
    assert [said.replace(row.effect_id, "<effect>") for said in caplog.messages] == wording


@pytest.mark.parametrize("kind", [Denied, receipt(FIRST)], ids=["without versions", "of a first version"])
def test_a_value_without_later_versions_is_recorded_as_it_is(kind: Any) -> None:
    """No name and no version stand beside it."""
    _, row = paid(kind, kind("paid"))
    [name] = kind.__dataclass_fields__
    assert row.value == f'{{"{name}":"paid"}}'.encode()
