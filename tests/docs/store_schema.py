"""Writes `docs/reference/store-schema.md` from the tables of stores; `make reference` runs it."""

from __future__ import annotations

from collections.abc import Mapping

from handrail.store.postgres.store import PostgresDriver
from handrail.store.sql.statements import TABLES_VERSION
from handrail.store.sql.tables import TABLES, Table
from handrail.store.sqlite.store import SqliteDriver
from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "reference" / "store-schema.md"

_KINDS: Mapping[type[object], str] = {str: "text", int: "number", bytes: "bytes"}


def _types() -> str:
    """The rows of the types, as the drivers have them."""
    kinds = {one.kind.type: one.kind for table in TABLES for one in table.columns}
    drivers = (SqliteDriver, PostgresDriver)
    found = {
        name: [kinds[kind].sql.format_map(each.types._asdict()).partition(" COLLATE")[0] for each in drivers]
        for kind, name in _KINDS.items()
    }
    return " |\n| ".join(" | ".join((name, *types)) for name, types in found.items())


_HEAD = f"""# The schema of a store

*Made from the tables in [`tables.py`](../../src/handrail/store/sql/tables.py) by `make reference`.*

For people who look with their own tools; [the command line](command-line.md) shows the same. Do not write to the
tables: a store refuses rows that do not fit, and a changed call may be repeated.

```sh
sqlite3 desk.db "SELECT datetime(at / 1000000, 'unixepoch'), tool, success FROM handrail_entries WHERE call_id <> ''"
sqlite3 desk.db "SELECT tool, status, CAST(note AS TEXT) FROM handrail_effects WHERE status = 'unknown'"
```

| type | SQLite | PostgreSQL |
|---|---|---|
| {_types()} |

Times are microseconds since 1970 in UTC, flags are 0 or 1, and messages and JSON are bytes in UTF-8; items that begin
with an `x` are compressed by zlib. The tables have version {TABLES_VERSION}; others are refused.
"""  # noqa: S608 - a page


_INTERNAL = {f"handrail_{name}" for name in ("schema", "checkpoints", "decisions", "answers", "runs")}


def page() -> str:
    """The page: each table with its columns, and what is in those that are of no use to people."""
    internal = "".join(f"| `{table.name}` | {table.about} |\n" for table in TABLES if table.name in _INTERNAL)
    others = f"\n## Other tables\n\n| table | has |\n|---|---|\n{internal}"
    return _HEAD + "".join([*(_table(table) for table in TABLES if table.name not in _INTERNAL), others])


def _table(table: Table) -> str:
    rows = ""
    for one in table.columns:
        key = " (key)" if one.name in table.key.split(", ") else ""
        null = "; may be null" if one.is_null else ""
        rows += f"| `{one.name}`{key} | {_KINDS[one.kind.type]} | {one.about}{null} |\n"
    return f"\n## {table.name}\n\n{table.about}\n\n| column | type | meaning |\n|---|---|---|\n{rows}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
