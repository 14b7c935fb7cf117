"""Which toolset an exception comes from that was raised while those of a run were closed.

PydanticAI closes them together, and raises what the last one has raised. The traceback has the toolsets whose
`__aexit__` the exception has passed.
"""

from __future__ import annotations

from collections.abc import Iterable
from traceback import walk_tb

from pydantic_ai.toolsets import AbstractToolset


def was_raised_by(error: Exception, toolsets: Iterable[AbstractToolset[object]]) -> bool:
    """Whether closing one of these toolsets has raised an exception.

    Args:
        error: what was raised while several toolsets were closed.
        toolsets: some of them.
    """
    closed = [
        frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__) if frame.f_code.co_name == "__aexit__"
    ]
    return any(toolset is each for toolset in toolsets for each in closed)
