"""What the blocks of document 000 make does what the document says.

Tools, results, contexts, resources and dispatch; the idempotency ledger; the planning suite.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import (
    AddStep,
    Plan,
    PlanningStrategy,
    PlanningToolsSection,
    ReadPlan,
    SetupPlan,
    UpdateStep,
)
from handrail.errors import PromptValidationError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import IdempotencyConfig, MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.resources import ResourceRegistry
from handrail.runtime import EffectLedger, Session, ToolCall, ToolEffect, ToolInvoked, ToolMessage
from handrail.serde import dump
from handrail.testing import FakeClock, run_tool
from tests.documents.surroundings import Params, Result, run, tool
from tests.kit import raises
from tests.wording import Wording

pytestmark = pytest.mark.requirement("M-01")


def test_a_sketched_result_class_renders() -> None:
    """What has `render() -> str` is what the model reads."""
    renderable = run("000.04")["ToolRenderableResult"]
    assert hasattr(renderable, "render")
    assert ToolResult.ok(Result("42"), "found").render() == "42"


def test_the_handler_of_the_registry_block_finds_files_or_says_that_there_are_none() -> None:
    """`context.filesystem` and `resources.get(Filesystem, None)` are the same."""
    handler = run("000.07")["my_handler"]
    assert handler(Params(), context=ToolContext.of()) == ToolResult.error("No filesystem")
    files = InMemoryFilesystem()
    context = ToolContext.of(resources={Filesystem: files})
    assert context.filesystem is context.resources.get(Filesystem) is files
    assert handler(Params(), context=context) is None


def test_a_registry_holds_resources_by_type() -> None:
    """`build`, `get` with and without a default, `in`."""
    files = InMemoryFilesystem()
    registry = ResourceRegistry.build({Filesystem: files})
    assert Filesystem in registry
    assert int not in registry
    assert registry.get(Filesystem) is files
    assert registry.get(int, 7) == 7
    assert registry.get(int, None) is None


def test_tools_declared_on_a_section_are_rendered_in_their_order() -> None:
    """`RenderedPrompt.tools` has the tools of the enabled sections."""
    names = run("000.09")
    section = names["section"]
    assert section.tools == (names["lookup_tool"], names["search_tool"])
    off = MarkdownSection(title="Off", key="off", template="Not now.", tools=[tool("late")], enabled=False)
    more = MarkdownSection(title="More", key="more", template="More.", tools=[tool("more")], children=[off])
    template = PromptTemplate(ns="documents", key="order", sections=[section, more])
    rendered = Prompt(template).bind(Params()).render()
    assert [one.name for one in rendered.tools] == ["read_file", "write_file", "more"]
    assert "Not now." not in rendered.text


def test_two_tools_of_one_name_are_refused(wording: Wording) -> None:
    """The error names the tool and both sections."""
    sections = [MarkdownSection(title=title, template="-", tools=[tool("find")]) for title in ("One", "Two")]
    with raises(PromptValidationError, wording):
        PromptTemplate(ns="documents", key="twice", sections=sections)


def test_the_example_registration_can_be_called(wording: Wording) -> None:
    """The registered tool is found, its arguments are parsed, its handler runs, and the event tells of it."""
    names = run("000.15")
    session = Session()
    executor = ToolExecutor(prompt=names["prompt"], session=session)
    message = executor.execute(ToolCall("call-1", "lookup_entity", '{"entity_id": "abc-123"}'))
    assert message.content == 'Fetched abc-123\n{"entity_id":"abc-123","url":"https://..."}'
    assert session[names["LookupResult"]].latest() == names["LookupResult"]("abc-123", "https://...")
    refused = executor.execute(ToolCall("call-2", "lookup_entity", '{"entity": "abc-123"}'))
    assert not refused.success
    assert refused.content == wording
    assert [event.result.value is not None for event in session[ToolInvoked] if event.success] == [True]
    assert [event.result.value for event in session[ToolInvoked] if not event.success] == [None]
    assert names["lookup_tool"].parameters_schema["properties"]["entity_id"]["description"] == "ID to fetch"


def test_the_executor_of_the_ledger_block_checks_and_updates_the_ledger() -> None:
    """A tool with an idempotency configuration runs once; the second call is answered by the ledger."""
    names = run("000.19")
    executor, ledger = names["executor"], names["ledger"]
    assert executor.environment.find_ledger() is ledger
    messages = executor.execute_all([ToolCall(f"call-{number}", "order", "{}") for number in (1, 2)])
    assert [message.replayed for message in messages] == [False, True]
    assert [message.content for message in messages] == ["handrail", "handrail"]
    assert [row.status for row in ledger.rows()] == ["done"]


def test_an_unexpected_exception_becomes_a_failed_result(wording: Wording) -> None:
    """`success=False`, `value=None`, and a message for the model; the original is logged, not told."""

    def fail(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        raise RuntimeError("no connection")

    message = run_tool(Tool[Params, Result](name="fail", description="Fails.", handler=fail), Params())
    assert (message.success, message.result.value) == (False, None)
    assert message.content == wording


HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Order:
    order_id: str = "123"
    idempotency_token: str = "token-abc"  # noqa: S105 - the word of the document
    amount: int = 1


@pytest.fixture
def clock() -> FakeClock:
    """A clock that is told the time."""
    return FakeClock()


@pytest.fixture
def ledger(clock: FakeClock) -> EffectLedger:
    """A ledger by that clock."""
    return EffectLedger(clock=clock)


def record(ledger: EffectLedger, key: str = "session:create_order:1", **more: Any) -> ToolEffect | None:
    """Record a result under a key, as the block does."""
    given: dict[str, Any] = {"tool_name": "create_order", "params": Order(), "result": ToolResult.ok("made", "done")}
    return ledger.record(idempotency_key=key, **{**given, **more})


@pytest.mark.parametrize(
    "config, key, same, other",
    [
        (IdempotencyConfig(strategy="auto"), r"session:create_order:[0-9a-f]{12}", {}, {"amount": 2}),
        (
            IdempotencyConfig(strategy="params", param_keys=("order_id",)),
            r"session:create_order:[0-9a-f]{12}",
            {"amount": 2},
            {"order_id": "124"},
        ),
        (
            IdempotencyConfig(strategy="custom", key_fn=lambda p: f"order:{p.order_id}:{p.idempotency_token}"),
            r"session:order:123:token-abc",
            {"amount": 2},
            {"idempotency_token": "token-abd"},
        ),
    ],
    ids=["auto", "params", "custom"],
)
def test_strategies_make_keys_of_the_documented_form(
    config: IdempotencyConfig, key: str, same: dict[str, Any], other: dict[str, Any]
) -> None:
    """The table of strategies: what contributes to the key, and how keys look."""
    made = config.key_for("create_order", Order())
    assert made is not None
    assert re.fullmatch(key, made)
    assert config.key_for("create_order", replace(Order(), **same)) == made
    assert config.key_for("create_order", replace(Order(), **other)) != made


def test_strategy_none_always_executes() -> None:
    """There is no key, and two equal calls run twice."""
    assert IdempotencyConfig(strategy="none").key_for("create_order", Order()) is None
    assert calls_of(IdempotencyConfig(strategy="none"), *[Session()] * 2) == 2


def test_auto_is_the_default_and_executes_once() -> None:
    """Strategy, scope and time to live are those of the document."""
    config = IdempotencyConfig()
    assert (config.strategy, config.scope, config.ttl) == ("auto", "session", timedelta(hours=24))
    assert calls_of(config, *[Session()] * 2) == 1


def calls_of(config: IdempotencyConfig, *sessions: Session) -> int:
    """How often the handler of a tool runs that is called with the same arguments, once in each session."""
    runs: list[Order] = []

    def create(params: Order, *, context: ToolContext) -> ToolResult[str]:
        runs.append(params)
        return ToolResult.ok("made")

    tool = Tool[Order, str](name="create_order", description="Creates.", handler=create, idempotency=config)
    ledger = EffectLedger()
    for session in sessions:
        assert run_tool(tool, Order(), session=session, effect_ledger=ledger).success
    return len(runs)


def test_the_configuration_of_the_block_is_that_of_its_tool() -> None:
    """A tool takes `idempotency=`, and a result lasts as long as it says."""
    tool = run("000.16")["tool"]
    assert tool.idempotency == IdempotencyConfig(strategy="auto", ttl=HOUR, scope="session")


def test_the_ledger_block_finds_nothing_and_records() -> None:
    """What it has recorded is found under the same key, with everything that `ToolEffect` has."""
    names = run("000.18")
    assert names["effect"] is None
    effect = names["ledger"].lookup("session:create_order:abc123")
    assert (effect.idempotency_key, effect.tool_name) == ("session:create_order:abc123", "create_order")
    assert (effect.result_message, effect.result_value) == ("order made", {"answer": "made"})
    assert effect.result_success
    assert effect.expires_at - effect.created_at == HOUR
    assert re.fullmatch("[0-9a-f]{64}", effect.params_hash)


def test_the_ledger_block_answers_from_the_ledger_where_there_is_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch of the block that returns."""
    filled = EffectLedger()
    record(filled, "session:create_order:abc123", params=Params(), result=ToolResult.ok(Result("made"), "made before"))
    monkeypatch.setattr("handrail.runtime.EffectLedger", lambda: filled)
    assert run("000.18")["returned"] == "made before"


@pytest.mark.parametrize(
    "method, arguments",
    [("invalidate", ("session:create_order:1",)), ("invalidate_by_tool", ("create_order",)), ("clear", ())],
)
def test_entries_are_removed_on_request(ledger: EffectLedger, method: str, arguments: tuple[str, ...]) -> None:
    """One entry, those of a tool, all."""
    record(ledger)
    assert ledger.lookup("session:create_order:1") is not None
    assert getattr(ledger, method)(*arguments) == 1
    assert ledger.lookup("session:create_order:1") is None


def test_what_is_removed_is_what_was_named(ledger: EffectLedger) -> None:
    """Other keys, and those of other tools, stay."""
    record(ledger)
    record(ledger, "session:pay:1", tool_name="pay")
    assert not ledger.invalidate("session:create_order:2")
    assert ledger.invalidate_by_tool("create_order") == 1
    assert [row.tool for row in ledger.rows()] == ["pay"]


def test_results_expire_and_are_removed_when_looked_up_or_pruned(ledger: EffectLedger, clock: FakeClock) -> None:
    """`ttl=None` never expires; a lookup removes what has expired, `prune_expired` all of it."""
    for key, ttl in (("short", HOUR), ("shorter", HOUR / 2), ("day", timedelta(hours=24)), ("ever", None)):
        record(ledger, key, ttl=ttl)
    clock.advance(HOUR)
    assert ledger.lookup("short") is None
    assert sorted(row.key for row in ledger.rows()) == ["day", "ever", "shorter"]
    assert ledger.prune_expired() == 1
    clock.advance(timedelta(days=36_500))
    assert ledger.lookup("day") is None
    assert ledger.lookup("ever") is not None


def test_the_default_time_to_live_is_a_day(ledger: EffectLedger) -> None:
    """24 hours, unless something else is said."""
    effect = record(ledger)
    assert effect is not None
    assert effect.expires_at is not None
    assert effect.expires_at - effect.created_at == timedelta(hours=24)


def test_only_successes_are_recorded(ledger: EffectLedger) -> None:
    """A failed call may be tried again."""
    assert record(ledger, result=ToolResult.error("no")) is None
    assert ledger.lookup("session:create_order:1") is None


def test_scopes_partition_keys() -> None:
    """Scope `session` belongs to one session; another word is shared by all that use the ledger."""
    calls = [calls_of(IdempotencyConfig(scope=scope), Session(), Session()) for scope in ("session", "global")]
    assert calls == [2, 1]


TOOLS: dict[str, tuple[type[Any], type[Any]]] = {
    "planning_setup_plan": (SetupPlan, SetupPlan),
    "planning_add_step": (AddStep, AddStep),
    "planning_update_step": (UpdateStep, UpdateStep),
    "planning_read_plan": (ReadPlan, Plan),
}
"""The table of tools, with the table of their parameters; reading returns the plan itself."""


class Desk:
    """A session, and the planning section of a block on it."""

    def __init__(self, section: PlanningToolsSection) -> None:
        template = PromptTemplate(ns="documents", key="planning", sections=[section])
        self.executor = ToolExecutor(prompt=Prompt(template), session=section.session)
        self.calls = 0

    def call(self, params: Any) -> ToolMessage:
        name = next(name for name, (kind, _) in TOOLS.items() if kind is type(params))
        self.calls += 1
        return self.executor.execute(ToolCall(f"call-{self.calls}", name, dump(params)))

    @property
    def plan(self) -> Plan:
        plan = self.executor.environment.session[Plan].latest()
        assert plan is not None
        return plan


@pytest.fixture
def desk() -> Desk:
    """The section of the block, and its session."""
    return Desk(run("000.12")["section"])


def test_the_suite_has_the_four_tools_with_their_parameters(desk: Desk) -> None:
    """Names, parameters and results are those of the tables."""
    tools = desk.executor.environment.rendered_prompt.tools
    assert {tool.name: (tool.params_type, tool.result_type) for tool in tools} == TOOLS
    assert not any(tool.accepts_overrides for tool in tools)


def test_the_plan_of_the_session_is_what_the_calls_made_of_it(desk: Desk) -> None:
    """Setting up creates or replaces; the section has registered the reducers by itself."""
    assert run("000.12")["plan"] is None
    assert desk.call(SetupPlan("Release", ("Build",))).success
    assert desk.call(SetupPlan("Release 2", ("Build", "Upload"))).success
    assert asdict(desk.plan) == {
        "objective": "Release 2",
        "status": "active",
        "steps": (
            {"step_id": 1, "title": "Build", "status": "pending"},
            {"step_id": 2, "title": "Upload", "status": "pending"},
        ),
    }


@pytest.mark.parametrize("params", [AddStep(("Build",)), UpdateStep(1, status="done"), ReadPlan()], ids=str)
def test_all_but_setting_up_require_a_plan(desk: Desk, params: object) -> None:
    """The message says which tool to call first."""
    message = desk.call(params)
    assert not message.success
    assert "planning_setup_plan" in message.content


def test_steps_are_numbered_on_and_completion_follows_from_them(desk: Desk) -> None:
    """1, 2, 3, ...; all done completes the plan, and a step more makes it active again."""
    desk.call(SetupPlan("Release", ("Build",)))
    desk.call(AddStep(("Upload", "Announce")))
    assert [step.step_id for step in desk.plan.steps] == [1, 2, 3]
    for number in (1, 2, 3):
        assert desk.plan.status == "active"
        desk.call(UpdateStep(number, status="done"))
    assert desk.plan.status == "completed"
    desk.call(AddStep(("Rest",)))
    assert (desk.plan.status, desk.plan.steps[-1].step_id) == ("active", 4)


@pytest.mark.parametrize(
    "title, fits", [("", False), ("  ", False), ("t", True), ("t" * 500, True), ("t" * 501, False)]
)
def test_titles_are_not_empty_and_have_at_most_500_characters(desk: Desk, title: str, fits: bool) -> None:
    """In each of the three tools that take one."""
    desk.call(SetupPlan("Release", ("Build",)))
    for params in (AddStep((title,)), UpdateStep(1, title=title), SetupPlan("Release", (title,))):
        assert desk.call(params).success is fits


def test_reading_returns_the_plan_and_adds_none(desk: Desk) -> None:
    """`planning_read_plan` returns the `Plan`, not `ReadPlan`."""
    desk.call(SetupPlan("Release", ("Build",)))
    message = desk.call(ReadPlan())
    assert message.result.value == desk.plan
    assert desk.executor.environment.session[Plan].all() == (desk.plan,)


def test_strategies_change_the_mindset_and_nothing_else() -> None:
    """The same structure, the same references to tools; the default is to reason and act in turn."""
    texts = {
        strategy: PlanningToolsSection(session=Session(), strategy=strategy).render_body(None)
        for strategy in PlanningStrategy
    }
    assert len(set(texts.values())) == 3
    assert run("000.14")["section"].render_body(None) == texts[PlanningStrategy.PLAN_ACT_REFLECT]
    assert run("000.12")["section"].render_body(None) == texts[PlanningStrategy.REACT]
    parts = [text.partition("**Mindset**") for text in texts.values()]
    assert len({before for before, _, _ in parts}) == 1
    assert len({after.partition("**Tools**")[2] for _, _, after in parts}) == 1
    assert all(name in text for text in texts.values() for name in TOOLS)
