"""What may become of a slice."""

from __future__ import annotations

import pytest

from handrail.errors import ReducerError
from handrail.session import Append, Replace, Unchanged
from handrail.session.slices import SliceOwner, Version, VersionView, check_change
from tests.session.samples import A, B, C, Note
from tests.wording import Wording

ME = SliceOwner("me")


def test_append_adds_one_item() -> None:
    """In place, where it can."""
    version = Version(ME, [A], 1)
    after = Append(B).apply(version, ME)
    assert after.items is version.items
    assert VersionView(Append(B).apply(None, ME)).all() == (B,)


def test_replace_makes_the_slice_these_items() -> None:
    """Whatever it held."""
    version = Version(ME, [A], 1)
    assert VersionView(Replace((B, C)).apply(version, ME)).all() == (B, C)
    assert VersionView(Replace(()).apply(None, ME)).all() == ()
    assert VersionView(version).all() == (A,)


def test_keep_leaves_the_slice_as_it_is() -> None:
    """The very same version."""
    version = Version(ME, [A], 1)
    assert Unchanged().apply(version, ME) is version
    assert Unchanged().apply(None, ME) is None


@pytest.mark.parametrize("change", [Append(A), Replace((A, B)), Replace(()), Unchanged()])
def test_a_change_that_brings_items_of_the_slice_is_taken(change: object) -> None:
    """A slice holds instances of its type."""
    check_change(change, Note)


@pytest.mark.parametrize("change", [None, A, (A,), Append])
def test_what_is_no_change_is_refused(change: object, wording: Wording) -> None:
    """The message says what to return."""
    with pytest.raises(ReducerError) as raised:
        check_change(change, Note)
    assert str(raised.value) == wording


@pytest.mark.parametrize("change", [Append("x"), Replace((A, "x")), Append(Note)])
def test_an_item_of_another_type_is_refused(change: object, wording: Wording) -> None:
    """The message names the slice and the item."""
    with pytest.raises(ReducerError) as raised:
        check_change(change, Note)
    assert str(raised.value) == wording
