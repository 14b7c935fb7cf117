"""What the calls of one tool need, worked out once for a rendering of the prompt.

A plan is made with the first call of a tool, and kept until the prompt changes. What it does not need costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from handrail.prompt import RenderedPrompt, Tool
from handrail.prompt.tool_definition import MAX_RESULT_CHARS
from handrail.resources.context import CallScope
from handrail.runtime.environment import MAX_ARGUMENT_BYTES, Environment
from handrail.runtime.ledger.records import recorded_arguments

if TYPE_CHECKING:
    from handrail.prompt import ToolPolicy
    from handrail.runtime.execution import ReadingForm
    from handrail.serde import Codec, Masking
    from handrail.taint import TaintIndex
    from handrail.transaction import Snapshotable


class ToolPlan:
    """All that the calls of one tool need.

    Attributes:
        prompt: the rendering that it is of.
        tool: the tool, or what stands in for it; `None` for a name that no tool has, of which the defaults hold.
        parse: parses the arguments of a call, within the limit of the run.
        dump: the record of the arguments of a call, from the call and its parameters, without secrets.
        policies: its policies, in order; those of the prompt, if no section brings it; last the guard of the run.
        claims: its calls claim an effect, as those of external tools and with an idempotency key; or register an undo.
        time_limit: the seconds that its handler has now, and if the deadline sets them; `None` if nothing does.
        capture: how the `capture` of the tool is called, and the codec of what it returns; `None` at first.
        masking, result_masking: which arguments, and parts of the value of a result, are secret; `None` if none is.
        taints: where it is recorded that the tool returns the content of third parties; `None` if it does not. Loaded
            with the plan: a handler may fail because no file can be opened any more.
        most_characters: how long the text of a message may be; the parts of a longer one are cut with it.
        participants: the participants that do not report their changes to the transaction.
        is_stored: the session of the run is in a store.
        is_straight: a call needs nothing but its turn, its transaction and its record; see `handrail.runtime.invoke`.
    """

    parse: Callable[..., Any]
    dump: Callable[..., bytes]
    policies: tuple[ToolPolicy, ...] = ()
    claims: bool = False
    is_async: bool = False
    time_limit: Callable[[], tuple[float | None, bool]] | None = None
    capture: tuple[ReadingForm, Codec[Any]] | None = None
    masking: Masking | None = None
    result_masking: Masking | None = None
    taints: TaintIndex | None = None
    most_characters: int = MAX_RESULT_CHARS
    is_straight: bool = False

    def __init__(self, tool: Tool[Any, Any] | None, prompt: RenderedPrompt[Any], environment: Environment) -> None:
        self.prompt: RenderedPrompt[Any] = prompt
        if tool is not None and environment.guard is not None:
            tool = environment.guard.stand_in(tool)
        self.tool: Tool[Any, Any] | None = tool
        resources, beside = environment.resources, tool is not None and tool.concurrent
        self.open_scope: Callable[[], CallScope] = resources.concurrent_call_scope if beside else resources.call_scope
        self.participants: Callable[[], tuple[Snapshotable[Any], ...]] = resources.untracked_participants
        self.is_stored: bool = environment.session.store is not None
        if tool is not None:
            self._take(tool, environment)
            self.is_straight = self._is_straight(tool, environment)

    def _take(self, tool: Tool[Any, Any], environment: Environment) -> None:
        self.parse = partial(tool.parse, max_bytes=MAX_ARGUMENT_BYTES)
        self.dump = partial(recorded_arguments, masking=tool.masking)
        policies = self.prompt.policies.get(tool.name, self.prompt.prompt_policies)
        self.policies = policies if environment.guard is None else (*policies, environment.guard)
        self.is_async, self.most_characters = tool.is_async, tool.max_result_chars
        self.claims = tool.claims or (tool.undo is not None and self.is_stored)
        if tool.timeout is not None or environment.deadline is not None:
            from handrail.limits import time_limit  # noqa: PLC0415

            self.time_limit = partial(time_limit, tool.timeout, environment.deadline)
        self.masking = tool.masking if tool.masking.hides else None
        self.result_masking = tool.result_masking if tool.result_masking.hides else None
        if tool.untrusted or tool.name in environment.prompt.template.untrusted_tools:
            self.taints = environment.taints

    def _is_straight(self, tool: Tool[Any, Any], environment: Environment) -> bool:
        is_bound = self.time_limit is not None or self.claims or tool.concurrent or tool.handler is None
        is_watched = self.taints is not None or tool.sanitizes or self.masking or self.result_masking
        shares = environment.feedback is not None or environment.within is not None or environment.settles is not None
        return not (is_bound or is_watched or shares or self.policies or self.is_stored)


def find_plan(environment: Environment, name: str, reply: str | None) -> ToolPlan:
    """The plan of the tool of that name, as the calls of a reply see the prompt; threads may make equal ones."""
    prompt = environment.rendering.seen_by(reply)
    plan: ToolPlan | None = environment.plans.get(name)
    if plan is None or plan.prompt is not prompt:
        plan = ToolPlan(environment.tool(name, reply), prompt, environment)
        if prompt.tool(name) is not None:  # others come and go while the prompt stays the same
            environment.plans[name] = plan
    return plan
