"""Branch coverage does not trace the tests of some files."""

from __future__ import annotations

import pytest

from tests.tracing import TESTS, UNTRACED


@pytest.mark.parametrize("pattern", UNTRACED)
def test_each_untraced_file_exists(pattern: str) -> None:
    """A file that was renamed or removed leaves its glob with it."""
    assert list(TESTS.glob(pattern))
