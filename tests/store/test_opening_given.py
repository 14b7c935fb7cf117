"""`handrail.store.open` takes a URL; what else it is given is refused with what to write."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import handrail.store
from handrail.errors import InvalidArgumentError
from tests.wording import Wording


def test_a_path_is_refused_with_its_url(tmp_path: Path) -> None:
    """The URL opens the store that was meant, whatever characters are in the path."""
    path = tmp_path / "100 % desk.db"
    given: Any = path
    with pytest.raises(InvalidArgumentError) as caught:
        handrail.store.open(given)
    url = caught.value.expected.split('"')[1]
    handrail.store.open(url).close()
    assert path.exists()


@pytest.mark.parametrize(
    "options",
    [
        {"url": None},
        {"busy": 5},
        {"busy": timedelta(-1)},
        {"connections": 1},
        {"read_only": "no"},
        {"durability": "fast"},
    ],
    ids=["url", "busy", "negative busy", "connections", "read_only", "durability"],
)
def test_it_says_what_was_given_and_what_is_expected(options: dict[str, Any], tmp_path: Path, wording: Wording) -> None:
    """Nothing is opened."""
    arguments: dict[str, Any] = {"url": f"sqlite:///{tmp_path}/desk.db", **options}
    with pytest.raises(InvalidArgumentError) as raised:
        handrail.store.open(**arguments)
    assert str(raised.value) == wording
    assert list(tmp_path.iterdir()) == []
