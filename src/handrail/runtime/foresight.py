"""What can be told of a call before it is made: its parameters, and what policies would have a person asked.

A person who is asked ahead is asked about everything at once. Nothing here refuses a call: that is for the pipeline to
do, when its turn has come and what the policies look at has settled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from handrail.errors import EndsRun, ParseError
from handrail.prompt import Tool, ToolContext, ToolPolicy
from handrail.resources import CallScope
from handrail.runtime.environment import Environment
from handrail.runtime.messages import ToolCall
from handrail.session.calls import CallRef

_log = logging.getLogger("handrail.runtime")


class Foreseen(NamedTuple):
    """What a call will be.

    Attributes:
        tool: the tool.
        params: its parsed arguments.
        questions: what its policies want to have asked, as things stand.
        reached: the paths that links in its parameters lead to, by parameter, as `Reach` says; `None` for none.
    """

    tool: Tool[Any, Any]
    params: Any
    questions: tuple[str, ...]
    reached: Mapping[str, str] | None = None


Reach = Callable[[Tool[Any, Any], Any, ToolContext], Mapping[str, str] | None]
"""Says which paths links in the parameters of a call lead to, by parameter."""


def foresee(
    call: ToolCall, reply: str | None, environment: Environment, *, without: str = "", reach: Reach | None = None
) -> Foreseen | None:
    """Look at a call that is about to be made; `None` for one that will be refused as it is written.

    Args:
        call: the call.
        reply: the reply that asks for it.
        environment: what it will be made in.
        without: the name of a policy that is not asked.
        reach: says what the parameters lead to, if that is wanted.
    """
    prompt = environment.rendered_prompt
    tool = prompt.tool(call.name)
    if tool is None:
        return None
    try:
        params = tool.parse(call.arguments, max_bytes=environment.max_argument_bytes)
    except ParseError:
        return None
    resources = environment.resources.call_scope()
    try:
        context = ToolContext(environment, resources, CallRef(reply, call.id))
        policies = [policy for policy in prompt.policies_for(tool.name) if policy.name != without]
        asked = [question for policy in policies for question in _asked_by(policy, tool, params, context)]
        reached = None if reach is None else _reached(reach, tool, params, context)
    finally:
        _close(resources, tool.name)
    return Foreseen(tool, params, tuple(asked), reached)


def _asked_by(
    policy: ToolPolicy,
    tool: Tool[Any, Any],
    params: Any,  # noqa: ANN401 - of the tool's parameter type
    context: ToolContext,
) -> tuple[str, ...]:
    try:
        decision = policy.check(tool, params, context=context)
        return (decision.reason,) if decision.verdict == "ask" else ()
    except EndsRun:
        raise
    except Exception:  # noqa: BLE001 - it is asked again when the call is made, and denies it then
        _log.debug("policy %s could not be asked ahead about %s", policy.name, tool.name, exc_info=True)
        return ()


def _reached(
    reach: Reach,
    tool: Tool[Any, Any],
    params: Any,  # noqa: ANN401 - of the tool's parameter type
    context: ToolContext,
) -> Mapping[str, str] | None:
    try:
        return reach(tool, params, context)
    except EndsRun:
        raise
    except Exception:  # noqa: BLE001 - as above: it is looked at again when the call is made
        _log.debug("what %s reaches could not be found out ahead", tool.name, exc_info=True)
        return None


def _close(resources: CallScope, tool_name: str) -> None:
    try:
        resources.close()
    except Exception:  # noqa: BLE001 - logged, as at the end of a call
        _log.exception("a resource could not be closed after policies were asked ahead about %s", tool_name)
