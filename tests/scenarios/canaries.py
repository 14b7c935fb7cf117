"""Secrets that are planted in a scenario, each named by its place, and the search for them in all that leaves it."""

from __future__ import annotations

import base64
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

PLAIN = "plain-text-that-is-found"
"""What is no secret, and stands beside the secrets, so that a search that finds nothing at all fails."""


@dataclass(slots=True)
class Canaries:
    """Planted secrets by the places where they were planted."""

    planted: dict[str, str] = field(default_factory=dict[str, str])

    def plant(self, place: str, form: str = "{}") -> str:
        """A secret of its own for a place, 20 characters long, within the text that recognizes it."""
        secret = f"q{sha256(place.encode()).hexdigest()[:19]}"
        self.planted[place] = secret
        return form.format(secret)

    def plant_number(self, place: str) -> int:
        """The same as a number."""
        number = int(sha256(place.encode()).hexdigest()[:12], 16)
        self.planted[place] = str(number)
        return number

    def found_in(self, surfaces: Surfaces) -> list[str]:
        """Which secret leaked where: `PLACE in SURFACE`."""
        return [
            f"{place} in {surface}"
            for surface, data in surfaces.seen
            for place, secret in self.planted.items()
            if any(form in data for form in _forms(secret))
        ]


def _forms(secret: str) -> tuple[bytes, ...]:
    plain = secret.encode()
    return plain, base64.b64encode(plain).rstrip(b"="), plain.hex().encode()


@dataclass(slots=True)
class Surfaces:
    """All that leaves a scenario: what was written, by where."""

    seen: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    def add(self, surface: str, text: object) -> None:
        """Take note of what was written; anything but bytes as its text."""
        self.seen.append((surface, text if isinstance(text, bytes) else str(text).encode(errors="backslashreplace")))

    def add_files(self, folder: Path, *, but: Collection[str] = ()) -> None:
        """The raw bytes of all files below a folder, without those of the names of files that they were planted in."""
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.name not in but:
                self.add(f"file {file.relative_to(folder)}", file.read_bytes())

    def add_rows(self, url: str) -> None:
        """All rows of all tables in the schema of a PostgreSQL URL."""
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
            for (table,) in found:
                rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall()
                self.add(f"table {table}", b"\n".join(map(_bytes_of, (value for row in rows for value in row))))

    def without(self, text: str) -> set[str]:
        """The kinds of surfaces, by their first word, of which none has a text."""
        kinds = {surface.partition(" ")[0] for surface, _ in self.seen}
        return kinds - {surface.partition(" ")[0] for surface, data in self.seen if text.encode() in data}


def _bytes_of(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class LogSurface(logging.Handler):
    """What is logged, as a handler formats it, with tracebacks."""

    def __init__(self, surfaces: Surfaces) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))
        self._surfaces = surfaces

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of a record."""
        self._surfaces.add(f"log {record.name}", self.format(record))

    def listening(self) -> Iterator[None]:
        """Listen to all loggers, at every level, for the body of a fixture."""
        root = logging.getLogger()
        level = root.level
        root.addHandler(self)
        root.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            root.removeHandler(self)
            root.setLevel(level)
