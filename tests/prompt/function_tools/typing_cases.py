"""What type checkers must accept of tools that are functions, and what they must refuse: checked, never run.

Both checkers report a suppression that suppresses nothing, so each suppressed line is an error that must be there.
"""

# ruff: noqa: D103 - the functions are cases, and their names and types are all there is to say

from __future__ import annotations

from typing import Annotated, Any, assert_type

from handrail.prompt import External, Tool, ToolContext, ToolExample, ToolResult, ToolsSection, tool
from handrail.resources import Resource
from tests.prompt.typing_cases import Params, Result, awaited, plain


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


def ask_the_bank(params: Any, key: str, *, context: ToolContext) -> ToolResult[Result] | None:
    return None if context.call_id == key else ToolResult.ok(Result(params.order))


@tool(
    effect=External(on_orphan="reconcile", reconcile=ask_the_bank),
    idempotency=True,
    examples=[ToolExample(description="One", input={"order": "A-1"}, output=Result("A-1"))],
)
def pay(order: str, *, desk: Annotated[Params, Resource]) -> Result:
    return Result(order + desk.query)


class Desk:
    async def look(self) -> ToolResult[Result]:
        return ToolResult.error("nothing")

    async def send(self, text: str, copies: int = 1) -> Result:
        return Result(text * copies)


async def function_tools(desk: Desk, context: ToolContext) -> None:
    assert_type(find("a", context=context), Result)
    assert_type(await find_later("a"), ToolResult[Result])
    assert_type(await count("a"), int)
    assert_type(fail("a"), ToolResult[Result])
    send = tool(effect="external")(desk.send)
    assert_type(await send("a", copies=2), Result)
    assert_type(await tool(desk.look)(), ToolResult[Result])
    assert_type(pay("A-1", desk=Params("a")), Result)
    find(5, context=context)  # type: ignore[arg-type]
    find("a")  # type: ignore[call-arg]
    await send(5)  # type: ignore[arg-type]
    pay("A-1", bank=Params("a"))  # type: ignore[call-arg]
    tool(effect="read", retries=3)  # type: ignore[call-overload]
    other: Tool[Any, int] = find  # type: ignore[assignment]
    tool(effect="none")  # type: ignore[call-overload]
    values: list[type[Result] | None] = [find.result_type, find_later.result_type, fail.result_type, send.result_type]
    number: type[int] | None = count.result_type
    ToolsSection(title="Tools", tools=[find, find_later, count, fail, send])
    del values, number, other


def inferred(context: ToolContext) -> None:
    assert_type(Tool(name="plain", description="Plain.", handler=plain), Tool[Params, Result])
    assert_type(Tool(name="awaited", description="Awaited.", handler=awaited), Tool[Params, Result])
    data = Tool.from_json_schema(name="data", description="Data.", schema={"type": "object"}, handler=len)
    assert_type(data, Tool[dict[str, Any], Any])
    del context
