"""One enter and one exit for each run and toolset, whatever happens: failures, cancellations, in any order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import RunContext
from pydantic_ai.toolsets import AbstractToolset

from handrail.agents.registry import FactoryProduct
from handrail.agents.toolsets.labelled_toolset import LabelledSource, LabelledToolset
from tests.agents.toolsets.traced import CONTEXT, Trace, Traced, made, run, stopped
from tests.wording import Wording


def of(*toolsets: AbstractToolset[Any]) -> LabelledToolset:
    """Toolsets under the names `a`, `b` and so on, from `tools.py`."""
    labels = (f"toolset {letter} (tools.py)" for letter in "abcdefgh")
    return LabelledToolset([LabelledSource(label, toolset) for label, toolset in zip(labels, toolsets, strict=False)])


@pytest.mark.anyio
@pytest.mark.requirement("A-27")
async def test_a_toolset_that_cannot_be_entered_has_those_before_it_left(wording: Wording) -> None:
    """With the exception, which reaches the caller, with a note that names it; those after it are never touched."""
    left_with: list[object] = []

    class Noticing(Traced):
        async def __aexit__(self, *args: object) -> bool | None:
            left_with.append(args[0])
            await super().__aexit__(*args)
            return True  # an exit may swallow what it is given, but not here

    trace = Trace(fails_at=frozenset({"enter pong"}))
    ping, pong, after = Noticing("ping", trace), Traced("pong", trace), Traced("after", trace)
    with pytest.raises(OSError) as raised:
        await run(of(ping, pong, after))
    assert str(raised.value) == wording
    (note,) = raised.value.__notes__
    assert note == wording
    assert trace.log == ["enter ping", "enter pong", "exit ping"]
    assert left_with == [OSError]


PLACES = [
    *("make", "enter ping", "enter desk1", "enter last", "call ping", "make again", "exit desk1", "enter desk2"),
    *("call desk2", "exit last", "exit desk2", "exit ping"),
]


@pytest.mark.anyio
@pytest.mark.requirement("A-24")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ending", ["cancelled", "failed"])
async def test_wherever_a_run_ends_nothing_stays_entered(place: str, ending: str) -> None:
    """Cancelled or failed in a factory, an entry, a call, a step, an exit: each entry has its one exit."""
    cancelled = ending == "cancelled"
    trace = Trace(stays_at=place) if cancelled else Trace(fails_at=frozenset({place}))
    products: list[Traced] = []

    async def make(ctx: RunContext[Any]) -> FactoryProduct:
        await trace.at("make again" if ctx.run_step > 1 else "make")
        products.append(Traced(f"desk{ctx.run_step}", trace))
        return products[-1]

    ping, last = Traced("ping", trace), Traced("last", trace)
    toolset = of(ping, made(make, per_run_step=True), last)
    if cancelled:
        await stopped(toolset, trace, "ping", "desk2")
    else:
        with pytest.raises(OSError, match=f"failed at {place}"):
            await run(toolset, "ping", "desk2")
    assert place in trace.log
    assert [one.depth for one in (ping, last, *products)] == [0] * (2 + len(products))
    for name in ("ping", "last", "desk1", "desk2"):
        assert trace.log.count(f"exit {name}") <= 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["none", "same", "other", "one of two", "wrong", "raises"]),
        st.sampled_from(["", "", "", "enter", "exit", "for_run", "for_run_step"]),
    ),
    max_size=6,
)


@given(first=STEPS, per_run_step=st.booleans())
def test_a_made_toolset_leaves_what_it_entered_and_never_holds_two(
    first: list[tuple[str, str]], *, per_run_step: bool
) -> None:
    """Whatever its factory returns at each step, and whatever of it fails."""
    asyncio.run(_drive(first, per_run_step=per_run_step))


class Faulty(Traced):
    """A toolset that fails where it is told to, besides entry and exit."""

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        await self.trace.at("for_run")
        return self

    async def for_run_step(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        await self.trace.at("for_run_step")
        return self


async def _drive(script: list[tuple[str, str]], *, per_run_step: bool) -> None:
    trace = Trace()
    pool = [Faulty("a", trace), Faulty("b", trace)]
    others: list[Faulty] = []
    choice = iter(script)

    def make(ctx: RunContext[Any]) -> Any:
        what, fails = next(choice, ("none", ""))
        names = [toolset.name for toolset in (*pool, *others)] + ["new"]
        trace.fails_at = frozenset({fails} | {f"{fails} {name}" for name in names})
        if what == "raises":
            raise LookupError
        if what == "other":
            others.append(Faulty("new", trace))
            return others[-1]
        return {"none": None, "same": pool[0], "one of two": pool[len(trace.log) % 2], "wrong": 7}[what]

    toolset = made(make, per_run_step=per_run_step)
    try:
        of_run = await toolset.for_run(CONTEXT)
        async with of_run:
            for _ in range(len(script) + 1):
                await of_run.for_run_step(CONTEXT)
                assert sum(one.depth for one in (*pool, *others)) <= 1
    except Exception:  # noqa: BLE001, S110 - what is raised is not the question here
        pass
    assert [one.depth for one in (*pool, *others)] == [0] * (2 + len(others))


@given(
    count=st.integers(0, 5),
    fails_at=st.frozensets(
        st.tuples(st.sampled_from(["enter", "exit"]), st.integers(0, 4)).map(lambda fault: f"{fault[0]} {fault[1]}")
    ),
)
def test_members_are_left_in_reverse_and_each_as_often_as_it_was_entered(count: int, fails_at: frozenset[str]) -> None:
    """Whichever entries and exits fail."""
    trace = Trace(fails_at=fails_at)
    members = [Traced(str(number), trace) for number in range(count)]

    async def drive() -> None:
        async with await of(*members).for_run(CONTEXT):
            trace.log.append("inside")

    try:
        asyncio.run(drive())
    except OSError:
        assert fails_at
    entered = [place.removeprefix("enter ") for place in trace.log if place[:5] == "enter" and place not in fails_at]
    left = [place.removeprefix("exit ") for place in trace.log if place.startswith("exit")]
    assert left == entered[::-1]
    assert all(member.depth == 0 for member in members)
