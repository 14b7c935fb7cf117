"""The programs of `docs/how-to/own-loop.md`: they run over the SDKs, and a process is killed at each of their lines."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random

import pytest

from handrail.crash_points import POINTS
from tests.extent import FULL, some
from tests.providers import wire
from tests.providers.chat import Chat
from tests.providers.forge import Forge, Kill, Run
from tests.providers.messages import Messages
from tests.providers.programs import PROVIDERS, payments_in, program_of
from tests.providers.responses import Responses
from tests.providers.wire import Provider
from tests.store.postgres_server import fresh_url

ORDERS = ["A-17", "A-18"]
IN_DOUBT = {"after-claim", "before-handler", "after-handler", "before-commit"} | {
    point for point in POINTS if point.startswith("unit-")
}
"""The points at which a payment may have begun and is not recorded."""


def lines_of(name: str) -> tuple[list[int], list[int]]:
    """The lines of a program's loop and of its tools that are reached, and all others."""
    program = program_of(name)
    tools = [line for line in program.lines if any(program.is_in(line, tool) for tool in ("pay", "note", "answer"))]
    first = [line for line in program.lines if line in program.loop or line in tools]
    return first, [line for line in program.lines if line not in first]


LINES = [(name, line) for name in PROVIDERS for line in lines_of(name)[0]]
OTHER_LINES = [(name, line) for name in PROVIDERS for line in lines_of(name)[1]]
CALL_POINTS = [point for point in POINTS if not point.startswith("journal-") and "testimony" not in point]


@pytest.fixture(scope="session")
def whole(smith: Forge, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """The undisturbed run of each program."""
    return {name: smith.run(program_of(name), tmp_path_factory.mktemp(name)) for name in PROVIDERS}


def times_of(times: int) -> list[int]:
    """At which times of several a process is killed."""
    return some(range(1, times + 1), 2)


def check(run: Run, whole: Run, folder: Path, *, may_doubt: bool = False) -> None:
    """What holds of a run that has come to its end, however often it was killed before."""
    paid = payments_in(folder)
    assert len({*paid}) == len(paid), "an order was paid twice"
    assert {order for order, success in run.payments if success} <= {*paid}
    assert run.notes == whole.notes
    assert run.output == whole.output
    doubts = {order for order, success in run.payments if not success}
    if not doubts:
        assert run.messages == whole.messages
        assert sorted(paid) == ORDERS
        assert run.still_open == []
        return
    assert may_doubt
    assert len(run.messages) == len(whole.messages)
    changed = [mine for mine, other in zip(run.messages, whole.messages, strict=True) if mine != other]
    assert len(changed) == len(doubts)
    assert all("it is not known whether it took effect" in str(message) for message in changed)
    assert run.still_open == ["unknown"] * len(doubts)


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_program_that_has_ended_is_not_begun_again(
    name: str, whole: dict[str, Run], smith: Forge, provider: Provider, tmp_path: Path
) -> None:
    """Three requests pay both orders; started again, it prints its answer and requests nothing."""
    before = len(provider.requests)
    first = smith.run(program_of(name), tmp_path)
    assert len(provider.requests) - before == 3
    check(first, whole[name], tmp_path)
    assert smith.run(program_of(name), tmp_path) == first
    assert len(provider.requests) - before == 3
    assert provider.refusals == []


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_loop_is_short(name: str) -> None:
    """At most 15 lines, none of them long, from `with` to its end."""
    program = program_of(name)
    text = [line for line in program.source.splitlines()[program.loop.start - 1 : program.loop.stop - 1] if line]
    assert len(text) <= 15
    assert max(map(len, text)) <= 120


@pytest.mark.timeout(300)  # of the full form: a line is reached up to 13 times
@pytest.mark.parametrize("name, line", [*some(LINES, 10), *some(OTHER_LINES, 3)])
def test_a_kill_before_a_line(
    name: str, line: int, whole: dict[str, Run], smith: Forge, provider: Provider, tmp_path: Path
) -> None:
    """At each time that it is reached; run again to its end, the program has the conversation of an undisturbed run."""
    program = program_of(name)
    for nth in times_of(whole[name].lines[str(line)]):
        folder = tmp_path / str(nth)
        folder.mkdir()
        assert smith.dies(program, folder, Kill(line, nth))
        check(smith.run(program, folder), whole[name], folder, may_doubt=program.is_in(line, "pay"))
    assert provider.refusals == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name, point", some([*product(PROVIDERS, CALL_POINTS)], 8))
def test_a_kill_at_a_point(
    name: str, point: str, whole: dict[str, Run], smith: Forge, provider: Provider, tmp_path: Path
) -> None:
    """At each time that it is reached. A payment that had begun and is not recorded is not repeated: it is unknown."""
    for nth in times_of(whole[name].points.get(point, 0)):
        folder = tmp_path / str(nth)
        folder.mkdir()
        assert smith.dies(program_of(name), folder, Kill(point, nth))
        check(smith.run(program_of(name), folder), whole[name], folder, may_doubt=point in IN_DOUBT)
    assert provider.refusals == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PROVIDERS)
def test_a_program_that_is_killed_again_and_again(
    name: str, whole: dict[str, Run], smith: Forge, provider: Provider, tmp_path: Path
) -> None:
    """At chance lines, until one of its processes comes to the end."""
    program, chance = program_of(name), Random(name)
    for trial in range(1 if not FULL else 10):
        folder = tmp_path / str(trial)
        folder.mkdir()
        kills = [Kill(line, chance.randint(1, 2)) for line in chance.sample(lines_of(name)[0], 6)]
        died = [smith.dies(program, folder, kill) for kill in kills]
        assert any(died)
        check(smith.run(program, folder), whole[name], folder, may_doubt=True)
    assert provider.refusals == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PROVIDERS)
def test_each_response_has_ids_of_its_own(name: str, smith: Forge, tmp_path: Path) -> None:
    """As with the real APIs: a repeated request is answered under other ids, and nothing is done twice all the same."""
    program = program_of(name)
    with wire.serving(Chat(), Responses(), Messages(), fresh_ids=True) as other:
        for line in some([line for line in program.loop if line in program.lines], 3):
            folder = tmp_path / str(line)
            folder.mkdir()
            smith.dies(program, folder, Kill(line, 2), other.environment())
            run = smith.run(program, folder, other.environment())
            assert payments_in(folder) == ORDERS
            assert run.payments == [[order, True] for order in ORDERS]
            assert run.notes == ["A-17 is paid"]
        assert other.refusals == []


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_payment_that_waits_for_a_person(
    name: str, whole: dict[str, Run], smith: Forge, provider: Provider, tmp_path: Path
) -> None:
    """The program ends meanwhile, and continues when there is an answer; killed beside it, it asks again."""
    program = program_of(name).with_approval()
    offset = len(program.source.splitlines()) - len(program_of(name).source.splitlines())
    waiting = smith.run(program, tmp_path)
    assert waiting.output == ""
    assert waiting.still_open == ["postponed"]
    assert waiting.notes == ["A-17 is paid"]
    smith.dies(program, tmp_path, Kill(program_of(name).loop.stop - 3 + offset))
    assert smith.run(program, tmp_path).messages == waiting.messages
    assert payments_in(tmp_path) == []
    (tmp_path / "yes").touch()
    check(smith.run(program, tmp_path), whole[name], tmp_path)
    assert provider.refusals == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name, place", some([*LINES, *product(PROVIDERS, CALL_POINTS)], 12 if FULL else 3)[:12])
def test_a_kill_over_postgres(
    name: str, place: int | str, whole: dict[str, Run], smith: Forge, provider: Provider, tmp_path: Path
) -> None:
    """The same over a server."""
    with fresh_url() as url:
        program = program_of(name).over(url)
        smith.dies(program, tmp_path, Kill(place))
        may_doubt = place in IN_DOUBT if isinstance(place, str) else program.is_in(place, "pay")
        check(smith.run(program, tmp_path), whole[name], tmp_path, may_doubt=may_doubt)
    assert provider.refusals == []
