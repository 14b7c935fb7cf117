"""`assert_undoes` runs a tool, undoes it, and compares."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.errors import EffectNotApplied
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Tool
from handrail.testing import assert_undoes
from tests.undo.desk import Book, mail, note, write
from tests.wording import Wording


def test_a_tool_that_undoes_itself_passes() -> None:
    """The payment, the note and the file are gone."""
    book = Book()
    assert_undoes(book.pays(), {"order": "A-1"}, world=lambda: book.paid)
    assert_undoes(note, {"text": "one"})
    assert_undoes(write, {"path": "new.txt", "text": "x"}, resources={Filesystem: InMemoryFilesystem()})


_BOOK = Book()


def _fails(*_arguments: object) -> None:
    raise EffectNotApplied("the bank is closed")


@pytest.mark.parametrize(
    "tool, arguments",
    [
        (mail, {"to": "x"}),
        (_BOOK.pays(undo=_fails), {"order": "A-1"}),
        (note, {}),
        (note, {"text": "one"}),
    ],
    ids=["irreversible", "fails", "is not run", "changes nothing of world"],
)
def test_a_tool_that_does_not_is_named(tool: Tool[Any, Any], arguments: Any, wording: Wording) -> None:
    """With the reason."""
    with pytest.raises(AssertionError) as raised:
        assert_undoes(tool, arguments, world=lambda: _BOOK.paid)
    assert str(raised.value) == wording


def test_an_effect_outside_needs_a_world() -> None:
    """Else nothing would be compared."""
    with pytest.raises(AssertionError):
        assert_undoes(Book().pays(), {"order": "A-1"})


def test_what_an_undo_leaves_is_named(wording: Wording) -> None:
    """As when it refunds another payment."""
    book = Book(paid=["earlier"])

    def wrong(params: Any, result: Any, before: Any) -> None:
        book.paid.pop(0)

    with pytest.raises(AssertionError) as raised:
        assert_undoes(book.pays(undo=wrong), {"order": "A-1"}, world=lambda: book.paid)
    assert str(raised.value) == wording
