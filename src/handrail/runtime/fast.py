"""The straight way: calls that need nothing but their turn, their transaction and their record.

Most calls are so: of a tool with no policy, effect outside, timeout, secret or untrusted content, in a session in
memory, by a run without a deadline or feedback (`ToolPlan.is_straight`), and neither nested nor made while another call
has the turn (`is_straight`). Of the thirteen steps of `handrail.runtime.invoke` they take the second, and those from
the eighth on:

| step | is left out, because |
|---|---|
| 1 | the plan has the tool, and the call has no record |
| 3 | the turn has come with the ticket |
| 4, 5 | no policy decides |
| 6, 7 | there is no deadline, no store that could be lost, and no effect outside to claim |

`HANDRAIL_FAST=0` in the environment has all calls take the long way; the tests of the pipeline run both.
"""

from __future__ import annotations

import os
from typing import Any

from handrail.prompt import Tool
from handrail.runtime.call import CallState
from handrail.runtime.calls import Step
from handrail.runtime.ledger.replays import NO_CLAIM
from handrail.runtime.outcome import CarryOut, Ended, settle_failure
from handrail.runtime.steps import read_params

MAY_BE_STRAIGHT: bool = os.environ.get("HANDRAIL_FAST") != "0"
"""Whether calls may take the straight way, as the environment says when this module is imported; tests set it."""


def is_straight(run: CallState) -> bool:
    """Whether nothing of a call has to be waited for, looked up or settled.

    Args:
        run: the call, on its arrival.
    """
    plan, turn = run.plan, run.turn
    if not (plan.is_straight and MAY_BE_STRAIGHT) or turn.caller is not None or turn.waits:
        return False
    # A handler that does not run on this thread is waited for, and calls of its reply may come meanwhile.
    if run.mode.inline is plan.is_async:
        return False
    return not run.has_identity or run.environment.session.calls.find(run.ref) is None


async def run_straight(run: CallState, tool: Tool[Any, Any], carry_out: CarryOut) -> Ended:
    """Run a call whose turn has come, up to its commit; see `is_straight`.

    Args:
        run: the call.
        tool: its tool.
        carry_out: takes steps 8 to 11.

    Returns:
        The result, which is to be recorded; or the message of the same call, if that was recorded meanwhile.
    """
    try:
        read_params(run, tool)
    except BaseException as error:  # noqa: BLE001 - the table of `failures` decides its outcome
        return await settle_failure(run, error, Step.PARSE)
    return await carry_out(run, tool, NO_CLAIM)
