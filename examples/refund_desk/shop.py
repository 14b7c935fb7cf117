"""The shop: a SQLite file with its orders. The desk reads it and never writes to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from handrail.serde import parse

SCRIPT = Path(__file__).with_name("shop.sql")
"""Makes the tables and fills them."""


@dataclass(frozen=True, slots=True)
class Order:
    """What was sold to whom, and what was paid for it, in euro cents."""

    order_id: str
    customer: str
    item: str
    paid_cents: int
    status: Literal["paid", "shipped", "returned", "lost", "refunded"]

    def render(self) -> str:
        """What the model reads."""
        return f"{self.order_id}: {self.item}, {self.customer}, paid {self.paid_cents} cents, {self.status}"


class Shop:
    """The orders in one database file. Threads may share it: each look-up has a connection of its own."""

    def __init__(self, path: Path) -> None:
        """Use the database that is there."""
        self._uri = f"{path.absolute().as_uri()}?mode=ro"

    @classmethod
    def make(cls, path: Path) -> Shop:
        """Make the database anew, whatever was there before."""
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database:
            database.executescript(SCRIPT.read_text(encoding="utf-8"))
        return cls(path)

    def order(self, order_id: str) -> Order | None:
        """The order of that id, if there is one."""
        with closing(sqlite3.connect(self._uri, uri=True)) as database:
            database.row_factory = sqlite3.Row
            row = database.execute("SELECT * FROM orders WHERE order_id = ?", (order_id,)).fetchone()
        return None if row is None else parse(Order, dict(row))


def euros(cents: int) -> str:
    """An amount as people read it."""
    return f"{cents // 100:,}.{cents % 100:02} EUR"
