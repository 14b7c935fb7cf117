"""What the policies of a tool decide about a call: in step 4 of the pipeline, and before the call is made.

An agent run asks about the calls of a reply together, before the first of them begins. So it foresees what the policies
will ask. Nothing is refused or recorded then: what keeps a policy from deciding may have changed when the call is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from handrail.errors import ModelVisibleError, ParseError, RunAbortedError, ToolValidationError
from handrail.errors.developer import mistakes_in
from handrail.prompt import PolicyDecision, PolicyQuestion, Tool, ToolContext, ToolPolicy
from handrail.prompt.policies.policy import policy_may_block
from handrail.redaction import current_call_secrets, redacted, redacted_logger, use_call_secrets
from handrail.resources import CallScope
from handrail.runtime.approval import invalid_answer
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.runtime.failures import CallRefusedError, Denial, describe_error
from handrail.runtime.masked_records import masks_in, secrets_of
from handrail.session.call_ref import CallRef, ToolCall

_log = redacted_logger("handrail.runtime")

_DECISIONS = "PolicyDecision.allow(), PolicyDecision.deny(reason) or PolicyDecision.ask(question)"

Reach = Callable[[Tool[Any, Any], Any, ToolContext], Mapping[str, str] | None]
"""Returns the paths that links in the parameters of a call lead to, by parameter."""

ByPolicy = Callable[[ToolPolicy, Callable[[], PolicyDecision]], Awaitable[PolicyDecision]]
"""Calls a method of a policy, off the event loop if that may block it."""


async def ask_policy(
    policy: ToolPolicy,
    tool: Tool[Any, Any],
    params: Any,  # noqa: ANN401 - of the tool's parameter type
    context: ToolContext,
    by_policy: ByPolicy,
) -> PolicyQuestion | None:
    """Have a policy decide about a call; returns its question, or `None` if it allows the call.

    Raises:
        Denial: it denies. The message names it.
        CallRefusedError: it could not decide.
        DeveloperMistake: it returned no decision, or requested an unbound resource.
    """
    try:
        decision = await by_policy(policy, partial(policy.check, tool, params, context=context))
    except RunAbortedError:
        raise
    except ModelVisibleError as error:
        kind = Denial if isinstance(error, ToolValidationError) else CallRefusedError
        raise kind(f"policy {policy.name} denies {tool.name}: {error}") from error
    except Exception as error:
        if mistakes_in(error):
            raise
        _log.exception("policy %s failed on %s", policy.name, tool.name)
        raise CallRefusedError(
            f"policy {policy.name} could not decide on {tool.name}, so it was not run ({describe_error(error)})"
        ) from error
    if not isinstance(cast("object", decision), PolicyDecision):
        raise invalid_answer(f"policy {policy.name}", tool, decision, _DECISIONS)
    if decision.verdict == "deny":
        kind = Denial if decision.final else CallRefusedError
        raise kind(f"policy {policy.name} denies {tool.name}: {decision.reason}")
    return PolicyQuestion(policy.name, redacted(decision.reason)) if decision.verdict == "ask" else None


class ForeseenCall(NamedTuple):
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


async def foresee_call(
    call: ToolCall, reply: str | None, environment: Environment, *, without: str = "", reach: Reach | None = None
) -> ForeseenCall | None:
    """Parse a call before it is made, and collect its questions; `None` if it does not parse.

    Args:
        call: the call.
        reply: the reply that asks for it.
        environment: the environment of the run.
        without: the name of a policy that is not asked.
        reach: returns what the parameters lead to, if that is wanted; it may wait for a disk.
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
        policies = [policy for policy in environment.policies_for(tool.name) if policy.name != without]
        asked = [await _foreseen(ask_policy(each, tool, params, context, by_policy), tool) for each in policies]
        targets = None
        if reach is not None:
            targets = await _foreseen(ASYNC.in_thread(partial(reach, tool, params, context)), tool)
    finally:
        _close(resources, tool.name)
        use_call_secrets(before)
    return ForeseenCall(tool, params, tuple(each.text for each in asked if each is not None), targets)


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
