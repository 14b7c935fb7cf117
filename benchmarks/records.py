"""What a call costs that changes data of the program's own: `Records`, beside a deep copy of all before each call.

The data is like that of a shop: users, orders with nested items, products with variants.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.timing import Bound
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.resources import Records
from handrail.runtime import Session, ToolCall

USERS, ORDERS, PRODUCTS = 500, 1_000, 50
ORDER = "#W500"

NOTHING = "no change"
PLAIN = "change in a plain dict, not rolled back"
WRITE = "change in Records"
ROLLBACK = "change in Records, rolled back"
COPIED = "change, after a deep copy of all"
LOOK = "reading 1,000 orders in Records"
LOOK_PLAIN = "reading 1,000 orders in a plain dict"

BOUNDS = (
    Bound(WRITE, COPIED, 0.05),
    Bound(WRITE, PLAIN, 1.6),
    Bound(ROLLBACK, WRITE, 1.2),
    Bound(LOOK, LOOK_PLAIN, 7.0),
)


@dataclass(frozen=True, slots=True)
class Change:
    """An order, and the status that it gets."""

    order: str
    status: str


@dataclass(frozen=True, slots=True)
class Changed:
    """The status of an order, or how many there are."""

    status: str


class CopiedShop:
    """What a program writes without `Records`: the whole data is copied when a call begins."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def snapshot(self) -> dict[str, Any]:
        """Copy all."""
        return copy.deepcopy(self.data)

    def restore(self, snapshot: dict[str, Any], /) -> None:
        """Take the copy."""
        self.data = snapshot


def shop() -> dict[str, Any]:
    """The data: about 3 MB as JSON."""
    users = {
        f"user_{number}": {
            "name": {"first_name": "Yusuf", "last_name": "Rossi"},
            "address": {"address1": "763 Broadway", "city": "Philadelphia", "zip": "19122", "country": "USA"},
            "payment_methods": {f"card_{number}": {"source": "credit_card", "brand": "visa", "last_four": "9212"}},
            "orders": [f"#W{2 * number}", f"#W{2 * number + 1}"],
        }
        for number in range(USERS)
    }
    orders = {
        f"#W{number}": {
            "user_id": f"user_{number // 2}",
            "status": "pending",
            "items": [
                {"item_id": str(item), "price": 9.5, "options": {"colour": "blue", "size": "M", "material": "cotton"}}
                for item in range(4)
            ],
            "fulfillments": [{"tracking_id": ["7"], "item_ids": ["0", "1", "2", "3"]}],
            "payment_history": [{"type": "payment", "amount": 38.0, "method": f"card_{number // 2}"}],
        }
        for number in range(ORDERS)
    }
    products = {
        str(number): {
            "name": "T-Shirt",
            "variants": {
                str(variant): {"options": {"colour": "blue", "size": "M"}, "available": True, "price": 9.5}
                for variant in range(12)
            },
        }
        for number in range(PRODUCTS)
    }
    return {"users": users, "orders": orders, "products": products}


def _change(data: dict[str, Any], params: Change) -> ToolResult[Changed]:
    order = data["orders"][params.order]
    order["status"] = params.status
    order["items"][0]["options"]["colour"] = params.status
    return ToolResult.ok(Changed(order["status"]))


def _look(data: dict[str, Any], params: Change) -> ToolResult[Changed]:
    return ToolResult.ok(Changed(str(sum(order["status"] == params.status for order in data["orders"].values()))))


def _calling(data: object, act: Callable[[Any, Change], ToolResult[Changed]]) -> Callable[[], object]:
    """A call of a tool that acts on the resource."""

    def handle(params: Change, *, context: ToolContext) -> ToolResult[Changed]:
        return act(context.resources.get(type(data)), params)

    tool = Tool[Change, Changed](name="change", description="Changes an order.", handler=handle)
    section = MarkdownSection(title="Shop", key="shop", template="Use it.", tools=[tool])
    prompt = Prompt(PromptTemplate(ns="benchmarks", key="records", sections=[section]))
    executor = ToolExecutor(prompt=prompt.bind(resources={type(data): data}), session=Session())
    request = ToolCall("call-0", "change", json.dumps({"order": ORDER, "status": "cancelled"}))
    return lambda: executor.execute(request)


def _fail(data: dict[str, Any], params: Change) -> ToolResult[Changed]:
    _change(data, params)
    return ToolResult(message="there is no such order", value=None, success=False)


def cases() -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    data = shop()
    plain, records = copy.deepcopy(data), Records(data)
    made = {
        NOTHING: _calling(plain, lambda _, params: ToolResult.ok(Changed(params.status))),
        PLAIN: _calling(plain, _change),
        WRITE: _calling(records, _change),
        ROLLBACK: _calling(records, _fail),
        COPIED: _calling(CopiedShop(data), lambda shop, params: _change(shop.data, params)),
        LOOK_PLAIN: _calling(plain, _look),
        LOOK: _calling(records, _look),
    }
    for case in made.values():
        case()
    assert records["orders"][ORDER]["items"][0]["options"]["colour"] == "cancelled"
    return made
