"""`handrail.taint.overlap`: which arguments contain text of what was read."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.taint.overlap import arguments_from, leaves
from tests.taint.desk import MAIL


@pytest.mark.parametrize(
    "arguments, found",
    [
        ({"iban": "DE89370400440532013000"}, ("$.iban",)),
        ({"iban": "de89370400440532013000"}, ("$.iban",)),
        ({"iban": "DE02120300000000202051"}, ()),
        ({"to": {"iban": "x", "lines": ["ok", "before the end of this month"]}}, ("$.to.lines[1]",)),
        ({"note": "He writes: pay the deposit of 500 to my account. Shall I?"}, ("$.note",)),
        ({"note": "He wants a deposit to be paid, this month."}, ()),
        ({"cents": 500, "day": None}, ()),
        ({"text": "a"}, ()),
        ({"headers": {"to DE89370400440532013000": "ok"}}, ('$.headers["to DE89370400440532013000"]',)),
        ({}, ()),
    ],
    ids=["whole", "case", "other", "nested", "quoted", "paraphrased", "short number", "short text", "key", "none"],
)
def test_an_argument_is_found_by_its_text(arguments: dict[str, Any], found: tuple[str, ...]) -> None:
    """Whole, or 24 characters of it; what is rewritten or has fewer than four characters is not found."""
    assert arguments_from(leaves(arguments), MAIL) == found
