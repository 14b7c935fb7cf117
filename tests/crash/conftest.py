"""What the cells of the matrix share: a forge, an outside world, and a database of each kind."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
import pytest

from chaos import postgres, service, table
from handrail.prompt.idempotency import OnOrphan
from tests.crash import forge
from tests.crash.cells import Cell, Kind

_NUMBERS = count()


@dataclass(frozen=True)
class Desk:
    """Makes cells over one store.

    Attributes:
        url: the store.
        folder: where files and journals are.
        address: that of the outside world.
        other: the URL of another database.
    """

    url: str
    folder: Path
    address: str
    other: str

    def cell(
        self, kind: Kind, policy: OnOrphan = "unknown", *, forwarded: bool = False, accepts_late: bool = False
    ) -> Cell:
        """A cell that no other test has."""
        name = f"cell-{next(_NUMBERS)}"
        other = self.other if kind == "prepared" else ""
        return Cell(kind, policy, forwarded, name, self.url, str(self.folder), self.address, accepts_late, other)


@pytest.fixture(scope="session")
def smith() -> Generator[forge.Forge]:
    """One process that makes those that are killed."""
    with forge.running() as running:
        yield running


@pytest.fixture(scope="session")
def address() -> Generator[str]:
    """The outside world."""
    with service.running() as running:
        yield running


@pytest.fixture(scope="session")
def postgres_url() -> Generator[str]:
    """A server of its own, because its processes are killed at whatever they do."""
    with postgres.running() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET max_prepared_transactions = 20")
        server.restart("fast")
        table.create(server.url)
        yield server.url


@pytest.fixture(scope="session")
def sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database on disk."""
    url = f"sqlite:///{tmp_path_factory.mktemp('crash') / 'desk.db'}"
    table.create(url)
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def desk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, address: str, postgres_url: str
) -> Desk:
    """One desk over each kind of store."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return Desk(url, tmp_path_factory.mktemp("cell"), address, postgres_url)
