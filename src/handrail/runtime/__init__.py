"""The call pipeline, its inputs and outputs, and the ledger of effects."""

from typing import TYPE_CHECKING

from handrail.events import Dispatcher
from handrail.lazy_exports import lazy_exports
from handrail.runtime.calls import Step, ToolInvoked, ToolMessage, ToolRaised
from handrail.session import Session, append_all, reducer, replace_latest, upsert_by
from handrail.session.calls import ToolCall
from handrail.transaction import Transaction

if TYPE_CHECKING:
    from handrail.limits import Budget, BudgetTracker, Deadline, Heartbeat, RunContext, TokenUsage
    from handrail.prompt import IdempotencyConfig
    from handrail.runtime.claim_step import EffectApplied, EffectAwaited, EffectUnsettled
    from handrail.runtime.ledger.effects import ToolEffect
    from handrail.runtime.ledger.ledger import EffectLedger
else:
    _LIMITS = {".limits": "Budget BudgetTracker Deadline Heartbeat RunContext TokenUsage"}
    _EVENTS = {"claim_step": "EffectApplied EffectAwaited EffectUnsettled"}
    _LEDGER = {"ledger.ledger": "EffectLedger", "ledger.effects": "ToolEffect"}
    __getattr__ = lazy_exports(__name__, {**_LIMITS, **_EVENTS, **_LEDGER, ".prompt.idempotency": "IdempotencyConfig"})

__all__ = [
    "Budget",
    "BudgetTracker",
    "Deadline",
    "Dispatcher",
    "EffectApplied",
    "EffectAwaited",
    "EffectLedger",
    "EffectUnsettled",
    "Heartbeat",
    "IdempotencyConfig",
    "RunContext",
    "Session",
    "Step",
    "TokenUsage",
    "ToolCall",
    "ToolEffect",
    "ToolInvoked",
    "ToolMessage",
    "ToolRaised",
    "Transaction",
    "append_all",
    "reducer",
    "replace_latest",
    "upsert_by",
]
