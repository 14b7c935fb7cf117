"""The tools of the report's agents: plain functions, as PydanticAI takes them, over the file `sales.csv`."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic_ai import ModelRetry, Tool

from handrail.adapters.pydantic_ai import tool_context
from handrail.session import stored_as

SALES = Path(__file__).with_name("sales.csv")
"""One line for each product, region and month: what was sold, and for how many cents."""

Column = Literal["month", "region", "product"]
"""By what sales can be summed up, and picked."""


@dataclass(frozen=True, slots=True)
class Sale:
    """One line of the file."""

    month: str
    region: str
    product: str
    pieces: int
    cents: int


@stored_as("report.finding")
@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of the report; the session keeps all of them."""

    text: str


def describe_sales() -> dict[str, list[str]]:
    """Say what the figures cover: every month, region and product, in their order."""
    sales = _sales()
    return {
        "months": sorted({sale.month for sale in sales}),
        "regions": sorted({sale.region for sale in sales}),
        "products": sorted({sale.product for sale in sales}),
    }


def sum_sales(by: Column, only: dict[Column, str] | None = None) -> dict[str, dict[str, int]]:
    """Sum up pieces and cents.

    Args:
        by: for each month, each region or each product.
        only: count nothing but the sales of one month, region or product, such as {"region": "north"}.
    """
    picked = _sales()
    for column, value in (only or {}).items():
        known = sorted({str(getattr(sale, column)) for sale in picked})
        picked = [sale for sale in picked if getattr(sale, column) == value]
        if not picked:
            raise ModelRetry(f"there are no sales of {column} {value!r}; there are some of: {', '.join(known)}")
    pieces: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    for sale in picked:
        pieces[getattr(sale, by)] += sale.pieces
        cents[getattr(sale, by)] += sale.cents
    return {key: {"pieces": pieces[key], "cents": cents[key]} for key in sorted(pieces)}


def note_finding(text: str) -> str:
    """Note a finding of the report, with its figures.

    Args:
        text: one sentence.
    """
    context = tool_context()
    if context is None:  # called by a program, and not by an agent
        return f"not noted, for no agent is running: {text}"
    # What the call leaves in the session is taken back if the call fails.
    context.session[Finding].append(Finding(text))
    return f"noted, finding {len(context.session[Finding].all())}"


def _sales() -> list[Sale]:
    with SALES.open(encoding="utf-8", newline="") as file:
        return [
            Sale(row["month"], row["region"], row["product"], int(row["pieces"]), int(row["cents"]))
            for row in csv.DictReader(file)
        ]


# What a call does to the world cannot be seen from a function, so it is declared here. Reading runs without being asked
# about; a finding is noted without being asked about too, because its tool says so and no approval rule says otherwise.
TOOLS = [
    Tool(describe_sales, metadata={"effect": "read"}),
    Tool(sum_sales, metadata={"effect": "read"}),
    Tool(note_finding, metadata={"effect": "state", "approval": "allow"}),
]
