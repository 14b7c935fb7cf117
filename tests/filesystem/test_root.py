"""How names on disk are spelled as text."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import PathEscapeError
from handrail.filesystem.paths import normalise_on_disk, to_bytes, to_text
from tests.kit import raises
from tests.wording import Wording

NAMES = st.binary(min_size=1, max_size=40).filter(lambda name: not {0, 47} & {*name} and name not in {b".", b".."})


@given(NAMES | st.text("aä␛\\E9:", min_size=1).map(str.encode))
def test_any_name_on_disk_has_a_path_and_is_found_by_it(name: bytes) -> None:
    """The spelling is text that can be encoded, is one part of a path, stays as it is, and leads back to the name."""
    text = to_text(name)
    assert to_bytes(text) == name
    assert normalise_on_disk(text) == text
    assert text.encode().decode() == text


@pytest.mark.parametrize(
    "name,text",
    [
        (b"plan.md", "plan.md"),
        ("plän.md".encode(), "plän.md"),
        (b"caf\xe9", "caf␛E9"),
        ("␛".encode(), "␛E2␛90␛9B"),
        (b"a\\b", "a␛5Cb"),
        (b"C:", "C␛3A"),
        (b"%41", "%41"),
    ],
)
def test_only_what_is_no_part_of_a_path_is_spelled(name: bytes, text: str) -> None:
    """Names in UTF-8 are their own text."""
    assert to_text(name) == text


@pytest.mark.parametrize("path", ["a␛", "␛41", "␛C3␛A4", "a/␛2F", "␛00", "␛2E", "␛2E␛2E", "␛e9", "␛E2␛90␛9Bx␛"])
def test_name_has_one_spelling_only(path: str, wording: Wording) -> None:
    """Another spelling of the same bytes, or of what is no name, is refused."""
    with raises(PathEscapeError, wording):
        normalise_on_disk(path)


def test_long_names_are_measured_in_the_bytes_that_they_have_on_disk(wording: Wording) -> None:
    """A spelling takes five bytes for one, and that is not counted."""
    assert normalise_on_disk("␛E9" * 255) == "␛E9" * 255
    with raises(PathEscapeError, wording):
        normalise_on_disk("␛E9" * 256)


def test_what_is_no_text_is_no_path_on_disk(wording: Wording) -> None:
    """The refusal is the one of every filesystem."""
    with raises(PathEscapeError, wording):
        normalise_on_disk(cast("Any", b"a"))
