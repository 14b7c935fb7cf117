"""Toolsets are entered and left once, a call that is cut off is rolled back, and each call is recorded once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import ApprovalRequired, ModelRetry, RunContext, Tool, ToolFailed
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from typing_extensions import override

from handrail.adapters.pydantic_ai import tool_context
from handrail.agents import Answer, GatedCall, LoadedAgent, RunOptions, RunResult, current_run, load_agent
from handrail.agents.approval.decisions import ApprovalMode
from handrail.agents.registry import resolve
from handrail.errors import PromptEvaluationError
from handrail.prompt import MarkdownSection, ToolContext, ToolResult
from handrail.prompt import Tool as HandrailTool
from handrail.session import Session
from handrail.testing import Call, Outcome, Reply, ScriptedModel
from tests.adapters.kit import Note
from tests.agents.kit import (
    DONE,
    CallLog,
    agent,
    called,
    cut_off,
    desk,
    events,
    lines,
    outcomes,
    play,
    refusal,
    returns,
    texts,
    write,
    write_line,
)
from tests.agents.toolsets.traced import Trace, Traced
from tests.kit import soon
from tests.wording import Wording

pytestmark = pytest.mark.anyio


async def jot(text: str) -> str:
    """Leave a line."""
    write_line(text)
    return f"jotted {text}"


PROJECT = {
    "desk.agent": agent("desk", toolsets="[traced]"),
    "tools.py": "from tests.agents.toolsets.traced import Traced\nTOOLSETS = [Traced('traced')]",
}


def traced_of(loaded: LoadedAgent) -> Traced:
    """The toolset that the module of `PROJECT` exports."""
    found = loaded.agent.toolsets[0].value
    assert isinstance(found, Traced)
    return found


@pytest.mark.requirement("A-24")
def test_a_run_of_a_loaded_file_enters_its_toolset_once_and_leaves_it_once(tmp_path: Path) -> None:
    """From a file, without an event loop; and it is the very object that the module exports."""
    loaded = load_agent(write(tmp_path, PROJECT) / "desk.agent")
    for _ in range(2):
        with ScriptedModel(called(Call("traced"), c1=Outcome.ok("traced"))) as model:
            assert loaded.run("Go.", RunOptions(model=model, mode="approve-all")).output == "Done."
    traced = traced_of(loaded)
    assert traced.trace.log == ["enter traced", "call traced", "exit traced"] * 2
    assert (traced.depth, traced.deepest) == (0, 1)


@pytest.mark.requirement("A-24")
async def test_a_run_that_fails_leaves_its_toolset_once(tmp_path: Path, wording: Wording) -> None:
    """Whatever ends it: here a model that is not to be reached."""
    traced = Traced("traced")
    loaded = desk(tmp_path, toolsets={"traced": traced})
    with refusal(Exception, wording):
        await play(loaded, [Reply(calls=[Call("traced")])])
    assert traced.trace.log == ["enter traced", "call traced", "exit traced"]


@pytest.mark.requirement("A-24")
async def test_a_run_that_is_cancelled_leaves_its_toolset_once(tmp_path: Path) -> None:
    """In the middle of a call, which is recorded as failed."""
    trace, session = Trace(stays_at="call traced"), Session()
    loaded = desk(tmp_path, toolsets={"traced": Traced("traced", trace)})
    await cut_off(trace, play(loaded, [Reply(calls=[Call("traced")])], session=session))
    assert trace.log == ["enter traced", "call traced", "exit traced"]
    assert [event.success for event in events(session)] == [False]


@pytest.mark.requirement("A-25")
async def test_runs_share_an_instance_and_have_a_product_of_a_factory_each(tmp_path: Path) -> None:
    """One after the other, the instance is entered twice; side by side, the factory makes two toolsets."""
    instance, made = Traced("instance"), list[Traced]()

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        made.append(Traced("made"))
        return made[-1]

    loaded = desk(tmp_path, toolsets={"instance": instance, "made": make})
    script = called(Call("instance"), Call("made"), c1=Outcome.ok(), c2=Outcome.ok())
    await play(loaded, script)
    await play(loaded, script)
    assert (instance.entries, instance.deepest, len(made)) == (2, 1, 2)
    await asyncio.gather(play(loaded, script), play(loaded, script))
    assert (instance.entries, instance.depth, len(made)) == (4, 0, 4)
    assert [(each.entries, each.deepest, each.depth) for each in made] == [(1, 1, 0)] * 4


def nested(*inner: Call, within: str = "c1", outer: str = "child") -> list[Reply]:
    """A script in which an agent is called, which makes these calls, and answers."""
    first, last = called(Call(outer, {"input": "Go."}, id=within), **{within: Outcome.ok("Done.")})
    return [first, Reply(calls=inner, within=within), Reply(text="Done.", within=within), last]


@pytest.mark.requirement("A-26")
@pytest.mark.parametrize("child", ["child", "desk"])
async def test_an_agent_in_an_agent_nests_an_instance_and_has_products_of_its_own(tmp_path: Path, child: str) -> None:
    """Also if it is the same agent."""
    instance, made = Traced("instance"), list[Traced]()

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        made.append(Traced("made"))
        return made[-1]

    toolsets = {"instance": instance, "made": make}
    others = {"child.agent": agent("child", toolsets="[instance, made]")}
    loaded = desk(tmp_path, toolsets=toolsets, also=[child], others=others)
    first, *inner, _ = nested(Call("instance", id="n1"), Call("made", id="n3"), outer=child)
    again = Reply(calls=[Call("made", id="c3")])
    await play(loaded, [first, *inner, again, DONE])
    assert (instance.entries, instance.deepest, instance.depth) == (2, 2, 0)
    assert [(each.entries, each.deepest, each.depth) for each in made] == [(1, 1, 0)] * 2
    assert [each.trace.log for each in made] == [["enter made", "call made", "exit made"]] * 2


@pytest.mark.requirement("A-27")
async def test_a_toolset_that_cannot_be_entered_ends_the_run_and_those_before_it_are_left(
    tmp_path: Path, wording: Wording
) -> None:
    """The error reaches the caller unchanged, and nobody calls `cleanup`."""
    first, second = Traced("first"), Traced("second", Trace(fails_at=frozenset({"enter second"})))
    loaded = desk(tmp_path, toolsets={"first": first, "second": second})
    with refusal(OSError, wording):
        await play(loaded, [DONE])
    assert first.trace.log == ["enter first", "exit first"]
    assert second.depth == 0


def values_of(value: object) -> dict[str, Any]:
    """What an object holds, at this moment; tools are held as they are."""
    held = vars(value).items()
    return {name: dict(item) if isinstance(item, dict) else item for name, item in held}  # pyright: ignore[reportUnknownArgumentType] - whatever it holds


@pytest.mark.requirement("A-18")
async def test_what_a_program_registers_is_left_as_it_is(tmp_path: Path) -> None:
    """The very same objects are used, and three runs have set nothing on them."""
    careful: Tool[Any] = Tool(jot, name="careful", requires_approval=True, metadata={"effect": "state"}, max_retries=7)
    plain: Tool[Any] = Tool(jot, name="plain")
    static = FunctionToolset[Any]([plain, careful], id="static").prefixed("static")
    registered: list[object] = [careful, static, static.wrapped, plain]
    before = [values_of(each) for each in registered]
    settings = deepcopy([(tool.requires_approval, tool.metadata, tool.max_retries) for tool in (careful, plain)])
    loaded = desk(tmp_path, tools=[careful], toolsets={"static": static})
    assert loaded.agent.tools[0].value is careful
    assert loaded.agent.toolsets[0].value is static
    for _ in range(3):
        session = Session()
        calls = (Call("careful", {"text": "a"}), Call("static_plain", {"text": "b"}))
        await play(loaded, called(*calls, c1=Outcome.ok(), c2=Outcome.ok()), session=session)
        assert sorted(lines(session)) == ["a", "b"]
    assert [values_of(each) for each in registered] == before
    assert [(tool.requires_approval, tool.metadata, tool.max_retries) for tool in (careful, plain)] == settings


@pytest.mark.requirement("A-16")
async def test_a_name_of_both_kinds_is_the_tool_in_one_agent_and_the_toolset_in_another(
    tmp_path: Path, wording: Wording
) -> None:
    """And the third one has both."""

    async def x(text: str) -> str:
        return f"tool {text}"

    async def inner(text: str) -> str:
        return f"toolset {text}"

    others = {"a.agent": agent("a", tools="[x]"), "b.agent": agent("b", toolsets="[x]")}
    both = desk(tmp_path, tools=[x], toolsets={"x": FunctionToolset([inner])}, others=others)
    calls = (Call("x", {"text": "1"}), Call("inner", {"text": "2"}))
    await play(both, called(*calls, c1=Outcome.ok("tool 1"), c2=Outcome.ok("toolset 2")))
    unknown, log = Outcome.failed(), CallLog()
    only_tool = LoadedAgent(both.project, resolve(both.project.agents["a"], both.project.registry))
    await play(only_tool, called(*calls, c1=Outcome.ok("tool 1"), c2=unknown), listener=log)
    assert log.told["c2"] == wording
    only_toolset = LoadedAgent(both.project, resolve(both.project.agents["b"], both.project.registry))
    await play(only_toolset, called(*calls, c1=unknown, c2=Outcome.ok("toolset 2")), listener=log)
    assert log.told["c1"] == wording


class Committing(FunctionToolset[Any]):
    """A toolset that believes what it is told when it is left: without an exception, all went well."""

    def __init__(self, trace: Trace, end: Exception | None = None) -> None:
        super().__init__([self.change], id="committing")
        self.trace = trace
        self.end = end
        self.told: list[object] = []

    async def change(self, ctx: RunContext[Any]) -> str:
        """Write to the session and to a file, and then stay, or end the run."""
        write_line("half")
        await asyncio.to_thread(self._write_files)
        if self.end is not None:
            raise self.end
        await self.trace.at("written")
        return "written"

    def _write_files(self) -> None:
        root = current_run().filesystem(current_run().root)
        root.write_text("notes.txt", "half")
        root.write_text("new.txt", "half")

    @override
    async def __aexit__(self, *args: object) -> bool | None:
        self.told.append(args[0])
        return None


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that runs work on; the journal of its files is kept beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "notes.txt").write_text("before", encoding="utf-8")
    return folder


def ready(tmp_path: Path, toolset: Committing) -> tuple[LoadedAgent, Session]:
    """An agent with the toolset, and a session that holds a line."""

    async def keep() -> str:
        write_line("kept")
        return "kept"

    return desk(tmp_path / "project", tools=[keep], toolsets={"committing": toolset}), Session()


SCRIPT = [Reply(calls=[Call("keep")]), Reply(calls=[Call("change")])]


def check_undone(root: Path, session: Session, toolset: Committing) -> None:
    """What the call before has kept is there, and nothing of the one that was cut off, which is recorded as failed."""
    assert lines(session) == ["kept"]
    assert texts(root) == {"notes.txt": "before"}
    assert outcomes(session) == [("call-1", True), ("call-2", False)]
    assert toolset.told == [None]


@pytest.mark.requirement("A-28")
async def test_a_run_that_is_cancelled_in_mid_call_undoes_the_call(tmp_path: Path, root: Path) -> None:
    """In session and files."""
    toolset = Committing(Trace(stays_at="written"))
    loaded, session = ready(tmp_path, toolset)
    await cut_off(toolset.trace, play(loaded, SCRIPT, session=session, root=root))
    check_undone(root, session, toolset)


@pytest.mark.requirement("A-28")
async def test_a_call_that_ends_the_run_is_undone(tmp_path: Path, root: Path) -> None:
    """Its error reaches the caller unchanged."""
    end = PromptEvaluationError("that is enough", tool="change")
    toolset = Committing(Trace(), end)
    loaded, session = ready(tmp_path, toolset)
    with pytest.raises(PromptEvaluationError) as caught:
        await play(loaded, SCRIPT, session=session, root=root)
    assert caught.value is end
    check_undone(root, session, toolset)


@pytest.mark.requirement("A-28")
async def test_a_call_that_the_deadline_cuts_off_is_undone(tmp_path: Path, root: Path, wording: Wording) -> None:
    """And the run ends with it."""
    toolset = Committing(Trace(stays_at="written"))
    loaded, session = ready(tmp_path, toolset)
    deadline = soon(timedelta(seconds=1))  # until then it has come to where it stays
    with pytest.raises(PromptEvaluationError) as caught:
        await play(loaded, SCRIPT, session=session, root=root, deadline=deadline)
    assert str(caught.value) == wording
    assert caught.value.phase == "tool"
    check_undone(root, session, toolset)


@pytest.mark.requirement("A-28")
async def test_a_call_that_fails_is_undone_and_the_run_goes_on(tmp_path: Path, root: Path) -> None:
    """The model reads what went wrong."""
    toolset = Committing(Trace(), OSError("the disk is full"))
    loaded, session = ready(tmp_path, toolset)
    script = [SCRIPT[0], *called(Call("change"), c1=Outcome.failed("the disk is full"))]
    result = await play(loaded, script, session=session, root=root)
    assert result.status == "done"
    assert lines(session) == ["kept"]
    assert texts(root) == {"notes.txt": "before"}


@pytest.mark.requirement("A-28")
async def test_what_a_nested_run_has_committed_stays_when_a_later_call_of_it_is_undone(
    tmp_path: Path, root: Path
) -> None:
    """The calls of an agent are transactions of their own; only the one that was cut off is undone."""
    toolset = Committing(Trace(stays_at="written"))
    kept: list[Session] = []

    async def keep() -> str:
        context = tool_context()
        assert context is not None
        kept.append(context.session)
        write_line("kept")
        return "kept"

    others = {"child.agent": agent("child", tools="[keep]", toolsets="[committing]")}
    loaded = desk(tmp_path / "project", tools=[keep], toolsets={"committing": toolset}, also=["child"], others=others)
    session = Session()
    script = [
        Reply(calls=[Call("child", {"input": "Go."}, id="c1")]),
        Reply(calls=[Call("keep", id="n1")], within="c1"),
        Reply(calls=[Call("change", id="n2")], within="c1"),
    ]
    await cut_off(toolset.trace, play(loaded, script, session=session, root=root))
    assert lines(kept[0]) == ["kept"]
    assert texts(root) == {"notes.txt": "before"}
    assert outcomes(kept[0]) == [("n1", True), ("n2", False)]
    assert outcomes(session) == [("c1", False)]
    assert toolset.told == [None, None]


async def put_line(text: str) -> str:
    """Leave a line."""
    write_line(text)
    return f"wrote {text}"


async def fail(text: str) -> str:
    """Leave a line, and fail."""
    write_line(f"never {text}")
    raise OSError(text)


async def told(text: str) -> str:
    """Leave a line, and say what is wrong."""
    write_line(f"never {text}")
    raise ToolFailed(f"no {text}")


async def retry(text: str) -> str:
    """Leave a line, and want to be called again."""
    write_line(f"never {text}")
    raise ModelRetry(text)


async def approve(ctx: RunContext[Any], text: str) -> str:
    """Want approval in the middle."""
    write_line(text if ctx.tool_call_approved else f"never {text}")
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    return text


def blocking(text: str) -> str:
    """Leave a line, in a thread."""
    write_line(text)
    return text


def own(params: Note, *, context: ToolContext) -> ToolResult[None]:
    """A tool of Handrail's, which fails at its will."""
    return ToolResult.error("empty") if not params.text else ToolResult.ok(None)


def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
    """A toolset that a factory makes."""
    return FunctionToolset([Tool(put_line, name="made")])


TOOLS = (
    Tool(put_line, name="state"), Tool(put_line, name="external", metadata={"effect": "external"}),
    Tool(put_line, name="concurrent", metadata={"concurrent": True, "effect": "read"}),
    Tool(put_line, name="sequential", sequential=True), Tool(blocking, name="blocking"), Tool(fail, name="fail"),
    Tool(told, name="told"), Tool(retry, name="retry", max_retries=1000), Tool(approve, name="approve"),
    Tool(put_line, name="flagged", requires_approval=True),
    HandrailTool[Note, None](name="own", description="Own.", handler=own),
)  # fmt: skip
PLACED = HandrailTool[Note, None](name="placed", description="Placed.", handler=own)
SECTION = MarkdownSection(title="S", template="T.", tools=[PLACED])
NAMES = (*(tool.name for tool in TOOLS), "placed", "made", "unknown", "desk")
ARGUMENTS: tuple[Any, ...] = ({"text": "a"}, {"text": ""}, {"text": 7}, {}, {"more": 1}, "{", "[]")

a_call = st.builds(Call, st.sampled_from(NAMES), st.sampled_from(ARGUMENTS))
a_script = st.lists(st.lists(a_call, min_size=1, max_size=5), min_size=1, max_size=3)

Run = Callable[[RunOptions], RunResult]
"""Runs an agent to its end."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs an agent with a tool of every kind; it calls itself, too."""
    toolsets = {"section": SECTION, "make": make}
    loaded = desk(tmp_path_factory.mktemp("project"), tools=TOOLS, toolsets=toolsets, also=["desk"])
    return lambda options: asyncio.run(loaded.run_async("Go.", options))


@given(
    script=a_script,
    mode=st.sampled_from(["ask", "approve-all", "deny-all"]),
    answers=st.lists(st.sampled_from(["yes", "no"]), min_size=1, max_size=4),
)
def test_each_call_is_recorded_once_as_the_model_was_answered(
    run: Run, script: Sequence[Sequence[Call]], mode: ApprovalMode, answers: Sequence[Literal["yes", "no"]]
) -> None:
    """Whatever its tool, its arguments and its approval; what fails leaves nothing in the session."""
    said = cycle(answers)

    def person(call: GatedCall) -> Answer:
        return Answer(next(said))

    session, heard = Session(), CallLog()
    replies = [*(Reply(calls=calls) for calls in script), DONE]
    options = RunOptions(model=ScriptedModel(replies), mode=mode, asker=person, session=session, max_depth=1)
    result = run(replace(options, listener=heard))
    recorded = {event.call_id: event for event in events(session)}
    answered = returns(result.messages)
    assert len(recorded) == len(events(session)) == len(answered) == sum(map(len, script))
    for part in answered:
        event = recorded[part.tool_call_id]
        assert (part.outcome == "success") is event.success
        assert event.name == part.tool_name
        if part.outcome == "failed":
            assert part.content == event.result.render()
    assert [(ended.call_id, ended.success) for ended in heard.ended] == outcomes(session)
    assert set(heard.started) <= set(recorded)
    assert len(heard.started) == len(set(heard.started))
    assert not [line for line in lines(session) if line.startswith("never")]
    lines_due = [event for event in events(session) if event.success and event.name not in {"own", "placed"}]
    assert len(lines(session)) == len(lines_due)
