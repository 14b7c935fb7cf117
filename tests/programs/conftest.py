"""A fifo that shows that nothing of a program is left."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from chaos.programs import Fifo


@pytest.fixture
def fifo(tmp_path: Path) -> Generator[Fifo]:
    """A fifo in the folder of the test."""
    fifo = Fifo(tmp_path / "fifo")
    yield fifo
    fifo.close()
