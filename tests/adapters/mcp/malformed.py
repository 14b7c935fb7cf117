"""Malformed messages for a server of tools: made of proper ones, by a seed.

As a module it is what `handrail serve tests/adapters/mcp/malformed.py:PROMPT` serves: a tool that pays, which is asked
about, and one that reads. It appends what it pays to the file of the environment variable BANK.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from handrail import tool
from handrail.prompt import PolicyDecision, Prompt, PromptTemplate, Tool, ToolContext, ToolsSection
from handrail.serde.json_schema import is_array, is_object

MODERN: Final = "2026-07-28"
MCP: Final = "io.modelcontextprotocol/"
META: Final[dict[str, Any]] = {
    f"{MCP}protocolVersion": MODERN,
    f"{MCP}clientInfo": {"name": "test", "version": "1"},
    f"{MCP}clientCapabilities": {"elicitation": {"form": {}}},
}
HELLO: Final[dict[str, Any]] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},  # a call of a client that shows questions would wait for the answer
    "clientInfo": {"name": "test", "version": "1"},
}
YES: Final = {"action": "accept", "content": {"approve": True}}
_METHODS = (
    *(
        "tools/list",
        "server/discover",
        "ping",
        "resources/list",
        "resources/read",
        "prompts/get",
        "completion/complete",
    ),
    *("logging/setLevel", "sampling/createMessage", "elicitation/create", "roots/list", "tasks/get", "tools", "", "🙂"),
    *("notifications/cancelled", "notifications/progress", "notifications/initialized", "notifications/none"),
)
_DEEP: Final = "deep"  # stands for what `json` does not write


class Asks:
    """A policy that asks about what acts outside."""

    name = "desk"

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        """Asks about each external call."""
        return PolicyDecision.ask("it costs money") if tool.effect == "external" else PolicyDecision.allow()

    def on_result(self, tool: object, params: object, result: object, *, context: object) -> None:
        """Does nothing."""


@tool(effect="external")
def pay(order: str) -> str:
    """Pays an order."""
    with Path(os.environ["BANK"]).open("a", encoding="utf-8") as file:
        file.write(f"{order}\n")
    return f"paid {order}"


@tool(effect="read")
def look(word: str) -> str:
    """Says a word."""
    return f"seen {word}"


PROMPT: Prompt[Any] = Prompt(
    PromptTemplate[str](
        ns="tests", key="malformed", sections=[ToolsSection(title="Desk", tools=[pay, look], policies=[Asks()])]
    )
)


def request(method: str, params: Any = None, number: object = 1) -> dict[str, Any]:
    """A request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {} if params is None else params}


def paying(order: str, number: object = 1, **more: Any) -> dict[str, Any]:
    """A call that pays an order, by a client of the newest version."""
    params = {"name": "pay", "arguments": {"order": order}, "_meta": META, **more}
    return request("tools/call", params, number)


def malformed(dice: random.Random, number: int, state: str) -> Iterator[bytes]:
    """So many messages; `state` is that of a question about the order `proper`, which has been answered."""
    for _ in range(number):
        message = deepcopy(_proper(dice, state))  # which shares parts with others
        for _ in range(dice.randint(1, 2)):
            message = _changed(message, dice)
        data = json.dumps(message).encode().replace(f'"{_DEEP}"'.encode(), b"[" * 5_000 + b"]" * 5_000)
        yield _damaged(data, dice) if dice.random() < 1 / 8 else data


def _proper(dice: random.Random, state: str) -> Any:
    forged = {"requestState": _forged(state, dice), "inputResponses": {dice.choice(["", "ok", "x" * 16]): YES}}
    keyed = {"_meta": {**META, "dev.handrail/key": dice.choice([1, "k", "", None, ["k"], "k" * 100_000])}}
    messages: tuple[Any, ...] = (
        paying("a"),
        paying("a", **forged),
        paying("b", requestState=state, inputResponses={"x": YES}),  # a state of other arguments
        paying("proper", requestState=state, inputResponses={"x": YES}),
        paying("a", **keyed),
        request("tools/call", {"name": "pay", "arguments": {"order": "a"}}),
        request("tools/call", {"name": "look", "arguments": {"word": "a"}, "_meta": META, "task": {"ttl": 1}}),
        request("initialize", HELLO),
        request(dice.choice(_METHODS), {"_meta": META}),
        {"jsonrpc": "2.0", "method": dice.choice(_METHODS), "params": {"requestId": 1, "progressToken": 1}},
        {"jsonrpc": "2.0", "id": dice.randrange(9), "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}},
        [paying("a"), paying("b")],
    )
    return dice.choice(messages)


def _forged(state: str, dice: random.Random) -> str:
    at = dice.randrange(len(state))
    return dice.choice((state[:at], f"{state[:at]}A{state[at + 1 :]}", f"{state}=", "v1.", '["key-k", {}]', "🙂"))


def _changed(message: Any, dice: random.Random) -> Any:
    """A message with one value that is another one, missing, or under another name."""
    inner, name = _place(message, dice)
    if inner is None:
        return _junk(dice)
    what = dice.randrange(5)
    if what == 0 and is_object(inner):
        inner[dice.choice(["", "🙂", "__proto__", "name", "\ud800"])] = inner.pop(name)
    elif what == 1:
        del inner[name]
    else:
        inner[name] = _junk(dice)
    return message


def _place(message: Any, dice: random.Random) -> tuple[Any, Any]:
    """An object or a list of a message, and a name or an index there; deep ones are the more likely."""
    places: list[tuple[Any, Any]] = []
    depths: list[int] = []
    rest: list[tuple[Any, int]] = [(message, 1)]
    while rest:
        here, depth = rest.pop()
        inner: list[tuple[Any, Any]] = (
            list(here.items()) if is_object(here) else list(enumerate(here)) if is_array(here) else []
        )
        places += [(here, name) for name, _ in inner]
        depths += [depth**2] * len(inner)
        rest += [(value, depth + 1) for _, value in inner]
    return dice.choices(places, depths)[0] if places else (None, None)


def _junk(dice: random.Random) -> Any:
    values: tuple[Any, ...] = (
        *(None, True, -1, 1.5, 0, 10**400, -(2**63), float("inf"), float("nan"), 1e308),
        *("", "a" * 100_000, "\ud800", "\udfff\ud800", "\0", "../../etc/passwd", "2024-11-05", "1999-01-01", "🙂"),
        *([], [[]], [None] * 1_000, {}, {"": {}}, {"\ud800": 1}, {str(at): at for at in range(1_000)}, _DEEP),
    )
    return dice.choice(values)


def _damaged(data: bytes, dice: random.Random) -> bytes:
    """Bytes that are no JSON, most of them."""
    at, other = dice.randrange(len(data) + 1), dice.randrange(len(data) + 1)
    some = bytes(dice.randrange(256) for _ in range(8))
    return dice.choice(
        (
            data[:at],
            data[at:] + data[:at],
            data[:at] + some + data[at:],
            data[:at] + data[other:],
            data + data,
            b"\xef\xbb\xbf" + data,
            data.decode().encode("utf-16"),
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"",
        )
    )
