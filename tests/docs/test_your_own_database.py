"""The programs of `docs/how-to/your-own-database.md`: each is killed before each of its lines, and run again."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.architecture.sources import ROOT
from tests.docs.killed_programs import Killer, Trial
from tests.store.postgres_server import fresh_url

PAGE = ROOT / "docs" / "how-to" / "your-own-database.md"
SAME, ANOTHER, OUTBOX = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
OUTPUTS = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def found(path: Path, sql: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def stored(path: Path, type_name: str) -> list[tuple[object, ...]]:
    """How many values of a type the session has."""
    return found(path, f"SELECT sum(added) FROM handrail_entries WHERE type_name = '{type_name}'")  # noqa: S608 - ours


@pytest.mark.timeout(300)  # of the full form: a kill is two processes
def test_the_same_database_agrees_with_the_session(killer: Killer, tmp_path: Path) -> None:
    """Each order is paid once, marked once and counted once, wherever the process was killed."""

    def check(folder: Path) -> None:
        paid = [line.split()[1] for line in (folder / "bank.txt").read_text("utf-8").splitlines()]
        assert sorted(paid) == ["A-1", "A-2"]
        assert found(folder / "shop.db", "SELECT number, paid FROM orders ORDER BY 1") == [("A-1", 1), ("A-2", 1)]
        assert stored(folder / "shop.db", "shop.paid") == [(2,)]
        assert found(folder / "shop.db", "SELECT number FROM sales ORDER BY 1") == [("A-1",), ("A-2",)]

    Trial(killer, SAME, OUTPUTS[0], tmp_path).survives(check)


@pytest.mark.timeout(300)  # as above
def test_another_database_agrees_with_the_session(killer: Killer, tmp_path: Path) -> None:
    """Each article is taken from the stock once, and nothing stays prepared."""
    with fresh_url() as url, psycopg.connect(url, autocommit=True) as stock:

        def check(folder: Path) -> None:
            taken = stock.execute("SELECT article, 10 - pieces FROM stock ORDER BY 1").fetchall()
            assert taken == [("desk", 1), ("lamp", 1)]
            assert stored(folder / "desk.db", "shop.reserved") == [(2,)]
            assert not [xid for xid in stock.tpc_recover() if xid.database == stock.info.dbname]

        def begin() -> None:
            stock.execute("UPDATE stock SET pieces = 10")

        stock.execute("CREATE TABLE stock (article text PRIMARY KEY, pieces integer NOT NULL)")
        stock.execute("INSERT INTO stock VALUES ('lamp', 10), ('desk', 10)")
        program = ANOTHER.replace("postgresql://localhost/stock", url)
        Trial(killer, program, OUTPUTS[1], tmp_path, begin).survives(check)


@pytest.mark.timeout(300)  # as above
def test_the_outbox_is_emptied(killer: Killer, tmp_path: Path) -> None:
    """Each order is sent, under a key of its own."""

    def check(folder: Path) -> None:
        assert sorted((folder / "sent.txt").read_text("utf-8").splitlines()) == [
            "orders/r1/1 lamp",
            "orders/r1/2 desk",
        ]
        assert found(folder / "desk.db", "SELECT * FROM outbox") == []
        assert stored(folder / "desk.db", "handrail.tool_invoked") == [(2,)]

    Trial(killer, OUTBOX, OUTPUTS[2], tmp_path).survives(check)
