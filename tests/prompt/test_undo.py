"""What a tool declares of how it is undone, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from handrail.errors import PromptValidationError
from handrail.prompt import External, Tool, ToolContext, ToolResult, Undo, tool
from handrail.prompt.undo import captured_codec
from tests.kit import raises
from tests.wording import Wording


@dataclass(frozen=True)
class Order:
    """An order."""

    order: str


def pay(params: Order, *, context: ToolContext) -> ToolResult[str]:
    """Pays."""
    return ToolResult.ok("paid")


def refund(params: Order, result: ToolResult[str], before: int) -> None:
    """Takes it back."""


def balance(params: Order) -> int:
    """Reads what is captured."""
    return 1


def _undo(params: Any, result: Any, before: Any) -> None: ...


def paying(**options: Any) -> Tool[Order, str]:
    """The tool, declared with options."""
    options = {"effect": "external", "undo": refund, **options}
    return Tool[Order, str](name="pay", description="Pays.", handler=pay, **cast("Any", options))


def test_a_function_is_an_undo() -> None:
    """As `Undo(function)`; a copy of the tool has the same."""
    assert paying().undo == Undo(refund)
    assert replace(paying(), name="other").undo == Undo(refund)
    assert paying(undo=Undo(refund, External(on_orphan="retry"))).undo == Undo(refund, External(on_orphan="retry"))
    assert paying(undo=None).undo is None


def test_a_function_tool_declares_it_too() -> None:
    """By the decorator."""

    @tool(effect="state", undo=_undo)
    def note(text: str) -> str:
        """Note."""
        return text

    assert note.undo is not None


def test_what_is_captured_is_read_by_its_annotation() -> None:
    """Without one it is any JSON."""

    def capture(params: Any) -> Order:
        return Order("A-1")

    assert captured_codec(capture).parse_json(b'{"order":"A-1"}') == Order("A-1")
    assert captured_codec(_anything).parse_json(b"[1]") == [1]
    assert captured_codec(None).parse_json(b"null") is None


def _anything(params: Order) -> Any:
    return 1


def _apply(params: Order, result: ToolResult[Any], *, context: ToolContext) -> None: ...


def _wrong(params: Order, result: ToolResult[str]) -> None: ...


def _of_ints(params: int, result: ToolResult[str], before: int) -> None: ...


class Client:
    """What JSON cannot say."""


def _client(params: Order) -> Client:
    return Client()


REFUSED: dict[str, dict[str, Any]] = {
    "an undo of a read": {"effect": "read"},
    "an undo that cannot be called": {"undo": 7},
    "an undo without what was captured": {"undo": _wrong},
    "an undo of other parameters": {"undo": _of_ints},
    "a capture without an undo": {"undo": None, "capture": balance},
    "a capture that cannot be stored": {"capture": _client},
    "a capture that cannot be called": {"capture": "balance"},
    "a preview of state": {"effect": "state", "preview": pay},
    "a preview that cannot be called": {"preview": True},
}


@pytest.mark.short(len(REFUSED))
@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_declaration_is_refused(name: str, wording: Wording) -> None:
    """When the tool is made."""
    with raises(PromptValidationError, wording):
        paying(**REFUSED[name])


def test_the_effect_of_an_undo_is_an_external_one(wording: Wording) -> None:
    """Without `apply`: what a call changed besides is restored by Handrail."""
    with raises(PromptValidationError, wording):
        Undo(refund, cast("Any", "external"))
    with raises(PromptValidationError, wording):
        Undo(refund, External(apply=_apply))
