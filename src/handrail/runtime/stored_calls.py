"""The form in which `ToolInvoked` is stored: its parameters and its value are of whatever types the tools declare.

A value of a dataclass is written with the name and version of its class (`handrail.session.persistence.stored_types`).
It comes back as a value of that class where the program knows it, and as decoded JSON where it does not: a record stays
readable when the tool that made it is gone. So does a value that holds what JSON does not give back (a date in a place
of type `Any`, a lone surrogate, for which its escape is written). Values of other types are written as the JSON that is
shown, and beside it as what the tool reads, if that differs (`handrail.runtime.recorded_values`). A value that JSON
cannot say is left out, and its place says so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from handrail.errors import SessionError
from handrail.limits import RunContext
from handrail.prompt import ToolResult
from handrail.runtime.messages import ToolCall
from handrail.serde import codec, dump, parse
from handrail.serde.json_values import escaped_json
from handrail.session.persistence.stored_types import find_type, stored_type

_log = logging.getLogger("handrail.runtime")


def dump_event(event: Any) -> bytes:  # noqa: ANN401 - a `ToolInvoked`, whose module imports this one
    """A `ToolInvoked` as one JSON object in UTF-8; never fails for what a call may hold."""
    call, result, run_context = event.call, event.result, event.run_context
    plain: dict[str, Any] = {
        "id": call.id,
        "name": call.name,
        "arguments": as_recorded(call.arguments),
        "final": event.final,
        "message": result.message,
        "success": result.success,
        "exclude_value": result.exclude_value_from_context,
        "run_context": None if run_context is None else codec(RunContext).dump(run_context),
        "at": event.at,
        "refused_at": event.refused_at,
        "handler_seconds": event.handler_seconds,
        "total_seconds": event.total_seconds,
        "effect_key": event.effect_key,
        "replayed": event.replayed,
        "session_id": event.session_id,
    }
    if call.written is not None:
        plain["written"] = as_recorded(call.written)
    if event.reply is not None:
        plain["reply"] = event.reply
    try:
        head = to_json(plain)
    except Exception:  # noqa: BLE001 - a model may send what is no Unicode, and nothing at all may keep it unrecorded
        head = json.dumps(plain, default=_spelled).encode()
    written = _tagged(result.value)
    if event.value_read is not None and not is_dataclass(result.value):
        written = b'%s,"read":%s}' % (written[:-1], to_json(event.value_read))
    return b'%s,"params":%s,"value":%s}' % (head[:-1], _tagged(event.params), written)


def load_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the `ToolInvoked` that `dump_event` wrote, by their names.

    Raises:
        ValueError: it is something else.
    """
    try:
        context = data["run_context"]
        result = ToolResult(data["message"], _untagged(data["value"]), data["success"], data["exclude_value"])
        fields: dict[str, Any] = {
            "call": ToolCall(data["id"], data["name"], data["arguments"], data.get("written")),
            "params": _untagged(data["params"]),
            "value_read": _to_be_read(data["value"]),
            "result": result,
            "run_context": None if context is None else parse(RunContext, context),
            "at": datetime.fromisoformat(data["at"]),
        }
        added = {name: data[name] for name in _ADDED if name in data}
        return fields | added | {name: data[name] for name in _AS_THEY_ARE}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no record of a call: {error!r}") from error


_ADDED = ("reply", "final")
"""Fields that a record may lack: none names a reply of `None`, and those of version 1 name neither."""

_AS_THEY_ARE = ("refused_at", "handler_seconds", "total_seconds", "effect_key", "replayed", "session_id")


def _spelled(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def as_recorded(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """Arguments as a record holds them: text as it is, other values as JSON, and what JSON cannot say as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    with suppress(Exception):  # it did not parse, so it may be anything
        return dump(value)
    with suppress(Exception):
        return repr(value)
    return f"<{type(value).__name__}>"


def _tagged(value: object) -> bytes:
    if value is None:
        return b"null"
    try:
        if is_dataclass(value):
            with suppress(SessionError):  # it holds what would not come back as what it is
                stored = stored_type(type(value))
                items = stored.dump((value,))
                return b'{"type":"%s","version":%d,"value":%s}' % (stored.name.encode(), stored.version, items)
        return b'{"value":%s}' % to_json(dump(value))
    except Exception as error:  # noqa: BLE001 - logged; whatever the value is, the call is recorded
        if (text := escaped_json(value)) is not None:
            return b'{"value":%s}' % text.encode()
        _log.warning("a value of %s is not recorded with its call: %s", type(value).__name__, error)
        return b'{"unavailable":%s}' % to_json(type(value).__qualname__)


def _to_be_read(data: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """From what the tool makes a value that the record holds as JSON; `None` where there is nothing to make."""
    if data is None or "value" not in data or "type" in data:
        return None
    return data.get("read", data["value"])


def _untagged(data: Any) -> Any:  # noqa: ANN401 - decoded JSON in, a value of any type out
    if data is None or "unavailable" in data:
        return None
    if "type" not in data:
        return data["value"]
    (item,) = data["value"]
    try:
        kind = find_type(data["type"])
        return item if kind is None else stored_type(kind).load(to_json([item]), data["version"])[0]
    except SessionError:
        _log.warning("a recorded value of %s no longer fits its class; it is shown as JSON", data["type"])
        return item
