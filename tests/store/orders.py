"""A table of the program's own in the database of a store, and how a handler uses it."""

from __future__ import annotations

from handrail.session.persistence.protocol import DatabaseConnection
from handrail.store import Store
from tests.store.calls import call


def with_orders(store: Store) -> Store:
    """The store, whose database has an empty table `orders` now."""
    with call() as transaction:
        connection = store.connection()
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)")
        transaction.commit()
    return store


def items(store: Store) -> list[str]:
    """What is in the table."""
    with call():
        return [item for (item,) in store.connection().execute("SELECT item FROM orders ORDER BY id").fetchall()]


def add(connection: DatabaseConnection, item: str) -> None:
    """Write to the table, as a handler does; the item's name is data for either database."""
    connection.execute(f"INSERT INTO orders (id, item) SELECT COALESCE(MAX(id), 0) + 1, '{item}' FROM orders")  # noqa: S608
