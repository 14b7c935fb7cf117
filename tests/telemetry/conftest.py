"""Calls of a test are traced into memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handrail.telemetry import instrument
from tests.telemetry.kit import Traces


@pytest.fixture
def traces() -> Iterator[Traces]:
    """What the calls of the test leave."""
    made = Traces()
    with instrument(**made.options):
        yield made
    made.spans.shutdown()
    made.meters.shutdown()
