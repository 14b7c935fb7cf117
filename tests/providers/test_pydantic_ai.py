"""The programs of `docs/how-to/pydantic-ai.md`: processes are killed at lines of theirs and of the adapter."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random

import pytest

from tests.extent import FULL, SHORT, evenly, some
from tests.providers import wire
from tests.providers.chat import Chat
from tests.providers.forge import Forge, Kill, Run
from tests.providers.kills import CALL_POINTS, IN_DOUBT, ORDERS, Bench, check, times_of
from tests.providers.programs import ADAPTERS, payments_in, program_of
from tests.providers.wire import Provider

LINES = [(name, line) for name in ADAPTERS for line in program_of(name).lines]


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.short(1)
def test_a_program_that_has_ended_is_not_begun_again(
    name: str, whole: dict[str, Run], smith: Forge, provider: Provider, tmp_path: Path
) -> None:
    """Three requests pay both orders; started again, it prints its answer and requests nothing."""
    undisturbed, before = whole[name], len(provider.requests)  # in this order: the first run warms the forge up
    first = smith.run(program_of(name), tmp_path)
    assert len(provider.requests) - before == 3
    check(first, undisturbed, tmp_path)
    assert smith.run(program_of(name), tmp_path) == first
    assert len(provider.requests) - before == 3
    assert provider.refusals == []


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
def test_a_program_that_is_killed_again_and_again(
    name: str, whole: dict[str, Run], smith: Forge, provider: Provider, tmp_path: Path
) -> None:
    """Each time at a chance line of the adapter, if it gets there."""
    chance = Random(name)  # noqa: S311 - no secret
    reached = sorted(whole[name].library.items())
    for trial in range(1 if not FULL else 20):
        folder = tmp_path / str(trial)
        folder.mkdir()
        kills = [Kill(place, chance.randint(1, times)) for place, times in chance.sample(reached, 4)]
        died = [smith.dies(program_of(name), folder, kill) for kill in kills]
        assert died[0]
        check(smith.run(program_of(name), folder), whole[name], folder, may_doubt=True)
    assert provider.refusals == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.short(1)
def test_each_response_has_ids_of_its_own(name: str, smith: Forge, whole: dict[str, Run], tmp_path: Path) -> None:
    """As with the real APIs: a repeated request is answered under other ids, and nothing is done twice all the same."""
    program = program_of(name)
    places = [place for place in sorted(whole[name].library) if place.startswith("capability")]
    with wire.serving(Chat(), fresh_ids=True) as other:
        for place in evenly(places, 8 if FULL else 2):
            folder = tmp_path / place.replace(":", "-")
            folder.mkdir()
            smith.dies(program, folder, Kill(place, 2), other.environment())
            run = smith.run(program, folder, other.environment())
            assert payments_in(folder) == ORDERS
            assert [payment[:2] for payment in run.payments] == [[order, True] for order in ORDERS]
            assert run.notes == ["A-17 is paid"]
        assert other.refusals == []
