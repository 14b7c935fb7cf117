"""Step 10: what a success means for the session: policies remember it, reducers take it in, subscribers hear of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from handrail.prompt import ToolResult
from handrail.runtime.calls import Step
from handrail.runtime.invocation import Invocation
from handrail.runtime.ledger.claim import Claim
from handrail.session import stored_as
from handrail.transaction import Transaction


@stored_as("handrail.effect_applied")
@dataclass(frozen=True, slots=True)
class EffectApplied:
    """This session has applied the result of an effect; its slice keeps a replay from applying it twice.

    Attributes:
        key: the effect's key.
        effect_id: the effect's identity; a key that has expired and runs again has another one.
    """

    key: str
    effect_id: UUID


async def apply_result(run: Invocation, result: ToolResult[Any], claim: Claim, transaction: Transaction) -> None:
    """Apply a successful result, once for each effect and session; whatever is raised undoes the call.

    It is this call's turn to write: a call that ran beside others has waited for those that arrived before it.
    """
    run.step = Step.APPLY
    session = run.environment.session
    if not transaction.writes:
        transaction.open_for_results(session)
    if claim.effect is not None:
        if claim.stored and any(applied.effect_id == claim.effect.effect_id for applied in session[EffectApplied]):
            return
        session[EffectApplied].append(EffectApplied(*claim.effect))
    policies = run.policies
    if policies and run.tool is not None:
        context = run.context(claim)
        for policy in policies:
            await run.by_policy(policy, partial(policy.on_result, run.tool, run.params, result, context=context))
    value: object = result.value
    if hasattr(type(value), "__dataclass_fields__"):
        session.dispatch(value)
