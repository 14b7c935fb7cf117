"""When factories of toolsets are called, what they may return, and that their tools are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from pydantic_ai import Agent, RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, DynamicToolset, FunctionToolset

from handrail.agents.active_run import as_current_run
from handrail.agents.exports.entries import FactoryFunction, FactoryProduct, Origin, ToolsetFactory
from handrail.agents.toolsets.factory_toolset import FactoryToolset
from handrail.errors import AgentError, FactoryError
from handrail.prompt import MarkdownSection
from tests.adapters.notes import ADD_NOTE, READ_NOTES
from tests.agents.toolsets.traced import CONTEXT, FakeRun, Trace, Traced, made, run
from tests.wording import Wording


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


@pytest.mark.anyio
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


@pytest.mark.anyio
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


@pytest.mark.anyio
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


@pytest.mark.anyio
@pytest.mark.requirement("A-20")
@pytest.mark.parametrize("per_run_step", [False, True])
async def test_a_factory_may_be_async_and_may_make_nothing(*, per_run_step: bool) -> None:
    """`None` means no tools and no instructions."""
    caller = await run(made(returning_later(Traced("ping")), per_run_step=per_run_step), "ping")
    assert caller.told == ["ping"]
    for nothing in (returning(None), returning_later(None)):
        caller = await run(made(nothing, per_run_step=per_run_step))
        assert (caller.seen, caller.instructions) == ([[]], [None])


@pytest.mark.anyio
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
    pytest.param({"tools": []}, dict, id="dict"),
    pytest.param(0, int, id="falsy"),
    pytest.param(FunctionToolset, type(FunctionToolset), id="class"),
    pytest.param(ToolsetFactory(returning(None)), ToolsetFactory, id="factory"),
    pytest.param(returning, type(returning), id="function"),
    pytest.param(Agent("test", defer_model_check=True), Agent, id="agent"),
]


@pytest.mark.anyio
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
    assert (caught.value.toolset, caught.value.returned) == ("desk", kind)
    assert (first.entries, first.depth) == (int(per_run_step), 0)


@pytest.mark.anyio
@pytest.mark.requirement("A-21")
async def test_a_coroutine_that_the_factory_did_not_await_is_refused_and_closed(wording: Wording) -> None:
    """Closed, so that no warning of Python follows at some other place."""
    inner: list[Coroutine[Any, Any, FactoryProduct]] = []

    async def make(ctx: RunContext[Any]) -> Any:
        async def later() -> FactoryProduct:
            raise AssertionError("nobody runs this")

        inner.append(later())
        return inner[0]

    with pytest.raises(FactoryError) as raised:
        await run(made(make))
    assert str(raised.value) == wording
    assert inner[0].cr_frame is None  # type: ignore[attr-defined] # only closed coroutines have no frame


@pytest.mark.anyio
@pytest.mark.requirement("A-21")
async def test_a_wrong_product_at_a_later_step_leaves_the_old_one_to_be_left_once(wording: Wording) -> None:
    """The old toolset stays until the run ends."""
    ping = Traced("ping")

    def make(ctx: RunContext[Any]) -> FactoryProduct:
        return ping if ctx.run_step == 1 else cast("FactoryProduct", "nothing")  # wrong on purpose

    with pytest.raises(FactoryError) as raised:
        await run(made(make, per_run_step=True), "ping")
    assert str(raised.value) == wording
    assert (ping.entries, ping.depth) == (1, 0)


@pytest.mark.anyio
@pytest.mark.parametrize("per_run_step", [False, True])
async def test_what_a_factory_raises_passes_with_a_note(wording: Wording, *, per_run_step: bool) -> None:
    """The very exception reaches the caller; the note names toolset, origin and factory."""
    error = LookupError("no such desk")

    def make(ctx: RunContext[Any]) -> FactoryProduct:
        raise error

    with pytest.raises(LookupError) as caught:
        await run(made(make, per_run_step=per_run_step))
    assert caught.value is error
    (note,) = caught.value.__notes__
    assert note == wording


@pytest.mark.anyio
async def test_what_a_product_raises_when_it_gets_ready_for_the_run_has_the_note_too(wording: Wording) -> None:
    """A factory may return a dynamic toolset, whose own factory fails."""

    def fails(ctx: RunContext[Any]) -> Any:
        raise LookupError("no such desk")

    with pytest.raises(LookupError) as caught:
        await run(made(returning(DynamicToolset(fails, per_run_step=False))))
    assert caught.value.__notes__[0] == wording


@pytest.mark.anyio
async def test_a_callable_object_is_named_by_its_class(wording: Wording) -> None:
    """It has no name of its own."""

    class Maker:
        def __call__(self, ctx: RunContext[Any]) -> Any:
            return 7

    with pytest.raises(FactoryError) as raised:
        await run(made(Maker()))
    assert str(raised.value) == wording


def _dynamic(inner_per_step: bool) -> AbstractToolset[Any]:
    return DynamicToolset(returning(Traced("ping")), per_run_step=inner_per_step)  # type: ignore[arg-type] # no section


def _prefixed(inner_per_step: bool) -> AbstractToolset[Any]:
    return _dynamic(inner_per_step).prefixed("my")


def _combined(inner_per_step: bool) -> AbstractToolset[Any]:
    return CombinedToolset([_dynamic(inner_per_step), Traced("tick")])


def _nested(inner_per_step: bool) -> AbstractToolset[Any]:
    return made(returning(_dynamic(inner_per_step)), per_run_step=inner_per_step)


@pytest.mark.anyio
@pytest.mark.requirement("A-22")
@pytest.mark.parametrize("outer_per_step", [False, True])
@pytest.mark.parametrize("inner_per_step", [False, True])
@pytest.mark.parametrize(
    "product, tools",
    [
        pytest.param(_dynamic, ["ping"], id="dynamic"),
        pytest.param(_prefixed, ["my_ping"], id="prefixed"),
        pytest.param(_combined, ["ping", "tick"], id="combined"),
        pytest.param(_nested, ["ping"], id="made"),
    ],
)
async def test_dynamic_toolsets_that_a_factory_returns_show_their_tools(
    product: Any, tools: list[str], *, inner_per_step: bool, outer_per_step: bool
) -> None:
    """Whether inner and outer factory are for the run or for the step."""
    caller = await run(made(lambda _: product(inner_per_step), per_run_step=outer_per_step), tools[0])
    assert caller.seen == [tools, tools]
    assert caller.told == ["ping"]


@pytest.mark.anyio
async def test_a_section_becomes_a_toolset_of_the_current_run(wording: Wording) -> None:
    """With its guidance, on the session of the run, under the registered name."""
    section = MarkdownSection(title="Desk", template="Keep notes.", tools=[ADD_NOTE, READ_NOTES])
    here = FakeRun()
    with as_current_run(here):
        caller = await run(made(returning(section)), "read_notes")
    assert caller.seen == [["add_note", "read_notes"]] * 2
    assert caller.told == ["no notes"]
    assert caller.instructions[0] == wording


@pytest.mark.anyio
async def test_a_section_without_a_run_is_told(wording: Wording) -> None:
    """Only the run of an agent file has a session for it."""
    section = MarkdownSection(title="Desk", template="Keep notes.")
    with pytest.raises(AgentError) as raised:
        await run(made(returning(section)))
    assert str(raised.value) == wording


@pytest.mark.anyio
@pytest.mark.requirement("A-25")
async def test_runs_side_by_side_have_toolsets_of_their_own() -> None:
    """Two runs of one agent, both under way: two instances, each entered and left once."""
    instances: list[Traced] = []
    both = asyncio.Event()

    async def make(ctx: RunContext[Any]) -> FactoryProduct:
        instances.append(mine := Traced("ping"))
        if len(instances) == 2:
            both.set()
        await both.wait()
        return mine

    toolset = made(make)
    await asyncio.gather(run(toolset, "ping"), run(toolset, "ping"))
    assert [(one.entries, one.depth) for one in instances] == [(1, 0), (1, 0)]


@pytest.mark.anyio
async def test_a_made_toolset_is_known_by_its_registered_name(wording: Wording) -> None:
    """Its id is the name; its label has the origin, too; a tool that is made says that it is a tool."""
    toolset = made(returning(None))
    assert (toolset.id, toolset.label) == ("desk", "toolset desk (tools.py)")
    tool = FactoryToolset(ToolsetFactory(returning(None)), name="ping", origin=Origin("built-in"), kind="tool")
    of_run = await tool.for_run(CONTEXT)
    assert (of_run.id, of_run.label) == ("ping", wording)


@pytest.mark.anyio
async def test_everything_is_passed_on_to_what_was_made() -> None:
    """Definitions, visitors and replacements reach the product; before there is one, the toolset speaks for itself."""
    ping, pong = Traced("ping"), Traced("pong")
    toolset = made(returning(ping))
    of_run = await toolset.for_run(CONTEXT)
    visited: list[AbstractToolset[Any]] = []
    toolset.apply(visited.append)
    of_run.apply(visited.append)
    assert visited == [toolset, ping]
    assert toolset.visit_and_replace(lambda _: pong) is pong
    replaced = of_run.visit_and_replace(lambda _: pong)
    assert isinstance(replaced, FactoryToolset)
    async with replaced:
        assert list(await replaced.get_tools(CONTEXT)) == ["pong"]
        tool = await replaced.get_tool_for_tool_def(ToolDefinition(name="pong"), CONTEXT)
        assert await replaced.call_tool("pong", {}, CONTEXT, tool) == "pong"
    assert (pong.entries, pong.depth, ping.entries) == (1, 0, 0)


@pytest.mark.anyio
async def test_where_nothing_was_made_there_is_nothing_to_call(wording: Wording) -> None:
    """A definition is not found, and a call is told."""
    tool = (await Traced("ping").get_tools(CONTEXT))["ping"]
    nothing = await made(returning(None)).for_run(CONTEXT)
    with pytest.raises(KeyError, match="ping"):
        await nothing.get_tool_for_tool_def(tool.tool_def, CONTEXT)
    with pytest.raises(AgentError) as raised:
        await nothing.call_tool("ping", {}, CONTEXT, tool)
    assert str(raised.value) == wording
