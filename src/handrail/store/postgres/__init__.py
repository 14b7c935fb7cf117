"""The store in PostgreSQL, for the processes of many machines; `handrail.store.open("postgresql://...")` makes one."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("psycopg") is None or find_spec("psycopg_pool") is None:
    raise ImportError(
        "handrail.store.postgres needs psycopg and its pool, which are not installed: pip install 'handrail[postgres]'",
        name="psycopg",
    )

from handrail.store.postgres.server import Server, harmless_address
from handrail.store.postgres.store import PostgresStore

__all__ = ["PostgresStore", "Server", "harmless_address"]
