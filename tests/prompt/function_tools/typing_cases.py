"""What type checkers must accept of tools that are functions, and what they must refuse: checked, never run.

Both checkers report a suppression that suppresses nothing, so each suppressed line is an error that must be there.
"""

# ruff: noqa: D103 - the functions are cases, and their names and types are all there is to say

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from handrail.prompt import Tool, ToolContext, ToolResult, ToolsSection, tool


@dataclass(frozen=True)
class Params:
    query: str


@dataclass(frozen=True)
class Result:
    answer: str


def plain(params: Params, *, context: ToolContext) -> ToolResult[Result]:
    return ToolResult.ok(Result(f"{params.query} {context.call_id}"))


async def awaited(params: Params, *, context: ToolContext) -> ToolResult[Result]:
    return plain(params, context=context)


@tool
def find(query: str, limit: int = 5, *, context: ToolContext) -> Result:
    return Result(f"{query} {limit} {context.call_id}")


@tool(effect="read", name="findLater")
async def find_later(query: str) -> ToolResult[Result]:
    return ToolResult.ok(Result(query))


@tool()
async def count(query: str) -> int:
    return len(query)


@tool
def fail(query: str) -> ToolResult[Result]:
    return ToolResult.error(query)


class Desk:
    @tool
    def write(self, text: str) -> None: ...

    @tool(effect="external")
    async def send(self, text: str, copies: int = 1) -> Result:
        return Result(text * copies)


async def function_tools(desk: Desk, context: ToolContext) -> None:
    assert_type(find("a", context=context), Result)
    assert_type(await find_later("a"), ToolResult[Result])
    assert_type(await count("a"), int)
    assert_type(fail("a"), ToolResult[Result])
    assert_type(await desk.send("a", copies=2), Result)
    desk.write("a")
    Desk.write(desk, "a")
    find(5, context=context)  # type: ignore[arg-type]
    find("a")  # type: ignore[call-arg]
    desk.write(5)  # type: ignore[arg-type]
    tool(effect="none")  # type: ignore[call-overload]
    values: list[type[Result] | None] = [
        find.result_type,
        find_later.result_type,
        fail.result_type,
        desk.send.result_type,
    ]
    number: type[int] | None = count.result_type
    ToolsSection(title="Tools", tools=[find, find_later, count, fail, desk.write, desk.send])
    del values, number


def inferred(context: ToolContext) -> None:
    assert_type(Tool(name="plain", description="Plain.", handler=plain), Tool[Params, Result])
    assert_type(Tool(name="awaited", description="Awaited.", handler=awaited), Tool[Params, Result])
    data = Tool.from_json_schema(name="data", description="Data.", schema={"type": "object"}, handler=len)
    assert_type(data, Tool[dict[str, Any], Any])
    del context
