"""BFCL's `multi_turn_base`: 200 tasks with files, a car, tickets, trades, trips, tweets and messages.

BFCL v4 (https://github.com/ShishirPatil/gorilla, Apache-2.0) writes a call as Python, `mv(source='a')`, and compares
every public attribute of its instances.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from proof.sets import Entry, GoldCall

_SET = "BFCL_v4_multi_turn_base.json"
_SOURCES = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}


class Instances:
    """The instances of an entry's classes."""

    modules = "func_source_code"

    def __init__(self, owners: Sequence[str], configs: Mapping[str, Any]) -> None:
        self._instances = {owner: _instance(owner, configs.get(owner, {})) for owner in owners}

    def act(self, function: str, arguments: Mapping[str, Any], /) -> str:
        """Calls a method of the instance that has it."""
        owner = next(each for each in self._instances.values() if hasattr(each, function))
        return str(getattr(owner, function)(**copy.deepcopy(dict(arguments))))

    def dump(self) -> dict[str, Any]:
        """Every public attribute."""
        return {owner: json.loads(json.dumps(each, default=_attributes)) for owner, each in self._instances.items()}


@cache
def entries() -> Sequence[Entry]:
    """All entries, as they are in the package."""
    solutions = _read_lines(f"possible_answer/{_SET}")
    return [
        Entry(f"bfcl/{start['id']}", [_call(text, start) for turn in solution["ground_truth"] for text in turn])
        for start, solution in zip(_starts().values(), solutions, strict=True)
    ]


def load(name: str) -> Instances:
    """The state with which an entry begins."""
    start = _starts()[name]
    return Instances(start["involved_classes"], start["initial_config"])


@cache
def _starts() -> dict[str, Any]:
    return {line["id"]: line for line in _read_lines(_SET)}


def _instance(owner: str, config: Mapping[str, Any]) -> Any:
    instance = _class(owner)()
    if hasattr(instance, "_load_scenario"):
        instance._load_scenario(copy.deepcopy(config))  # noqa: SLF001 - BFCL's own way to begin
    return instance


def _class(owner: str) -> Any:
    return getattr(importlib.import_module(f"{_SOURCES}.{_MODULES[owner]}"), owner)


def _call(text: str, start: Mapping[str, Any]) -> GoldCall:
    call: Any = ast.parse(text, mode="eval").body
    classes = [_class(owner) for owner in start["involved_classes"]]
    function = next(getattr(each, call.func.id) for each in classes if hasattr(each, call.func.id))
    places = [ast.literal_eval(each) for each in call.args]
    names = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    bound = inspect.signature(function).bind(None, *places, **names).arguments
    bound.pop("self")
    return GoldCall(call.func.id, bound)


def _attributes(value: object) -> Any:
    """What JSON has for an object: its public attributes, without the folder that it is in; or the members of a set."""
    attributes: dict[str, Any] | None = getattr(value, "__dict__", None)
    if attributes is None:
        return sorted(map(str, cast("set[object]", value)))
    return {name: each for name, each in attributes.items() if not name.startswith("_") and name != "parent"}


def _read_lines(name: str) -> list[Any]:
    folder = Path(importlib.import_module("bfcl_eval").__path__[0]) / "data"
    with (folder / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
