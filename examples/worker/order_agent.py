"""What the workers of the demo carry out: an agent that pays an order. A file stands for the bank, code for a model."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from handrail import ToolExecutor, tool
from handrail.adapters.tool_executor import PendingAnswers
from handrail.prompt import External, ToolContext, ToolResult
from handrail.runtime import ToolCall
from handrail.worker import RunTask

BANK = Path(os.environ.get("BANK", "bank.txt"))
_SECONDS = 0.3  # before a payment, and until it is answered


def find_payment(params: Any, key: str, *, context: ToolContext) -> ToolResult[str] | None:  # noqa: ANN401 - as it is called
    """Asks the bank whether it has paid an order."""
    is_paid = BANK.exists() and params.order in BANK.read_text(encoding="utf-8").split()
    return ToolResult.ok(f"{params.order} is paid, says the bank") if is_paid else None


@tool(effect=External(on_orphan="retry") if os.environ.get("FAULT") else External(reconcile=find_payment))
def pay(order: str) -> str:
    """Pay an order."""
    time.sleep(_SECONDS)
    with BANK.open("a", encoding="utf-8") as bank:
        bank.write(f"{order}\n")
    time.sleep(_SECONDS)
    return f"{order} is paid"


async def clerk(task: RunTask) -> object:
    """Pays the order that is its input; also if another process has begun."""
    executor, talk = ToolExecutor([pay], session=task.session), task.session.conversation
    while True:
        answers = await executor.answer_async()  # also of calls that a kill has left open
        if isinstance(answers, PendingAnswers):
            return answers
        if answers:
            await talk.append_async(*({"role": "tool", "content": each.content} for each in answers))
        if talk:
            return talk.messages[-1]["content"]
        await talk.append_async(
            {"role": "assistant"}, calls=[ToolCall("call-1", "pay", {"order": task.input})], reply="r1"
        )


AGENTS = [clerk]
