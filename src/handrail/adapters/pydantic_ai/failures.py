"""What ends an evaluation, told as `PromptEvaluationError` with the phase in which it happened.

| what stopped the run | phase |
|---|---|
| the deadline, before or while the model was asked; a request that failed | `request` |
| the provider did not answer: `ModelUnreachableError`, with host and cause | `request` |
| the deadline while a call ran, and whatever else a call ends the run with | `tool`, from the pipeline |
| a reply that is of no use: no answer, an answer of the wrong shape, a content filter | `response` |
| the budget, or one of PydanticAI's usage limits | `budget` |

What is the developer's fault (`pydantic_ai.UserError`, a wrong key of a provider) is not told as one of these.
"""

from __future__ import annotations

from pydantic_ai import FallbackExceptionGroup, UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.exceptions import AgentRunError

from handrail.adapters.pydantic_ai.evaluation import unreachable
from handrail.errors import BudgetExceededError, PromptEvaluationError
from handrail.limits import Deadline

STOPPED_RUN = (AgentRunError, FallbackExceptionGroup)
"""What PydanticAI raises when a run cannot go on."""


def past_deadline(deadline: Deadline, when: str) -> PromptEvaluationError:
    """The deadline passed outside of any call."""
    return PromptEvaluationError(f"the deadline ({deadline.expires_at.isoformat()}) passed {when}", phase="request")


def over_budget(error: BudgetExceededError) -> PromptEvaluationError:
    """The budget is exceeded."""
    return PromptEvaluationError(str(error), phase="budget")


def stopped(error: AgentRunError | FallbackExceptionGroup, prompt_name: str) -> PromptEvaluationError:
    """PydanticAI stopped the run."""
    if (unreached := unreachable(error, prompt_name)) is not None:
        return unreached
    phase = "request"
    if isinstance(error, UsageLimitExceeded):
        phase = "budget"
    elif isinstance(error, UnexpectedModelBehavior):
        phase = "response"
    return PromptEvaluationError(f"the evaluation of {prompt_name} stopped: {error}", phase=phase)
