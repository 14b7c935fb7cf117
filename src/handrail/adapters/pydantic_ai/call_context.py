"""PydanticAI's `RunContext` as a resource of each call, for a function that has it injected.

    prompt = Prompt(template).bind(resources=RUN_CONTEXT)

A function that raises `ApprovalRequired` unless `ctx.tool_call_approved` needs it. The prompt of an agent file has it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pydantic_ai import RunContext

from handrail.adapters.pydantic_ai.questions import MADE_AGAIN
from handrail.adapters.pydantic_ai.toolset import call_run_context
from handrail.resources import Binding, ResourceRegistry, Scope


def _context_of_call() -> RunContext[Any]:
    ctx = call_run_context()
    # Made again by a resumed run, which approves nothing.
    return replace(ctx, tool_call_approved=False) if ctx.tool_call_metadata == MADE_AGAIN else ctx


RUN_CONTEXT: Final = ResourceRegistry.of(Binding(RunContext, lambda _resources: _context_of_call(), Scope.TOOL_CALL))
"""Binds the run context that PydanticAI has given the call, in which `tool_call_approved` is true if its caller has
approved the call. Outside of a PydanticAI run, asking for it raises `LookupError`."""
