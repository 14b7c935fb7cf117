"""The programs of `docs/how-to/own-loop.md`: they run over the SDKs, and a process is killed at each of their lines."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.extent import FULL, evenly, some
from tests.providers.forge import Forge, Kill, Run
from tests.providers.kills import CALL_POINTS, IN_DOUBT, Bench, check, times_of
from tests.providers.programs import PROVIDERS, payments_in, program_of
from tests.providers.wire import Provider
from tests.store.postgres_server import fresh_url


def lines_of(name: str) -> tuple[list[int], list[int]]:
    """The lines of a program's loop and of its tools that are reached, and all others."""
    program = program_of(name)
    tools = [line for line in program.lines if any(program.is_in(line, tool) for tool in ("pay", "note", "answers_of"))]
    first = [line for line in program.lines if line in program.loop or line in tools]
    return first, [line for line in program.lines if line not in first]


LINES = [(name, line) for name in PROVIDERS for line in lines_of(name)[0]]
OTHER_LINES = [(name, line) for name in PROVIDERS for line in lines_of(name)[1]]


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.short(1)
def test_a_program_that_has_ended_is_not_begun_again(name: str, bench: Bench) -> None:
    """Three requests pay both orders; started again, it prints its answer and requests nothing."""
    bench.runs_once(name)


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_loop_is_short(name: str) -> None:
    """At most 15 lines, none of them long, from `with` to its end."""
    program = program_of(name)
    text = [line for line in program.source.splitlines()[program.loop.start - 1 : program.loop.stop - 1] if line]
    assert len(text) <= 15
    assert max(map(len, text)) <= 120


@pytest.mark.timeout(300)  # of the full form: a line is reached up to 13 times
@pytest.mark.parametrize("name, line", [*some(LINES, 6), *some(OTHER_LINES, 2)])
@pytest.mark.short(2)
def test_a_kill_before_a_line(name: str, line: int, bench: Bench) -> None:
    """At each time that it is reached; run again to its end, the program has the conversation of an undisturbed run."""
    for nth in times_of(bench.whole[name].lines.get(str(line), 0)):  # 0 for `break`, see below
        bench.survives(name, Kill(line, nth), may_doubt=program_of(name).is_in(line, "pay"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name, point", some([*product(PROVIDERS, CALL_POINTS)], 5))
@pytest.mark.short(2)
def test_a_kill_at_a_point(name: str, point: str, bench: Bench) -> None:
    """At each time that it is reached. A payment that had begun and is not recorded is not repeated: it is unknown."""
    for nth in times_of(bench.whole[name].points.get(point, 0)):
        bench.survives(name, Kill(point, nth), may_doubt=point in IN_DOUBT)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.short(1)
def test_a_program_that_is_killed_again_and_again(name: str, bench: Bench) -> None:
    """Each time at a chance line, if it gets there."""
    lines = bench.whole[name].lines
    reached = [(line, times) for line in lines_of(name)[0] if (times := lines.get(str(line), 0))]
    bench.survives_many(name, reached, trials=10 if FULL else 1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.short(1)
def test_each_response_has_ids_of_its_own(name: str, bench: Bench) -> None:
    """As with the real APIs; nothing is done twice all the same."""
    program = program_of(name)
    bench.survives_fresh_ids(name, some([line for line in program.loop if line in program.lines], 2))


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.short(1)
def test_a_payment_that_waits_for_a_person(
    name: str, whole: dict[str, Run], smith: Forge, provider: Provider, tmp_path: Path
) -> None:
    """The program ends meanwhile, and continues when there is an answer; killed beside it, it asks again."""
    program = program_of(name).with_approval()
    waiting = smith.run(program, tmp_path)
    assert waiting.output == ""
    assert waiting.still_open == ["postponed"]
    assert waiting.notes == ["A-17 is paid"]
    text = program.source.splitlines()
    assert smith.dies(program, tmp_path, Kill(1 + text.index("            break")))
    assert smith.run(program, tmp_path).messages == waiting.messages
    assert payments_in(tmp_path) == []
    (tmp_path / "yes").touch()
    check(smith.run(program, tmp_path), whole[name], tmp_path)
    assert provider.refusals == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name, place", evenly([*LINES, *product(PROVIDERS, CALL_POINTS)], 24 if FULL else 2))
@pytest.mark.short(1)
def test_a_kill_over_postgres(name: str, place: int | str, bench: Bench) -> None:
    """The same over a server."""
    with fresh_url() as url:
        program = program_of(name).over(url)
        bench.smith.dies(program, bench.root, Kill(place))
        may_doubt = place in IN_DOUBT if isinstance(place, str) else program.is_in(place, "pay")
        check(bench.smith.run(program, bench.root), bench.whole[name], bench.root, may_doubt=may_doubt)
    assert bench.provider.refusals == []
