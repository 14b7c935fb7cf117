"""The PydanticAI adapter: runs a whole prompt, or adds a prompt's tools to a PydanticAI agent.

    adapter = PydanticAIAdapter("openai:gpt-5.2")
    response = adapter.evaluate(prompt, session=session)

PydanticAI runs the agent loop and calls the providers; each tool call goes through the pipeline of `handrail.runtime`.
For your own agent, use `HandrailCapability`, or the bare `HandrailToolset`; `PipelineCapability` also sends the calls
of the agent's other tools through the pipeline:

    agent = Agent("openai:gpt-5.2", capabilities=[HandrailCapability(ToolExecutor(prompt=prompt, session=session))])
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pydantic_ai") is None:
    raise ImportError(
        "handrail.adapters.pydantic_ai needs PydanticAI, which is not installed: pip install 'handrail[pydantic-ai]'",
        name="pydantic_ai",
    )

from handrail.adapters.pydantic_ai.adapter import PromptResponse, PydanticAIAdapter
from handrail.adapters.pydantic_ai.capability import HandrailCapability
from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.adapters.pydantic_ai.pipeline import PipelineCapability
from handrail.adapters.pydantic_ai.toolset import RUN_CONTEXT, HandrailToolset
from handrail.prompt.context import tool_context

__all__ = [
    "RUN_CONTEXT",
    "HandrailCapability",
    "HandrailToolset",
    "PipelineCapability",
    "PromptResponse",
    "PydanticAIAdapter",
    "StoredHistory",
    "tool_context",
]
