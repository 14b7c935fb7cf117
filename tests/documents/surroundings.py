"""What the blocks of the documents leave undefined, and the running of a block among it.

Each block is run on its own: it gets the public names of the library, the standard library's names that the documents
use without importing them, and things of its own making that stand for the reader's.
"""

from __future__ import annotations

import ast
import dataclasses
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Generic, Literal, Protocol, TypeVar, cast
from uuid import UUID

import handrail.contrib.tools
import handrail.filesystem
import handrail.prompt
import handrail.resources
import handrail.runtime
from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import (
    IdempotencyConfig,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SequentialDependencyPolicy,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.runtime import Dispatcher, Session
from handrail.testing import Call, Reply, ScriptedModel
from tests.documents.seed_blocks import block
from tests.documents.superseded import translated

_PACKAGES = (handrail.contrib.tools, handrail.filesystem, handrail.prompt, handrail.resources, handrail.runtime)


@dataclass(frozen=True, slots=True)
class Params:
    """The parameters of the tools that the documents take for granted."""

    query: str = "handrail"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the tools that the documents take for granted."""

    answer: str

    def render(self) -> str:
        return self.answer


@dataclass(frozen=True, slots=True)
class NowParams:
    tz: str


@dataclass(frozen=True, slots=True)
class NowResult:
    iso: str

    def render(self) -> str:
        return self.iso


class MyHttpClient:
    """A client of the reader's."""

    def __init__(self, settings: object) -> None:
        self.settings = settings


class HTTPClient:
    """Another one, which is to be closed."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@dataclass(frozen=True, slots=True)
class Config:
    """What the client is made from."""

    url: str

    @staticmethod
    def from_env() -> Config:
        return Config("https://api.example.org")


class Tracer:
    """Lives for one call."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a call found in its resources."""

    client: object
    tracer: object


_CLASSES = (Config, HTTPClient, MyHttpClient, NowParams, NowResult, Params, Result, ToolExecutor, Tracer)


def find(params: Params, *, context: ToolContext) -> ToolResult[Result]:
    """Answer, and note which resources there are."""
    resources = context.resources
    context.session[Seen].append(Seen(resources.get(HTTPClient, None), resources.get(Tracer, None)))
    return ToolResult.ok(Result(params.query))


def tell_time(params: NowParams, *, context: ToolContext) -> ToolResult[NowResult]:
    """Tell the time of the examples."""
    return ToolResult.ok(NowResult("2025-01-01T00:00:00+00:00"))


def tool(name: str, **options: Any) -> Tool[Params, Result]:
    """A tool that finds."""
    return Tool[Params, Result](name=name, description=f"Calls {name}.", handler=find, **options)


def supplied() -> dict[str, Any]:
    """All names that blocks leave undefined, with new objects each time."""
    tools = [tool("find"), tool("order", effect="external", idempotency=IdempotencyConfig())]
    section = MarkdownSection[Params](title="Work", key="work", template="Find ${query}.", tools=tools)
    template = PromptTemplate(ns="documents", key="work", sections=[section])
    params = Params()
    return {
        **{name: getattr(package, name) for package in _PACKAGES for name in package.__all__},
        **_from_the_standard_library(),
        **{one.__name__: one for one in _CLASSES},
        "MyResult": Result,
        "adapter": PydanticAIAdapter(ScriptedModel([Reply(calls=[Call("find"), Call("find")]), Reply(text="Done.")])),
        "build_tool": tool("build"),
        "bus": Dispatcher(),
        "context": ToolContext.of(),
        "deploy_policy": SequentialDependencyPolicy(dependencies={"deploy": frozenset({"test", "build"})}),
        "deploy_tool": tool("deploy"),
        "handler": find,
        "lookup_tool": tool("read_file"),
        "now_handler": tell_time,
        "params": params,
        "prompt": Prompt(template).bind(params),
        "search_tool": tool("write_file"),
        "session": Session(),
        "template": template,
        "test_tool": tool("test"),
        "tool_result": ToolResult.ok(Result("made"), "order made"),
    }


def run(block_id: str, **more: object) -> dict[str, Any]:
    """Run a block of a document; returns all names there are when it has ended.

    Args:
        block_id: the block.
        more: supplied beside `supplied()`, or in place of a name in it.
    """
    return execute(translated(block(block_id)), name=f"document {block_id}", names={**supplied(), **more})


def execute(code: str, *, name: str, names: Mapping[str, object]) -> dict[str, Any]:
    """Run code among names; returns all names there are when it has ended.

    Code that returns is run as the body of a function; what it returns is the name `returned`.
    """
    namespace: dict[str, Any] = {**names, "__name__": name}
    if not any(isinstance(node, ast.Return) for statement in ast.parse(code).body for node in _outside(statement)):
        _execute(code, name, namespace)
        return namespace
    _execute(f"def block():\n{textwrap.indent(code, '    ')}\n    return locals()\n", name, namespace)
    returned = namespace["block"]()
    return {**namespace, **(returned if isinstance(returned, dict) else {"returned": returned})}


def _execute(code: str, name: str, namespace: dict[str, Any]) -> None:
    exec(compile(code, name, "exec", dont_inherit=True), namespace)  # noqa: S102 - that is what it is for


def _outside(node: ast.AST) -> list[ast.AST]:
    """A node and those in it that are in no function or class of their own."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return []
    return [node, *(inner for child in ast.iter_child_nodes(node) for inner in _outside(child))]


def _from_the_standard_library() -> dict[str, object]:
    classes = (Enum, Generic, Mapping, Protocol, UUID, dataclasses.dataclass, dataclasses.field, datetime, timedelta)
    variables = ("ParamsT", "PayloadT", "ResultT", "T")
    named: dict[str, object] = {one.__name__: one for one in classes}
    return {**named, **{name: cast("Any", TypeVar)(name) for name in variables}, "Any": Any, "Literal": Literal}
