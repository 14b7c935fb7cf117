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


NAMES = ("", "look up", "löök", "a" * 65, "look.up", "lookup\n", None, 5)

KEYS = IdempotencyConfig(strategy="params", param_keys=("order_id",))

REFUSED: dict[str, dict[str, object]] = {
    **{f"name {number}": {"name": name} for number, name in enumerate(NAMES)},
    "blank description": {"description": "   "},
    "long description": {"description": "x" * 8_001},
    "no description": {"description": None},
    "handler of another signature": {"handler": without_context},
    "handler of other parameters": {"handler": of_other},
    "handler of another result": {"handler": returning_other},
    "handler that is not called": {"handler": "look_up"},
    "no such effect": {"effect": "write"},
    "a key of a read": {"effect": "read", "idempotency": IdempotencyConfig()},
    "no such key": {"idempotency": "auto"},
    "fields that are missing": {"idempotency": KEYS},
    "a key without a reconciler": {"idempotency": IdempotencyConfig(on_orphan="reconcile")},
    "a reconciler without an effect": {"reconcile": ask},
    "a reconciler of another signature": {"effect": "external", "reconcile": ask_without_key},
    "a reconciler that is not called": {"effect": "external", "reconcile": "ask"},
    **{f"limit {limit}": {"max_result_chars": limit} for limit in (999, True, 5000.0, None)},
    "timeout without a unit": {"timeout": 5},
    "no time": {"timeout": timedelta(0)},
    "a flag that is a word": {"concurrent": "no"},
    "both untrusted and sanitized": {"untrusted": True, "sanitizes": True},
    "input of another class": {"examples": (example(), example(input=Found("a")))},
    "no output": {"examples": (example(output=None),)},
    "output of another class": {"examples": (example(output=Lookup("a")),)},
    "long description of an example": {"examples": (example(description="x" * 8_001),)},
    "one example": {"examples": example()},
    "an example that is a text": {"examples": ("call it",)},
}


@pytest.mark.requirement("M-06l")
@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_a_wrong_declaration_is_refused_with_the_cure(changes: dict[str, object], wording: Wording) -> None:
    """When the tool is made; the error names the tool."""
    error = refused(**changes)
    assert str(error) == wording
    assert error.tool == changes.get("name", "lookup")


def test_an_error_has_the_type_at_fault() -> None:
    """That of the parameters, or that of the result."""
    assert refused(handler=of_other).dataclass is Lookup
    assert refused(examples=(example(output=Lookup("a")),)).dataclass is Found


def test_idempotency_may_be_switched_on_and_off() -> None:
    """`True` is the configuration by default."""
    tools = [tool(name="pay", description="Pay.", idempotency=given)(lambda: None) for given in (True, False)]
    assert [each.idempotency for each in tools] == [IdempotencyConfig(), None]


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
