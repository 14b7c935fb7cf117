"""Versions of growing lists, and the looking at them."""

from __future__ import annotations

import pytest

from handrail.session.slices import SliceOwner, SliceView, Version
from tests.wording import Wording

ME, OTHER = SliceOwner("me"), SliceOwner("other")


def version_of(*items: str) -> Version[str]:
    """The version of a list of its own."""
    return Version(ME, list(items), len(items))


def test_a_view_is_a_sequence() -> None:
    """It has a length, indices, ranges, an order, and a truth."""
    view = SliceView(version_of("a", "b", "c"))
    assert len(view) == 3
    assert (view[0], view[2], view[-1], view[-3]) == ("a", "c", "c", "a")
    assert (view[1:], view[::-1], view[5:]) == (("b", "c"), ("c", "b", "a"), ())
    assert list(view) == list(reversed(list(reversed(view)))) == ["a", "b", "c"]
    assert "b" in view
    assert view.index("b") == 1
    assert view


@pytest.mark.parametrize("index", [2, -3, 100])
def test_a_view_has_nothing_beyond_its_length(index: int, wording: Wording) -> None:
    """Also where the list goes on, because a newer version has grown it."""
    version = version_of("a", "b")
    version.append(ME, "c")
    with pytest.raises(IndexError) as raised:
        SliceView(version)[index]
    assert str(raised.value) == wording


def test_a_view_tells_the_newest_all_and_some() -> None:
    """Oldest first."""
    view = SliceView(version_of("a", "bb", "c"))
    assert view.latest() == "c"
    assert view.all() == ("a", "bb", "c")
    assert view.where(lambda item: len(item) == 1) == ("a", "c")


@pytest.mark.parametrize("version", [None, version_of()])
def test_a_view_of_nothing_is_empty(version: Version[str] | None, wording: Wording) -> None:
    """Whether nothing ever came in, or it was cleared."""
    view = SliceView(version)
    assert not view
    assert view.latest() is None
    assert view.all() == view[:] == view.where(bool) == ()
    with pytest.raises(IndexError) as raised:
        view[0]
    assert str(raised.value) == wording
