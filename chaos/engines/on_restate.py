"""A service of Restate that pays orders; each life serves until it is killed."""

from __future__ import annotations

import asyncio
import importlib
from datetime import timedelta
from typing import Any

import restate
from hypercorn.config import Config

from chaos.engines.scene import Answer, Desk, Scene, read_answer
from handrail import store as stores
from handrail.adapters.engines import engine_reply
from handrail.adapters.tool_executor import ToolExecutor
from handrail.runtime import Session, ToolCall
from handrail.store import Store

hypercorn: Any = importlib.import_module("hypercorn.asyncio")  # its types have parts that are unknown


def live(scene: Scene) -> None:
    """Serves."""
    config = Config()
    config.bind = [scene.engine_url]
    with stores.open(scene.url) as store:
        app = restate.app([_service(scene, Desk(scene), store)], protocol="bidi")
        asyncio.run(hypercorn.serve(app, config, mode="asgi"))


def _service(scene: Scene, desk: Desk, store: Store) -> restate.Service:
    soon = timedelta(milliseconds=50)
    policy = restate.InvocationRetryPolicy(initial_interval=soon, exponentiation_factor=1.0, max_interval=soon)
    service = restate.Service("desk", invocation_retry_policy=policy)

    async def pay(order: str) -> str:
        desk.pay(order)
        return "done"

    @service.handler()
    async def pay_orders(ctx: restate.Context, orders: list[str]) -> dict[str, str]:
        if scene.way == "plain":
            answers = {order: await ctx.run_typed("pay", pay, order=order) for order in orders}
            await asyncio.to_thread(desk.wait)
            return answers
        run_id = ctx.request().id
        async with await Session.open_async(store, run_id) as session:
            executor = ToolExecutor([desk.tool], session=session)

            async def execute(order: str, number: int) -> Answer:
                call, reply = ToolCall("call-1", "pay", {"order": order}), engine_reply(run_id, number)
                message = await executor.execute_async(call, reply=reply)
                return read_answer(message.content, success=message.success)

            pairs = enumerate(orders)
            answers = {order: await ctx.run_typed("pay", execute, order=order, number=at) for at, order in pairs}
        await asyncio.to_thread(desk.wait)
        return answers

    return service
