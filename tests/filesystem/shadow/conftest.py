"""A tree on disk, and its shadow."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.filesystem.shadow.repository import ShadowRepository
from tests.filesystem.shadow_trees import fill


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with one of everything."""
    (tmp_path / "tree").mkdir()
    return fill(tmp_path / "tree")


@pytest.fixture
def shadow(root: Path, tmp_path: Path) -> ShadowRepository:
    """A shadow of it."""
    return ShadowRepository(root, tmp_path / "shadow.git")
