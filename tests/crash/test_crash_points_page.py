"""`docs/contributing/crash-points.md` names the points that there are, and says of each what the code says."""

from __future__ import annotations

from handrail.crash_points import POINTS
from tests.crash.pages import APPLY, EXTERNAL, GROUP, LATE, NOWHERE, OTHER, STATE, rows, table


def test_the_page_lists_every_point_with_what_is_true_there() -> None:
    """In the order in which a call passes them."""
    assert list(table("Crash points").items()) == [(point, (meaning,)) for point, meaning in POINTS.items()]


def test_every_point_is_in_one_of_the_matrices_and_nothing_else_is() -> None:
    """What happens at a point is told for some tool."""
    applied = {point for _, point, *_ in rows(APPLY)}
    grouped = {point for _, point, *_ in rows(GROUP)}
    assert {*table(EXTERNAL), *table(OTHER), *table(STATE), *grouped, *applied} == set(POINTS)
    assert set(POINTS).issuperset(table(LATE).keys() - {NOWHERE})
