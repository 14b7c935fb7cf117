"""Frozen, slotted, generic dataclasses are made by their subscripted names on every Python."""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest

import handrail
from handrail.adapters.pydantic_ai import PromptResponse
from handrail.limits import TokenUsage
from handrail.prompt import ToolExample, ToolResult
from handrail.resources import Binding, Scope
from handrail.session import Append, Replace

MADE: dict[str, Callable[[], object]] = {
    "ToolResult": lambda: ToolResult[str](message="made", value="A"),
    "ToolExample": lambda: ToolExample[str, int](description="One.", input="A", output=1),
    "Binding": lambda: Binding[list[int]](list, lambda _: [], Scope.PROTOTYPE),
    "PromptResponse": lambda: PromptResponse[str](
        prompt_name="n", text="t", output="t", usage=TokenUsage(), messages=()
    ),
    "Append": lambda: Append[int](1),
    "Replace": lambda: Replace[int]((1, 2)),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_generic_value_is_made_by_its_subscripted_name(make: Callable[[], object]) -> None:
    """The value is that of the class without brackets."""
    made: Any = make()
    fields = {field.name: getattr(made, field.name) for field in dataclasses.fields(made) if field.init}
    assert type(made)(**fields) == made


def _generic_dataclasses() -> set[type[Any]]:
    modules = [name for _, name, _ in pkgutil.walk_packages(handrail.__path__, "handrail.") if "__main__" not in name]
    members = [each for name in modules for each in vars(import_module(name)).values() if isinstance(each, type)]
    return {each for each in members if dataclasses.is_dataclass(each) and getattr(each, "__parameters__", None)}


def test_every_generic_dataclass_refuses_other_attributes_as_typing_expects() -> None:
    """`typing` sets `__orig_class__`, and passes over an `AttributeError` alone."""
    classes = _generic_dataclasses()
    assert ToolResult in classes
    for cls in classes:
        with suppress(AttributeError):  # any other error ends the creation
            object.__new__(cls).__orig_class__ = cls


def test_other_attribute_of_a_frozen_value_is_refused_by_name() -> None:
    """A misspelt field is an error of the same class as an assignment to a field."""
    result: Any = ToolResult.ok("A")
    for name in ("message", "mesage"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, name, "other")
