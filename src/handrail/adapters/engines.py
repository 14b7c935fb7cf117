"""Inside a durable engine, which runs a function again when its process has died.

An engine answers from its journal what it has recorded, and executes the rest again. A call whose effect was not yet
recorded is then the same call, and is not repeated, if its session and its reply have the same names as before. So both
are made of ids of the engine:

| engine | session | reply |
|---|---|---|
| DBOS, in a step | `DBOS.workflow_id` | `engine_reply(DBOS.workflow_id, DBOS.step_id)` |
| Restate | `ctx.request().id` | `engine_reply(ctx.request().id, number)` |
| Temporal, in an activity | `info.workflow_id` | `engine_reply(info.workflow_id, info.activity_id)` |
| Celery | `task.request.id` | `engine_reply(task.request.id, number)` |

The program passes the ids, and no engine is detected: where one runs inside another, or a step inside a task, only the
program knows which of them runs the code again.
"""

from __future__ import annotations

import sys
from typing import Any

from handrail.errors import DurableEngineError, InvalidArgumentError
from handrail.session.calls import checked_reply

__all__ = ["engine_reply"]

_EXPECTED = (
    "an id of the engine, as text or a number. The engine has none where it does not run the code: pass the ids in a "
    "step of a workflow (DBOS), a handler (Restate), an activity (Temporal) or a task of a worker (Celery)"
)


def engine_reply(run_id: str | int | None, *ids: str | int | None) -> str:
    """Names a reply by ids of an engine, so that it has the same name when the engine runs the code again.

    Args:
        run_id: the id of the workflow, invocation or task.
        ids: what distinguishes the replies of that run: the id of the step or activity, or a number that the program
            counts.

    Raises:
        InvalidArgumentError: an id is missing: the code does not run inside the engine.
        ValueError: the ids cannot name a reply.
    """
    parts = (run_id, *ids)
    for number, value in enumerate(parts):
        if not isinstance(value, str | int) or value == "":
            argument = f"ids[{number - 1}]" if number else "run_id"
            raise InvalidArgumentError(function="engine_reply", argument=argument, value=value, expected=_EXPECTED)
    # Escaped, so that ("a:b", "c") and ("a", "b:c") are two names.
    return checked_reply(":".join(str(value).replace("%", "%25").replace(":", "%3A") for value in parts))


def refuse_in_temporal_workflow(what: str) -> None:
    """Refuses to run as code of a Temporal workflow; `what` is the class that does.

    Raises:
        DurableEngineError: a Temporal workflow runs the caller.
    """
    # A workflow can only run where this module has been imported.
    temporal: Any = sys.modules.get("temporalio.workflow")
    if temporal is not None and temporal.in_workflow():
        raise DurableEngineError(
            f"{what} runs as code of a Temporal workflow, which runs again at each replay: there it would use the "
            "store, and repeat what other code has done since. Make its calls in an activity, by ToolExecutor with "
            "reply=engine_reply(info.workflow_id, info.activity_id), where info is activity.info(). TemporalDurability "
            "of PydanticAI runs the functions of a FunctionToolset that has an id in activities",
            engine="Temporal",
        )
