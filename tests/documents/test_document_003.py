"""What the blocks of document 003 make does what the guide says: contracts, resources, results, examples, policies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import VfsToolsSection
from handrail.errors import PromptValidationError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate, Section, Tool, ToolContext, ToolResult
from handrail.resources import Binding, Scope
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.session import SlicePolicy
from handrail.testing import run_tool
from tests.documents.surroundings import Params, Result, Seen, run, supplied
from tests.kit import raises
from tests.wording import Wording

pytestmark = pytest.mark.requirement("M-01")


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
