"""The mistakes of a developer, each with what makes it. Those of `RUNS` and `CALLS` have a row on the page."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability

import handrail.store
from handrail import errors
from handrail import prompt as prompts
from handrail import tool as decorated
from handrail.adapters.engines import engine_reply
from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset, PydanticAIAdapter, StoredHistory
from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.limits import Deadline
from handrail.prompt import (
    External,
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Section,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.runtime import EffectLedger, Session, ToolCall, ToolInvoked
from handrail.session import stored_as
from handrail.store.memory import MemoryStore

EMPTY: Mapping[str, object] = {}
TOOL = {"tool": "pay"}


@dataclass(frozen=True)
class Order:
    """Parameters."""

    number: str
    path: int = 0


class Client:
    """A resource."""


class Till:
    """A resource that needs one."""


@dataclass(frozen=True)
class Mistake:
    """A mistake.

    Attributes:
        does: what the developer does, as its row has it.
        error: what it raises.
        make: makes the mistake; it is given an empty folder.
        attributes: attributes of the error, with their values.
    """

    does: str
    error: type[Exception]
    make: Callable[[Path], object]
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])


def unfit(function: str, argument: str, kind: type[object], make: Callable[[Path], object]) -> Mistake:
    """An argument that does not fit, which has no row."""
    attributes = {"function": function, "argument": argument, "value_type": kind}
    return Mistake(f"{function}, {argument}", errors.InvalidArgumentError, make, attributes)


def declared(does: str, make: Callable[[Path], object], attributes: Mapping[str, object] = EMPTY) -> Mistake:
    """The row of something that is declared wrongly."""
    return Mistake(does, errors.PromptValidationError, make, attributes)


def tool_fault(does: str, make: Callable[[Path], object]) -> Mistake:
    """The row of a tool that is declared wrongly."""
    return declared(does, make, TOOL)


def section_fault(does: str, make: Callable[[Path], object]) -> Mistake:
    """The row of a section that is declared wrongly."""
    return declared(does, make, {"section_path": ("desk",)})


_TEXTS = [MarkdownSection(title="Desk", template="Be kind."),
          MarkdownSection(title="Law", template="Be just.", accepts_overrides=False)]  # fmt: skip
TEMPLATE = PromptTemplate[str](ns="desk", key="pay", sections=_TEXTS)
"""A prompt whose texts are overridden."""


def tuned(key: str, text: str) -> Prompt[str]:
    """That prompt with one override, made for the text that the prompt has."""
    hashes = {each.key: each.sha256 for each in prompts.template_texts(TEMPLATE)}
    with TemporaryDirectory() as folder:
        file = Path(folder, "pay.json")
        file.write_text(json.dumps({key: {"sha256": hashes[key], "text": text}}), encoding="utf-8")
        return Prompt(TEMPLATE).bind(overrides=file)


def pay(params: Order, *, context: ToolContext) -> ToolResult[None]:
    """Pay."""
    return ToolResult.ok(None)


def pay_without_context(params: Order) -> ToolResult[None]:
    """Takes no context."""
    return ToolResult.ok(None)


def pay_by_client(number: str, client: Client) -> None:
    """Pay with a client that is injected."""


def pay_somehow(number: str, how: complex) -> None:
    """Pay as somebody says."""


def pay_client(params: Client, *, context: ToolContext) -> ToolResult[None]:
    """Takes something else."""
    return ToolResult.ok(None)


def ask(params: Order, key: str) -> ToolResult[None] | None:
    """Find out."""
    return None


def book(params: Order, result: ToolResult[None], *, context: ToolContext) -> None:
    """Write it down."""


def tool(handler: Any = pay, **options: Any) -> Tool[Order, None]:
    """A sound tool, but for the options."""
    said: dict[str, Any] = {"name": "pay", "description": "Pays.", "handler": handler, **options}
    return Tool[Order, None](**said)


def prompt(*sections: Any) -> Prompt[str]:
    """A sound prompt, but for the sections."""
    return Prompt(PromptTemplate(ns="desk", key="pay", sections=sections or [Section(title="Desk", tools=[tool()])]))


def door(handler: Any = pay, *, resources: Any = None, policy: Any = None, **options: Any) -> ToolExecutor:
    """An executor of one tool."""
    section = Section(title="Desk", tools=[tool(handler)], policies=[] if policy is None else [policy])
    given: dict[str, Any] = {"prompt": prompt(section).bind(resources=resources), "session": Session(), **options}
    return ToolExecutor(**given)


CALL = ToolCall("1", "pay", {"number": "7"})


def call(handler: Any = pay, **options: Any) -> object:
    """Carry a call out."""
    return door(handler, **options).execute(CALL)


def execute(*tools: Any, policy: Any = None, resources: Any = None) -> object:
    """Carry a call out among other tools."""
    section = Section(title="Desk", tools=tools, policies=[] if policy is None else [policy])
    return ToolExecutor(prompt=prompt(section).bind(resources=resources), session=Session()).execute(CALL)


def reconcile_with(returned: Any) -> object:
    """Repeat a call whose outcome is unknown, with a reconciler that returns something."""

    def pay_late(params: Order, *, context: ToolContext) -> ToolResult[None]:
        raise TimeoutError

    late = tool(pay_late, effect=External(reconcile=lambda _params, _key: returned))
    executor = ToolExecutor(prompt=prompt(Section(title="Desk", tools=[late])), session=Session())
    executor.execute(CALL)
    return executor.execute(CALL)


def asking(kind: Any) -> Any:
    """A handler that asks for a resource."""

    def handler(params: Order, *, context: ToolContext) -> ToolResult[None]:
        context.resources.get(kind)
        return ToolResult.ok(None)

    return handler


def shrink(params: Order, *, context: ToolContext) -> ToolResult[None]:
    """Take from a log."""
    context.session[ToolInvoked].clear()
    return ToolResult.ok(None)


def write_rows(params: Order, *, context: ToolContext) -> ToolResult[None]:
    """Write to a database."""
    context.connection.execute("SELECT 1")
    return ToolResult.ok(None)


def write_file(params: Order, *, context: ToolContext) -> ToolResult[None]:
    """Write a file."""
    context.resources.get(Filesystem).write_text("notes.md", "x")
    return ToolResult.ok(None)


def change(params: Order, *, context: ToolContext) -> ToolResult[None]:
    """Send an event."""
    context.session.dispatch(params)
    return ToolResult.ok(None)


@dataclass(frozen=True)
class Impossible:
    """A value that JSON cannot say."""

    value: complex


def keep(value: Impossible) -> None:
    """Append a value to a stored session in a call."""

    def append(params: Order, *, context: ToolContext) -> ToolResult[None]:
        context.session[type(value)].append(value)
        return ToolResult.ok(None)

    with handrail.store.open("memory:") as opened, Session.open(opened, "s") as session:
        call(append, session=session)


def closed_session() -> Session:
    """A session of a store, after its block."""
    with handrail.store.open("memory:") as opened, Session.open(opened, "s") as session:
        return session


class Rule:
    """A policy."""

    def __init__(self, answer: Any = None) -> None:
        self.name = "rule"
        self.answer = PolicyDecision.allow() if answer is None else answer

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> Any:
        return self.answer

    def on_result(self, tool: Any, params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Nothing to note."""


class LateNotes(Rule):
    """A policy whose `on_result` has to be awaited."""

    async def on_result(  # type: ignore[override]  # the mistake
        self, tool: Any, params: Any, result: ToolResult[Any], *, context: ToolContext
    ) -> None:
        """Nothing to note."""


class Late(Rule):
    """A policy that has to be awaited."""

    async def check(self, tool: Any, params: Any, *, context: ToolContext) -> Any:
        return self.answer


class Notes(Rule):
    """A policy whose `on_result` returns what has to be awaited, which its definition does not say."""

    def on_result(self, tool: Any, params: Any, result: ToolResult[Any], *, context: ToolContext) -> Any:
        return later(result)


class Half:
    """A policy without `on_result`."""

    name = "half"

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.allow()


async def later(_: object) -> Client:
    """Answers when it is awaited."""
    return Client()


def unclear(*_: object) -> Any:
    """What neither decides nor changes anything."""
    return "yes"


def with_reducer() -> Session:
    """A session whose reducer returns no change."""
    session = Session()
    session.register(Order, wrong(unclear), into=Order)
    return session


def two_reducers(_: Path) -> None:
    """Register two for one slice and event."""
    session = with_reducer()
    session.register(Order, wrong(pay), into=Order)


def reuse(_: Path) -> None:
    """Ask for another call by an identity that is taken."""
    executor = door()
    executor.execute(CALL, reply="r")
    executor.execute(ToolCall("1", "pay", {"number": "8"}), reply="r")


def run_in_temporal(_: Path) -> None:
    """Run a toolset as code of a workflow; a module stands for Temporal's SDK."""
    workflow = ModuleType("temporalio.workflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflow, "in_workflow", lambda: True, raising=False)
        patch.setitem(sys.modules, workflow.__name__, workflow)
        asyncio.run(Agent("test", toolsets=[HandrailToolset(door())]).run("Pay."))


class Engine(AbstractCapability[Any]):
    """Stands for the capability of a durable engine, in a run that it will run again."""

    in_durable_context = True


def store_twice(_: Path) -> None:
    """Store the conversation of a run that an engine stores."""
    executor = door()
    stored = StoredHistory(executor.environment.session, "desk")
    capability = HandrailCapability(executor, conversation=stored)
    asyncio.run(Agent("test", capabilities=[Engine(), capability]).run("Pay."))


def write_to_two_stores(_: Path) -> None:
    """Keep a session in one store, and have another one decide about its files."""
    with TemporaryDirectory() as folder, handrail.store.open("memory:") as far:
        _write_in_file_store(folder, store=far)


def write_without_store(_: Path) -> None:
    """Keep a session in a file, and have no store decide about its files."""
    with TemporaryDirectory() as folder:
        _write_in_file_store(folder, store=None)


def _write_in_file_store(folder: str, **options: Any) -> None:
    with (
        TemporaryDirectory() as place,
        handrail.store.open(f"sqlite:///{place}/desk.db") as near,
        HostFilesystem(folder, **options) as files,
        Session.open(near, "s") as session,
    ):
        call(write_file, session=session, resources={Filesystem: files})


def wrong(value: object) -> Any:
    """A value of which type checkers see nothing."""
    return value


SHORT = ResourceRegistry.of(
    Binding(Client, lambda _: Client(), Scope.TOOL_CALL), Binding(Till, lambda r: wrong(r.get(Client)))
)
CIRCLE = {
    Client: Binding(Client, lambda r: wrong(r.get(Till))), Till: Binding(Till, lambda r: wrong(r.get(Client)))
}  # fmt: skip
AFTER_LOOK = prompts.SequentialDependencyPolicy(dependencies={"pay": frozenset({"look"})})
NEVER_DONE: PromptTemplate[Any] = PromptTemplate(ns="desk", key="pay", sections=[], completion=lambda _: wrong(True))
FILES = prompts.ReadBeforeWritePolicy(read_tools=("look",), write_tools=("pay",))
KEYED = prompts.IdempotencyConfig(strategy="custom", key_fn=lambda _: wrong(7))
LOOK = Tool[None, None](name="look", description="Looks.")

TOOLS = (
    Mistake("a function that cannot be a tool", errors.ToolSignatureError, lambda _: decorated(pay_somehow),
            {"function": "pay_somehow"}),
    tool_fault("a tool without its types", lambda _: wrong(Tool)(name="pay", description="Pays.")),
    declared("one type in the brackets", lambda _: wrong(Tool)[Order]),
    declared("parameters that are not a dataclass", lambda _: wrong(Tool)[dict, None](name="pay", description="Pays."),
             {**TOOL, "dataclass": dict}),
    declared("a name with capitals and blanks", lambda _: tool(name="Pay now"), {"tool": "Pay now"}),
    tool_fault("an empty description", lambda _: tool(description=" ")),
    tool_fault("a handler that cannot be called", lambda _: tool("pay")),
    tool_fault("a handler without `context`", lambda _: tool(pay_without_context)),
    tool_fault("a handler of other parameters", lambda _: tool(pay_client)),
    tool_fault("an unknown effect", lambda _: tool(effect="write")),
    tool_fault('`idempotency="auto"`', lambda _: tool(idempotency="auto")),
    tool_fault("a timeout without its unit", lambda _: tool(timeout=30)),
    tool_fault("an example of another type",
               lambda _: tool(examples=[prompts.ToolExample(description="One.", input="7", output=None)])),
    declared('`on_orphan="reconcile"` without `reconcile`', lambda _: External(on_orphan="reconcile")),
    declared('`reconcile` with `on_orphan="retry"`', lambda _: External(on_orphan="retry", reconcile=ask)),
    tool_fault('`repeat_unknown="allow"` with a key',
               lambda _: tool(effect=External(repeat_unknown="allow"), idempotency=prompts.IdempotencyConfig())),
    tool_fault("`apply` that takes no result", lambda _: tool(effect=External(apply=wrong(ask)))),
    tool_fault("`apply` of a concurrent tool", lambda _: tool(effect=External(apply=book), concurrent=True)),
    declared("a failure that proves nothing", lambda _: External(not_applied_on=(TimeoutError,))),
    declared("a time to live without its unit", lambda _: prompts.IdempotencyConfig(ttl=wrong(5))),
    declared("a `key_fn` of two parameters", lambda _: prompts.IdempotencyConfig(strategy="custom", key_fn=wrong(pay))),
    tool_fault("`concurrent` as text", lambda _: tool(concurrent="yes")),
    tool_fault("a description with a lone surrogate", lambda _: tool(description="Pays \ud800.")),
    tool_fault("a copy with a wrong field", lambda _: replace(tool(), description="")),
)  # fmt: skip
"""Tools."""

SECTIONS = (
    section_fault("a function among the tools", lambda _: Section(title="Desk", tools=[wrong(pay)])),
    section_fault("one tool, not a list", lambda _: Section(title="Desk", tools=wrong(tool()))),
    section_fault("a class as a policy", lambda _: Section(title="Desk", policies=[wrong(Rule)])),
    section_fault("a policy without `on_result`", lambda _: Section(title="Desk", policies=[wrong(Half())])),
    section_fault("a policy that is asynchronous", lambda _: Section(title="Desk", policies=[wrong(Late())])),
    section_fault("a policy that takes note asynchronously",
                  lambda _: Section(title="Desk", policies=[wrong(LateNotes())])),
    unfit("PolicyDecision", "verdict", str, lambda _: PolicyDecision(wrong("maybe"))),
    section_fault("an unknown placeholder", lambda _: MarkdownSection[Order](title="Desk", template="${colour}")),
    declared("tools that wait for each other",
             lambda _: prompts.SequentialDependencyPolicy(dependencies={"a": frozenset({"b"}), "b": frozenset({"a"})})),
    declared("a text as names", lambda _: prompts.ReadBeforeWritePolicy(read_tools="read_file")),
    section_fault("a policy on tools out of its reach",
        lambda _: prompt(Section(title="Desk", tools=[tool()], policies=[AFTER_LOOK]))),
    declared("two tools of one name",
             lambda _: prompt(Section(title="Desk", tools=[tool()]), Section(title="Till", tools=[tool()])),
             {**TOOL, "dataclass": Order, "section_path": ("till",)}),
    declared("one section, not a list",
             lambda _: PromptTemplate(ns="desk", key="pay", sections=wrong(Section(title="Desk")))),
    declared("a key with blanks", lambda _: PromptTemplate(ns="desk", key="pay now", sections=[])),
    declared("a provider of feedback without a trigger",
             lambda _: PromptTemplate(ns="desk", key="pay", sections=[], feedback=[wrong(pay)])),
    declared("a class as a checker",
             lambda _: PromptTemplate(ns="desk", key="pay", sections=[], completion=wrong(prompts.FilesExist))),
    unfit("FeedbackTrigger", "every_calls", type(None), lambda _: prompts.FeedbackTrigger()),
    Mistake("a checker that returns `True`", errors.CompletionCheckError,
        lambda _: ToolExecutor(prompt=Prompt(NEVER_DONE), session=Session()).completion("Done."),
            {"prompt": "desk/pay"}),
    declared("an answer that is not a dataclass", lambda _: PromptTemplate[int](ns="desk", key="pay", sections=[])),
)  # fmt: skip
"""Sections and policies."""

PROMPTS = (
    unfit("Prompt", "template", Prompt, lambda _: Prompt(wrong(prompt()))),
    unfit("Prompt.bind", "overrides", dict, lambda _: Prompt(TEMPLATE).bind(overrides=wrong({}))),
    Mistake("an override of a text that accepts none", errors.OverridesError,
            lambda _: tuned("sections.law.body", "New."), {"line": None}),
    Mistake("an override with an unknown placeholder", errors.OverridesError,
            lambda _: tuned("sections.desk.body", "${colour}"), {"line": None}),
    declared("parameters that no section takes", lambda _: prompt().bind(Order("7")), {"dataclass": Order}),
    declared("a class as parameters",
             lambda _: prompt(MarkdownSection[Order](title="Desk", template="${number}")).bind(Order)),
    Mistake("no parameters", errors.PromptRenderError,
            lambda _: prompt(MarkdownSection[Order](title="Desk", template="${number}")).render(),
            {"section_path": ("desk",), "dataclass": Order}),
    unfit("ResourceRegistry.build", "resources", list, lambda _: prompt().bind(resources=wrong([Client()]))),
    Mistake("a resource of another type", errors.WrongResourceError,
            lambda _: prompt().bind(resources={Client: "client"}), {"protocol": Client}),
    Mistake("a name as a type", errors.ResourceError, lambda _: prompt().bind(resources=wrong({"Client": Client()}))),
    Mistake("two bindings of one type", errors.DuplicateBindingError,
            lambda _: ResourceRegistry.of(Binding.instance(Client, Client()), Binding.instance(Client, Client())),
            {"protocol": Client}),
)  # fmt: skip
"""Prompts and resources."""

STORES = (
    Mistake("a path as a URL", errors.InvalidArgumentError,
            lambda folder: handrail.store.open(wrong(folder / "desk.db")),
            {"function": "store.open", "argument": "url"}),
    Mistake("a URL without a scheme", errors.StoreError, lambda _: handrail.store.open("desk.db"),
            {"store": "desk.db"}),
    unfit("Session.open", "store", str, lambda _: Session.open(wrong("sqlite:///desk.db"), "desk")),
    unfit("Session.open", "session_id", int, lambda _: Session.open(MemoryStore(), wrong(7))),
    unfit("Session.open", "tags['customer']", int,
          lambda _: Session.open(MemoryStore(), "desk", tags={"customer": wrong(7)})),
    Mistake("an unknown session", errors.SessionNotFoundError,
            lambda _: Session.open(MemoryStore(), "desk", create=False), {"session_id": "desk"}),
    Mistake("a text as a slice's class", errors.SessionUseError, lambda _: Session()[wrong("Plan")].latest()),
    Mistake("two reducers of one slice and event", errors.ReducerError, two_reducers),
    unfit("EffectLedger", "store", str, lambda _: EffectLedger(wrong("sqlite:///desk.db"))),
    Mistake("a deadline without a time zone", ValueError, lambda _: Deadline(datetime(2030, 1, 1))),  # noqa: DTZ001
    unfit("Session.open", "session_id", str, lambda _: Session.open(MemoryStore(), "")),
    unfit("stored_as", "name", type, lambda _: stored_as(wrong(Order))),
    unfit("HostFilesystem", "store", str, lambda folder: HostFilesystem(folder, store=wrong("sqlite:///desk.db"))),
    Mistake("a database of SQLite in memory", errors.StoreError, lambda _: handrail.store.open("sqlite:///:memory:"),
            {"store": "sqlite:..."}),
)  # fmt: skip
"""Stores, sessions and limits."""

RUNS = (
    Mistake("a function whose resource nothing binds", errors.UnboundResourceError,
            lambda _: door(prompt=prompt(Section(title="Desk", tools=[decorated(pay_by_client)]))),
            {"protocol": Client, "needed_by": ()}),
    unfit("ToolExecutor", "prompt", PromptTemplate, lambda _: door(prompt=prompt().template)),
    unfit("ToolExecutor", "session", str, lambda _: door(session="desk")),
    unfit("ToolExecutor", "deadline", timedelta, lambda _: door(deadline=timedelta(seconds=5))),
    Mistake("a tool with `apply`, and a session in no store", errors.SecondStoreError,
            lambda _: door(prompt=prompt(Section(title="Desk", tools=[tool(effect=External(apply=book))]))),
            {"store": None, "tool": "pay"}),
    unfit("ToolExecutor", "approver", bool, lambda _: door(approver=True)),
    unfit("ToolExecutor", "approver", type, lambda _: door(approver=prompts.Approval)),
    unfit("Approval", "approved", str, lambda _: prompts.Approval(wrong("no"))),
    unfit("ToolExecutor.execute", "call", dict, lambda _: door().execute(wrong({"id": "1", "name": "pay"}))),
    unfit("ToolExecutor.execute", "call.id", int, lambda _: door().execute(ToolCall(wrong(1), "pay"))),
    unfit("ToolExecutor.execute", "call.id", int,
          lambda _: door().execute_all([CALL, ToolCall(wrong(2), "pay")], reply="r")),
    unfit("ToolExecutor.execute", "call", type, lambda _: door().execute(wrong(ToolCall))),
    Mistake("a number as reply", ValueError, lambda _: door().execute(CALL, reply=wrong(7))),
    unfit("engine_reply", "run_id", type(None), lambda _: engine_reply(None, 1)),
    Mistake("a toolset in a workflow of Temporal", errors.DurableEngineError, run_in_temporal, {"engine": "Temporal"}),
    Mistake("a conversation that a durable engine stores, too", errors.DurableEngineError, store_twice,
            {"engine": "Engine"}),
    unfit("PydanticAIAdapter", "approver", str, lambda _: PydanticAIAdapter("test", approver=wrong("yes"))),
    unfit("ToolExecutor", "prompt", PromptTemplate,
          lambda _: PydanticAIAdapter("test").evaluate(wrong(prompt().template), session=Session())),
)  # fmt: skip
"""Runs."""

CALLS = (
    Mistake("a resource that is not bound", errors.UnboundResourceError, lambda _: call(asking(Client)),
            {"protocol": Client, "needed_by": ()}),
    Mistake("a resource asked for by its name", errors.ResourceUseError, lambda _: call(asking("Client"))),
    Mistake("a provider of another type", errors.WrongResourceError,
            lambda _: call(asking(Client), resources={Client: Binding(Client, lambda _: wrong(7))}),
            {"protocol": Client}),
    Mistake("providers that need each other", errors.CircularResourceError,
        lambda _: call(asking(Client), resources=CIRCLE),
            {"path": (Client, Till, Client)}),
    Mistake("a singleton that needs what lives for one call", errors.ResourceUseError,
            lambda _: call(asking(Till), resources=SHORT)),
    Mistake("a policy that returns `True`", errors.InvalidReturnError, lambda _: call(policy=Rule(True)),
            {"function": "policy rule", "tool": "pay", "value_type": bool}),
    Mistake("an approver that returns a text", errors.InvalidReturnError,
            lambda _: call(policy=Rule(PolicyDecision.ask("sure?")), approver=unclear),
            {"function": "the approver", "tool": "pay", "value_type": str}),
    Mistake("a policy whose `on_result` returns a coroutine", errors.InvalidReturnError, lambda _: call(policy=Notes()),
            {"function": "on_result of policy rule", "tool": "pay"}),
    Mistake("`key_fn` that returns a number", errors.InvalidReturnError,
        lambda _: execute(tool(idempotency=KEYED)),
            {"function": "key_fn", "tool": "pay", "value_type": int}),
    Mistake("`reconcile` that returns a plain value", errors.InvalidReturnError, lambda _: reconcile_with(True),
            {"function": "reconcile", "tool": "pay", "value_type": bool}),
    Mistake("files to be read first, and no `Filesystem`", errors.UnboundResourceError,
        lambda _: execute(tool(), LOOK, policy=FILES),
            {"protocol": Filesystem}),
    Mistake("a reducer that returns a text", errors.ReducerError, lambda _: call(change, session=with_reducer())),
    Mistake("a LOG that is to shrink", errors.SessionUseError, lambda _: call(shrink)),
    Mistake("a slice whose class JSON cannot say, in a store", errors.SessionUseError, lambda _: keep(Impossible(1j))),
    Mistake("a database where there is none", errors.SessionUseError, lambda _: call(write_rows)),
    Mistake("a session that has been closed", errors.SessionUseError, lambda _: call(pay, session=closed_session())),
    Mistake("files and a session in two stores", errors.SecondStoreError, write_to_two_stores),
    Mistake("files without a store, and a session in one", errors.SecondStoreError, write_without_store),
    Mistake("an identity that stands for another call", errors.CallIdReusedError, reuse,
            {"call_id": "1", "reply": "r", "tool": "pay"}),
)  # fmt: skip
"""What shows only while a call runs: raised when the other calls of the reply have ended."""

MISTAKES: tuple[Mistake, ...] = (*TOOLS, *SECTIONS, *PROMPTS, *STORES, *RUNS, *CALLS)
"""All of them."""
