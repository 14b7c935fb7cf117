"""What documents 001, 003 and 004 say.

001 adds factories of results, properties of contexts, policies, and the table of exceptions; 003 is the guide:
contracts, resources, results, examples, policies; 004 has an example, and says more of errors and disabled sections.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import VfsToolsSection
from handrail.errors import (
    DeadlineExceededError,
    PromptEvaluationError,
    PromptRenderError,
    PromptValidationError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.limits import BudgetTracker
from handrail.prompt import (
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    Section,
    Tool,
    ToolContext,
    ToolResult,
    ToolsSection,
)
from handrail.resources import Binding, Scope
from handrail.runtime import Deadline, Session, ToolCall, ToolInvoked
from handrail.session import SlicePolicy
from handrail.testing import FakeClock, run_tool
from tests.documents.surroundings import Params, Result, Seen, find, run, supplied, tool
from tests.kit import Decides, raises
from tests.wording import Wording

pytestmark = pytest.mark.requirement("M-01")

EXPANSION = VisibilityExpansionRequired("open it", section_keys=("a",), reason="needed", requested_overrides={})


@dataclass(frozen=True, slots=True)
class Draft:
    """What the handlers here write before they fail."""

    text: str


def executor(
    handler: Callable[..., ToolResult[Result]], *, session: Session, files: Filesystem, **more: Any
) -> ToolExecutor:
    """An executor of one tool, `work`."""
    work = Tool[Params, Result](name="work", description="Works.", handler=handler)
    template = PromptTemplate(ns="documents", key="work", sections=[Section(title="Work", tools=[work])])
    return ToolExecutor(prompt=Prompt(template).bind(resources={Filesystem: files}), session=session, **more)


def work_call() -> ToolCall:
    """A call of `work`."""
    return ToolCall("call-1", "work", "{}")


def test_results_have_two_factories() -> None:
    """`ToolResult.ok(value, message)` and `ToolResult.error(message)`."""
    assert ToolResult.ok(7, "done") == ToolResult(message="done", value=7, success=True)
    assert ToolResult.error("no") == ToolResult(message="no", value=None, success=False)


def test_contexts_have_the_fields_and_properties_of_the_tables() -> None:
    """What there is to read, and `beat()`."""
    context = ToolContext.of()
    for name in ("prompt", "rendered_prompt", "adapter", "session", "deadline", "heartbeat", "run_context"):
        assert hasattr(context, name), name
    assert context.filesystem is None
    assert context.budget_tracker is context.resources.get(BudgetTracker, None) is None
    context.beat()
    assert context.session.dispatcher.listens(Params) is False


def test_resources_are_reached_through_the_context() -> None:
    """The handler of the block gets the bound filesystem."""
    handler = run("001.02")["my_handler"]
    handler(Params(), context=ToolContext.of(resources={Filesystem: InMemoryFilesystem()}))


def test_policies_stand_on_the_section_beside_the_tools() -> None:
    """They judge the calls of its tools."""
    names = run("001.03")
    rendered = Prompt(PromptTemplate(ns="d", key="p", sections=[names["section"]])).bind(Params()).render()
    for one in (names["lookup_tool"], names["search_tool"]):
        assert [policy.name for policy in rendered.policies_for(one.name)] == ["read_before_write"]


def test_a_policy_that_raises_denies(wording: Wording) -> None:
    """Fail-closed: the handler does not run."""

    def check(_tool: Tool[Any, Any], _params: Any) -> PolicyDecision:
        raise RuntimeError("no rules")

    section = Section(title="S", tools=[tool("work")], policies=[Decides(check, "broken")])
    template = PromptTemplate(ns="d", key="p", sections=[section])
    message = ToolExecutor(prompt=Prompt(template), session=Session()).execute(work_call())
    assert not message.success
    assert message.content == wording


def writing(context: ToolContext) -> None:
    """Write to the session and to the files."""
    context.session[Draft].append(Draft("half"))
    context.resources.get(Filesystem).write_text("draft.txt", "half")


@pytest.mark.parametrize(
    "raised, ends_with",
    [
        (ToolValidationError("$.query is empty"), None),
        (TypeError("unsupported operand"), None),
        (KeyError("x"), None),
        (EXPANSION, VisibilityExpansionRequired),
        (PromptEvaluationError("stopped"), PromptEvaluationError),
        (DeadlineExceededError("too late"), PromptEvaluationError),
    ],
    ids=["wrong argument", "wrong type", "missing key", "expansion", "evaluation", "deadline"],
)
def test_exceptions_become_what_the_table_says(
    raised: Exception, ends_with: type[Exception] | None, wording: Wording
) -> None:
    """And all failure paths restore session and resources, and are recorded."""
    session, files = Session(), InMemoryFilesystem({"draft.txt": "whole"})

    def fail(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        writing(context)
        raise raised

    door = executor(fail, session=session, files=files)
    if ends_with is None:
        message = door.execute(work_call())
        assert (message.success, message.content, message.result.value) == (False, wording, None)
    else:
        with pytest.raises(ends_with) as caught:
            door.execute(work_call())
        assert (caught.value is raised) is (type(raised) is ends_with)
    assert session[Draft].all() == ()
    assert files.read_text("draft.txt") == "whole"
    assert [event.success for event in session[ToolInvoked]] == [False]


def test_a_handler_that_cannot_be_called_is_explained(wording: Wording) -> None:
    """The `TypeError` of a wrong call says what the handler must accept."""

    class Moody:
        """Its signature says one thing, and it takes another."""

        __signature__ = inspect.signature(find)

        def __call__(self, params: Params) -> ToolResult[Result]:
            raise AssertionError

    message = executor(Moody(), session=Session(), files=InMemoryFilesystem()).execute(work_call())
    assert not message.success
    assert message.content.rpartition("'")[2] == wording


def test_a_call_past_the_deadline_is_refused() -> None:
    """Before its handler starts."""
    clock = FakeClock()

    def never(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        raise AssertionError

    late = Deadline(datetime(2026, 1, 1, tzinfo=UTC), clock)
    door = executor(never, session=Session(), files=InMemoryFilesystem(), deadline=late, clock=clock)
    with pytest.raises(PromptEvaluationError) as caught:
        door.execute(work_call())
    assert (caught.value.phase, caught.value.tool) == ("tool", "work")


def test_the_skeleton_is_a_tool_that_answers() -> None:
    """The model reads what `render` says."""
    names = run("003.01")
    tool = names["tool"]
    assert (tool.params_type, tool.result_type) == (names["MyParams"], names["MyResult"])
    assert run_tool(tool, {"query": "all"}).content == "42"


def test_types_that_do_not_fit_are_caught_at_construction() -> None:
    """The handler's annotations are held to the types in the brackets."""
    names = run("003.01")
    with pytest.raises(PromptValidationError, match="MyParams"):
        Tool[Params, Result](name="t", description="d", handler=names["handler"])


def test_either_type_may_be_none() -> None:
    """A tool without parameters, and one without a result."""

    def clear(params: None, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult.ok(None, "cleared")

    assert run_tool(Tool[None, None](name="clear", description="Clears.", handler=clear)).content == "cleared"


def test_a_registry_hands_out_what_it_was_given() -> None:
    """`Binding.instance` is found by its type."""
    names = run("003.02")
    client = names["registry"].get(names["MyHttpClient"])
    assert isinstance(client, names["MyHttpClient"])
    assert client.settings is ...


def test_a_prompt_is_evaluated_with_its_resources() -> None:
    """Of two calls, each has a tracer of its own; both have one client, which is closed at the end of the block."""
    names = run("003.03")
    assert names["response"].text == "Done."
    first, second = names["session"][Seen].all()
    assert isinstance(first.client, names["HTTPClient"])
    assert first.client is second.client
    assert first.client.base_url == "https://api.example.org"
    assert first.client.is_closed
    assert isinstance(first.tracer, names["Tracer"])
    assert first.tracer is not second.tracer


def test_given_instances_are_used_and_never_closed() -> None:
    """The simple case: they belong to whoever gave them."""
    names = supplied()
    client = names["HTTPClient"]("https://api.example.com")
    prompt = Prompt(names["template"]).bind(names["params"], resources={names["HTTPClient"]: client})
    adapter: PydanticAIAdapter = names["adapter"]
    adapter.evaluate(prompt, session=names["session"])
    assert {seen.client for seen in names["session"][Seen]} == {client}
    assert not client.is_closed


@pytest.mark.parametrize(
    "scope, instances", [(Scope.SINGLETON, 1), (Scope.TOOL_CALL, 2), (Scope.PROTOTYPE, 4)], ids=str
)
def test_scopes_control_how_long_a_resource_lives(scope: Scope, instances: int) -> None:
    """Two calls, each of which asks twice."""
    made: list[object] = []

    def make(_resolver: object) -> Params:
        made.append(None)
        return Params()

    def ask(params: None, *, context: ToolContext) -> ToolResult[None]:
        context.resources.get(Params)
        context.resources.get(Params)
        return ToolResult.ok(None)

    tool = Tool[None, None](name="ask", description="Asks.", handler=ask)
    template = PromptTemplate(ns="documents", key="scopes", sections=[Section(title="Ask", tools=[tool])])
    prompt = Prompt(template).bind(resources={Params: Binding(Params, make, scope=scope)})
    executor = ToolExecutor(prompt=prompt, session=Session())
    assert all(message.success for message in executor.execute_all([ToolCall("1", "ask"), ToolCall("2", "ask")]))
    assert len(made) == instances


def test_the_three_forms_of_results_can_be_made() -> None:
    """The block makes a success, a failure and the full form, with whatever stands for the value."""
    run("003.04")


@pytest.mark.parametrize(
    "kind, value, told",
    [
        (Result, Result("42"), "42"),
        (dict[str, int], {"n": 1}, 'done\n{"n":1}'),
        (list[int], [1, 2], "done\n[1,2]"),
        (str, "text", "done\ntext"),
        (None, None, "done"),
    ],
    ids=["dataclass", "mapping", "sequence", "str", "None"],
)
def test_a_value_is_a_dataclass_a_mapping_a_sequence_a_string_or_none(kind: Any, value: object, told: str) -> None:
    """And each reads as it should."""

    def give(params: None, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult(message="done", value=value)

    assert run_tool(Tool[None, kind](name="give", description="Gives.", handler=give)).content == told


def test_an_excluded_value_is_kept_from_the_model_and_recorded_in_the_session() -> None:
    """The model sees the message, the session has the value."""

    def find(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        return ToolResult(message="found it", value=Result("x" * 1000), exclude_value_from_context=True)

    session = Session()
    tool = Tool[Params, Result](name="find", description="Finds.", handler=find)
    assert run_tool(tool, Params(), session=session).content == "found it"
    assert session[Result].latest() == Result("x" * 1000)


def test_examples_are_kept_and_checked_against_both_types(wording: Wording) -> None:
    """One that does not fit is refused when the tool is made."""
    names = run("003.05")
    tool = names["tool"]
    assert [example.input for example in tool.examples] == [names["NowParams"]("UTC")]
    wrong = (replace(tool.examples[0], output=Result("no time")),)
    with raises(PromptValidationError, wording):
        names["Tool"][names["NowParams"], names["NowResult"]](
            name="now", description="Return UTC time.", handler=names["now_handler"], examples=wrong
        )


def test_deploying_must_wait_for_test_and_build(wording: Wording) -> None:
    """The denial names the policy, and what to call first; a failed test would not count."""
    policy = run("003.06")["deploy_policy"]
    section = run("003.07", deploy_policy=policy)["section"]
    executor = ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="documents", key="deploy", sections=[section])), session=Session()
    )

    def call(name: str) -> tuple[bool, str]:
        message = executor.execute(ToolCall(f"call-{len(executor.environment.session[ToolInvoked])}", name))
        return message.success, message.content

    assert call("deploy") == (False, wording)
    assert call("test")[0]
    assert call("deploy") == (False, wording)
    assert call("build")[0]
    assert call("deploy")[0]


def test_the_file_tools_ask_for_reading_first_by_default() -> None:
    """New files are free."""
    policies = VfsToolsSection().policies
    assert [policy.name for policy in policies] == ["read_before_write"]
    names = run("003.06")
    assert type(names["read_first"]) is type(policies[0])


def test_state_and_files_are_rolled_back_and_logs_are_not() -> None:
    """What is rolled back, and what is preserved."""

    @dataclass(frozen=True)
    class Entry:
        text: str
        slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    def fail(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        context.session[Result].append(Result("half"))
        context.session[Entry].append(Entry("tried"))
        context.resources.get(Filesystem).write_text("a.txt", "half")
        return ToolResult.error("no")

    session, files = Session(), InMemoryFilesystem({"a.txt": "whole"})
    tool = Tool[Params, Result](name="fail", description="Fails.", handler=fail)
    assert not run_tool(tool, Params(), session=session, resources={Filesystem: files}).success
    assert session[Result].all() == ()
    assert files.read_text("a.txt") == "whole"
    assert session[Entry].all() == (Entry("tried"),)
    assert len(session[ToolInvoked]) == 1


@dataclass(frozen=True, slots=True)
class Guidance:
    primary_tool: str


def test_the_example_renders_its_text_and_offers_its_tool() -> None:
    """The assertion of the block holds; the section of tools gives its description, and lists nothing."""
    names = run("004.01")
    rendered: RenderedPrompt[Any] = names["markdown"]
    assert names["tools"] == (names["lookup_tool"],)
    assert rendered.text == (
        "## 1. Guidance\n\n"
        "Use tools when you need up-to-date context. Prefer lookup_entity for critical lookups.\n\n"
        "### 1.1. Available Tools\n\n"
        "Invoke lookup_entity whenever you need fresh entity context."
    )


def test_the_tool_of_the_example_can_be_called() -> None:
    """A field with a default may be left out."""
    names = run("004.01")
    params = names["GuidanceParams"](primary_tool="lookup_entity")
    executor = ToolExecutor(prompt=Prompt(names["tooling_overview"]).bind(params), session=Session())
    message = executor.execute(ToolCall("call-1", "lookup_entity", '{"entity_id": "abc-123"}'))
    assert message.content.startswith("Fetched entity abc-123.")
    assert message.result.value == names["LookupResult"]("abc-123", "https://example.com")


def test_a_disabled_section_of_tools_gives_neither_text_nor_tools() -> None:
    """It may depend on the section's parameters."""

    @dataclass(frozen=True)
    class Switch:
        on: bool = field(default=False)

    section = ToolsSection[Switch](title="Tools", tools=[tool("find")], enabled=lambda switch: switch.on)
    prompt = Prompt(PromptTemplate(ns="documents", key="switch", sections=[section]))
    assert (prompt.render().text, prompt.render().tools) == ("", ())
    assert [one.name for one in prompt.bind(Switch(on=True)).render().tools] == ["find"]


def test_errors_carry_section_path_tool_and_dataclass() -> None:
    """For a placeholder without a field, for a name given twice, and for parameters that were not bound."""
    with pytest.raises(PromptValidationError, match=r"\$\{tool\}") as unknown:
        ToolsSection[Guidance](title="Tools", description="Prefer ${tool}.")
    assert (unknown.value.section_path, unknown.value.dataclass) == (("tools",), Guidance)
    inner = ToolsSection(title="Inner", tools=[tool("find")])
    outer = MarkdownSection(title="Outer", template="-", tools=[tool("find")], children=[inner])
    with pytest.raises(PromptValidationError) as twice:
        PromptTemplate(ns="documents", key="twice", sections=[outer])
    error = twice.value
    assert (error.section_path, error.tool, error.dataclass) == (("outer", "inner"), "find", Params)
    needy = MarkdownSection[Guidance](title="Needy", template="Prefer ${primary_tool}.")
    with pytest.raises(PromptRenderError) as missing:
        Prompt(PromptTemplate(ns="documents", key="needy", sections=[needy])).render()
    assert (missing.value.section_path, missing.value.dataclass) == (("needy",), Guidance)
