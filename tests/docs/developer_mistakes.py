"""Programs with a mistake of the developer, each with its error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import handrail.store
from handrail import errors
from handrail import tool as decorated
from handrail.adapters.pydantic_ai import HandrailCapability, PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents import load_agent
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.limits import Budget, BudgetTracker, Deadline
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    External,
    FeedbackTrigger,
    FilesExist,
    IdempotencyConfig,
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    ReadBeforeWritePolicy,
    Section,
    SequentialDependencyPolicy,
    Tool,
    ToolContext,
    ToolExample,
    ToolResult,
    template_texts,
)
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.runtime import EffectLedger, Session, ToolCall, ToolInvoked
from handrail.session import stored_as
from handrail.store.memory import MemoryStore
from handrail.testing import Reply, ScriptedModel


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
    """A row of the page.

    Attributes:
        does: what the developer does, as the page has it.
        error: what it raises.
        make: makes the mistake; it is given an empty folder.
        attributes: attributes of the error, with their values.
    """

    does: str
    error: type[Exception]
    make: Callable[[Path], object]
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])


def unfit(does: str, function: str, argument: str, kind: type[object], make: Callable[[Path], object]) -> Mistake:
    """The row of an argument that does not fit."""
    return Mistake(does, errors.InvalidArgumentError, make, {"function": function, "argument": argument, "given": kind})


def tool_fault(does: str, make: Callable[[Path], object]) -> Mistake:
    """The row of a tool that is declared wrongly."""
    return Mistake(does, errors.PromptValidationError, make, TOOL)


def section_fault(does: str, make: Callable[[Path], object]) -> Mistake:
    """The row of a section that is declared wrongly."""
    return Mistake(does, errors.PromptValidationError, make, {"section_path": ("desk",)})


TEMPLATE = PromptTemplate[str](
    ns="desk",
    key="pay",
    sections=[
        MarkdownSection(title="Desk", template="Be kind."),
        MarkdownSection(title="Law", template="Be just.", accepts_overrides=False),
    ],
)
"""A prompt whose texts are overridden."""


def tuned(key: str, text: str) -> Prompt[str]:
    """That prompt with one override, made for the text that the prompt has."""
    hashes = {each.key: each.sha256 for each in template_texts(TEMPLATE)}
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
        return connect(result)


class Half:
    """A policy without `on_result`."""

    name = "half"

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.allow()


async def connect(_: object) -> Client:
    """An asynchronous provider."""
    return Client()


def unclear(*_: object) -> Any:
    """What neither decides nor changes anything."""
    return "yes"


def both(tool: object, params: object) -> bool:
    """An approver of the wrong parameters."""
    return True


def says_yes(request: ApprovalRequest) -> str:
    """An approver that says at its head that it decides nothing."""
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


def write_to_two_stores(_: Path) -> None:
    """Keep a session in one store, and have another one decide about its files."""
    with (
        TemporaryDirectory() as folder,
        handrail.store.open("memory:") as near,
        handrail.store.open("memory:") as far,
        HostFilesystem(folder, store=far) as files,
        Session.open(near, "s") as session,
    ):
        call(write_file, session=session, resources={Filesystem: files})


def write_without_store(_: Path) -> None:
    """Keep a session in a file, and have no store decide about its files."""
    with (
        TemporaryDirectory() as folder,
        TemporaryDirectory() as place,
        handrail.store.open(f"sqlite:///{place}/desk.db") as near,
        HostFilesystem(folder) as files,
        Session.open(near, "s") as session,
    ):
        call(write_file, session=session, resources={Filesystem: files})


def wrong(value: object) -> Any:
    """A value of which type checkers see nothing."""
    return value


TOOL = {"tool": "pay"}


SHORT = ResourceRegistry.of(
    Binding(Client, lambda _: Client(), Scope.TOOL_CALL), Binding(Till, lambda r: wrong(r.get(Client)))
)


FILES = ReadBeforeWritePolicy(read_tools=("look",), write_tools=("pay",), path_of=lambda _: wrong(7))


KEYED = IdempotencyConfig(strategy="custom", key_fn=lambda _: wrong(7))


UNPLACED = ReadBeforeWritePolicy(read_tools=("look",), write_tools=("pay",))


LOOK = Tool[None, None](name="look", description="Looks.")


CALLS = (
    Mistake("a resource that is not bound", errors.UnboundResourceError,
            lambda _: call(asking(Client)), {"protocol": Client, "needed_by": ()}),
    Mistake("a resource asked for by its name", errors.ResourceUseError,
            lambda _: call(asking("Client"))),
    Mistake("a provider of another type", errors.WrongResourceError,
            lambda _: call(asking(Client), resources={Client: Binding(Client, lambda _: wrong(7))}),
            {"protocol": Client}),
    Mistake("providers that need each other", errors.CircularResourceError,
            lambda _: call(asking(Client), resources={
                Client: Binding(Client, lambda r: wrong(r.get(Till))),
                Till: Binding(Till, lambda r: wrong(r.get(Client)))}), {"path": (Client, Till, Client)}),
    Mistake("a singleton that needs what lives for one call", errors.ResourceUseError,
            lambda _: call(asking(Till), resources=SHORT)),
    Mistake("a policy that returns `True`", errors.InvalidReturnError,
            lambda _: call(policy=Rule(True)), {"function": "policy rule", "tool": "pay", "returned": bool}),
    unfit("a policy that denies with a number", "PolicyDecision.deny", "reason", int,
          lambda _: PolicyDecision.deny(wrong(1))),
    Mistake("an approver that returns a text", errors.InvalidReturnError,
            lambda _: call(policy=Rule(PolicyDecision.ask("sure?")), approver=unclear),
            {"function": "the approver", "tool": "pay", "returned": str}),
    Mistake("a policy whose `on_result` returns a coroutine", errors.InvalidReturnError,
            lambda _: call(policy=Notes()), {"function": "on_result of policy rule", "tool": "pay"}),
    Mistake("`path_of` that returns a number", errors.InvalidReturnError,
            lambda _: ToolExecutor(
                prompt=prompt(Section(title="Desk", tools=[tool(), LOOK], policies=[FILES])).bind(
                    resources={Filesystem: InMemoryFilesystem()}), session=Session()).execute(CALL),
            {"tool": "pay", "returned": int}),
    Mistake("`key_fn` that returns a number", errors.InvalidReturnError,
            lambda _: ToolExecutor(prompt=prompt(Section(title="Desk", tools=[tool(idempotency=KEYED)])),
                                   session=Session()).execute(CALL),
            {"function": "key_fn", "tool": "pay", "returned": int}),
    Mistake("`reconcile` that returns a plain value", errors.InvalidReturnError,
            lambda _: reconcile_with(True), {"function": "reconcile", "tool": "pay", "returned": bool}),
    Mistake("files to be read first, and no `Filesystem`", errors.UnboundResourceError,
            lambda _: ToolExecutor(prompt=prompt(Section(title="Desk", tools=[tool(), LOOK], policies=[FILES])),
                                   session=Session()).execute(CALL), {"protocol": Filesystem}),
    Mistake("a reducer that returns a text", errors.ReducerError,
            lambda _: call(change, session=with_reducer())),
    Mistake("a LOG that is to shrink", errors.SessionUseError, lambda _: call(shrink)),
    Mistake("a slice whose class JSON cannot say, in a store", errors.SessionUseError,
            lambda _: keep(Impossible(1j))),
    Mistake("a database where there is none", errors.SessionUseError,
            lambda _: call(write_rows)),
    Mistake("a session that has been closed", errors.SessionUseError,
            lambda _: call(pay, session=closed_session())),
    Mistake("files and a session in two stores", errors.SecondStoreError, write_to_two_stores),
    Mistake("files without a store, and a session in one", errors.SecondStoreError,
            write_without_store),
    Mistake("an identity that stands for another call", errors.CallIdReusedError, reuse,
            {"call_id": "1", "reply": "r", "tool": "pay"}),
)  # fmt: skip
"""What shows only while a call runs: raised when the other calls of the reply have ended."""


TOOLS = (
    Mistake("a function that cannot be a tool", errors.ToolSignatureError,
            lambda _: decorated(pay_somehow), {"function": "pay_somehow"}),
    Mistake("an option that `@tool` does not have", errors.PromptValidationError,
            lambda _: wrong(decorated)(efect="read")(pay_by_client), {"tool": "pay_by_client"}),
    tool_fault("a tool without its types", lambda _: wrong(Tool)(name="pay", description="Pays.")),
    Mistake("one type in the brackets", errors.PromptValidationError, lambda _: wrong(Tool)[Order]),
    Mistake("parameters that are not a dataclass", errors.PromptValidationError,
            lambda _: wrong(Tool)[dict, None](name="pay", description="Pays."), {**TOOL, "dataclass": dict}),
    Mistake("a name with capitals and blanks", errors.PromptValidationError,
            lambda _: tool(name="Pay now"), {"tool": "Pay now"}),
    tool_fault("an empty description", lambda _: tool(description=" ")),
    tool_fault("a handler that cannot be called", lambda _: tool("pay")),
    tool_fault("a handler without `context`", lambda _: tool(pay_without_context)),
    tool_fault("a handler of other parameters", lambda _: tool(pay_client)),
    tool_fault("an unknown effect", lambda _: tool(effect="write")),
    tool_fault('`idempotency="auto"`', lambda _: tool(idempotency="auto")),
    tool_fault("a timeout without its unit", lambda _: tool(timeout=30)),
    tool_fault("an example of another type",
               lambda _: tool(examples=[ToolExample(description="One.", input="7", output=None)])),
    tool_fault("`reconcile` for a tool without an effect outside", lambda _: tool(reconcile=ask)),
    tool_fault('`on_orphan="reconcile"` without `reconcile`', lambda _: tool(effect=External(on_orphan="reconcile"))),
    Mistake('`reconcile` with `on_orphan="retry"`', errors.PromptValidationError,
            lambda _: External(on_orphan="retry", reconcile=ask)),
    tool_fault("an `on_orphan` in two places that differ",
               lambda _: tool(effect=External(on_orphan="retry"), idempotency=IdempotencyConfig(on_orphan="unknown"))),
    tool_fault('`repeat_unknown="allow"` with a key',
               lambda _: tool(effect=External(repeat_unknown="allow"), idempotency=IdempotencyConfig())),
    tool_fault("`apply` that takes no result", lambda _: tool(effect=External(apply=wrong(ask)))),
    tool_fault("`apply` of a concurrent tool", lambda _: tool(effect=External(apply=book), concurrent=True)),
    Mistake("a failure that proves nothing", errors.PromptValidationError,
            lambda _: External(not_applied_on=(TimeoutError,))),
    Mistake("a time to live without its unit", errors.PromptValidationError,
            lambda _: IdempotencyConfig(ttl=wrong(5))),
    Mistake("a `key_fn` of two parameters", errors.PromptValidationError,
            lambda _: IdempotencyConfig(strategy="custom", key_fn=wrong(pay))),
    tool_fault("`concurrent` as text", lambda _: tool(concurrent="yes")),
    tool_fault("`accepts_overrides` as text", lambda _: tool(accepts_overrides="no")),
    tool_fault("a description with a lone surrogate", lambda _: tool(description="Pays \ud800.")),
    Mistake("a copy with a wrong field", errors.PromptValidationError,
            lambda _: replace(tool(), description=""), TOOL),
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
    unfit("an unknown decision", "PolicyDecision", "verdict", str, lambda _: PolicyDecision(wrong("maybe"))),
    section_fault("`enabled` as text", lambda _: Section(title="Desk", enabled=wrong("yes"))),
    Mistake("an unknown placeholder", errors.PromptValidationError,
            lambda _: MarkdownSection[Order](title="Desk", template="${colour}"), {"section_path": ("desk",)}),
    Mistake("tools that wait for each other", errors.PromptValidationError,
            lambda _: SequentialDependencyPolicy(dependencies={"a": frozenset({"b"}), "b": frozenset({"a"})})),
    Mistake("a text as names", errors.PromptValidationError,
            lambda _: ReadBeforeWritePolicy(read_tools="read_file")),
    Mistake("a policy on tools out of its reach", errors.PromptValidationError,
            lambda _: prompt(Section(title="Desk", tools=[tool()], policies=[
                SequentialDependencyPolicy(dependencies={"pay": frozenset({"look"})})])), {"section_path": ("desk",)}),
    Mistake("a path that can be none", errors.PromptValidationError,
            lambda _: prompt(Section(title="Desk", tools=[tool(), LOOK], policies=[UNPLACED])),
            {**TOOL, "dataclass": Order, "section_path": ("desk",)}),
    Mistake("two tools of one name", errors.PromptValidationError,
            lambda _: prompt(Section(title="Desk", tools=[tool()]), Section(title="Till", tools=[tool()])),
            {**TOOL, "dataclass": Order, "section_path": ("till",)}),
    Mistake("one section, not a list", errors.PromptValidationError,
            lambda _: PromptTemplate(ns="desk", key="pay", sections=wrong(Section(title="Desk")))),
    Mistake("a key with blanks", errors.PromptValidationError,
            lambda _: PromptTemplate(ns="desk", key="pay now", sections=[])),
    Mistake("a provider of feedback without a trigger", errors.PromptValidationError,
            lambda _: PromptTemplate(ns="desk", key="pay", sections=[], feedback=[wrong(pay)])),
    Mistake("a class as a checker", errors.PromptValidationError,
            lambda _: PromptTemplate(ns="desk", key="pay", sections=[], completion=wrong(FilesExist))),
    unfit("a trigger of feedback without a condition", "FeedbackTrigger", "every_calls", type(None),
          lambda _: FeedbackTrigger()),
    Mistake("a checker that returns `True`", errors.CompletionCheckError,
            lambda _: ToolExecutor(
                prompt=Prompt(PromptTemplate(ns="desk", key="pay", sections=[], completion=lambda _: wrong(True))),
                session=Session()).completion("Done."), {"prompt": "desk/pay"}),
    Mistake("an answer that is not a dataclass", errors.PromptValidationError,
            lambda _: PromptTemplate[int](ns="desk", key="pay", sections=[])),
)  # fmt: skip
"""Sections and policies."""


PROMPTS = (
    unfit("a prompt as a template", "Prompt", "template", Prompt,
          lambda _: Prompt(wrong(prompt()))),
    unfit("texts as a file of overrides", "Prompt.bind", "overrides", dict,
          lambda _: Prompt(TEMPLATE).bind(overrides=wrong({}))),
    Mistake("an override of a text that accepts none", errors.OverridesError,
            lambda _: tuned("sections.law.body", "New."), {"line": None}),
    Mistake("an override with an unknown placeholder", errors.OverridesError,
            lambda _: tuned("sections.desk.body", "${colour}"), {"line": None}),
    Mistake("parameters that no section takes", errors.PromptValidationError,
            lambda _: prompt().bind(Order("7")), {"dataclass": Order}),
    Mistake("a class as parameters", errors.PromptValidationError,
            lambda _: prompt(MarkdownSection[Order](title="Desk", template="${number}")).bind(Order)),
    Mistake("no parameters", errors.PromptRenderError,
            lambda _: prompt(MarkdownSection[Order](title="Desk", template="${number}")).render(),
            {"section_path": ("desk",), "dataclass": Order}),
    Mistake("a list of resources", errors.InvalidArgumentError,
            lambda _: prompt().bind(resources=wrong([Client()])),
            {"function": "ResourceRegistry.build", "argument": "resources", "given": list}),
    Mistake("a resource of another type", errors.WrongResourceError,
            lambda _: prompt().bind(resources={Client: "client"}), {"protocol": Client}),
    Mistake("`None` as a resource", errors.InvalidArgumentError,
            lambda _: prompt().bind(resources={Client: None}),
            {"function": "ResourceRegistry.build", "argument": "resources[Client]", "given": type(None)}),
    Mistake("a name as a type", errors.ResourceError,
            lambda _: prompt().bind(resources=wrong({"Client": Client()}))),
    Mistake("a provider that is asynchronous", errors.ResourceError,
            lambda _: Binding(Client, wrong(connect))),
    Mistake("two bindings of one type", errors.DuplicateBindingError,
            lambda _: ResourceRegistry.of(Binding.instance(Client, Client()), Binding.instance(Client, Client())),
            {"protocol": Client}),
)  # fmt: skip
"""Prompts and resources."""


STORES = (
    Mistake("a path as a URL", errors.InvalidArgumentError,
            lambda folder: handrail.store.open(wrong(folder / "desk.db")),
            {"function": "store.open", "argument": "url"}),
    Mistake("a URL without a scheme", errors.StoreError,
            lambda _: handrail.store.open("desk.db"), {"store": "desk.db"}),
    unfit("a wait without its unit", "store.open", "busy", int,
          lambda _: handrail.store.open("memory:", busy=wrong(5))),
    unfit("a URL as a store", "Session.open", "store", str,
          lambda _: Session.open(wrong("sqlite:///desk.db"), "desk")),
    unfit("a number as session id", "Session.open", "session_id", int,
          lambda _: Session.open(MemoryStore(), wrong(7))),
    unfit("a tag that is not text", "Session.open", "tags['customer']", int,
          lambda _: Session.open(MemoryStore(), "desk", tags={"customer": wrong(7)})),
    unfit("a name as a class", "Session.open", "one of types", str,
          lambda _: Session.open(MemoryStore(), "desk", types=[wrong("Plan")])),
    Mistake("an unknown session", errors.SessionNotFoundError,
            lambda _: Session.open(MemoryStore(), "desk", create=False), {"session_id": "desk"}),
    Mistake("a text as a slice's class", errors.SessionUseError,
            lambda _: Session()[wrong("Plan")].latest()),
    Mistake("two reducers of one slice and event", errors.ReducerError, two_reducers),
    unfit("a URL as the ledger's store", "EffectLedger", "store", str,
          lambda _: EffectLedger(wrong("sqlite:///desk.db"))),
    Mistake("a deadline without a time zone", ValueError, lambda _: Deadline(datetime(2030, 1, 1))),  # noqa: DTZ001 - the mistake
    unfit("a deadline in seconds", "Deadline.after", "span", int, lambda _: Deadline.after(wrong(5))),
    unfit("a session id that is empty", "Session.open", "session_id", str, lambda _: Session.open(MemoryStore(), "")),
    unfit("`create` as text", "Session.open", "create", str,
          lambda _: Session.open(MemoryStore(), "desk", create=wrong("no"))),
    unfit("`checkpoint_every` that is not a whole number", "Session.open", "checkpoint_every", float,
          lambda _: Session.open(MemoryStore(), "desk", checkpoint_every=wrong(1.5))),
    unfit("a negative wait", "Session.open", "wait", timedelta,
          lambda _: Session.open(MemoryStore(), "desk", wait=timedelta(seconds=-1))),
    unfit("`stored_as` without its name", "stored_as", "name", type, lambda _: stored_as(wrong(Order))),
    unfit("a version as text", "stored_as", "version", str,
          lambda _: stored_as("desk.order", version=wrong("2"))),
    unfit("an upgrade that cannot be called", "stored_as", "upgrades[1]", str,
          lambda _: stored_as("desk.order", version=2, upgrades={1: wrong("x")})),
    unfit("a subscriber that cannot be called", "Dispatcher.subscribe", "subscriber", type(None),
          lambda _: Session().dispatcher.subscribe(Order, wrong(None))),
    unfit("a URL as the filesystem's store", "HostFilesystem", "store", str,
          lambda folder: HostFilesystem(folder, store=wrong("sqlite:///desk.db"))),
    unfit("a number as the ledger's clock", "EffectLedger", "clock", int,
          lambda _: EffectLedger(clock=wrong(1))),
    unfit("a number as a clock", "store.open", "clock", int,
          lambda _: handrail.store.open("memory:", clock=wrong(1))),
    unfit("a number as a budget", "BudgetTracker", "budget", int,
          lambda _: BudgetTracker(wrong(10_000))),
    unfit("a limit as text", "Budget", "max_total_tokens", str,
          lambda _: Budget(max_total_tokens=wrong("5"))),
    Mistake("a database of SQLite in memory", errors.StoreError,
            lambda _: handrail.store.open("sqlite:///:memory:"), {"store": "sqlite:..."}),
    unfit("no folder", "HostFilesystem", "root", type(None), lambda _: HostFilesystem(wrong(None))),
    unfit("a number as a call to fork at", "Session.fork", "at", int,
          lambda _: Session.open(MemoryStore(), "desk").fork(at=wrong(5))),
    Mistake("a path as a saved session", errors.InvalidArgumentError,
            lambda folder: Session.from_json(wrong(folder), types=[Order]),
            {"function": "Session.from_json", "argument": "data"}),
)  # fmt: skip
"""Stores, sessions and limits."""


RUNS = (
    Mistake("a function whose resource nothing binds", errors.UnboundResourceError,
            lambda _: door(prompt=prompt(Section(title="Desk", tools=[decorated(pay_by_client)]))),
            {"protocol": Client, "needed_by": ()}),
    unfit("a template as a prompt", "ToolExecutor", "prompt", PromptTemplate,
          lambda _: door(prompt=prompt().template)),
    unfit("a session id as a session", "ToolExecutor", "session", str,
          lambda _: door(session="desk")),
    unfit("a span as a deadline", "ToolExecutor", "deadline", timedelta,
          lambda _: door(deadline=timedelta(seconds=5))),
    unfit("a store as a ledger", "ToolExecutor", "effect_ledger", MemoryStore,
          lambda _: door(effect_ledger=MemoryStore())),
    Mistake("a tool with `apply`, and a session in no store", errors.SecondStoreError,
            lambda _: door(prompt=prompt(Section(title="Desk", tools=[tool(effect=External(apply=book))]))),
            {"store": None, "tool": "pay"}),
    unfit("an approver that cannot be called", "ToolExecutor", "approver", bool, lambda _: door(approver=True)),
    unfit("an approver of no parameters", "ToolExecutor", "approver", type(unclear),
          lambda _: door(approver=lambda: True)),
    unfit("an approver of two parameters", "ToolExecutor", "approver", type(unclear),
          lambda _: door(approver=both)),
    unfit("an approver that is annotated to return a text", "ToolExecutor", "approver", type(unclear),
          lambda _: door(approver=says_yes)),
    unfit("the class of answers as an approver", "ToolExecutor", "approver", type,
          lambda _: door(approver=Approval)),
    unfit("an answer as text", "Approval", "approved", str, lambda _: Approval(wrong("no"))),
    unfit("a mapping as a call", "ToolExecutor.execute", "call", dict,
          lambda _: door().execute(wrong({"id": "1", "name": "pay"}))),
    unfit("a number as the id of a call", "ToolExecutor.execute", "call.id", int,
          lambda _: door().execute(ToolCall(wrong(1), "pay"))),
    Mistake("a number as the id of one of several calls", errors.InvalidArgumentError,
            lambda _: door().execute_all([CALL, ToolCall(wrong(2), "pay")], reply="r"),
            {"function": "ToolExecutor.execute", "argument": "call.id", "given": int}),
    unfit("the class of calls as a call", "ToolExecutor.execute", "call", type,
          lambda _: door().execute(wrong(ToolCall))),
    unfit("one call, not a list", "ToolExecutor.execute_all", "calls", ToolCall,
          lambda _: door().execute_all(wrong(CALL))),
    Mistake("a number as reply", ValueError, lambda _: door().execute(CALL, reply=wrong(7))),
    unfit("an approver of no parameters, for a model", "PydanticAIAdapter", "approver", type(unclear),
          lambda _: PydanticAIAdapter("test", approver=wrong(lambda: True))),
    unfit("no model", "PydanticAIAdapter", "model", type(None), lambda _: PydanticAIAdapter(wrong(None))),
    Mistake("a template as a prompt, for a model",
            errors.InvalidArgumentError,
            lambda _: PydanticAIAdapter("test").evaluate(wrong(prompt().template), session=Session()),
            {"function": "ToolExecutor", "argument": "prompt", "given": PromptTemplate}),
    unfit("a number of tokens as a budget", "PydanticAIAdapter.evaluate", "budget", int,
          lambda _: PydanticAIAdapter("test").evaluate(prompt(), session=Session(), budget=wrong(10_000))),
    unfit("no session, for a model", "PydanticAIAdapter.evaluate", "session", type(None),
          lambda _: PydanticAIAdapter("test").evaluate(prompt(), session=wrong(None))),
    unfit("a prompt as an executor", "HandrailCapability", "executor", Prompt,
          lambda _: HandrailCapability(wrong(prompt()))),
    unfit("one reply, not a list", "ScriptedModel", "script", Reply,
          lambda _: ScriptedModel(wrong(Reply(text="Done.")))),
    unfit("no agent file", "load_agent", "path", type(None), lambda _: load_agent(wrong(None))),
)  # fmt: skip
"""Runs."""


MISTAKES: tuple[Mistake, ...] = (*TOOLS, *SECTIONS, *PROMPTS, *STORES, *RUNS, *CALLS)
"""All of them."""
