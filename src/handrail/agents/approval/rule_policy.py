"""Approval rules as policies, for loops that have no gate of a run: those of MCP servers, and your own.

Each question of the rules is put to the approver of the loop; no answer is remembered for later calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from handrail.agents.approval.decisions import GatedCall
from handrail.agents.approval.gate import ApprovalGate, GatePolicy
from handrail.agents.approval.rules import ApprovalRules
from handrail.prompt import Tool, ToolContext, ToolPolicy
from handrail.serde import dump
from handrail.session.calls import CallRef
from handrail.taint import TaintPolicy


def rule_policies(rules: ApprovalRules, caller: str, is_claim: Callable[[str], bool]) -> tuple[ToolPolicy, ...]:
    """The policies of rules: that of the calls, a `GatePolicy`, and that of untrusted content.

    Args:
        rules: the rules.
        caller: who calls, for rules on agents.
        is_claim: says of a tool whether only a third party says that it reads; such calls are asked about if no rule
            fits.
    """

    def describe(tool: Tool[Any, Any], params: object, ref: CallRef, context: ToolContext | None) -> GatedCall:
        return GatedCall(
            path=(caller,),
            session_id="" if context is None else context.session.session_id,
            call_id=ref.call_id,
            reply=ref.reply,
            tool=tool.name,
            effect=tool.effect,
            arguments={} if params is None else cast("dict[str, Any]", tool.masking.mask(dump(params))),
            digest="",
            default="ask" if is_claim(tool.name) else None,
        )

    policy = GatePolicy(ApprovalGate(rules, "ask", None), describe)
    return (policy,) if rules.tainted == "allow" else (policy, TaintPolicy(on_tainted=rules.tainted))
