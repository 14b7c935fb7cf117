"""The adapter to PydanticAI: a prompt's tools inside a PydanticAI agent, and a whole prompt run by one.

    adapter = PydanticAIAdapter("openai:gpt-5.2")
    response = adapter.evaluate(prompt, session=session)

PydanticAI is the loop and speaks to the providers; each call goes through the pipeline of `handrail.runtime`. For an
agent of your own there is `HandrailCapability`, and below it the bare `HandrailToolset`; `PipelineCapability` sends the
calls of the agent's other tools through the pipeline, too:

    agent = Agent("openai:gpt-5.2", capabilities=[HandrailCapability(ToolExecutor(prompt=prompt, session=session))])
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pydantic_ai") is None:
    raise ImportError(
        "handrail.adapters.pydantic_ai needs PydanticAI, which is not installed: pip install 'handrail[pydantic-ai]'",
        name="pydantic_ai",
    )

from handrail.adapters.pydantic_ai.adapter import PydanticAIAdapter
from handrail.adapters.pydantic_ai.capability import HandrailCapability
from handrail.adapters.pydantic_ai.evaluation import PromptResponse
from handrail.adapters.pydantic_ai.foreign.calls import tool_context
from handrail.adapters.pydantic_ai.pipeline import PipelineCapability
from handrail.adapters.pydantic_ai.toolset import HandrailToolset

__all__ = [
    "HandrailCapability",
    "HandrailToolset",
    "PipelineCapability",
    "PromptResponse",
    "PydanticAIAdapter",
    "tool_context",
]
