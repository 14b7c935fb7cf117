"""Versions of growing lists, and the looking at them."""

from __future__ import annotations

import pytest

from handrail.session.slices import SliceOwner, Version, VersionView
from tests.wording import Wording

ME, OTHER = SliceOwner("me"), SliceOwner("other")


def version_of(*items: str) -> Version[str]:
    """The version of a list of its own."""
    return Version(ME, list(items), len(items))


def all_of(version: Version[str]) -> tuple[str, ...]:
    """What a version holds."""
    return VersionView(version).all()


def test_appending_to_the_newest_version_grows_its_list_in_place() -> None:
    """O(1): both versions look at one list, each at its own length."""
    old = version_of("a")
    new = old.append(ME, "b")
    assert new.items is old.items
    assert (all_of(old), all_of(new)) == (("a",), ("a", "b"))


def test_appending_to_an_old_version_makes_a_new_list() -> None:
    """The newer version keeps what it looks at."""
    old = version_of("a")
    new, branch = old.append(ME, "b"), old.append(ME, "c")
    assert branch.items is not old.items
    assert (all_of(old), all_of(new), all_of(branch)) == (("a",), ("a", "b"), ("a", "c"))


def test_only_its_owner_grows_a_list_in_place() -> None:
    """What a fork appends, the session that it was made from never sees."""
    old = version_of("a")
    forked = old.append(OTHER, "b")
    assert forked.items is not old.items
    assert forked.append(OTHER, "c").items is forked.items
    assert all_of(old.append(ME, "d")) == ("a", "d")


def test_cutting_off_forgets_what_was_appended_since() -> None:
    """The next append grows the list in place again."""
    old = version_of("a")
    old.cut_off(old.append(ME, "b").append(ME, "c"))
    assert old.items == ["a"]
    assert old.append(ME, "d").items is old.items


def test_cutting_off_leaves_another_list_alone() -> None:
    """What was replaced meanwhile did not grow this list, so the rest of it is somebody else's."""
    old = version_of("a")
    newer = old.append(ME, "b")
    old.cut_off(version_of("x", "y"))
    assert all_of(newer) == ("a", "b")


def test_a_version_of_a_log_grows_itself() -> None:
    """Nobody keeps one to come back to."""
    version = version_of("a")
    assert version.grow(ME, "b")
    assert all_of(version) == ("a", "b")


def test_a_version_of_a_log_does_not_grow_for_another_owner_or_past_a_newer_one() -> None:
    """A fork begins with a copy."""
    version = version_of("a")
    assert not version.grow(OTHER, "b")
    version.append(ME, "c")
    assert not version.grow(ME, "d")
    assert all_of(version) == ("a",)


def test_a_view_is_a_sequence() -> None:
    """It has a length, indices, ranges, an order, and a truth."""
    view = VersionView(version_of("a", "b", "c"))
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
        VersionView(version)[index]
    assert str(raised.value) == wording


def test_a_view_tells_the_newest_all_and_some() -> None:
    """Oldest first."""
    view = VersionView(version_of("a", "bb", "c"))
    assert view.latest() == "c"
    assert view.all() == ("a", "bb", "c")
    assert view.where(lambda item: len(item) == 1) == ("a", "c")


@pytest.mark.parametrize("version", [None, version_of()])
def test_a_view_of_nothing_is_empty(version: Version[str] | None, wording: Wording) -> None:
    """Whether nothing ever came in, or it was cleared."""
    view = VersionView(version)
    assert not view
    assert view.latest() is None
    assert view.all() == view[:] == view.where(bool) == ()
    with pytest.raises(IndexError) as raised:
        view[0]
    assert str(raised.value) == wording
