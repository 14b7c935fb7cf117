"""`handrail.adapters.pydantic_ai.foreign.effects`: what tools that are not Handrail's say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import RunContext, RunUsage, Tool, ToolDefinition
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset

from handrail.adapters.pydantic_ai.foreign.calls import (
    ToolMetadata,
    hinted_effect,
    read_tool_metadata,
)
from handrail.errors import PromptValidationError
from handrail.prompt import External, IdempotencyConfig
from tests.wording import Wording

ONCE = IdempotencyConfig(strategy="params", param_keys=("order_id",))


def definition(metadata: dict[str, Any] | None = None, *, kind: Any = "function") -> ToolDefinition:
    """A tool `pay` of the one parameter `order_id`."""
    schema = {"type": "object", "properties": {"order_id": {"type": "string"}}}
    return ToolDefinition(name="pay", parameters_json_schema=schema, metadata=metadata, kind=kind)


def told(metadata: dict[str, Any]) -> str:
    """The error that a tool with this metadata is refused with."""
    with pytest.raises(PromptValidationError) as refused:
        read_tool_metadata(definition(metadata))
    assert refused.value.tool == "pay"
    return str(refused.value)


@pytest.mark.parametrize("metadata", [None, {}, {"owner": "billing", "Effect": 7}, {"annotations": None, "meta": None}])
def test_a_tool_that_says_nothing_changes_state(metadata: dict[str, Any] | None) -> None:
    """Without metadata, or with that of others alone, the careful default of Handrail's own tools holds."""
    assert read_tool_metadata(definition(metadata)) == ToolMetadata(
        effect="state", concurrent=False, idempotency=None, approval=None
    )


def pay(order_id: str) -> str:
    """Pay back what an order cost."""
    return f"paid {order_id}"


@pytest.mark.anyio
async def test_tools_and_whole_toolsets_declare_by_their_metadata() -> None:
    """`Tool(metadata=...)` reaches the definition, and `with_metadata` adds to it for every tool of a toolset."""
    ctx = RunContext[None](deps=None, model=TestModel(), usage=RunUsage())
    toolset = FunctionToolset[None]([Tool(pay, metadata={"effect": "external", "idempotency": ONCE})])
    tools = await toolset.with_metadata(approval="deny").get_tools(ctx)
    assert read_tool_metadata(tools["pay"].tool_def) == ToolMetadata(
        effect="external", declares_effect=True, idempotency=ONCE, approval="deny"
    )


@pytest.mark.parametrize(
    "annotations, effect",
    [
        ({}, "state"),
        ({"title": "Pay"}, "state"),
        ({"readOnlyHint": True}, "read"),
        ({"readOnlyHint": True, "openWorldHint": True}, "read"),
        ({"readOnlyHint": True, "destructiveHint": False}, "read"),
        ({"readOnlyHint": True, "destructiveHint": True}, "external"),
        ({"readOnlyHint": False}, "external"),
        ({"readOnlyHint": False, "destructiveHint": False}, "external"),
        ({"readOnlyHint": False, "openWorldHint": False}, "external"),
        ({"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}, "state"),
        ({"destructiveHint": True}, "external"),
        ({"openWorldHint": True}, "external"),
        ({"destructiveHint": False, "openWorldHint": True}, "external"),
        ({"openWorldHint": False}, "state"),
        ({"idempotentHint": True}, "state"),
    ],
)
def test_hints_of_a_server_become_an_effect(annotations: dict[str, Any], effect: str) -> None:
    """What a server leaves open is taken as MCP takes it, as soon as it says that the tool writes."""
    everything = {"readOnlyHint": None, "destructiveHint": None, "openWorldHint": None, **annotations}
    assert hinted_effect(annotations) == hinted_effect(everything) == effect
    assert read_tool_metadata(definition({"annotations": annotations, "meta": None, "task": False})).effect == effect


def test_only_a_clear_word_makes_a_tool_a_reading_one() -> None:
    """Of all combinations, those are `read` that say so and do not say that they destroy."""
    names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    for values in product((True, False, None), repeat=4):
        hints = dict(zip(names, values, strict=True))
        reads = hints["readOnlyHint"] is True and hints["destructiveHint"] is not True
        assert (hinted_effect(hints) == "read") is reads, hints


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_is_no_hint_says_nothing(annotations: object) -> None:
    """Any value may stand under `annotations`, which belongs to others too; nothing but `True` and `False` counts."""
    assert hinted_effect(annotations) == "state"
    hint = {"readOnlyHint": annotations, "destructiveHint": "true", "openWorldHint": 1}
    expected = {True: "read", False: "external"}.get(annotations, "state") if isinstance(annotations, bool) else "state"
    assert hinted_effect(hint) == expected


def test_python_metadata_wins_over_hints() -> None:
    """The program knows better than the server, in both directions."""
    reads, destroys = {"readOnlyHint": True}, {"destructiveHint": True}
    assert read_tool_metadata(definition({"effect": "external", "annotations": reads})).effect == "external"
    assert read_tool_metadata(definition({"effect": "read", "annotations": destroys})).effect == "read"


@pytest.mark.parametrize(
    "metadata, said",
    [
        ({}, ToolMetadata(effect="read", approval="ask")),
        ({"concurrent": True}, ToolMetadata(effect="read", concurrent=True, approval="ask")),
        ({"effect": "read"}, ToolMetadata(effect="read", declares_effect=True)),
        ({"approval": "allow"}, ToolMetadata(effect="read", approval="allow")),
        ({"approval": "deny"}, ToolMetadata(effect="read", approval="deny")),
        ({"idempotency": ONCE}, ToolMetadata(effect="state", idempotency=ONCE)),
    ],
)
def test_a_call_that_only_a_server_calls_reading_is_asked_about(metadata: dict[str, Any], said: ToolMetadata) -> None:
    """The word of a stranger lets nothing run unasked; that of the program does."""
    assert read_tool_metadata(definition({"annotations": {"readOnlyHint": True}, **metadata})) == said


def test_a_declared_key_says_that_a_tool_changes_something() -> None:
    """A server that calls such a tool a reading one is not believed, and nothing of what Python declares is lost."""
    said = read_tool_metadata(definition({"idempotency": ONCE, "annotations": {"readOnlyHint": True}}))
    assert said == ToolMetadata(effect="state", idempotency=ONCE)
    destroys = {"idempotency": ONCE, "annotations": {"destructiveHint": True}}
    assert read_tool_metadata(definition(destroys)).effect == "external"


def test_a_server_grants_itself_nothing() -> None:
    """What a server sends along under `meta` or among its hints is no metadata of Python's, whatever its keys."""
    keys = {"effect": "read", "concurrent": True, "approval": "allow", "idempotency": {"strategy": "auto"}}
    assert (
        read_tool_metadata(definition({"meta": keys, "annotations": {**keys, "idempotentHint": True}}))
        == ToolMetadata()
    )


@pytest.mark.parametrize(
    "said, approval",
    [({}, "ask"), ({"approval": "allow"}, "ask"), ({"approval": "ask"}, "ask"), ({"approval": "deny"}, "deny")],
)
def test_a_tool_that_requires_approval_is_asked_about(said: dict[str, Any], approval: str) -> None:
    """`requires_approval=True` is never loosened by other metadata."""
    assert read_tool_metadata(definition(said, kind="unapproved")).approval == approval


WRONG: Mapping[str, dict[str, Any]] = {
    "a word near the right one": {"effect": "externel"},
    "capitals and blanks": {"effect": " READ "},
    "what cannot be hashed": {"effect": ["read"]},
    "a yes": {"approval": "yes"},
    "a bool": {"approval": True},
    "a number": {"concurrent": 1},
    "the settings as a mapping": {"idempotency": {"strategy": "auto"}},
    "a key of a tool that reads": {"effect": "read", "idempotency": ONCE},
    "a reconciler": {"effect": "external", "idempotency": IdempotencyConfig(on_orphan="reconcile")},
    "a contradiction": {"effect": External(on_orphan="retry"), "idempotency": IdempotencyConfig(on_orphan="unknown")},
    "an unknown parameter": {"idempotency": IdempotencyConfig(strategy="params", param_keys=("order_id", "order"))},
}


@pytest.mark.parametrize("metadata", WRONG.values(), ids=WRONG)
def test_wrong_metadata_is_refused_with_its_cure(metadata: dict[str, Any], wording: Wording) -> None:
    """The message names the tool, the key, and what would be right."""
    assert told(metadata) == wording


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": ["order_id"]}])
def test_a_tool_without_parameters_has_none_for_a_key(schema: dict[str, Any], wording: Wording) -> None:
    """A schema without properties, as a server may send it, is one without parameters."""
    bare = ToolDefinition(name="pay", parameters_json_schema=schema, metadata={"idempotency": ONCE})
    with pytest.raises(PromptValidationError) as raised:
        read_tool_metadata(bare)
    assert str(raised.value) == wording
