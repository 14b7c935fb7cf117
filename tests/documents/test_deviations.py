"""What Handrail does otherwise than its documents ask: a test for each row of the table in `README.md`.

The docstring of a test is what its row says of Handrail; `test_checklist.py` compares them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pydantic
import pytest
from pydantic_ai import RunContext
from pydantic_ai import Tool as PydanticAITool
from pydantic_ai.toolsets import FunctionToolset
from typing_extensions import TypedDict

from handrail import store, tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents import BUILT_INS, Answer, Registry
from handrail.agents.agent_file import AGENT_FILE_KEYS
from handrail.agents.toolsets.builtin import DynamicAgent
from handrail.contrib.tools import (
    AddStep,
    AstevalSection,
    Plan,
    PlanningToolsSection,
    PlanStep,
    SetupPlan,
    VfsToolsSection,
)
from handrail.errors import (
    AgentError,
    CallPostponed,
    LedgerError,
    PromptEvaluationError,
    PromptValidationError,
    UnboundResourceError,
)
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import (
    IdempotencyConfig,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Section,
    Tool,
    ToolContext,
    ToolExample,
    ToolResult,
)
from handrail.resources import Binding
from handrail.runtime import EffectLedger, Session, Step, ToolCall, ToolInvoked, ToolMessage
from handrail.serde import dump
from handrail.testing import Call, run_tool
from tests import kit
from tests.agents.kit import Person, answers, called, desk, play
from tests.documents.surroundings import Params, Result, find
from tests.documents.surroundings import tool as find_tool

pytestmark = pytest.mark.requirement("M-01")


@dataclass(frozen=True)
class Note:
    """What handlers write."""

    text: str = "half"


def calling(section: Section[Any], *calls: tuple[str, Any], session: Session | None = None) -> list[ToolMessage]:
    """What comes of calls of the tools of a section, one after another."""
    executor = ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="documents", key="calls", sections=[section])), session=session or Session()
    )
    return [executor.execute(ToolCall(f"c{number}", name, dump(params))) for number, (name, params) in enumerate(calls)]


def external(body: Callable[[], ToolResult[str]], config: IdempotencyConfig | None = None) -> Tool[Any, Any]:
    """A tool that acts outside."""

    def pay(params: Params, *, context: ToolContext) -> ToolResult[str]:
        return body()

    config = config or IdempotencyConfig()
    return Tool[Params, str](name="pay", description="Pays.", handler=pay, effect="external", idempotency=config)


# --------------------------------------------------------------------------------------------------------- declarations


FITTING = ("a", "create_order", "create-order-2", "x" * 64, "Create")
OTHERS = ("", "x" * 65, "créer", "create order", "create\n")


@pytest.mark.parametrize("name, fits", [*((name, True) for name in FITTING), *((name, False) for name in OTHERS)])
def test_names_may_have_upper_case(name: str, *, fits: bool) -> None:
    """A name fits `^[A-Za-z0-9_-]{1,64}$`."""
    with nullcontext() if fits else pytest.raises(PromptValidationError):
        assert find_tool(name).name == name


@pytest.mark.parametrize("length, fits", [(0, False), (1, True), (201, True), (8_000, True), (8_001, False)])
def test_descriptions_may_be_long(length: int, *, fits: bool) -> None:
    """Descriptions of tools and of examples have 1 to 8,000 characters of any script."""
    for of_tool, of_example in (("é" * length, "é"), ("é", "é" * length)):
        example = ToolExample(description=of_example, input=Params(), output=Result("42"))
        with nullcontext() if fits else pytest.raises(PromptValidationError):
            Tool[Params, Result](name="find", description=of_tool, handler=find, examples=(example,))


def test_tools_are_checked_when_they_are_made() -> None:
    """Handlers and examples are checked when the tool is made, before there is a prompt."""

    def bare(params: Params) -> Any:
        raise AssertionError

    handler: Any = bare
    wrong: Any = ToolExample(description="Wrong", input=Params(), output=Note())
    made: list[dict[str, Any]] = [{"handler": handler}, {"handler": find, "examples": (wrong,)}]
    for options in made:
        with pytest.raises(PromptValidationError):
            Tool[Params, Result](name="find", description="Finds.", **options)


def test_parameters_and_results_are_of_more_types() -> None:
    """Parameters are dataclasses, pydantic models or TypedDicts; a result is any value of JSON."""

    class Model(pydantic.BaseModel):
        n: int

    class Typed(TypedDict):
        n: int

    def give(params: Any, *, context: ToolContext) -> ToolResult[int]:
        return ToolResult.ok(params.n if isinstance(params, Model) else params["n"])

    tools: tuple[Tool[Any, Any], ...] = (
        Tool[Model, int](name="give", description="Gives.", handler=give),
        Tool[Typed, int](name="give", description="Gives.", handler=give),
    )
    assert [run_tool(made, {"n": 7}).result.value for made in tools] == [7, 7]


def test_the_pipeline_runs_tools() -> None:
    """The pipeline validates calls, runs handlers and awaits those that are `async def`."""

    async def later(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        return ToolResult.ok(Result(params.query))

    made = Tool[Params, Result](name="later", description="Answers.", handler=later)
    assert run_tool(made, {"query": "yes"}).content == "yes"
    assert not run_tool(made, {"other": "no"}).success


# ------------------------------------------------------------------------------------------------------------- failures


def test_developer_mistakes_end_the_run() -> None:
    """A mistake of the program, as an unbound resource, is raised to the developer; the call is rolled back."""

    def ask(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        context.session[Note].append(Note())
        return ToolResult.ok(Result(context.resources.get(Filesystem).read_text("a.txt")))

    session = Session()
    with pytest.raises(UnboundResourceError):
        run_tool(Tool[Params, Result](name="ask", description="Asks.", handler=ask), Params(), session=session)
    assert (session[Note].all(), [event.success for event in session[ToolInvoked]]) == ((), [False])


def test_calls_that_wait_are_recorded_when_they_are_carried_out() -> None:
    """A call that waits for an approval has no `ToolInvoked` until it is carried out."""
    session = Session()

    @tool
    def wait_for_a_person() -> str:
        """Waits."""
        raise CallPostponed("later")

    with pytest.raises(CallPostponed):
        run_tool(wait_for_a_person, session=session)
    assert session[ToolInvoked].all() == ()


def test_no_subscriber_of_the_event_undoes_a_call() -> None:
    """A subscriber of the result's value that raises fails the call; one of `ToolInvoked` does not."""

    def fail(_event: object) -> None:
        raise RuntimeError("not published")

    for heard, succeeds in ((ToolInvoked, True), (Result, False)):
        session = Session()
        session.dispatcher.subscribe(heard, fail)
        assert run_tool(find_tool("find"), Params(), session=session).success is succeeds
        assert bool(session[Result].all()) is succeeds


def test_there_are_thirteen_steps() -> None:
    """There are thirteen steps, and a policy judges a call with its context."""
    seen: list[ToolContext] = []

    class Looks(kit.Decides):
        def check(self, tool: Any, params: Any, *, context: ToolContext) -> Any:
            seen.append(context)
            return PolicyDecision.allow()

    kit.executor(kit.tool("note"), policies=[Looks(kit.ASKS.decide)]).execute(kit.call("note"))
    assert (len(Step), [context.call_id for context in seen]) == (13, ["call-1"])


@pytest.mark.anyio
async def test_handlers_leave_the_loop_free() -> None:
    """A handler is `def` or `async def`; on an event loop a `def` handler has a thread of its own."""

    def where(params: Params, *, context: ToolContext) -> ToolResult[bool]:
        return ToolResult.ok(threading.current_thread() is threading.main_thread())

    made = Tool[Params, bool](name="where", description="Says where.", handler=where)
    messages = [await kit.executor(made).execute_async(ToolCall("c", "where"))]
    assert [message.result.value for message in messages] == [False]


def test_the_deadline_bounds_the_handler() -> None:
    """The deadline of a run bounds a handler that has begun, too."""

    async def hang(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        await asyncio.Event().wait()
        raise AssertionError

    made = Tool[Params, Result](name="hang", description="Hangs.", handler=hang)
    with pytest.raises(PromptEvaluationError):
        kit.executor(made, deadline=kit.soon()).execute(ToolCall("c", "hang"))


# ----------------------------------------------------------------------------------------------------------- the ledger


def test_effects_happen_at_most_once() -> None:
    """An effect whose outcome is unknown does not run again by itself: at most once."""
    runs: list[None] = []

    def lose() -> ToolResult[str]:
        runs.append(None)
        raise ConnectionError("no answer")

    session, ledger = Session(), EffectLedger()
    assert [run_tool(external(lose), Params(), session=session, effect_ledger=ledger).success for _ in "12"] == [
        False
    ] * 2
    assert ([row.status for row in ledger.rows()], len(runs)) == (["unknown"], 1)


def test_failures_have_rows() -> None:
    """A failed call is recorded, and not replayed: an equal call runs."""
    results = iter([ToolResult[str].error("no"), ToolResult.ok("yes")])
    session, ledger = Session(), EffectLedger()
    made = external(lambda: next(results))
    assert not run_tool(made, Params(), session=session, effect_ledger=ledger).success
    assert [row.status for row in ledger.rows()] == ["failed"]
    assert run_tool(made, Params(), session=session, effect_ledger=ledger).content == "yes"


def test_an_effect_is_claimed_before_it_runs() -> None:
    """An effect is claimed before it runs: of callers at once, one runs the handler, and all get its result."""
    ledger, session, statuses = EffectLedger(), Session(), list[str]()

    def once() -> ToolResult[str]:
        statuses.extend(row.status for row in ledger.rows())
        return ToolResult.ok("paid")

    def call(_number: int) -> str:
        return run_tool(external(once), Params(), session=session, effect_ledger=ledger).content

    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(call, range(8))] == ["paid"] * 8
    assert statuses == ["running"]


def test_external_calls_always_have_a_ledger() -> None:
    """Without an `effect_ledger=`, an external call has one nevertheless."""
    runs: list[None] = []

    def pay() -> ToolResult[str]:
        runs.append(None)
        return ToolResult.ok("paid")

    executor = kit.executor(external(pay))
    messages = executor.execute_all([ToolCall(name, "pay") for name in "12"])
    assert ([message.replayed for message in messages], len(runs)) == ([False, True], 1)


def test_a_running_effect_is_not_forgotten() -> None:
    """What is running or unknown is removed with `force=True` alone."""
    ledger, removed = EffectLedger(), list[int]()

    def pay() -> ToolResult[str]:
        removed.append(ledger.clear())
        raise ConnectionError("no answer")

    run_tool(external(pay), Params(), effect_ledger=ledger)
    (row,) = ledger.rows()
    with pytest.raises(LedgerError):
        ledger.invalidate(row.key)
    assert [*removed, ledger.clear(), ledger.clear(force=True)] == [0, 0, 1]


def test_made_up_defaults_are_not_in_the_key() -> None:
    """A default that a factory makes for each call is in the key only if the model has sent it."""
    numbers = iter(range(9))

    @dataclass(frozen=True)
    class Order:
        item: str
        number: int = field(default_factory=lambda: next(numbers))

    runs: list[Order] = []

    def order(params: Order, *, context: ToolContext) -> ToolResult[str]:
        runs.append(params)
        return ToolResult.ok("ordered")

    made = Tool[Order, str](name="order", description="Orders.", handler=order, idempotency=IdempotencyConfig())
    session, ledger = Session(), EffectLedger()
    for arguments in ({"item": "lamp"}, {"item": "lamp"}, {"item": "lamp", "number": 7}):
        run_tool(made, arguments, session=session, effect_ledger=ledger)
    assert [params.number for params in runs] == [0, 7]


def test_the_ledger_of_a_store_survives(tmp_path: Path) -> None:
    """In memory by default; in a store, results are replayed by later processes."""
    replayed: list[bool] = []
    for name in "12":  # as two processes would
        with store.open(f"sqlite:///{tmp_path / 'desk.db'}") as opened, opened.session("desk") as session:
            executor = ToolExecutor(prompt=kit.prompt(external(lambda: ToolResult.ok("paid"))), session=session)
            replayed.append(executor.execute(ToolCall(name, "pay")).replayed)
    assert replayed == [False, True]


# ----------------------------------------------------------------------------------------------------------- the suites


def test_a_new_plan_starts_at_one() -> None:
    """Within a plan no number is used twice; a new plan starts at 1 again."""
    session = Session()
    section = PlanningToolsSection(session=session)
    setup = ("planning_setup_plan", SetupPlan("Release", ("Build",)))
    calling(section, setup, ("planning_add_step", AddStep(("Upload",))), setup, session=session)
    plan = session[Plan].latest()
    assert plan is not None
    assert [step.step_id for step in plan.steps] == [1]


def test_steps_have_no_notes() -> None:
    """A step has no field for notes: they stand at the end of its title."""
    assert [each.name for each in fields(PlanStep)] == ["step_id", "title", "status"]
    assert "title" in PlanningToolsSection(session=Session()).render_body(None).partition("**Tools**")[0]


def test_the_whole_file_must_have_been_shown() -> None:
    """A file that is replaced must have been shown whole, and again if it has changed since."""
    files = InMemoryFilesystem({"a.txt": "one\ntwo\n"})
    write, part, whole = (
        ("write_file", {"path": "a.txt", "content": "new\n"}),
        ("read_file", {"path": "a.txt", "limit": 1}),
        ("read_file", {"path": "a.txt"}),
    )
    assert [message.success for message in calling(VfsToolsSection(files), part, write, whole, write)] == [
        *(True, False, True, True)
    ]


def test_programs_are_evaluated_by_monty() -> None:
    """`AstevalSection` evaluates the part of Python that pydantic-monty knows: there is no `del`."""
    (evaluate,) = AstevalSection().tools
    assert run_tool(evaluate, {"code": "6 * 7"}).success
    assert not run_tool(evaluate, {"code": "x = 1\ndel x"}).success


# --------------------------------------------------------------------------------------------------- results, resources


def test_nothing_is_logged_without_render(caplog: pytest.LogCaptureFixture) -> None:
    """A value without `render()` reads as the message, then its JSON; nothing is logged."""
    with caplog.at_level(logging.DEBUG, logger="handrail"):
        assert ToolResult.ok(Note(), "done").render() == 'done\n{"text":"half"}'
    assert caplog.records == []


def test_a_long_text_is_cut() -> None:
    """A text of more than 30,000 characters is cut in its message; `read_result` reads the rest."""
    message = run_tool(external(lambda: ToolResult.ok("x" * 40_000)), Params())
    assert "read_result" in message.content
    assert 20_000 < len(message.content) <= 30_000 < len(message.result.render())


def test_a_singleton_lives_as_long_as_its_block() -> None:
    """A singleton lives as long as the block `with prompt.resources:`."""
    made: list[Note] = []

    def make(_resolver: object) -> Note:
        made.append(Note())
        return made[-1]

    prompt = Prompt(PromptTemplate(ns="d", key="s", sections=[])).bind(resources={Note: Binding(Note, make)})
    for _ in "12":
        with prompt.resources:
            assert prompt.resources.get(Note) is prompt.resources.get(Note)
    assert len(made) == 2


@pytest.mark.parametrize("kept", [False, True])
def test_plain_writes_need_the_tree_to_be_kept(tmp_path: Path, *, kept: bool) -> None:
    """What `open()` writes in a host folder is rolled back after `keep_tree()` alone, but for what git ignores."""
    (root := tmp_path / "root").mkdir()
    (root / ".gitignore").write_text("*.log\n")
    (root / "ignored.log").write_text("whole")

    def fail(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        files = context.resources.get(HostFilesystem)
        if kept:
            files.keep_tree()
        files.write_text("through.txt", "half")
        for name in ("beside.txt", "ignored.log"):
            (root / name).write_text("half")
        return ToolResult.error("no")

    with HostFilesystem(root) as files:
        made = Tool[Params, Result](name="fail", description="Fails.", handler=fail)
        run_tool(made, Params(), resources={HostFilesystem: files})
    assert [(root / name).exists() for name in ("through.txt", "beside.txt")] == [False, not kept]
    assert (root / "ignored.log").read_text() == "half"


# ------------------------------------------------------------------------------------------------------- agents by name


def look(place: str) -> str:
    """Looks."""
    return place


@pytest.mark.anyio
async def test_bare_factories_are_called_once_for_each_run(tmp_path: Path) -> None:
    """A bare factory in `TOOLSETS` is called once for each run."""
    steps: list[int] = []

    def make(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        steps.append(ctx.run_step)
        return FunctionToolset([look])

    agent = desk(tmp_path, toolsets={"places": make})
    for _ in "12":
        await play(agent, called(Call("look", {"place": "here"})))
    assert len(steps) == 2


def test_agent_files_have_three_more_keys() -> None:
    """Agent files have three more keys: `exclude`, `show_git` and `input_model_ref`."""
    more = ("exclude", "show_git", "input_model_ref")
    assert ("name", "description", "model", "tools", "toolsets", *more) == AGENT_FILE_KEYS


@pytest.mark.anyio
async def test_approval_is_a_policy(tmp_path: Path) -> None:
    """Approval is a policy of the pipeline: plain tools are asked about too, and nothing is wrapped."""
    person, toolset = Person(), FunctionToolset([look], id="places")

    def note(text: str) -> str:
        return text

    agent = desk(tmp_path, tools=[note], toolsets={"places": toolset})
    calls = (Call("note", {"text": "x"}), Call("look", {"place": "here"}))
    await play(agent, called(*calls), mode="ask", asker=person)
    assert [asked.tool for asked in person.asked] == ["note", "look"]
    assert agent.project.registry.toolsets["places"].value is toolset


@pytest.mark.anyio
@pytest.mark.parametrize("effect, runs", [("read", True), ("state", False), ("external", False)])
async def test_changes_need_approval_by_default(tmp_path: Path, effect: Any, *, runs: bool) -> None:
    """Without a rule, a call that may change something is asked about; without a person it is denied."""
    agent, person = desk(tmp_path, tools=[tool(effect=effect)(look)]), Person(Answer("yes"))
    assert (await answers(agent, Call("look", {"place": "here"}), mode="ask") == ["here"]) is runs
    assert await answers(agent, Call("look", {"place": "here"}), mode="ask", asker=person) == ["here"]
    assert bool(person.asked) is not runs


@pytest.mark.anyio
async def test_calls_of_a_session_take_turns(tmp_path: Path) -> None:
    """Calls of a session that may write take turns, unless their tools are declared `concurrent`."""
    log: list[str] = []

    async def work(name: str) -> str:
        log.append(f"begin {name}")
        await asyncio.sleep(0)  # the loop runs what else is ready
        log.append(f"end {name}")
        return name

    await play(desk(tmp_path, tools=[work]), called(*(Call("work", {"name": name}) for name in "ab")))
    assert log == ["begin a", "end a", "begin b", "end b"]


def test_what_only_pydantic_ai_reads_is_a_tool_of_its() -> None:
    """A function with `*args` is exported as `Tool(function)`; Handrail reads plain functions by `@tool`."""

    def add(*numbers: int) -> int:
        return sum(numbers)

    with pytest.raises(AgentError):
        Registry.of_python(tools=[add])
    assert [*Registry.of_python(tools=[PydanticAITool(add)]).tools] == ["add"]


def test_dynamic_agents_are_values(tmp_path: Path) -> None:
    """A dynamic agent is a value of the session, and no file is written."""
    task: dict[str, Any] = {"name": "helper", "instructions": "Help.", "tools": [], "toolsets": []}
    agent, session = desk(tmp_path, also=["dynamic_agents"]), Session()
    asyncio.run(play(agent, called(Call("agent_create", task)), session=session))
    assert [made.name for made in session[DynamicAgent]] == ["helper"]
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["desk.agent"]


def test_built_in_toolsets_have_names_of_their_own() -> None:
    """The built-in toolsets are `files`, `project_files`, both `_ro`, `planning`, `shell`, `sandbox` and `python`."""
    files = {f"{name}{only}" for name in ("files", "project_files") for only in ("", "_ro")}
    assert {entry.name for entry in BUILT_INS} == files | {"planning", "shell", "sandbox", "python", "dynamic_agents"}
