"""Tools, sections, policies and prompts.

A prompt is a tree of sections; sections have the tools that their text describes, the policies that judge the calls,
and the resources that the handlers need. `handrail.runtime` runs the handlers.

Hooks, overrides, and the policies and feedback providers that are ready to use are loaded when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.errors import PromptRenderError, PromptValidationError, VisibilityExpansionRequired
from handrail.lazy_exports import lazy_exports
from handrail.prompt.context import ToolContext
from handrail.prompt.prompt import Prompt, RenderedPrompt
from handrail.prompt.section import MarkdownSection, Section, ToolsSection
from handrail.prompt.signature import Effect
from handrail.prompt.template import PromptTemplate
from handrail.prompt.tool_definition import Tool, ToolExample, ToolHandler
from handrail.prompt.tool_result import BinaryPart, FileShown, TextPart, ToolResult

if TYPE_CHECKING:
    from handrail.prompt.function_tools import FunctionTool, tool
    from handrail.prompt.hooks import (
        CompletionCheck,
        CompletionChecker,
        CompletionContext,
        DeadlineFeedback,
        Feedback,
        FeedbackContext,
        FeedbackProvider,
        FeedbackTrigger,
        FilesExist,
        StaticFeedback,
    )
    from handrail.prompt.idempotency import External, IdempotencyConfig
    from handrail.prompt.overrides import OverridesReport, PromptText, template_texts
    from handrail.prompt.policy import (
        Approval,
        ApprovalRequest,
        Approver,
        PolicyDecision,
        PolicyQuestion,
        SequentialDependencyPolicy,
        ToolPolicy,
    )
    from handrail.prompt.read_before_write import ReadBeforeWritePolicy
    from handrail.prompt.undo import Undo
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "function_tools": "FunctionTool tool",
            "hooks": "CompletionCheck CompletionChecker CompletionContext DeadlineFeedback "
            "Feedback FeedbackContext FeedbackProvider FeedbackTrigger FilesExist StaticFeedback",
            "idempotency": "External IdempotencyConfig",
            "overrides": "OverridesReport PromptText template_texts",
            "policy": "Approval ApprovalRequest Approver PolicyDecision PolicyQuestion "
            "SequentialDependencyPolicy ToolPolicy",
            "read_before_write": "ReadBeforeWritePolicy",
            "undo": "Undo",
        },
    )

__all__ = [
    "Approval",
    "ApprovalRequest",
    "Approver",
    "BinaryPart",
    "CompletionCheck",
    "CompletionChecker",
    "CompletionContext",
    "DeadlineFeedback",
    "Effect",
    "External",
    "Feedback",
    "FeedbackContext",
    "FeedbackProvider",
    "FeedbackTrigger",
    "FileShown",
    "FilesExist",
    "FunctionTool",
    "IdempotencyConfig",
    "MarkdownSection",
    "OverridesReport",
    "PolicyDecision",
    "PolicyQuestion",
    "Prompt",
    "PromptRenderError",
    "PromptTemplate",
    "PromptText",
    "PromptValidationError",
    "ReadBeforeWritePolicy",
    "RenderedPrompt",
    "Section",
    "SequentialDependencyPolicy",
    "StaticFeedback",
    "TextPart",
    "Tool",
    "ToolContext",
    "ToolExample",
    "ToolHandler",
    "ToolPolicy",
    "ToolResult",
    "ToolsSection",
    "Undo",
    "VisibilityExpansionRequired",
    "template_texts",
    "tool",
]
