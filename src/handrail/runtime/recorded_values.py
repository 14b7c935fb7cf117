"""The value in the record of a call: of its declared type again when the same call is answered from the record.

A record names the class of a dataclass, and any other value it holds as JSON: a list of dataclasses, a set, bytes. What
type that was, the tool says. Where the JSON that is shown does not tell the members of a union apart, the record holds
the form with tags beside it.
"""

from __future__ import annotations

import logging
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from handrail.errors import ParseError
from handrail.prompt import Tool, ToolResult

if TYPE_CHECKING:
    from handrail.runtime.calls import ToolInvoked

_log = logging.getLogger("handrail.runtime")


def value_with_tags(tool: Tool[Any, Any] | None, value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """A value as decoded JSON with tags; `None` for one whose form without them can be read, as that of nearly all."""
    if value is None or tool is None or tool.result_type is None or tool.value_codec is None:
        return None
    if not tool.value_codec.differs_from_shown or is_dataclass(value):
        return None
    written = tool.dump_value(value)
    return None if written is None else from_json(written)


def declared_result(tool: Tool[Any, Any] | None, event: ToolInvoked) -> ToolResult[Any]:
    """The result in a record, with its value as the tool declares it.

    A value that does not fit stays decoded JSON: the tool has changed since, or is gone.
    """
    if event.value_read is None or tool is None or tool.value_codec is None:
        return event.result
    try:
        return replace(event.result, value=tool.load_value(to_json(event.value_read)))
    except (ParseError, ValueError):
        _log.warning("the recorded value of %s no longer fits its type; it is given as JSON", tool.name)
        return event.result
