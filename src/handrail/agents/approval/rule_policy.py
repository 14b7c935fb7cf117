"""Approval rules as a policy, for loops that have no gate: those of MCP servers, and your own.

The gate of an agent's run judges the same values by the same rules, and remembers answers. Here each question of the
rules is put to the approver of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from handrail.agents.approval.decisions import ApprovalMode, GatedCall, Judgement
from handrail.agents.approval.gate import GATE_POLICY_NAME
from handrail.agents.approval.rules import ApprovalRules, judge_call
from handrail.prompt import PolicyDecision, Tool, ToolContext, ToolPolicy, ToolResult
from handrail.serde import dump
from handrail.session.calls import CallRef
from handrail.taint import TaintPolicy


@dataclass(frozen=True, slots=True)
class RulePolicy:
    """Allows a call, refuses it, or has it asked about, as the rules say.

    Attributes:
        caller: who calls, for rules on agents.
        is_claim: says of a tool whether only a third party says that it reads; such calls are asked about if no rule
            fits.
    """

    rules: ApprovalRules
    caller: str = "mcp"
    is_claim: Callable[[str], bool] = lambda _: False
    mode: ApprovalMode = "ask"
    name: str = GATE_POLICY_NAME

    def judge(self, tool: Tool[Any, Any], arguments: dict[str, Any], ref: CallRef, session_id: str = "") -> Judgement:
        """The judgement on a call with these arguments."""
        call = GatedCall(
            path=(self.caller,),
            session_id=session_id,
            call_id=ref.call_id,
            reply=ref.reply,
            tool=tool.name,
            effect=tool.effect,
            arguments=arguments,
            digest="",
            default="ask" if self.is_claim(tool.name) else None,
        )
        return judge_call(call, self.rules, self.mode)

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401 - the tool's
        """Judges the call."""
        arguments = {} if params is None else cast("dict[str, Any]", tool.masking.mask(dump(params)))
        judgement = self.judge(tool, arguments, context.call, context.session.session_id)
        if judgement.verdict == "deny":
            return PolicyDecision.deny(judgement.reason, final=judgement.final)
        return PolicyDecision.allow() if judgement.verdict == "allow" else PolicyDecision.ask(judgement.reason)

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ANN401 - as above
        """Does nothing: rules do not depend on results."""


def rule_policies(rules: ApprovalRules, caller: str, is_claim: Callable[[str], bool]) -> tuple[ToolPolicy, ...]:
    """The policies of rules: that of the calls, and that of untrusted content."""
    policy = RulePolicy(rules, caller, is_claim)
    return (policy,) if rules.tainted == "allow" else (policy, TaintPolicy(on_tainted=rules.tainted))
