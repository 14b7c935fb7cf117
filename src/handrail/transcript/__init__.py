"""The messages and calls of a stored session, read as one sequence of values."""

from handrail.transcript.messages import (
    ApprovalWait,
    ConversationId,
    MessageBlock,
    TranscriptBreak,
    TranscriptCall,
    TranscriptItem,
    TranscriptMessage,
)
from handrail.transcript.reading import TranscriptReader

__all__ = [
    "ApprovalWait",
    "ConversationId",
    "MessageBlock",
    "TranscriptBreak",
    "TranscriptCall",
    "TranscriptItem",
    "TranscriptMessage",
    "TranscriptReader",
]
