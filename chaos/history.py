"""What the ledger has said of each effect in turn: every change of its row, noted by a trigger of the database.

The rows of the ledger show only what is so in the end. A trigger writes in the transaction of the ledger, so no kill
comes between the two.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import NamedTuple

import psycopg

from chaos.table import path_of
from handrail import store

_TABLE = """CREATE TABLE history (
    key TEXT NOT NULL, effect_id TEXT NOT NULL, was TEXT NOT NULL, status TEXT NOT NULL, fence INTEGER NOT NULL,
    message TEXT NOT NULL, note TEXT NOT NULL
)"""
_SQLITE = (
    _TABLE,
    """CREATE TRIGGER history AFTER UPDATE ON handrail_effects
    WHEN NEW.status <> OLD.status OR NEW.fence <> OLD.fence
    BEGIN INSERT INTO history VALUES (
        NEW.key, NEW.effect_id, OLD.status, NEW.status, NEW.fence, CAST(NEW.message AS TEXT), NEW.note
    ); END""",
)
_POSTGRES = (
    _TABLE,
    """CREATE FUNCTION note_history() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO history VALUES (
        NEW.key, NEW.effect_id, OLD.status, NEW.status, NEW.fence, convert_from(NEW.message, 'UTF8'), NEW.note
    ); RETURN NEW; END $$""",
    """CREATE TRIGGER history AFTER UPDATE ON handrail_effects FOR EACH ROW
    WHEN (NEW.status <> OLD.status OR NEW.fence <> OLD.fence) EXECUTE FUNCTION note_history()""",
)
_SELECT = "SELECT key, effect_id, was, status, fence, message, note FROM history"


class Change(NamedTuple):
    """One change of the row of an effect.

    Attributes:
        key: the key of the effect.
        effect_id: its id.
        was: its status before.
        status: its status after.
        fence: its fence after.
        message: the message of its result after.
        note: its note after.
    """

    key: str
    effect_id: str
    was: str
    status: str
    fence: int
    message: str
    note: str


def create(url: str) -> None:
    """Make the tables of the store, and note their changes from now on."""
    store.open(url).close()
    path = path_of(url)
    if path is None:
        with psycopg.connect(url) as postgres:
            for statement in _POSTGRES:
                postgres.execute(statement)
        return
    with closing(sqlite3.connect(path)) as sqlite:
        for statement in _SQLITE:
            sqlite.execute(statement)


def changes_of(url: str) -> list[Change]:
    """All changes so far."""
    path = path_of(url)
    if path is None:
        with psycopg.connect(url) as postgres:
            found = postgres.execute(_SELECT).fetchall()
    else:
        with closing(sqlite3.connect(path)) as sqlite:
            found = sqlite.execute(_SELECT).fetchall()
    return [Change(*row) for row in found]
