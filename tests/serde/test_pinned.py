"""Hashes and stored values of before are found again."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from handrail.session.persistence.stored_types import stored_type
from tests.serde.pinned import FILE, pinned, stored

PINNED: Final[dict[str, dict[str, Any]]] = json.loads(FILE.read_text())


def test_values_are_hashed_and_stored_as_before() -> None:
    """None of them holds a union whose members JSON cannot distinguish, so nothing about them changes."""
    assert pinned() == PINNED


@pytest.mark.parametrize("name", PINNED["stored"])
def test_what_was_stored_before_is_read(name: str) -> None:
    """Each as the value that it was."""
    value = stored()[name]
    kind: Any = value.__class__
    assert stored_type(kind).load(PINNED["stored"][name].encode(), 1) == [value]
