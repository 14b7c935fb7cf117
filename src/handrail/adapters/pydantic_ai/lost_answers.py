"""Whether an MCP server was asked to carry a call out, and its answer was lost.

PydanticAI's `MCPToolset` makes one exception of three things: a server that refused a call, one that was too slow to
answer, and one that was gone before it did. To the model that is a call to be made again. For a tool that changes the
world the last two are something else: nobody knows whether it did.

The codes are those of the MCP SDK for what it finds itself, without an answer. A server may use them too, and then the
careful reading is the same. They are read off the exception: the SDK itself, an extra, is not imported.
"""

from __future__ import annotations

from typing import cast

_CONNECTION_CLOSED = -32000
_REQUEST_TIMEOUT = -32001


def answer_lost(error: BaseException) -> bool:
    """Whether an exception of a tool says that a server's answer was lost, by itself or by what it was raised from."""
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
    code: object = getattr(getattr(error, "error", None), "code", None)
    return type(code) is int and code in (_CONNECTION_CLOSED, _REQUEST_TIMEOUT)
