"""Feedback: advice to the model that is added to the message of a call."""

from __future__ import annotations

from handrail.prompt.feedback.provider import MAX_FEEDBACK_CHARS, Feedback, FeedbackContext, FeedbackProvider
from handrail.prompt.feedback.ready import BudgetFeedback, DeadlineFeedback, StaticFeedback
from handrail.prompt.feedback.trigger import FeedbackTrigger

__all__ = [
    "MAX_FEEDBACK_CHARS",
    "BudgetFeedback",
    "DeadlineFeedback",
    "Feedback",
    "FeedbackContext",
    "FeedbackProvider",
    "FeedbackTrigger",
    "StaticFeedback",
]
