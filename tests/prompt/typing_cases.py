"""What type checkers must accept, and what they must refuse: this file is checked, never run.

Both checkers report a suppression that suppresses nothing, so each suppressed line is an error that must be there.
"""

# ruff: noqa: D103 - the functions are cases, and their names and types are all there is to say

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_type

from handrail.filesystem import Filesystem
from handrail.prompt import (
    External,
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    Section,
    SequentialDependencyPolicy,
    Tool,
    ToolContext,
    ToolExample,
    ToolPolicy,
    ToolResult,
    ToolsSection,
)
from handrail.session import Session


@dataclass(frozen=True)
class Params:
    query: str


@dataclass(frozen=True)
class Result:
    answer: str


@dataclass(frozen=True)
class Other:
    number: int


def plain(params: Params, *, context: ToolContext) -> ToolResult[Result]:
    if not params.query:
        return ToolResult.error("Ask for something.")
    if context.filesystem is None:
        return ToolResult(message="No filesystem", value=None, success=False)
    return ToolResult.ok(Result(params.query), message="ok")


async def awaited(params: Params, *, context: ToolContext) -> ToolResult[Result]:
    return plain(params, context=context)


def nothing(params: None, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None, "done")


def other(params: Other, *, context: ToolContext) -> ToolResult[Result]:
    return ToolResult.ok(Result(str(params.number)))


def answers_other(params: Params, *, context: ToolContext) -> ToolResult[Other]:
    return ToolResult.ok(Other(1))


def listing(params: Params, *, context: ToolContext) -> ToolResult[list[str]]:
    return ToolResult.ok([params.query])


class Search:
    def __call__(self, params: Params, *, context: ToolContext) -> ToolResult[Result]:
        return plain(params, context=context)

    async def method(self, params: Params, *, context: ToolContext) -> ToolResult[Result]:
        return await awaited(params, context=context)


def reconcile(params: Params, key: str) -> ToolResult[Result] | None:
    return None


async def reconcile_later(params: Params, key: str) -> ToolResult[Result] | None:
    return reconcile(params, key)


example = ToolExample(description="One", input=Params("a"), output=Result("b"))
tool = Tool[Params, Result](
    name="a", description="d", handler=plain, examples=(example,), effect=External(reconcile=reconcile)
)
assert_type(tool, Tool[Params, Result])
assert_type(tool.params_type, type[Params] | None)
assert_type(tool.parse("{}"), Params)

Tool[Params, Result](name="a", description="d", handler=awaited, effect=External(reconcile=reconcile_later))
Tool[Params, Result](name="a", description="d", handler=Search())
Tool[Params, Result](name="a", description="d", handler=Search().method)
Tool[Params, Result](name="a", description="d")
Tool[None, None](name="a", description="d", handler=nothing)
Tool[Params, list[str]](name="a", description="d", handler=listing)
Tool[Params, Sequence[str]](name="a", description="d", handler=listing)
Tool[Params, Mapping[str, object]](name="a", description="d")

Tool[Params, Result](name="a", description="d", handler=other)  # type: ignore[arg-type]
Tool[Params, Result](name="a", description="d", handler=answers_other)  # type: ignore[arg-type]
Tool[Params, Result](name="a", description="d", handler=nothing)  # type: ignore[arg-type]
Tool[Params, Result](name="a", description="d", effect="write")  # type: ignore[arg-type]
Tool[Params, Result](name="a", description="d", timeout=5)  # type: ignore[arg-type]
tool.name = "b"  # type: ignore[misc]

assert_type(ToolResult.ok(Result("a")), ToolResult[Result])
assert_type(ToolResult.ok(Result("a"), "done").value, Result | None)


def takes_any_tool(given: Tool[Any, Any]) -> Tool[Any, Any] | None:
    return given


takes_any_tool(tool)

bare = MarkdownSection(title="Guidance", key="guidance", template="Use tools.", tools=[tool])
assert_type(bare, MarkdownSection[None])
section = MarkdownSection[Params](
    title="Guidance",
    template="Ask for ${query}.",
    tools=(tool,),
    enabled=lambda params: params.query != "",
    children=[bare],
)
assert_type(section, MarkdownSection[Params])
ToolsSection(title="Tools", tools=[tool], description="These.")
Section(title="Group", children=[section, bare])
MarkdownSection(title="Guidance", template="a", enabled=True)


class Suite(Section[None]):
    def __init__(self, *, session: Session) -> None:
        super().__init__(title="Suite", tools=(tool,))
        self.session = session

    def render_body(self, params: None) -> str:
        return self.session.session_id


template = PromptTemplate(ns="examples", key="demo", sections=[section, Suite(session=Session())])
assert_type(template, PromptTemplate[str])
prompt = Prompt(template).bind(Params("x"), resources={Session: Session()})
assert_type(prompt, Prompt[str])
answered = Prompt(PromptTemplate[Result](ns="examples", key="demo", sections=[bare]))
assert_type(answered, Prompt[Result])
assert_type(answered.render(), RenderedPrompt[Result])
assert_type(answered.render().output_type, type[Result] | None)
assert_type(answered.render().tools, tuple[Tool[Any, Any], ...])

deploy_policy = SequentialDependencyPolicy(dependencies={"deploy": frozenset({"test", "build"})})
policies: list[ToolPolicy] = [deploy_policy]


class WorkingHours:
    name = "working_hours"

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.ask("It is late. Go on?") if context.clock.now().hour > 17 else PolicyDecision.allow()

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:
        context.beat()


policies.append(WorkingHours())
MarkdownSection(title="Guidance", template="a", policies=(deploy_policy, WorkingHours()))
MarkdownSection(title="Guidance", template="a", policies=(object(),))  # type: ignore[arg-type]


def uses_context(context: ToolContext) -> str:
    assert_type(context.resources.get(Session), Session)
    assert_type(context.resources.get(Session, None), Session | None)
    assert_type(context.filesystem, Filesystem | None)
    rendered = context.rendered_prompt
    names = ", ".join(each.name for each in rendered.tools) if rendered is not None else ""
    return f"{context.prompt.name} {names} {context.session[Result].latest()} {context.prompt.resources.get(Session)}"
