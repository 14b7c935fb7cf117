"""A bank as an MCP server, over standard input and output.

    BANK=FOLDER python examples/mcp_proxy/bank_server.py

The payments are lines of JSON in `FOLDER/payments.jsonl`. Two variables each name an order, whose first payment has an
accident once the money has left: with BANK_DIES the bank is killed, with BANK_HANGS it does not answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import TypedDict

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

PAYMENTS = Path(os.environ.get("BANK", "."), "payments.jsonl")
DIES, HANGS = os.environ.get("BANK_DIES"), os.environ.get("BANK_HANGS")

bank = MCPServer("bank", log_level="WARNING")


class Payment(TypedDict):
    """A payment that was made."""

    order: str
    account: str
    cents: int


class Found(TypedDict):
    """The payment of an order, if there is one."""

    payment: Payment | None


def paid(order: str) -> Payment | None:
    """The first payment of an order."""
    lines = PAYMENTS.read_text().splitlines() if PAYMENTS.exists() else []
    return next((payment for payment in map(json.loads, lines) if payment["order"] == order), None)


@bank.tool(annotations=ToolAnnotations(read_only_hint=True))
def find_payment(order: str) -> Found:
    """Find the payment of an order."""
    return {"payment": paid(order)}


@bank.tool(annotations=ToolAnnotations(destructive_hint=True))
async def pay(order: str, account: str, cents: int) -> Payment:
    """Pay an order. The bank pays what it is asked to pay, also twice."""
    payment: Payment = {"order": order, "account": account, "cents": cents}
    is_first = paid(order) is None
    with PAYMENTS.open("a") as file:  # noqa: ASYNC230 - a line is written at once
        file.write(f"{json.dumps(payment)}\n")
    if is_first and order == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    if is_first and order == HANGS:
        try:
            await asyncio.Event().wait()
        finally:  # its client is gone
            os._exit(1)
    return payment


if __name__ == "__main__":
    bank.run()
