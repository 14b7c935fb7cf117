"""Writes `docs/reference/store-schema.md` from the tables of stores; `make reference` runs it."""

from __future__ import annotations

from handrail.store.postgres.store import PostgresDriver
from handrail.store.sql.statements import TABLES_VERSION
from handrail.store.sql.tables import TABLES, VIEWS, Table, TableColumn, TableView
from handrail.store.sqlite.store import SqliteDriver
from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "reference" / "store-schema.md"

_HEAD = f"""# The schema of a store

*Made from the tables in [`tables.py`](../../src/handrail/store/sql/tables.py) by `make reference`.*

What a store keeps in SQLite and PostgreSQL, for people who look with their own tools. Two views show calls and effects,
with times as moments and bytes as text; the tables below are what they are made from. Read them as you like. Write to
none of them: a store refuses rows that do not fit, and a call that was changed behind its back may be repeated. Of a
row that another program has damaged, a time may be out of range, and the view fails then; the tables can be read.

```sh
sqlite3 desk.db "SELECT at, tool, success FROM handrail_calls_view ORDER BY at DESC LIMIT 10"
sqlite3 desk.db "SELECT tool, status, note FROM handrail_effects_view WHERE status = 'unknown'"
```

In tables, times are microseconds since 1970 in UTC, and flags are 0 or 1. Messages and JSON are bytes in UTF-8. The
tables have version {TABLES_VERSION}; a Handrail whose tables have another one refuses the store.
"""  # noqa: S608 - a page


def page() -> str:
    """The page: the views, and each table with its columns."""
    return _HEAD + "".join([*map(_view, VIEWS), *map(_table, TABLES)])


def _view(view: TableView) -> str:
    chosen = [one for one in view.table.columns if not view.columns or one.name in view.columns]
    rows = "".join(f"| `{one.name}` | {_shown(one)} | {one.about} |\n" for one in chosen)
    return f"\n## {view.name}\n\n{view.about}\n\n| column | type | meaning |\n|---|---|---|\n{rows}"


def _table(table: Table) -> str:
    rows = ""
    for one in table.columns:
        sqlite, postgres = (one.kind.sql.format_map(each.types._asdict()) for each in (SqliteDriver, PostgresDriver))
        key = " (key)" if one.name in table.key.split(", ") else ""
        types = f"{sqlite} | {postgres.partition(' COLLATE')[0]}"
        rows += f"| `{one.name}`{key} | {types} | {one.about}{'; may be null' if one.is_null else ''} |\n"
    return (
        f"\n## {table.name}\n\n{table.about}\n\n| column | SQLite | PostgreSQL | meaning |\n|---|---|---|---|\n{rows}"
    )


def _shown(column: TableColumn) -> str:
    """What a view shows of a column."""
    about = column.about
    is_time = about.startswith(("when", "until when"))
    return "moment" if is_time else "number" if column.kind.type is int else "text"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
