"""What a tool must not be: one row for each fault that is found when the tool is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Never

import pytest

from handrail.errors import DumpError, PromptValidationError, SchemaError
from handrail.prompt import IdempotencyConfig, Tool, ToolContext, ToolExample, ToolResult, tool
from tests.prompt.samples import Found, Lookup, look_up, lookup_tool
from tests.wording import Wording

UNCHECKED: Any = Tool


@dataclass(frozen=True)
class Opaque:
    """A dataclass without a schema."""

    made: object
    handle: type[int]


@dataclass(frozen=True)
class Page:
    """A result with a number in it."""

    number: int


def refused(**changes: object) -> PromptValidationError:
    """The error that a tool with these changes is refused with."""
    with pytest.raises(PromptValidationError) as caught:
        lookup_tool(**changes)
    return caught.value


def without_context(params: Lookup) -> ToolResult[Found]:
    """A handler that forgets the context."""
    raise NotImplementedError


def of_other(params: Page, *, context: ToolContext) -> ToolResult[Found]:
    """A handler of another tool."""
    raise NotImplementedError


def returning_other(params: Lookup, *, context: ToolContext) -> ToolResult[Page]:
    """A handler that returns something else."""
    raise NotImplementedError


def ask(params: Lookup, key: str) -> ToolResult[Found] | None:
    """A reconciler."""
    raise NotImplementedError


def ask_without_key(params: Lookup) -> ToolResult[Found] | None:
    """A reconciler that forgets the key."""
    raise NotImplementedError


def example(**changes: object) -> ToolExample[Any, Any]:
    """An example that is right, but for the changes."""
    declared: dict[str, Any] = {"description": "One", "input": Lookup("a"), "output": Found("b")}
    declared.update(changes)
    return ToolExample(**declared)


def test_a_tool_without_types_is_shown_how_to_write_it(wording: Wording) -> None:
    """Where neither brackets nor a handler say them; the message has the form that is right."""
    with pytest.raises(PromptValidationError) as caught:
        UNCHECKED(name="lookup", description="Looks up.")
    assert str(caught.value) == wording
    assert caught.value.tool == "lookup"


def test_a_tool_without_brackets_has_the_types_of_its_handler() -> None:
    """As type checkers infer them, plain or `async`, with `ToolResult.error(...)` beside."""

    async def look_up_later(params: Lookup, *, context: ToolContext) -> ToolResult[Found] | ToolResult[Never]:
        raise NotImplementedError

    for handler in (look_up, look_up_later):
        tool = Tool(name="lookup", description="Looks up.", handler=handler)
        assert (tool.params_type, tool.result_type) == (Lookup, Found)
        assert replace(tool, name="other").result_type is Found


@pytest.mark.parametrize("name", ["", "look up", "löök", "a" * 65, "look.up", "lookup\n", None, 5])
def test_other_names_are_refused(name: object, wording: Wording) -> None:
    """A name that breaks the rule is refused, with the rule."""
    assert str(refused(name=name)) == wording


def test_other_descriptions_are_refused(wording: Wording) -> None:
    """Too short, too long, or no text."""
    assert str(refused(description="   ")) == wording
    assert str(refused(description="x" * 8_001)) == wording
    assert str(refused(description=None)) == wording


@pytest.mark.requirement("M-06k")
def test_parameters_are_a_dataclass_or_none(wording: Wording) -> None:
    """Anything else is refused, and named."""
    told: list[str] = []
    for kind in (int, dict[str, int], "Lookup", Lookup("a"), Lookup | None):
        with pytest.raises(PromptValidationError) as caught:
            UNCHECKED[kind, None](name="lookup", description="Looks up.")
        told.append(str(caught.value))
    assert told == wording


def test_parameters_without_a_schema_are_refused_with_the_cause() -> None:
    """What serde says of the type is passed on and chained, and the type is named."""
    with pytest.raises(PromptValidationError) as caught:
        Tool[Opaque, None](name="lookup", description="Looks up.")
    assert isinstance(caught.value.__cause__, SchemaError)
    assert (caught.value.tool, caught.value.dataclass) == ("lookup", Opaque)


def test_a_result_is_of_a_type_that_json_has(wording: Wording) -> None:
    """Another type is refused, and named."""
    with pytest.raises(PromptValidationError) as caught:
        UNCHECKED[Lookup, complex](name="lookup", description="Looks up.")
    assert str(caught.value) == wording
    assert caught.value.dataclass is complex
    assert isinstance(caught.value.__cause__, SchemaError)


@pytest.mark.requirement("M-06l")
def test_a_handler_that_does_not_fit_is_shown_what_would(wording: Wording) -> None:
    """Parameters, context and what is returned are held to the types; the message is a signature that fits."""
    assert str(refused(handler=without_context)) == wording
    assert str(refused(handler=of_other)) == wording
    assert str(refused(handler=returning_other)) == wording
    assert str(refused(handler="look_up")) == wording
    assert (refused(handler=of_other).tool, refused(handler=of_other).dataclass) == ("lookup", Lookup)


def test_effects_are_three(wording: Wording) -> None:
    """An effect that is none of the three is refused."""
    assert str(refused(effect="write")) == wording


def test_idempotency_is_for_effects(wording: Wording) -> None:
    """A tool that reads has none; a key needs fields that there are; a reconciling owner needs a reconciler."""
    assert str(refused(effect="read", idempotency=IdempotencyConfig())) == wording
    assert str(refused(idempotency="auto")) == wording
    keys = IdempotencyConfig(strategy="params", param_keys=("order_id",))
    assert str(refused(idempotency=keys)) == wording
    assert str(refused(idempotency=IdempotencyConfig(on_orphan="reconcile"))) == wording


def test_idempotency_may_be_switched_on_and_off() -> None:
    """`True` is the configuration by default."""
    tools = [tool(name="pay", description="Pay.", idempotency=given)(lambda: None) for given in (True, False)]
    assert [each.idempotency for each in tools] == [IdempotencyConfig(), None]


def test_reconcile_is_for_effects_in_the_ledger(wording: Wording) -> None:
    """It needs an effect to ask after, and takes parameters and key."""
    assert str(refused(reconcile=ask)) == wording
    assert str(refused(effect="external", reconcile=ask_without_key)) == wording
    assert str(refused(effect="external", reconcile="ask")) == wording


@pytest.mark.parametrize("limit", [999, True, 5000.0, None])
def test_a_limit_of_characters_is_a_number(limit: object) -> None:
    """A cut text needs room to say what is left out."""
    assert refused(max_result_chars=limit).tool == "lookup"


def test_a_timeout_is_a_span_of_time(wording: Wording) -> None:
    """A bare number has no unit, and zero leaves no time."""
    assert str(refused(timeout=5)) == wording
    assert str(refused(timeout=timedelta(0))) == wording


def test_examples_fit_the_types(wording: Wording) -> None:
    """Input and output are instances, with a description of bounded length."""
    assert str(refused(examples=(example(), example(input=Found("a"))))) == wording
    assert str(refused(examples=(example(output=None),))) == wording
    assert str(refused(examples=(example(description="x" * 8_001),))) == wording
    assert str(refused(examples=example())) == wording
    assert str(refused(examples=("call it",))) == wording
    assert refused(examples=(example(output=Lookup("a")),)).dataclass is Found


def test_examples_fit_the_schema(wording: Wording) -> None:
    """A field of the wrong type would teach the model a wrong call, so it is found."""
    error = refused(examples=(example(input=Lookup(5)),))  # type: ignore[arg-type]
    assert str(error) == wording
    assert isinstance(error.__cause__, DumpError)


def test_examples_of_a_tool_without_types_say_none(wording: Wording) -> None:
    """Where there are no parameters and no value, the example has none either."""
    nothing = ToolExample(description="Just so", input=None, output=None)
    tool = Tool[None, None](name="ping", description="Pings.", examples=(nothing,))
    assert tool.examples == (nothing,)
    with pytest.raises(PromptValidationError) as raised:
        UNCHECKED[None, None](name="ping", description="Pings.", examples=(example(input=5, output=None),))
    assert str(raised.value) == wording
