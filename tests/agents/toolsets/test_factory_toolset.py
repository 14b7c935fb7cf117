"""Toolsets that factories make, the toolsets of an agent as one, and conflicts of names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, Tool, ToolDefinition, UserError
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, DynamicToolset, FunctionToolset

from handrail.agents import LoadedAgent, toolset_factory
from handrail.agents.registry import FactoryFunction, FactoryProduct, ToolsetFactory
from handrail.agents.toolsets.labelled_toolset import LabelledSource, LabelledToolset
from handrail.errors import AgentError, FactoryError, ToolConflictError
from handrail.prompt import MarkdownSection
from handrail.testing import Call, Outcome, Reply
from tests.agents.kit import DONE, agent, called, desk, play, refusal, returns
from tests.agents.toolsets.traced import CONTEXT, Trace, Traced, made, named, run, stopped
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def returning(value: object) -> FactoryFunction:
    """A plain factory that returns whatever it is."""

    def make(ctx: RunContext[Any]) -> FactoryProduct:
        return cast("FactoryProduct", value)  # wrong on purpose, in some tests

    return make


def returning_later(value: object) -> FactoryFunction:
    """The same, `async`."""

    async def make(ctx: RunContext[Any]) -> FactoryProduct:
        return cast("FactoryProduct", value)  # wrong on purpose, in some tests

    return make


@pytest.mark.requirement("A-19")
async def test_a_bare_factory_is_called_once_for_each_run(wording: Wording) -> None:
    """Three steps make one call, before anything is entered."""
    trace = Trace()

    def make(ctx: RunContext[Any]) -> FactoryProduct:
        trace.log.append(f"made at step {ctx.run_step}")
        return Traced("ping", trace)

    caller = await run(made(make), "ping", "ping")
    assert trace.log == [wording, "enter ping", "call ping", "call ping", "exit ping"]
    assert caller.seen == [["ping"]] * 3
    assert caller.told == ["ping", "ping"]


@pytest.mark.requirement("A-19")
async def test_a_factory_for_each_step_has_the_old_toolset_left_before_the_new_one_is_entered(wording: Wording) -> None:
    """It is called at every step, and never are two of its toolsets entered."""
    trace = Trace()

    def make(ctx: RunContext[Any]) -> FactoryProduct:
        trace.log.append(f"made at step {ctx.run_step}")
        return Traced(f"ping{ctx.run_step}", trace)

    caller = await run(made(make, per_run_step=True), "ping1", "ping2")
    assert trace.log == [
        *(wording, "enter ping1", "call ping1"),
        *(wording, "exit ping1", "enter ping2", "call ping2"),
        *(wording, "exit ping2", "enter ping3", "exit ping3"),
    ]
    assert caller.seen == [["ping1"], ["ping2"], ["ping3"]]


@pytest.mark.requirement("A-19")
async def test_the_same_toolset_again_is_not_entered_again() -> None:
    """What a factory for each step returns is compared as it is, before it makes a copy for the run."""
    shared = CombinedToolset([Traced("ping")])
    calls: list[int] = []

    def make(ctx: RunContext[Any]) -> FactoryProduct:
        calls.append(ctx.run_step)
        return shared

    await run(made(make, per_run_step=True), "ping", "ping")
    assert calls == [1, 2, 3]
    (ping,) = shared.toolsets
    assert isinstance(ping, Traced)
    assert (ping.entries, ping.depth) == (1, 0)


@pytest.mark.requirement("A-20")
@pytest.mark.parametrize("per_run_step", [False, True])
async def test_a_factory_may_be_async_and_may_make_nothing(*, per_run_step: bool) -> None:
    """`None` means no tools and no instructions."""
    caller = await run(made(returning_later(Traced("ping")), per_run_step=per_run_step), "ping")
    assert caller.told == ["ping"]
    for nothing in (returning(None), returning_later(None)):
        caller = await run(made(nothing, per_run_step=per_run_step))
        assert (caller.seen, caller.instructions) == ([[]], [None])


@pytest.mark.requirement("A-20")
async def test_a_factory_for_each_step_may_make_something_at_some_steps_only() -> None:
    """From nothing to something, and back; what was there is left."""
    ping = Traced("ping")

    def make(ctx: RunContext[Any]) -> FactoryProduct:
        return ping if ctx.run_step == 2 else None

    always = Traced("tick")
    caller = await run(CombinedToolset([always, made(make, per_run_step=True)]), "tick", "ping")
    assert caller.seen == [["tick"], ["tick", "ping"], ["tick"]]
    assert (ping.entries, ping.depth) == (1, 0)


WRONG = [
    pytest.param("tools", str, id="text"),
    pytest.param(0, int, id="falsy"),
    pytest.param(FunctionToolset, type(FunctionToolset), id="class"),
    pytest.param(ToolsetFactory(returning(None)), ToolsetFactory, id="factory"),
    pytest.param(Agent("test", defer_model_check=True), Agent, id="agent"),
]


@pytest.mark.requirement("A-21")
@pytest.mark.parametrize("per_run_step", [False, True])
@pytest.mark.parametrize("factory", [returning, returning_later])
@pytest.mark.parametrize("value, kind", WRONG)
async def test_what_is_no_toolset_is_refused_by_name(
    value: object, kind: type[object], factory: Any, wording: Wording, *, per_run_step: bool
) -> None:
    """The error names toolset, origin, factory and type, and what was entered is left."""
    first = Traced("first")
    toolset = made(factory(value), per_run_step=per_run_step)
    with pytest.raises(FactoryError) as caught:
        await run(CombinedToolset([first, toolset]))
    assert str(caught.value) == wording
    assert (caught.value.toolset, caught.value.value_type) == ("desk", kind)
    assert (first.entries, first.depth) == (int(per_run_step), 0)


@pytest.mark.requirement("A-21")
async def test_a_wrong_product_at_a_later_step_leaves_the_old_one_to_be_left_once(wording: Wording) -> None:
    """The old toolset stays until the run ends."""
    ping = Traced("ping")

    def make(ctx: RunContext[Any]) -> FactoryProduct:
        return ping if ctx.run_step == 1 else cast("FactoryProduct", "nothing")  # wrong on purpose

    with refusal(FactoryError, wording):
        await run(made(make, per_run_step=True), "ping")
    assert (ping.entries, ping.depth) == (1, 0)


def _dynamic(inner_per_step: bool) -> AbstractToolset[Any]:
    return DynamicToolset(returning(Traced("ping")), per_run_step=inner_per_step)  # type: ignore[arg-type] # no section


def _prefixed(inner_per_step: bool) -> AbstractToolset[Any]:
    return _dynamic(inner_per_step).prefixed("my")


def _combined(inner_per_step: bool) -> AbstractToolset[Any]:
    return CombinedToolset([_dynamic(inner_per_step), Traced("tick")])


def _nested(inner_per_step: bool) -> AbstractToolset[Any]:
    return made(returning(_dynamic(inner_per_step)), per_run_step=inner_per_step)


@pytest.mark.requirement("A-22")
@pytest.mark.parametrize("outer_per_step", [False, True])
@pytest.mark.parametrize("inner_per_step", [False, True])
@pytest.mark.parametrize("product, tools", [
    pytest.param(_dynamic, ["ping"], id="dynamic"), pytest.param(_prefixed, ["my_ping"], id="prefixed"),
    pytest.param(_combined, ["ping", "tick"], id="combined"), pytest.param(_nested, ["ping"], id="made"),
])  # fmt: skip
async def test_dynamic_toolsets_that_a_factory_returns_show_their_tools(
    product: Any, tools: list[str], *, inner_per_step: bool, outer_per_step: bool
) -> None:
    """Whether inner and outer factory are for the run or for the step."""
    caller = await run(made(lambda _: product(inner_per_step), per_run_step=outer_per_step), tools[0])
    assert caller.seen == [tools, tools]
    assert caller.told == ["ping"]


async def test_a_section_without_a_run_is_told(wording: Wording) -> None:
    """Only the run of an agent file has a session for it."""
    section = MarkdownSection(title="Desk", template="Keep notes.")
    with refusal(AgentError, wording):
        await run(made(returning(section)))


def of(*toolsets: AbstractToolset[Any]) -> LabelledToolset:
    """Toolsets under the names `a`, `b` and so on, from `tools.py`."""
    labels = (f"toolset {letter} (tools.py)" for letter in "abcdefgh")
    return LabelledToolset([LabelledSource(label, toolset) for label, toolset in zip(labels, toolsets, strict=False)])


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


def tool_source(name: str, where: str = "tools.py") -> LabelledSource:
    """A tool in a toolset of its own."""
    return LabelledSource(f"tool {name} ({where})", FunctionToolset([named(name)]), instructs=False)


async def conflict_of(toolset: AbstractToolset[Any], *calls: str) -> ToolConflictError:
    """The error that ends a run of this toolset."""
    with pytest.raises(ToolConflictError) as caught:
        await run(toolset, *calls)
    return caught.value


@pytest.mark.requirement("A-34")
async def test_a_tool_that_is_prepared_conflicts_only_where_it_is_shown(wording: Wording) -> None:
    """What `prepare` hides at a step has no name there; what it renames has another one."""

    def later(ctx: RunContext[Any], definition: ToolDefinition) -> ToolDefinition | None:
        return definition if ctx.run_step > 1 else None

    hidden = FunctionToolset([Tool(named("ping"), prepare=later)])
    toolset = LabelledToolset([tool_source("ping"), LabelledSource("toolset desk (tools.py)", hidden)])
    assert str(await conflict_of(toolset, "ping")) == wording
    caller = await run(toolset)
    assert caller.seen == [["ping"]]


class Note(BaseModel):
    """An answer with a shape."""

    text: str


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that runs work on; the journal of its files is kept beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


async def conflict(loaded: LoadedAgent, *before: Reply, **options: Any) -> ToolConflictError:
    """What is said of the names of an agent's tools, after these replies."""
    with pytest.raises(ToolConflictError) as caught:
        await play(loaded, [*before, DONE], **options)
    return caught.value


@pytest.mark.requirement("A-34")
async def test_all_names_that_are_certainly_taken_twice_are_told_with_every_origin(
    tmp_path: Path, wording: Wording
) -> None:
    """A tool and a static toolset, and an agent and a tool, in one message, before the model is asked."""
    loaded = desk(
        tmp_path,
        tools=[named("ping")],
        toolsets={"static": FunctionToolset([named("ping"), named("child")])},
        also=["child"],
        others={"child.agent": agent("child")},
    )
    error = await conflict(loaded)
    assert error.tools == ("ping", "child")
    assert str(error) == wording


@pytest.mark.requirement("A-34")
async def test_all_names_that_factories_take_twice_are_told_with_every_origin(
    tmp_path: Path, root: Path, wording: Wording
) -> None:
    """Two toolsets that are built in, and a tool beside them."""
    loaded = desk(tmp_path / "project", tools=[named("list_files")], also=["files", "files_ro"])
    error = await conflict(loaded, root=root)
    assert {"list_files", "read_file"} <= set(error.tools)
    told = str(error)
    assert told == wording


@pytest.mark.requirement("A-34")
async def test_a_tool_may_not_be_called_as_the_tool_of_the_answer(tmp_path: Path, wording: Wording) -> None:
    """PydanticAI takes structured answers as calls of a tool."""
    loaded = desk(tmp_path, tools=[named("final_result")])
    error = await conflict(loaded, output_type=Note)
    assert str(error) == wording
    await play(loaded, called(Call("final_result"), c1=Outcome.ok("final_result")))


@pytest.mark.requirement("A-34")
async def test_a_factory_for_each_step_that_collides_at_the_second_is_told_then(
    tmp_path: Path, wording: Wording
) -> None:
    """What the first step has called was carried out."""

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return FunctionToolset([named("late" if ctx.run_step == 1 else "ping")])

    loaded = desk(tmp_path, tools=[named("ping")], toolsets={"steps": toolset_factory(make, per_run_step=True)})
    error = await conflict(loaded, Reply(calls=[Call("ping")]))
    assert str(error) == wording


@pytest.mark.requirement("A-35")
async def test_without_our_check_that_of_pydantic_ai_ends_the_run(tmp_path: Path, wording: Wording) -> None:
    """It tells one name, and where it is."""
    loaded = desk(tmp_path, tools=[Tool(named("ping"))], toolsets={"static": FunctionToolset([named("ping")])})
    with refusal(UserError, wording):
        await play(loaded, [DONE], check_names=False)


@pytest.mark.requirement("A-35")
@pytest.mark.parametrize("check", [True, False])
async def test_a_prefix_resolves_a_conflict(tmp_path: Path, check: bool) -> None:
    """With either check."""
    prefixed = FunctionToolset([named("ping")]).prefixed("my")
    loaded = desk(tmp_path, tools=[named("ping")], toolsets={"static": prefixed})
    script = called(Call("ping"), Call("my_ping"), c1=Outcome.ok("ping"), c2=Outcome.ok("ping"))
    await play(loaded, script, check_names=check)


@pytest.mark.requirement("A-36")
async def test_no_path_leads_out_of_the_root_although_everything_is_approved(
    tmp_path: Path, root: Path, wording: Wording
) -> None:
    """Neither `..`, nor a path from the top of the disk, nor a link."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    (root / "link.txt").symlink_to(secret)
    loaded = desk(tmp_path / "project", also=["files"])
    paths = ["../secret.txt", str(secret), "link.txt", "a/../../secret.txt"]
    calls = [Call("read_file", {"path": path}, id=f"r{number}") for number, path in enumerate(paths)]
    calls += [Call("write_file", {"path": path, "content": "x"}, id=f"w{number}") for number, path in enumerate(paths)]
    came = {call.id: Outcome.failed() for call in calls}
    result = await play(loaded, called(*calls, **came), root=root)
    told = [str(part.content) for part in returns(result.messages)]
    assert [text.replace(str(tmp_path)[1:], "FOLDER") for text in told] == wording
    assert secret.read_text("utf-8") == "secret"
