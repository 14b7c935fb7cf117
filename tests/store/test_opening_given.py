"""`handrail.store.open` takes a URL; what else it is given is refused with what to write."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import handrail.store
from handrail.errors import InvalidArgumentError


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
    "options, words",
    [
        ({"url": None}, "store.open: url is None \\(NoneType\\); it must be the URL of a store"),
        ({"busy": 5}, "busy is 5 \\(int\\); it must be a span with its unit"),
        ({"busy": timedelta(-1)}, "busy is datetime.timedelta\\(days=-1\\) \\(timedelta\\); it must be 0 or more"),
        ({"connections": 1}, "connections is 1 \\(int\\); it must be 2 or more"),
        ({"read_only": "no"}, "read_only is 'no' \\(str\\); it must be True or False"),
        ({"durability": "fast"}, "durability is 'fast' \\(str\\); it must be 'full' or 'normal'"),
    ],
)
def test_it_says_what_was_given_and_what_is_expected(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Nothing is opened."""
    arguments: dict[str, Any] = {"url": f"sqlite:///{tmp_path}/desk.db", **options}
    with pytest.raises(InvalidArgumentError, match=words):
        handrail.store.open(**arguments)
    assert list(tmp_path.iterdir()) == []
