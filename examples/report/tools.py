"""The tools of the report's agents, over the file `sales.csv`."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from handrail import tool
from handrail.errors import ToolValidationError
from handrail.prompt import ToolContext
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


@tool(effect="read")  # runs without asking
def describe_sales() -> dict[str, list[str]]:
    """Say what the figures cover: every month, region and product, in their order."""
    sales = _sales()
    return {
        "months": sorted({sale.month for sale in sales}),
        "regions": sorted({sale.region for sale in sales}),
        "products": sorted({sale.product for sale in sales}),
    }


@tool(effect="read")
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
            raise ToolValidationError(
                f"there are no sales of {column} {value!r}; there are some of: {', '.join(known)}"
            )
    pieces: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    for sale in picked:
        pieces[getattr(sale, by)] += sale.pieces
        cents[getattr(sale, by)] += sale.cents
    return {key: {"pieces": pieces[key], "cents": cents[key]} for key in sorted(pieces)}


@tool
def note_finding(text: str, *, context: ToolContext) -> str:
    """Note a finding of the report, with its figures.

    Args:
        text: one sentence.
    """
    # If the call fails after this line, the finding is rolled back.
    context.session[Finding].append(Finding(text))
    return f"noted, finding {len(context.session[Finding].all())}"


def _sales() -> list[Sale]:
    with SALES.open(encoding="utf-8", newline="") as file:
        return [
            Sale(row["month"], row["region"], row["product"], int(row["pieces"]), int(row["cents"]))
            for row in csv.DictReader(file)
        ]


TOOLS = [describe_sales, sum_sales, note_finding]
"""What the agent files can name."""
