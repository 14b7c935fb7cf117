"""A task of Celery that pays orders, for `celery --app chaos.engines.on_celery worker`; its scene is in CHAOS_SCENE.

Its messages are files, which are not given again when the whole worker has died, as those of a broker are. So the
process of the pool is killed in which the task runs, and the worker gives its message to another one.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from chaos.engines import queue_files
from chaos.engines.scene import Answer, Desk, Scene, read_answer
from handrail import store as stores
from handrail.adapters.engines import engine_reply
from handrail.adapters.tool_executor import ToolExecutor
from handrail.runtime import ToolCall

SCENE = "CHAOS_SCENE"
TASK = "desk.pay_orders"

celery: Any = importlib.import_module("celery")  # which has no types


def make_app(folder: str) -> Any:  # noqa: ANN401 - Celery has no types
    """The application whose messages and results are files in a folder."""
    queue, results, control = (Path(folder, name) for name in ("queue", "results", "control"))
    for path in (queue, results, control):
        path.mkdir(exist_ok=True)
    app = celery.Celery("desk", broker="filesystem://", backend=f"file://{results}")
    app.conf.broker_transport_options = {
        "data_folder_in": str(queue),
        "data_folder_out": str(queue),
        "control_folder": str(control),
    }
    app.conf.update(worker_hijack_root_logger=False, worker_lost_wait=0.1, broker_connection_retry_on_startup=False)
    app.conf.broker_transport = f"{queue_files.__name__}:Transport"
    return app


def make_task(app: Any, scene: Scene) -> Any:  # noqa: ANN401 - as above
    """The task that pays the orders of a run, whose id is that of the task."""
    desk = Desk(scene)

    def pay_orders(task: Any, orders: list[str]) -> dict[str, Answer]:  # noqa: ANN401 - as above
        run_id = str(task.request.id)
        answers: dict[str, Answer] = {}
        with stores.open(scene.url) as store, store.session(run_id) as session:
            executor = ToolExecutor([desk.tool], session=session)
            for number, order in enumerate(orders):
                if scene.way == "plain":
                    desk.pay(order)
                    answers[order] = "done"
                    continue
                call, reply = ToolCall("call-1", "pay", {"order": order}), engine_reply(run_id, number)
                message = executor.execute(call, reply=reply)
                answers[order] = read_answer(message.content, success=message.success)
        desk.wait()
        return answers

    return app.task(pay_orders, name=TASK, bind=True, acks_late=True, reject_on_worker_lost=True)


if SCENE in os.environ:
    _scene = Scene.read(os.environ[SCENE])
    app = make_app(_scene.folder)
    make_task(app, _scene)
