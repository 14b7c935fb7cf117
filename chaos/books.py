"""The files of a scene, which survive every kill: what was begun, asked, paid, refunded, answered, and what has died.

Each line is one object of JSON, and is written at once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

Book = Literal["begun", "left", "asked", "paid", "refunded", "answered", "died"]


class Books:
    """The files, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, book: Book, **entry: object) -> None:
        """Appends an entry."""
        line = json.dumps(entry).encode() + b"\n"
        descriptor = os.open(self._path(book), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def begin(self, order: str = "") -> None:
        """Notes that this process begins to pay an order, or to serve."""
        self.write("begun", order=order, pid=os.getpid(), parent=os.getppid())

    def pay(self, order: str, key: object) -> str:
        """Pays an order; returns the receipt."""
        self.write("paid", order=order, key=key)
        return f"receipt of {order}"

    def is_paid(self, order: str) -> bool:
        """Whether an order is paid."""
        return any(entry["order"] == order for entry in self.read("paid"))

    def read(self, book: Book) -> list[dict[str, Any]]:
        """All entries."""
        path = self._path(book)
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def _path(self, book: Book) -> Path:
        return self._folder / f"{book}.jsonl"
