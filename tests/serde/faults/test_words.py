"""The words of every fault, as a model reads them."""

from __future__ import annotations

import pytest

from tests.serde.expected_faults import told
from tests.serde.slips import SLIPS, Wide
from tests.wording import Wording


@pytest.mark.parametrize("name", SLIPS)
def test_every_slip_is_told_with_its_path_and_what_would_be_right(name: str, wording: Wording) -> None:
    """No value that was sent is among the words, and no address of documentation."""
    assert [line for value in SLIPS[name] for line in told(Wide, {name: value})] == wording
