"""`handrail.contrib.tools.section_options`: options of sections that run something, each with its own fault."""

from __future__ import annotations

from datetime import timedelta

import pytest

from handrail.contrib.tools.section_options import also_bound, limit_faults, timeout_faults
from handrail.errors import DuplicateBindingError
from handrail.resources import ResourceRegistry


@pytest.mark.parametrize("given, is_right", [(timedelta(1), True), (timedelta(0), False), (5, False)])
def test_a_timeout_is_a_positive_span(given: object, is_right: bool) -> None:
    """The fault shows what was given."""
    assert timeout_faults(given, usual=10) == [
        f"timeout is {given!r}; give a positive timedelta: timedelta(seconds=10)" for _ in range(not is_right)
    ]


@pytest.mark.parametrize("given, is_right", [(1_000, True), (999, False), (True, False), (1e6, False)])
def test_a_limit_is_a_whole_number(given: object, is_right: bool) -> None:
    """Of its unit, and from the least on."""
    assert limit_faults("most", given, unit="bytes", least=1_000) == [
        f"most is {given!r}; give a number of bytes, at least 1,000" for _ in range(not is_right)
    ]


def test_a_section_binds_its_own_resources_beside_those_that_are_given() -> None:
    """One type has one binding."""
    for given in ({int: 1}, ResourceRegistry.build({int: 1}), None):
        bound = also_bound(given, {str: "a"})
        assert {binding.kind for binding in bound} == ({int, str} if given is not None else {str})
    with pytest.raises(DuplicateBindingError):
        also_bound({str: "b"}, {str: "a"})
