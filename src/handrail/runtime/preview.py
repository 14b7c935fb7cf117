"""A call before it is made: its parsed arguments, and the questions of its policies. Nothing is refused or recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from handrail.errors import ParseError, RunAbortedError
from handrail.prompt import Tool, ToolContext, ToolPolicy
from handrail.prompt.policies.policy import policy_may_block
from handrail.redaction import current_call_secrets, redacted, redacted_logger, use_call_secrets
from handrail.resources import CallScope
from handrail.runtime.environment import Environment
from handrail.runtime.masked_records import masks_in, secrets_of
from handrail.session.call_ref import CallRef, ToolCall

_log = redacted_logger("handrail.runtime")

Reach = Callable[[Tool[Any, Any], Any, ToolContext], Mapping[str, str] | None]
"""Returns the paths that links in the parameters of a call lead to, by parameter."""


class CallPreview(NamedTuple):
    """A call before it is made.

    Attributes:
        tool: the tool.
        params: its parsed arguments.
        questions: the questions of its policies in the current state.
        reached: the paths that links in its parameters lead to, by parameter, as `Reach` returns them; `None` for none.
    """

    tool: Tool[Any, Any]
    params: Any
    questions: tuple[str, ...]
    reached: Mapping[str, str] | None = None


def preview_call(
    call: ToolCall, reply: str | None, environment: Environment, *, without: str = "", reach: Reach | None = None
) -> CallPreview | None:
    """Parse a call before it is made, and collect its questions; `None` if it does not parse.

    Args:
        call: the call.
        reply: the reply that asks for it.
        environment: the environment of the run.
        without: the name of a policy that is not asked.
        reach: returns what the parameters lead to, if that is wanted.
    """
    tool = environment.tool(call.name)
    if tool is None:
        return None
    if masks_in(call, tool):
        return None  # it will be refused, because its secrets are not stored
    try:
        params = tool.parse(call.arguments, max_bytes=environment.max_argument_bytes)
    except ParseError:
        return None
    resources = environment.resources.call_scope()
    before = current_call_secrets()
    use_call_secrets(secrets_of(call, params, tool, before))
    try:
        context = ToolContext(environment, resources, CallRef(reply, call.id))
        policies = [policy for policy in environment.policies_for(tool.name) if policy.name != without]
        asked = [question for policy in policies for question in _asked_by(policy, tool, params, context)]
        link_targets = None if reach is None else _link_targets(reach, tool, params, context)
    finally:
        _close(resources, tool.name)
        use_call_secrets(before)
    return CallPreview(tool, params, tuple(asked), link_targets)


def may_block(name: str, environment: Environment) -> bool:
    """Whether `preview_call` may wait for a disk, because a policy of the tool may (`MayBlock`)."""
    tool = environment.tool(name)
    session, policies = environment.session, environment.policies_for(name)
    return tool is not None and any(policy_may_block(each, tool, session) for each in policies)


def _asked_by(
    policy: ToolPolicy,
    tool: Tool[Any, Any],
    params: Any,  # noqa: ANN401 - of the tool's parameter type
    context: ToolContext,
) -> tuple[str, ...]:
    try:
        decision = policy.check(tool, params, context=context)
        return (redacted(decision.reason),) if decision.verdict == "ask" else ()
    except RunAbortedError:
        raise
    except Exception:  # noqa: BLE001 - asked again when the call is made, and denies it then
        _log.debug("policy %s could not be asked in advance about %s", policy.name, tool.name, exc_info=True)
        return ()


def _link_targets(
    reach: Reach,
    tool: Tool[Any, Any],
    params: Any,  # noqa: ANN401 - of the tool's parameter type
    context: ToolContext,
) -> Mapping[str, str] | None:
    try:
        return reach(tool, params, context)
    except RunAbortedError:
        raise
    except Exception:  # noqa: BLE001 - as above: looked up again when the call is made
        _log.debug("the paths that %s reaches could not be determined in advance", tool.name, exc_info=True)
        return None


def _close(resources: CallScope, tool_name: str) -> None:
    try:
        resources.close()
    except Exception:  # noqa: BLE001 - logged, as at the end of a call
        _log.exception("a resource could not be closed after policies were asked in advance about %s", tool_name)
