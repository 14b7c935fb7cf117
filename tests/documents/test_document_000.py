"""What the blocks of document 000 make does what the document says: tools, results, contexts, resources, dispatch."""

from __future__ import annotations

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PromptValidationError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.resources import ResourceRegistry
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.testing import run_tool
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
    assert executor.environment.effect_ledger is ledger
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
