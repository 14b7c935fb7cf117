"""The call pipeline, its inputs and outputs, and the ledger of effects."""

from handrail.errors import (
    DeadlineExceededError,
    EffectUncertain,
    LeaseLostError,
    PromptEvaluationError,
    ReadOnlyViolation,
    RollbackError,
    ToolValidationError,
    TransactionClosedError,
)
from handrail.events import Dispatcher
from handrail.limits import Budget, BudgetTracker, Deadline, Heartbeat, RunContext, TokenUsage
from handrail.prompt import IdempotencyConfig
from handrail.runtime.calls import EffectAwaited, EffectUnsettled, Step, ToolInvoked, ToolMessage, ToolRaised
from handrail.runtime.ledger.effects import ToolEffect
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.runtime.steps import EffectApplied
from handrail.session import Session, append_all, reducer, replace_latest, upsert_by
from handrail.session.call_ref import ToolCall
from handrail.transaction import Transaction

__all__ = [
    "Budget",
    "BudgetTracker",
    "Deadline",
    "DeadlineExceededError",
    "Dispatcher",
    "EffectApplied",
    "EffectAwaited",
    "EffectLedger",
    "EffectUncertain",
    "EffectUnsettled",
    "Heartbeat",
    "IdempotencyConfig",
    "LeaseLostError",
    "PromptEvaluationError",
    "ReadOnlyViolation",
    "RollbackError",
    "RunContext",
    "Session",
    "Step",
    "TokenUsage",
    "ToolCall",
    "ToolEffect",
    "ToolInvoked",
    "ToolMessage",
    "ToolRaised",
    "ToolValidationError",
    "Transaction",
    "TransactionClosedError",
    "append_all",
    "reducer",
    "replace_latest",
    "upsert_by",
]
