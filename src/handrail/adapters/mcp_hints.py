"""What MCP says about the effects of tools: the hints of a server, and what an error proves.

Hints are claims of a server: only the effect is inferred from them. Whether a call is allowed without approval, and
when two calls are one effect, is never taken from a server. Hints: MCP specification, `ToolAnnotations`.

| the hints say | effect |
|---|---|
| `destructiveHint: true`, whatever else they say | `external` |
| `readOnlyHint: true` | `read` |
| `readOnlyHint: false`, `destructiveHint: false` and `openWorldHint: false` | `state` |
| `readOnlyHint: false` | `external` |
| `openWorldHint: true`, and nothing of reading | `external` |
| anything else, or nothing | not inferred |

Omitted hints of a tool that is declared as writing have the defaults of MCP (destructive, open world). No transaction
can roll such a tool back, so its calls are claimed in the ledger.

For tools that change the world an error proves that nothing was done only by its code: -32602 (invalid params), or
-32601 (method not found) unless it represents an HTTP status of 404. A server's error *result* is an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from handrail.prompt.signature import Effect

_METHOD_NOT_FOUND: Final = -32601
_INVALID_PARAMS: Final = -32602
_HTTP_NOT_FOUND: Final = "Not Found"
"""The SDK's message for an HTTP status of 404 without a JSON-RPC error, to which it gives the code -32601 (mcp 2.3.0,
`client/streamable_http.py`). A proxy in front of the server may answer so, also after the server has acted."""

_HINTS: Final[Mapping[Effect, Mapping[str, bool]]] = {
    "read": {"readOnlyHint": True},
    "state": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
    "external": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
}


def hinted_effect(annotations: object) -> Effect | None:
    """The effect inferred from the hints of an MCP server; `None` if they say nothing. Other values are ignored."""
    if not isinstance(annotations, Mapping):
        return None
    hints = cast("Mapping[object, object]", annotations)  # keys and values may be anything
    reads, destroys, open_world = map(hints.get, ("readOnlyHint", "destructiveHint", "openWorldHint"))
    # Compared with `is True`: hints are JSON from a server, where `1` or `"true"` may occur, and are ignored.
    if destroys is True:
        return "external"
    if reads is True:
        return "read"
    if reads is False:
        return "state" if destroys is False and open_world is False else "external"
    return "external" if open_world is True else None


def make_hints(effect: Effect) -> dict[str, Any]:
    """The hints of a tool of Handrail's, of which `hinted_effect` infers the same effect."""
    return dict(_HINTS[effect])


def proves_nothing_done(code: object, message: object) -> bool:
    """True if a JSON-RPC error with this code says that the request was not carried out."""
    # Not `isinstance`: `True` is an `int`, and is not a code.
    if type(code) is not int:
        return False
    if code == _METHOD_NOT_FOUND:
        return message != _HTTP_NOT_FOUND
    return code == _INVALID_PARAMS
