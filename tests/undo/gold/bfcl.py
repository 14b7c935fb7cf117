"""The gold actions of BFCL's `multi_turn_base`: a car, tickets, trades, trips, tweets, messages, and files.

BFCL v4 (https://github.com/ShishirPatil/gorilla, Apache-2.0) has 200 entries with the calls that solve them. A call is
written as Python, `mv(source='a', destination='b')`. Files are those of a filesystem of Handrail; see
`tests.undo.gold.gorilla`.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from handrail.prompt import Tool
from tests.taint.agentdojo.injected import Asked
from tests.undo.gold.gorilla import FILES, file_tool, make_files
from tests.undo.gold.worlds import Action, Captured, Entry, Inverse, Kind, World, as_json, prompt_with

_SET = "BFCL_v4_multi_turn_base.json"
_SOURCES = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_MODULES = {
    FILES: "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}


def _locked_before(arguments: Mapping[str, Any], _: Any, before: Captured) -> Asked:
    """Locks the doors again that were locked, or unlocks those that were not."""
    was, other = before["VehicleControlAPI.doorStatus"]["value"], "locked" if arguments["unlock"] else "unlocked"
    doors = [door for door in arguments["door"] if was[door] == other]
    return Asked("lockDoors", {"unlock": not arguments["unlock"], "door": doors})


def _cancelled(arguments: Mapping[str, Any], value: Any, _: Captured) -> Asked:
    return Asked("cancel_booking", {"access_token": arguments["access_token"], "booking_id": value["booking_id"]})


def _attributes(owner: str, *names: str) -> Inverse:
    return Inverse([f"{owner}.{name}" for name in names])


_TRAVEL = tuple(f"TravelAPI.{name}" for name in ("credit_card_list", "booking_record"))
_TOKEN = ("access_token", "token_type", "token_expires_in", "token_scope", "user_first_name", "user_last_name")
_INVERSES: Mapping[str, Inverse] = {
    "startEngine": _attributes("VehicleControlAPI", "engine_state"),
    "fillFuelTank": _attributes("VehicleControlAPI", "fuelLevel"),
    "lockDoors": Inverse(["VehicleControlAPI.doorStatus"], call=_locked_before),
    "pressBrakePedal": _attributes("VehicleControlAPI", "brakePedalStatus", "_brakePedalForce"),
    "activateParkingBrake": _attributes("VehicleControlAPI", "parkingBrakeStatus", "_parkingBrakeForce", "_slopeAngle"),
    "setCruiseControl": _attributes("VehicleControlAPI", "cruiseStatus", "distanceToNextVehicle"),
    "setHeadlights": _attributes("VehicleControlAPI", "headLightStatus"),
    "set_navigation": _attributes("VehicleControlAPI", "destination"),
    "create_ticket": Inverse(["TicketAPI.ticket_counter"], removes=["TicketAPI.ticket_queue.{id}"]),
    **dict.fromkeys(("close_ticket", "resolve_ticket", "edit_ticket"), Inverse(["TicketAPI.ticket_queue.{ticket_id}"])),
    "ticket_login": _attributes("TicketAPI", "current_user"),
    "place_order": Inverse(["TradingBot.order_counter"], removes=["TradingBot.orders.{order_id}"]),
    "cancel_order": Inverse(["TradingBot.orders.{order_id}.status"]),
    **dict.fromkeys(
        ("fund_account", "withdraw_funds"), _attributes("TradingBot", "account_info", "transaction_history")
    ),
    **dict.fromkeys(("add_to_watchlist", "remove_stock_from_watchlist"), _attributes("TradingBot", "watch_list")),
    "trading_logout": _attributes("TradingBot", "authenticated"),
    "book_flight": Inverse(call=_cancelled),
    "cancel_booking": Inverse(_TRAVEL),
    "purchase_insurance": Inverse(["TravelAPI.credit_card_list.{card_id}.balance"]),
    "register_credit_card": Inverse(removes=["TravelAPI.credit_card_list.{card_id}"]),
    "set_budget_limit": _attributes("TravelAPI", "budget_limit"),
    "authenticate_travel": _attributes("TravelAPI", *_TOKEN),
    "authenticate_twitter": _attributes("TwitterAPI", "authenticated"),
    "message_login": _attributes("MessageAPI", "current_user"),
    "delete_message": _attributes("MessageAPI", "inbox"),
    "add_contact": Inverse(["MessageAPI.user_map.{user_name}", "MessageAPI.user_count"]),
}

IRREVERSIBLE = frozenset(("send_message", "post_tweet", "comment", "retweet", "mention", "contact_customer_support"))
"""What other people read at once."""


@cache
def entries() -> list[Entry]:
    """All entries, as they are in the package."""
    starts, solutions = (_read_lines(name) for name in (_SET, f"possible_answer/{_SET}"))
    return [_entry(start, solution["ground_truth"]) for start, solution in zip(starts, solutions, strict=True)]


def _entry(start: Mapping[str, Any], turns: list[list[str]]) -> Entry:
    owners: list[str] = start["involved_classes"]
    configs: Mapping[str, Any] = start["initial_config"]
    calls = [_read_call(text, owners) for turn in turns for text in turn]

    def begin() -> World:
        instances = {owner: _instance(owner, configs.get(owner, {})) for owner in owners if owner != FILES}
        files = make_files(configs.get(FILES, {})) if FILES in owners else None

        def run(asked: Asked) -> Any:
            owner = next(each for each in instances.values() if hasattr(each, asked.function))
            return as_json(getattr(owner, asked.function)(**copy.deepcopy(dict(asked.arguments))))

        return World(instances, run, lambda: {owner: _public(each) for owner, each in instances.items()}, files)

    return Entry("BFCL", start["id"], calls, prompt_with([tool for owner in owners for tool in _tools(owner)]), begin)


def _instance(owner: str, config: Mapping[str, Any]) -> Any:
    instance = _class(owner)()
    if hasattr(instance, "_load_scenario"):
        instance._load_scenario(copy.deepcopy(config))  # noqa: SLF001 - BFCL's own way to begin
    return instance


def _public(instance: Any) -> dict[str, Any]:
    """What BFCL compares of an instance: each public attribute."""
    attributes: dict[str, Any] = instance.__dict__
    return {name: copy.deepcopy(value) for name, value in attributes.items() if not name.startswith("_")}


def _class(owner: str) -> Any:
    return getattr(importlib.import_module(f"{_SOURCES}.{_MODULES[owner]}"), owner)


def _read_call(text: str, owners: list[str]) -> Asked:
    call: Any = ast.parse(text, mode="eval").body
    function = next(getattr(_class(owner), call.func.id) for owner in owners if hasattr(_class(owner), call.func.id))
    places = [ast.literal_eval(each) for each in call.args]
    names = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    bound = inspect.signature(function).bind(None, *places, **names).arguments
    bound.pop("self")
    return Asked(call.func.id, bound)


@cache
def _tools(owner: str) -> list[Tool[Any, Any]]:
    return [_tool(owner, each) for each in _read_lines(f"multi_turn_func_doc/{_MODULES[owner]}.json")]


def _tool(owner: str, described: Mapping[str, Any]) -> Tool[Any, Any]:
    name, description, schema = described["name"], described["description"], _json_schema(described["parameters"])
    if owner == FILES:
        return file_tool(name, description, schema)
    inverse = _INVERSES.get(name)
    kind: Kind = "read" if inverse is None and name not in IRREVERSIBLE else "external"
    return Action(name, description, schema, kind, inverse).tool()


def _json_schema(described: Mapping[str, Any]) -> dict[str, Any]:
    """The names of the parameters as JSON Schema; not their types: gold calls have others than BFCL documents."""
    names = {name: {"description": each.get("description", "")} for name, each in described["properties"].items()}
    return {"type": "object", "properties": names, "required": described["required"], "additionalProperties": False}


def _read_lines(name: str) -> list[Any]:
    folder = Path(importlib.import_module("bfcl_eval").__path__[0]) / "data"
    with (folder / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
