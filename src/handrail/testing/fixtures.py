"""Fixtures that pytest has where Handrail is installed. What they need is imported by the tests that ask for them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from handrail.replay.replaying import Against

ReplayAssertion: TypeAlias = "Callable[[str | os.PathLike[str], Against], None]"
"""Replays the recording of a file against a program: `handrail.testing.assert_replays`."""


@pytest.fixture
def replayed() -> ReplayAssertion:
    """Checks that a recorded session replays equal: `replayed("runs/desk.json", open_desk)`."""
    from handrail.testing import assert_replays  # noqa: PLC0415 - of the tests that ask for it

    return assert_replays
