"""What a model asks for, and what goes back to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from handrail.prompt import ToolResult


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model asked for.

    Attributes:
        id: names the call within its reply; the message that answers it carries the same id. Without a reply it names
            the call within its session, unless it is empty.
        name: the tool's name, as the model wrote it.
        arguments: the arguments as the JSON text of an object, or already decoded.
        written: the arguments as the model wrote them, where a person or a hook has changed them since; `None` where
            `arguments` are what the model wrote.
    """

    id: str
    name: str
    arguments: str | bytes | Mapping[str, Any] = "{}"
    written: str | bytes | Mapping[str, Any] | None = None

    @property
    def words(self) -> str | bytes | Mapping[str, Any]:
        """The arguments as the model wrote them; the same call has the same words."""
        return self.arguments if self.written is None else self.written


class ToolMessage(NamedTuple):
    """What goes back to the model: exactly one for each call. A named tuple, because one is made for each call.

    Attributes:
        call_id: the id of the call that it answers.
        content: the text that the model reads.
        success: whether the call succeeded; when it is false, everything the call did to state has been undone.
        result: what the handler returned, or the failed result that stands for what went wrong.
        replayed: whether the result comes from the ledger, and the handler was not run.
    """

    call_id: str
    content: str
    success: bool
    result: ToolResult[Any]
    replayed: bool = False
