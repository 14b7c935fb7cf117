"""What the calls of one tool need, worked out once for a rendering of the prompt.

A plan is made with the first call of a tool, and is kept by the environment of the run until the prompt is rendered in
another way. What a tool does not need costs its calls nothing: a call that needs none of it runs straight through
(`handrail.runtime.fast`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from handrail.prompt import RenderedPrompt, Tool
from handrail.resources.context import CallScope
from handrail.runtime.environment import Environment

if TYPE_CHECKING:
    from handrail.prompt import ToolPolicy
    from handrail.taint.state import TaintIndex


class ToolPlan:
    """What the calls of one tool need.

    Attributes:
        rendered: the rendering that it is of.
        tool: the tool; `None` for a name that no tool has.
        policies: its policies, in the order in which they decide; of one that no section brings, those of the prompt.
        is_async: whether its handler is a coroutine function.
        open_scope: opens the resources of one call.
        is_stored: whether the session of the run is in a store.
        taints: where it is recorded that what the tool returns is the content of third parties; `None` if it is not.
            Loaded with the plan: a handler may fail because no file can be opened any more.
        is_straight: whether a call needs nothing but its turn, its transaction and its record; see
            `handrail.runtime.fast`.
    """

    __slots__ = ("is_async", "is_stored", "is_straight", "open_scope", "policies", "rendered", "taints", "tool")

    def __init__(self, tool: Tool[Any, Any] | None, rendered: RenderedPrompt[Any], environment: Environment) -> None:
        """Work out what the calls of a tool need in a run."""
        self.rendered: RenderedPrompt[Any] = rendered
        self.tool: Tool[Any, Any] | None = tool
        policies = () if tool is None else rendered.policies.get(tool.name, rendered.prompt_policies)
        self.policies: tuple[ToolPolicy, ...] = policies
        self.is_async: bool = tool is not None and tool.is_async
        resources, beside = environment.resources, tool is not None and tool.concurrent
        self.open_scope: Callable[[], CallScope] = resources.concurrent_call_scope if beside else resources.call_scope
        self.is_stored: bool = environment.session.store is not None
        is_untrusted = tool is not None and (tool.untrusted or tool.name in environment.prompt.template.untrusted_tools)
        self.taints: TaintIndex | None = environment.taints if is_untrusted else None
        self.is_straight: bool = tool is not None and not policies and self._is_straight(tool, environment)

    def _is_straight(self, tool: Tool[Any, Any], environment: Environment) -> bool:
        is_bound = tool.timeout is not None or tool.claims or tool.concurrent or tool.handler is None
        is_watched = self.taints is not None or tool.sanitizes or tool.masking.hides or tool.result_masking.hides
        shares = environment.deadline is not None or environment.feedback is not None or environment.within is not None
        return not (is_bound or is_watched or shares or self.is_stored or environment.settles is not None)


def find_plan(environment: Environment, name: str, reply: str | None) -> ToolPlan:
    """The plan of the tool of that name, as the calls of a reply see the prompt of a run.

    Two threads that meet a new tool may make two equal plans.
    """
    rendered = environment.rendering.seen_by(reply)
    plan = cast("ToolPlan | None", environment.plans.get(name))
    if plan is None or plan.rendered is not rendered:
        plan = ToolPlan(environment.tool(name, reply), rendered, environment)
        if rendered.tool(name) is not None:  # others come and go while the prompt stays the same
            environment.plans[name] = plan
    return plan
