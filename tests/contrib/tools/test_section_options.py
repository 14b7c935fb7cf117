"""`handrail.contrib`: options of sections that run something, each with its own fault."""

from __future__ import annotations

from datetime import timedelta

import pytest

from handrail.contrib import also_bound, limit_faults, timeout_faults
from handrail.errors import DuplicateBindingError
from handrail.resources import ResourceRegistry
from tests.wording import Wording


@pytest.mark.parametrize("given", [timedelta(0), 5], ids=["nothing", "a number"])
def test_a_timeout_is_a_positive_span(given: object, wording: Wording) -> None:
    """The fault shows what was given."""
    assert timeout_faults(timedelta(1), usual=10) == []
    assert timeout_faults(given, usual=10) == [wording]


@pytest.mark.parametrize("given", [999, True, 1e6], ids=["too small", "a boolean", "a fraction"])
def test_a_limit_is_a_whole_number(given: object, wording: Wording) -> None:
    """Of its unit, and from the least on."""
    assert limit_faults("most", 1_000, unit="bytes", least=1_000) == []
    assert limit_faults("most", given, unit="bytes", least=1_000) == [wording]


def test_a_section_binds_its_own_resources_beside_those_that_are_given() -> None:
    """One type has one binding."""
    for given in ({int: 1}, ResourceRegistry.build({int: 1}), None):
        bound = also_bound(given, {str: "a"})
        assert {binding.kind for binding in bound} == ({int, str} if given is not None else {str})
    with pytest.raises(DuplicateBindingError):
        also_bound({str: "b"}, {str: "a"})
