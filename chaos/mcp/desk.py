"""Tools of Handrail's that pay orders, for `handrail serve chaos.mcp.desk:TOOLS`; the folder is in CHAOS_FOLDER."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from chaos.books import Books
from handrail import tool
from handrail.prompt import External, Tool, ToolContext, ToolResult

FOLDER = "CHAOS_FOLDER"

_BOOKS = Books(Path(os.environ.get(FOLDER, os.devnull)))


@tool(effect="external", concurrent=True)
async def pay(order: str, before: float, after: float, context: ToolContext) -> str:
    """Pays an order."""
    _BOOKS.begin(order)
    await asyncio.sleep(before)
    receipt = _BOOKS.pay(order, context.idempotency_key)
    await asyncio.sleep(after)
    return receipt


@tool(effect="external", concurrent=True)
def pay_in_thread(order: str, before: float, after: float, context: ToolContext) -> str:
    """Pays an order, in a thread: it goes on when its caller has gone."""
    _BOOKS.begin(order)
    time.sleep(before)
    receipt = _BOOKS.pay(order, context.idempotency_key)
    time.sleep(after)
    return receipt


def _find(params: Any, _: str) -> ToolResult[str] | None:  # noqa: ANN401 - the arguments of the tool
    return ToolResult.ok("found", f"receipt of {params.order}") if _BOOKS.is_paid(params.order) else None


@tool(effect=External(on_orphan="reconcile", reconcile=_find), concurrent=True)
async def pay_findable(order: str, before: float, after: float, context: ToolContext) -> str:
    """Pays an order; it can be found out whether it has."""
    _BOOKS.begin(order)
    await asyncio.sleep(before)
    receipt = _BOOKS.pay(order, context.idempotency_key)
    await asyncio.sleep(after)
    return receipt


TOOLS: list[Tool[Any, Any]] = [pay, pay_in_thread, pay_findable]
