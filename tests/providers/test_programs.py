"""The programs of `docs/how-to/own-loop.md` and `pydantic-ai.md`: a process is killed at each of their lines.

They run over the SDKs, and are killed at lines of the adapter, too.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random

import pytest

from handrail import store
from handrail.transcript import ConversationId, TranscriptCall, TranscriptItem, TranscriptMessage, TranscriptReader
from tests.extent import FULL, SHORT, evenly, some
from tests.providers.forge import Forge, Kill, Run
from tests.providers.kills import CALL_POINTS, IN_DOUBT, Bench, check, times_of
from tests.providers.programs import ADAPTERS, PROVIDERS, payments_in, program_of
from tests.providers.wire import Provider
from tests.store.postgres_server import fresh_url


def lines_of(name: str) -> tuple[list[int], list[int]]:
    """The lines of a program's loop and of its tools that are reached, and all others."""
    program = program_of(name)
    tools = [line for line in program.lines if any(program.is_in(line, tool) for tool in ("pay", "note"))]
    first = [line for line in program.lines if line in program.loop or line in tools]
    return first, [line for line in program.lines if line not in first]


PROGRAMS = [*PROVIDERS, *ADAPTERS]
LINES = [(name, line) for name in PROVIDERS for line in lines_of(name)[0]]
OTHER_LINES = [(name, line) for name in PROVIDERS for line in lines_of(name)[1]]
ADAPTED_LINES = [(name, line) for name in ADAPTERS for line in program_of(name).lines]
POINTS = [*some([*product(PROVIDERS, CALL_POINTS)], 5), *some([*product(ADAPTERS, CALL_POINTS)], 4)]


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_loop_is_short(name: str) -> None:
    """At most 15 lines, none of them long."""
    program = program_of(name)
    text = [line for line in program.source.splitlines()[program.loop.start - 1 : program.loop.stop - 1] if line]
    assert len(text) <= 15
    assert max(map(len, text)) <= 120


@pytest.mark.timeout(300)  # of the full form: a line is reached up to 13 times
@pytest.mark.parametrize("name, line", [*some(LINES, 6), *some(OTHER_LINES, 2), *some(ADAPTED_LINES, 5)])
@pytest.mark.short(4)
def test_a_kill_before_a_line(name: str, line: int, bench: Bench) -> None:
    """At each time that it is reached; run again to its end, the program has the conversation of an undisturbed run."""
    for nth in times_of(bench.whole[name].lines.get(str(line), 0)):  # 0 for `break`, see below
        bench.survives(name, Kill(line, nth), may_doubt=program_of(name).is_in(line, "pay"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.short(2)
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
@pytest.mark.parametrize("name, point", POINTS)
@pytest.mark.short(3)
def test_a_kill_at_a_point(name: str, point: str, bench: Bench) -> None:
    """At each time that it is reached. A payment that had begun and is not recorded is not repeated: it is unknown."""
    for nth in times_of(bench.whole[name].points.get(point, 0)):
        bench.survives(name, Kill(point, nth), may_doubt=point in IN_DOUBT)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.short(1)
def test_a_program_that_is_killed_again_and_again(name: str, bench: Bench) -> None:
    """Each time at a chance line of the loop, or of the adapter, if it gets there."""
    if name in ADAPTERS:
        bench.survives_many(name, sorted(bench.whole[name].library.items()), trials=20 if FULL else 1)
        return
    lines = bench.whole[name].lines
    reached = [(line, times) for line in lines_of(name)[0] if (times := lines.get(str(line), 0))]
    bench.survives_many(name, reached, trials=10 if FULL else 1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.short(2)
def test_each_response_has_ids_of_its_own(name: str, bench: Bench) -> None:
    """As with the real APIs; nothing is done twice all the same."""
    program = program_of(name)
    if name in ADAPTERS:
        places = [place for place in sorted(bench.whole[name].library) if place.startswith("capability")]
        bench.survives_fresh_ids(name, evenly(places, 8 if FULL else 2))
    else:
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
    last = max(number for number, line in enumerate(text, 1) if line.lstrip().startswith("if "))
    assert smith.dies(program, tmp_path, Kill(last))
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


SPEAKERS = {"prompt": ConversationId("prompt", "shop/desk"), "agent": ConversationId("agent", "payments")}


def line(item: TranscriptItem) -> str:
    """What an item says, in short."""
    if isinstance(item, TranscriptMessage):
        return f"{item.role}: {' | '.join(block.text for block in item.blocks)}"
    assert isinstance(item, TranscriptCall)
    return f"{item.tool} {item.arguments} {item.outcome}: {item.content}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_conversation_reads_the_same_in_every_form(name: str, smith: Forge, tmp_path: Path) -> None:
    """Texts, calls and their answers are found in the messages of each API, and the outcomes in the records."""
    program = program_of(name)
    smith.run(program, tmp_path)
    with store.open(f"sqlite:///{tmp_path / 'desk.db'}", read_only=True) as content:
        reader = TranscriptReader(content, program.session)
        items = [*reader.read(), *reader.unfinished()]
    assert list(map(line, items)) == [
        "user: Pay the orders A-17 and A-18, and note it.",
        "assistant: First A-17.",
        "pay {'number': 'A-17'} ok: A-17 is paid",
        "note {'text': 'A-17 is paid'} ok: noted: A-17 is paid",
        "assistant: ",
        "pay {'number': 'A-18'} ok: A-18 is paid",
        "assistant: A-17 and A-18 are paid.",
    ]
    assert {item.conversation for item in items} == {SPEAKERS.get(name, ConversationId("loop"))}
    assert all(item.at is not None for item in items)
