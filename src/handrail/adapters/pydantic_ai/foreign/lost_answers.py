"""Whether an MCP server was asked to carry a call out, and its answer was lost.

PydanticAI's `MCPToolset` makes one exception of many things: a server that refused a call, one that was too slow to
answer, one that was gone before it did, and a gateway that answered in its place. To the model that is a call to be
made again. For a tool that changes the world only the first proves that nothing was done.

The MCP SDK makes JSON-RPC errors of its own for what it finds without an answer, under the codes that servers use. So
an error proves that nothing was done only by a code that says so, and that the SDK does not use for something else:

| code | says |
|---|---|
| -32601, method not found | nothing was done, unless it stands for an HTTP status of 404 |
| -32602, invalid params | nothing was done |
| any other | nothing: the answer may have been lost, or the server may have failed half-way |

A server's error *result* is none of these: it is an answer. The codes are read off the exception: the SDK itself, an
extra, is not imported.
"""

from __future__ import annotations

from typing import cast

_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_HTTP_NOT_FOUND = "Not Found"
"""The SDK's message for an HTTP status of 404 without a JSON-RPC error, to which it gives the code -32601 (mcp 2.3.0,
`client/streamable_http.py`). Whatever stands before the server may answer so, also after the server has acted."""


def answer_lost(error: BaseException) -> bool:
    """Whether an exception of a tool leaves open what a server has done, by itself or by what it was raised from."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if _says_so(found):
            return True
        found = found.__cause__
    return False


def _says_so(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)  # of whatever it is
        return any(answer_lost(member) for member in group.exceptions)
    described: object = getattr(error, "error", None)
    code: object = getattr(described, "code", None)
    if type(code) is not int:
        return False
    if code == _METHOD_NOT_FOUND:
        return getattr(described, "message", None) == _HTTP_NOT_FOUND
    return code != _INVALID_PARAMS
