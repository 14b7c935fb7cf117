"""`assert_reads_only` finds a tool that changes a resource which cannot refuse it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pytest

from handrail.errors import InvalidArgumentError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.resources import Binding, Copied, Resolver, Scope
from handrail.testing import assert_reads_only
from tests.wording import Wording


class Shelf:
    """A resource that can be undone, and does not ask before it is changed."""

    def __init__(self, books: dict[str, Any]) -> None:
        self.books = books

    def snapshot(self) -> object:
        """A copy of all."""
        return copy.deepcopy(self.books)

    def restore(self, snapshot: Any, /) -> None:
        """Take the copy."""
        self.books = snapshot


class Moment:
    """A state of a `Drawer`, which is compared by identity, in slots and attributes."""

    __slots__ = ("__dict__", "letters")

    def __init__(self, letters: tuple[str, ...]) -> None:
        self.letters = letters
        self.within = [self]


class Drawer(Shelf):
    """Snapshots of it are equal to no others."""

    def snapshot(self) -> Moment:
        """A copy of all."""
        return Moment(tuple(self.books))


@dataclass(frozen=True)
class Found:
    text: str


def looking(look: Callable[[ToolContext], object], **options: Any) -> Tool[None, Found]:
    """A tool that looks."""

    def handler(_: None, *, context: ToolContext) -> ToolResult[Found]:
        return ToolResult.ok(Found(str(look(context))))

    options.setdefault("effect", "read")
    return Tool[None, Found](name="look", description="Looks.", handler=handler, **options)


def shelf(context: ToolContext) -> dict[str, Any]:
    """The books of the shelf."""
    return context.resources.get(Shelf).books


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a new key": lambda books: books.update(new=1),
    "a key that is gone": lambda books: books.pop("a"),
    "a new item": lambda books: books["a"].append(3),
    "another value": lambda books: books["a"].__setitem__(0, "x"),
    "an equal value of another type": lambda books: books["a"].__setitem__(0, 1.0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_the_resource_is_named_and_what_differs(change: Callable[[Any], object], wording: Wording) -> None:
    """The message says where, and how the tool is to be declared."""
    tool = looking(lambda context: change(shelf(context)))
    with pytest.raises(AssertionError) as raised:
        assert_reads_only(tool, resources={Shelf: Shelf({"a": [1, 2]})})
    assert str(raised.value) == wording


def test_a_tool_that_changes_nothing_passes() -> None:
    """The message of its call is returned, so that the test can look at it."""
    resources = {
        Shelf: Shelf({"a": 1, "b": {2}}),
        Open: Open({"b": Lock()}),
        Filesystem: InMemoryFilesystem({"a": "1"}),
    }
    message = assert_reads_only(looking(lambda context: shelf(context)["a"]), resources=resources)
    assert message.result.value == Found("1")


def test_snapshots_without_equality_are_compared_by_what_they_hold(wording: Wording) -> None:
    """Two of them are two objects, also if nothing has changed."""
    tool = looking(lambda context: context.resources.get(Drawer).books.update(b=1))
    with pytest.raises(AssertionError) as raised:
        assert_reads_only(tool, resources={Drawer: Drawer({})})
    assert str(raised.value) == wording


class Open(Shelf):
    """Its snapshots share what it holds."""

    def snapshot(self) -> object:
        """The books themselves, in a list."""
        return [self.books]


def test_a_snapshot_may_share_what_the_resource_holds(wording: Wording) -> None:
    """It is copied deeply before the call."""
    tool = looking(lambda context: context.resources.get(Open).books["a"].append(3))
    with pytest.raises(AssertionError) as raised:
        assert_reads_only(tool, resources={Open: Open({"a": [1, 2]})})
    assert str(raised.value) == wording


class Counts(Copied[dict[str, int]]):
    """Numbers by name, which a call that only reads cannot set."""


def test_what_is_not_a_tool_is_refused(wording: Wording) -> None:
    """With what is expected in its place."""
    with pytest.raises(InvalidArgumentError) as raised:
        assert_reads_only(len)  # type: ignore[arg-type]
    assert str(raised.value) == wording


def test_a_resource_of_a_provider_is_compared(wording: Wording) -> None:
    """It is built before the call. One that lives for the call alone ends with it."""

    def made(_: Resolver) -> Drawer:
        raise AssertionError("it is not asked for")

    built = Binding(Shelf, lambda _: Shelf({"a": 1}))
    resources = {Shelf: built, Drawer: Binding(Drawer, made, scope=Scope.TOOL_CALL)}
    with pytest.raises(AssertionError) as raised:
        assert_reads_only(looking(lambda context: shelf(context).clear()), resources=resources)
    assert str(raised.value) == wording


def test_a_write_that_is_refused_fails_the_check(wording: Wording) -> None:
    """The call has failed, so nothing is known of the rest of it."""

    def replace(context: ToolContext) -> None:
        context.resources.get(Counts).value = {"a": 1}

    tool = looking(replace)
    with pytest.raises(AssertionError) as raised:
        assert_reads_only(tool, resources={Counts: Counts({})})
    assert str(raised.value) == wording


def test_a_tool_that_may_write_is_not_run() -> None:
    """The question makes sense for a `"read"` tool alone."""
    with pytest.raises(InvalidArgumentError):
        assert_reads_only(looking(lambda context: shelf(context).clear(), effect="state"))
