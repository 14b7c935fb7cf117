"""A call before it is made: its arguments, and what the policies of its tool ask.

A run asks a person about the calls of a reply together, before the first of them begins. Nothing is refused or recorded
then: what keeps a policy from deciding may have changed when the call is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from handrail.adapters.pydantic_ai.foreign.calls import plain_arguments
from handrail.agents.approval.path_rules import FILE_TOOLS, reached_paths
from handrail.errors import DumpError, ParseError, RunAbortedError
from handrail.prompt import PolicyDecision, Tool, ToolContext, ToolPolicy
from handrail.prompt.policy import policy_may_block
from handrail.redaction import current_call_secrets, redacted_logger, use_call_secrets
from handrail.resources import CallScope
from handrail.runtime.approval import ask_policy
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.runtime.masked_records import masks_in, secrets_of
from handrail.runtime.plan import find_plan
from handrail.serde import dump
from handrail.session.calls import CallRef, ToolCall

_log = redacted_logger("handrail.agents")


class ForeseenCall(NamedTuple):
    """A call before it is made.

    Attributes:
        tool: the tool.
        arguments: its arguments as they were parsed, as JSON has them.
        questions: the questions of its policies in the current state.
        reached: the paths that links in the arguments of a file tool lead to, by argument; `None` for none.
    """

    tool: Tool[Any, Any]
    arguments: dict[str, Any]
    questions: tuple[str, ...]
    reached: Mapping[str, str] | None = None


async def foresee_call(
    call: ToolCall, reply: str | None, environment: Environment, *, without: str = ""
) -> ForeseenCall | None:
    """Parse a call before it is made, and collect its questions; `None` if it does not parse.

    Args:
        call: the call.
        reply: the reply that asks for it.
        environment: the environment of the run.
        without: the name of a policy that is not asked.
    """
    tool = environment.tool(call.name)
    if tool is None or masks_in(call, tool):  # it will be refused: secrets are not stored
        return None
    try:
        params = tool.parse(call.arguments, max_bytes=environment.max_argument_bytes)
    except ParseError:
        return None
    resources = environment.resources.call_scope()
    before = current_call_secrets()
    use_call_secrets(secrets_of(call, params, tool, before))

    async def by_policy(policy: ToolPolicy, act: Callable[[], PolicyDecision]) -> PolicyDecision:
        return await ASYNC.in_thread(act) if policy_may_block(policy, tool, environment.session) else act()

    try:
        context = ToolContext(environment, resources, CallRef(reply, call.id))
        policies = [policy for policy in find_plan(environment, tool.name, None).policies if policy.name != without]
        asked = [await _foreseen(ask_policy(each, tool, params, context, by_policy), tool) for each in policies]
        targets = None
        if tool.name in FILE_TOOLS:
            targets = await _foreseen(ASYNC.in_thread(partial(link_targets, tool, params, context)), tool)
    finally:
        _close(resources, tool.name)
        use_call_secrets(before)
    questions = tuple(each.text for each in asked if each is not None)
    return ForeseenCall(tool, parsed_arguments(params), questions, targets)


def link_targets(tool: Tool[Any, Any], params: object, context: ToolContext) -> Mapping[str, str] | None:
    """The paths that links in the parameters of a file tool lead to; it may wait for a disk."""
    filesystem = context.filesystem
    return None if filesystem is None else reached_paths(tool.name, parsed_arguments(params), filesystem)


def parsed_arguments(params: object) -> dict[str, Any]:
    """Parameters as JSON has them, whether they are a dataclass or JSON already."""
    if params is None:
        return {}
    try:
        return cast("dict[str, Any]", dump(params))  # of a dataclass or a mapping, so it is an object
    except DumpError:
        return plain_arguments(params)


async def _foreseen(answer: Awaitable[Any], tool: Tool[Any, Any]) -> Any:  # noqa: ANN401 - whatever the answer is
    try:
        return await answer
    except RunAbortedError:
        raise
    except Exception:  # noqa: BLE001 - determined again when the call is made, and fails it then
        _log.debug("what a call of %s comes to could not be determined in advance", tool.name, exc_info=True)
        return None


def _close(resources: CallScope, tool_name: str) -> None:
    try:
        resources.close()
    except Exception:  # noqa: BLE001 - logged, as at the end of a call
        _log.exception("a resource could not be closed after policies were asked in advance about %s", tool_name)
