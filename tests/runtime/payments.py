"""What the tests of effects that may have been applied pay with: a card, an external tool `pay`, and calls of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import External, Tool
from handrail.runtime import ToolCall, ToolMessage


@dataclass(frozen=True)
class Card:
    """A payment with a card."""

    card: SecretStr
    cents: int = 500


def paying(params: type[Any], handler: Any, **said: Any) -> Tool[Any, Any]:
    """The tool `pay` without a key, over parameters of that type; `said` is what its `External` says."""
    made: Any = Tool  # of a type that mypy does not know
    tool: Tool[Any, Any] = made[params, str](name="pay", description="Pays.", handler=handler, effect=External(**said))
    return tool


def ask(door: ToolExecutor, ref: str, arguments: Any, written: Any = None) -> ToolMessage:
    """Ask for a payment as the call `reply/id`; `/id` has no reply."""
    reply, _, number = ref.partition("/")
    return door.execute(ToolCall(number, "pay", arguments, written=written), reply=reply or None)


def later(find: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """A reconciler that cannot answer at once: the line is dead when it is asked for the first time."""
    asked: list[str] = []

    def ask_bank(params: Any, key: str) -> Any:
        asked.append(key)
        if len(asked) == 1:
            raise ConnectionError("the line is dead")
        return find(params, key)

    return ask_bank
