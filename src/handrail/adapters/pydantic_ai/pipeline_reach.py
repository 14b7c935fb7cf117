"""Which tools of a PydanticAI agent have calls that reach the pipeline, and the mark `untrusted` of those that do not.

| an agent with | sends through the pipeline |
|---|---|
| `HandrailToolset` or `HandrailCapability` | the tools of its prompt |
| `PipelineCapability` | all tools of the agent |

Only the pipeline taints a session and delimits what a tool returns. A mark that nothing reads would let a run act on
what the tool has brought, so the agent is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from pydantic_ai import RunContext, ToolDefinition, ToolsetTool

from handrail.errors import PromptValidationError

PIPELINE_METADATA_KEY = "handrail"
"""The key in a tool's metadata that marks tools whose calls reach the pipeline by themselves; the value is the name of
the tool there, without any prefix."""


def reaches_pipeline(definition: ToolDefinition) -> bool:
    """Whether the calls of a tool reach the pipeline by themselves, as those of a `HandrailToolset` do."""
    return PIPELINE_METADATA_KEY in (definition.metadata or {})


@runtime_checkable
class SendsAllCalls(Protocol):
    """A capability that sends the calls of all tools of its agent through the pipeline."""

    @property
    def sends_all_calls(self) -> bool:
        """True."""
        ...


def refuse_lost_marks(tools: Mapping[str, ToolsetTool[Any]], ctx: RunContext[Any], *, used: str) -> None:
    """Refuse tools that are marked as untrusted, and whose calls do not reach the pipeline.

    Args:
        tools: the tools of the agent.
        ctx: the context of the run.
        used: what brings Handrail's tools into the agent, in words.

    Raises:
        PromptValidationError: there are such tools; the message has the first one, and the cure.
    """
    for name, tool in tools.items():
        definition = tool.tool_def
        # A value that is not a boolean is refused where it is read, and means at least that the tool is not trusted.
        if reaches_pipeline(definition) or (definition.metadata or {}).get("untrusted", False) is False:
            continue
        if any(isinstance(each, SendsAllCalls) for each in ctx.capabilities.values()):
            return
        raise PromptValidationError(
            f"its metadata has the mark untrusted, and nothing reads it, because {used} sends only its own tools "
            "through the pipeline; use PipelineCapability, which sends those of the agent too.",
            tool=name,
        )
