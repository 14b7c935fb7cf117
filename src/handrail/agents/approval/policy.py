"""The gate in the pipeline: how a decision is enforced where the handler runs.

`GatePolicy` judges every call in its turn, and refuses those that may not run. Where a question is left, the pipeline
asks `approver(gate, ...)`, which knows what has been decided ahead. So a call is asked about once, and a call that
nobody has asked about, or that has other arguments by now, does not slip through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from handrail.agents.approval.decisions import GatedCall
from handrail.agents.approval.gate import ApprovalGate
from handrail.errors import CallPostponed
from handrail.prompt import Approval, ApprovalRequest, Approver, PolicyDecision, Tool, ToolContext, ToolResult
from handrail.session.calls import CallRef

NAME: Final = "approval"
"""The name of the policy."""

Describe = Callable[[Tool[Any, Any], Any, CallRef, ToolContext | None], GatedCall]
"""A call as the gate judges it: from the tool, the parsed parameters, the identity of the call, and its context.

Without a context it is described as it was with one, if its parameters are the same.
"""


@dataclass(frozen=True, slots=True, eq=False)
class GatePolicy:
    """Lets a call go on, refuses it, or has it asked about, as the gate says.

    Attributes:
        gate: the gate of the run.
        describe: how a call looks to the gate.
        name: names the policy.
    """

    gate: ApprovalGate
    describe: Describe
    name: str = NAME

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401 - the tool's
        """Look at what is known of the call; nobody is asked here."""
        found = self.gate.judge(self.describe(tool, params, context.call, context))
        if found.verdict == "deny":
            return PolicyDecision.deny(found.reason, final=found.final)
        return PolicyDecision.allow() if found.verdict == "allow" else PolicyDecision.ask(found.reason)

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ANN401 - as above
        """Take no note: the gate remembers decisions, not results."""


def approver(gate: ApprovalGate, describe: Describe, *, policy: str = NAME) -> Approver:
    """What answers the pipeline's questions by asking the gate.

    Args:
        gate: the gate of the run.
        describe: how a call looks to the gate.
        policy: the name of the `GatePolicy`; what other policies ask is put to the person.
    """

    async def decided(request: ApprovalRequest) -> Approval:
        call = describe(request.tool, request.params, request.call, None)
        asks = (*call.asks, *(question.text for question in request.questions if question.policy != policy))
        decision = await gate.decide(replace(call, asks=tuple(dict.fromkeys(asks))))
        if decision.verdict == "later":
            raise CallPostponed(f"{call.tool} waits for approval ({'/'.join(call.path)}, call {call.call_id})")
        return Approval(decision.verdict == "allow", decision.reason, decision.final)

    return decided
