"""A number with a fraction of zero is an integer in JSON Schema: `5.0` is `5`, and so is `5e0`.

pydantic's strict integers refuse it. It is looked for only in arguments that do not fit, so that it costs those nothing
that do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import ErrorDetails

from handrail.serde.json_schema import Node
from handrail.serde.location import Path, followed_each
from handrail.serde.wording import kinds_asked


def make_whole(lines: Sequence[ErrorDetails], schema: Node, data: object) -> bool:
    """Write integers in `data`, in place, where an integer is asked for and a number with a fraction of zero stands.

    Args:
        lines: what pydantic found wrong.
        schema: the JSON Schema that the data does not fit.
        data: the decoded input.

    Returns:
        Whether there was one.
    """
    paths: set[Path] = set()
    for spot in followed_each((line["loc"] for line in lines), schema, data):
        is_whole = isinstance(spot.value, float) and spot.value.is_integer()
        if is_whole and any("integer" in kinds_asked(node, schema) for node in spot.nodes):
            paths.add(spot.path)
    for path in paths:
        _make_whole_at(data, path)
    return bool(paths)


def _make_whole_at(data: Any, path: Path) -> None:  # noqa: ANN401 - decoded JSON
    for segment in path[:-1]:
        data = data[segment]
    data[path[-1]] = int(data[path[-1]])
