"""Overridden texts reach the model through each adapter, because all of them read the rendered tools."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import RunContext, RunUsage
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models.test import TestModel

from handrail.adapters.pydantic_ai import HandrailToolset
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt
from handrail.prompt.overrides import TextKey
from handrail.runtime import Session
from tests.prompt.overrides.desk import GUIDE, LOOKUP, HeldOverrides, desk, overrides

CONTEXT: RunContext[Any] = RunContext(deps=None, model=TestModel(), usage=RunUsage())
PARAMETER = TextKey("tool", "lookup", "parameter", "$.order")


def executor() -> ToolExecutor:
    """One over a prompt with overrides."""
    found = overrides((GUIDE, "Be kind, ${name}."), (LOOKUP, "Finds."), (PARAMETER, "A letter and digits."))
    return ToolExecutor(prompt=Prompt(desk(), overrides=HeldOverrides(found)), session=Session())


@pytest.mark.anyio
async def test_pydantic_ai_offers_the_overridden_texts() -> None:
    """Instructions, descriptions and schemas of the toolset."""
    toolset = HandrailToolset(executor())
    shown = (await toolset.get_tools(CONTEXT))["lookup"].tool_def
    assert (shown.description, shown.parameters_json_schema["properties"]["order"]) == (
        "Finds.",
        {"type": "string", "description": "A letter and digits."},
    )
    instructions = await toolset.get_instructions(CONTEXT)
    assert isinstance(instructions, InstructionPart)
    assert "Be kind, Ann." in instructions.content


def test_a_loop_of_the_program_reads_the_overridden_texts() -> None:
    """`text` and `tools` of the executor."""
    loop = executor()
    assert "Be kind, Ann." in loop.text
    assert [tool.description for tool in loop.tools if tool.name == "lookup"] == ["Finds."]
