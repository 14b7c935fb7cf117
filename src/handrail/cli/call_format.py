"""A call with its arguments on one line: `pay(order="A-17", cents=4990)`. Values are cut in their middle to fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.cli.cells import ELLIPSIS, cut_middle, width_of
from handrail.cli.screen import clean
from handrail.serde.formatting import json_line

_MOST_OF_VALUE = 60
_LEAST_OF_VALUE = 24


def format_call(tool: str, arguments: Mapping[str, Any], *, room: int, is_partial: bool = False) -> str:
    """A call with its arguments as JSON, in at most `room` cells, if it is possible at all.

    Args:
        tool: the name of the tool.
        arguments: its arguments.
        room: the cells that there are.
        is_partial: whether it has other arguments, for which an ellipsis stands.
    """
    texts = {clean(name): json_cell(value) for name, value in arguments.items()}
    name = clean(tool)
    while (shown := fitted_call(name, texts, room, is_partial=is_partial)) is None and len(texts) > 1:
        texts.popitem()
        is_partial = True
    return shown or _written(name, texts, _LEAST_OF_VALUE, is_partial=is_partial)


def fitted_call(tool: str, texts: Mapping[str, str], room: int, *, is_partial: bool) -> str | None:
    """The call with its longest values cut; `None` if they would have to be cut too much.

    Args:
        tool: the name of the tool, without control characters.
        texts: its arguments, as `json_cell` writes them.
        room: the cells that there are.
        is_partial: whether it has other arguments, for which an ellipsis stands.
    """
    most, cut = _MOST_OF_VALUE, 0
    while most >= _LEAST_OF_VALUE:
        shown = _written(tool, texts, most, is_partial=is_partial)
        excess = width_of(shown) - room
        if excess <= 0:
            return shown
        cut = cut or sum(width_of(text) > _LEAST_OF_VALUE for text in texts.values()) or 1
        # Each value that can be cut becomes shorter by as much at most, so none is cut more than it has to be.
        most -= max(1, excess // cut)
    return None


def _written(tool: str, texts: Mapping[str, str], most: int, *, is_partial: bool) -> str:
    """The call with each value cut to `most` cells."""
    parts = [f"{name}={cut_middle(text, most)}" for name, text in texts.items()]
    return f"{tool}({', '.join([*parts, ELLIPSIS] if is_partial else parts)})"


def json_cell(value: object) -> str:
    """A value as JSON on one line, without control characters."""
    return clean(json_line(value))
