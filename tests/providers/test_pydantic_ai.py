"""The programs of `docs/how-to/pydantic-ai.md`: processes are killed at lines of theirs and of the adapter."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from tests.extent import FULL, SHORT, evenly, some
from tests.providers.forge import Kill
from tests.providers.kills import CALL_POINTS, IN_DOUBT, Bench, times_of
from tests.providers.programs import ADAPTERS, program_of

LINES = [(name, line) for name in ADAPTERS for line in program_of(name).lines]


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.short(1)
def test_a_program_that_has_ended_is_not_begun_again(name: str, bench: Bench) -> None:
    """Three requests pay both orders; started again, it prints its answer and requests nothing."""
    bench.runs_once(name)


@pytest.mark.timeout(300)  # of the full form
@pytest.mark.parametrize("name, line", some(LINES, 5))
@pytest.mark.short(2)
def test_a_kill_before_a_line(name: str, line: int, bench: Bench) -> None:
    """At each time that it is reached; run again to its end, the program has the conversation of an undisturbed run."""
    for nth in times_of(bench.whole[name].lines.get(str(line), 0)):
        bench.survives(name, Kill(line, nth), may_doubt=program_of(name).is_in(line, "pay"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.short(1)
def test_a_kill_before_a_line_of_the_adapter(name: str, bench: Bench) -> None:
    """A run is at such a line at each of its steps: between requests, replies, calls, answers and its end.

    The full form has each line once, the first line at its first time, the next one at its second, and so on.
    """
    reached = sorted(bench.whole[name].library.items())
    places = [(place, number % times + 1) for number, (place, times) in enumerate(reached)]
    assert len({place.partition(":")[0] for place, _ in places}) >= 2
    for place, nth in places if FULL else Random(name).sample(places, 3 if SHORT else 6):  # noqa: S311 - no secret
        bench.survives(name, Kill(place, nth), may_doubt=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name, point", some([*product(ADAPTERS, CALL_POINTS)], 4))
@pytest.mark.short(1)
def test_a_kill_at_a_point(name: str, point: str, bench: Bench) -> None:
    """At each time that it is reached. A payment that had begun and is not recorded is not repeated: it is unknown."""
    for nth in times_of(bench.whole[name].points.get(point, 0)):
        bench.survives(name, Kill(point, nth), may_doubt=point in IN_DOUBT)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.short(0)
def test_a_program_that_is_killed_again_and_again(name: str, bench: Bench) -> None:
    """Each time at a chance line of the adapter, if it gets there."""
    bench.survives_many(name, sorted(bench.whole[name].library.items()), trials=20 if FULL else 1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.short(1)
def test_each_response_has_ids_of_its_own(name: str, bench: Bench) -> None:
    """As with the real APIs; nothing is done twice all the same."""
    places = [place for place in sorted(bench.whole[name].library) if place.startswith("capability")]
    bench.survives_fresh_ids(name, evenly(places, 8 if FULL else 2))
