"""The developer's mistakes of `docs/developer-mistakes.md`, each with what makes it. Add a row here and one there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import handrail.store
from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    CallIdReusedError,
    CircularResourceError,
    DuplicateBindingError,
    InvalidArgumentError,
    InvalidReturnError,
    PromptRenderError,
    PromptValidationError,
    ReducerError,
    ResourceError,
    ResourceUseError,
    SecondStoreError,
    SessionNotFoundError,
    SessionUseError,
    StoreError,
    UnboundResourceError,
    WrongResourceError,
)
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.limits import BudgetTracker, Deadline
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    External,
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
)
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.runtime import EffectLedger, Session, ToolCall, ToolInvoked
from handrail.session import stored_as
from handrail.store.memory import MemoryStore


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
        found_by: what finds it, as the page has it.
        error: what it raises.
        says: words of the message.
        make: makes the mistake; it is given an empty folder.
        attributes: attributes of the error, with their values.
    """

    does: str
    found_by: str
    error: type[Exception]
    says: str
    make: Callable[[Path], object]
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])


def pay(params: Order, *, context: ToolContext) -> ToolResult[None]:
    """Pay."""
    return ToolResult.ok(None)


def pay_without_context(params: Order) -> ToolResult[None]:
    """Takes no context."""
    return ToolResult.ok(None)


def pay_client(params: Client, *, context: ToolContext) -> ToolResult[None]:
    """Takes something else."""
    return ToolResult.ok(None)


def ask(params: Order, key: str) -> ToolResult[None] | None:
    """Find out."""
    return None


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


def change(params: Order, *, context: ToolContext) -> ToolResult[None]:
    """Send an event."""
    context.session.dispatch(params)
    return ToolResult.ok(None)


@dataclass(frozen=True)
class Impossible:
    """A value that JSON cannot say."""

    value: complex


@dataclass(frozen=True)
class Anything:
    """A value that JSON may say."""

    value: Any


def keep(value: Impossible | Anything) -> None:
    """Append a value to a stored session in a call."""

    def append(params: Order, *, context: ToolContext) -> ToolResult[None]:
        context.session[type(value)].append(value)
        return ToolResult.ok(None)

    with handrail.store.open("memory:") as opened, Session.open(opened, "s") as session:
        call(append, session=session)


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

    def write(params: Order, *, context: ToolContext) -> ToolResult[None]:
        context.resources.get(Filesystem).write_text("notes.md", "x")
        return ToolResult.ok(None)

    with (
        TemporaryDirectory() as folder,
        handrail.store.open("memory:") as near,
        handrail.store.open("memory:") as far,
        HostFilesystem(folder, store=far) as files,
        Session.open(near, "s") as session,
    ):
        call(write, session=session, resources={Filesystem: files})


def given(function: str, argument: str, kind: type[object]) -> Mapping[str, object]:
    """The attributes of an `InvalidArgumentError`."""
    return {"function": function, "argument": argument, "given": kind}


def wrong(value: object) -> Any:
    """A value of which type checkers see nothing."""
    return value


_TOOL = {"tool": "pay"}
_SHORT = ResourceRegistry.of(
    Binding(Client, lambda _: Client(), Scope.TOOL_CALL), Binding(Till, lambda r: wrong(r.get(Client)))
)
_FILES = ReadBeforeWritePolicy(read_tools=("look",), write_tools=("pay",), path_of=lambda _: wrong(7))
_KEYED = IdempotencyConfig(strategy="custom", key_fn=lambda _: wrong(7))
_UNPLACED = ReadBeforeWritePolicy(read_tools=("look",), write_tools=("pay",))
_LOOK = Tool[None, None](name="look", description="Looks.")

TOOLS = (
    Mistake("a tool without its types", "`Tool(...)`", PromptValidationError, "needs its types in brackets",
            lambda _: wrong(Tool)(name="pay", description="Pays."), _TOOL),
    Mistake("one type in the brackets", "`Tool[...]`", PromptValidationError, "write Tool[Params, Result]",
            lambda _: wrong(Tool)[Order]),
    Mistake("parameters that are not a dataclass", "`Tool(...)`", PromptValidationError, "they must be a dataclass",
            lambda _: wrong(Tool)[dict, None](name="pay", description="Pays."), {**_TOOL, "dataclass": dict}),
    Mistake("a name with capitals and blanks", "`Tool(...)`", PromptValidationError, "write 'pay_now'",
            lambda _: tool(name="Pay now"), {"tool": "Pay now"}),
    Mistake("an empty description", "`Tool(...)`", PromptValidationError, "description has 0 characters",
            lambda _: tool(description=" "), _TOOL),
    Mistake("a handler that cannot be called", "`Tool(...)`", PromptValidationError, "which cannot be called",
            lambda _: tool("pay"), _TOOL),
    Mistake("a handler without `context`", "`Tool(...)`", PromptValidationError, "Write: def pay_without_context",
            lambda _: tool(pay_without_context), _TOOL),
    Mistake("a handler of other parameters", "`Tool(...)`", PromptValidationError, "takes params: Client",
            lambda _: tool(pay_client), _TOOL),
    Mistake("an effect that there is not", "`Tool(...)`", PromptValidationError, "it must be one of 'read', 'state'",
            lambda _: tool(effect="write"), _TOOL),
    Mistake("`idempotency=True`", "`Tool(...)`", PromptValidationError, "write idempotency=IdempotencyConfig(...)",
            lambda _: tool(idempotency=True), _TOOL),
    Mistake("a timeout without its unit", "`Tool(...)`", PromptValidationError, "timeout=timedelta(seconds=30)",
            lambda _: tool(timeout=30), _TOOL),
    Mistake("an example of another type", "`Tool(...)`", PromptValidationError, "the input of example 1 is",
            lambda _: tool(examples=[ToolExample(description="One.", input="7", output=None)]), _TOOL),
    Mistake("`reconcile` for a tool without an effect outside", "`Tool(...)`", PromptValidationError,
            "this tool has none there", lambda _: tool(reconcile=ask), _TOOL),
    Mistake('`on_orphan="reconcile"` without `reconcile`', "`Tool(...)`", PromptValidationError,
            "needs reconcile=...", lambda _: tool(effect=External(on_orphan="reconcile")), _TOOL),
    Mistake("a failure that proves nothing", "`External(...)`", PromptValidationError,
            "which may be raised after the effect", lambda _: External(not_applied_on=(TimeoutError,))),
    Mistake("a time to live without its unit", "`IdempotencyConfig(...)`", PromptValidationError,
            "it must be a timedelta", lambda _: IdempotencyConfig(ttl=wrong(5))),
    Mistake("`concurrent` that is a text", "`Tool(...)`", PromptValidationError, "concurrent=True or concurrent=False",
            lambda _: tool(concurrent="yes"), _TOOL),
    Mistake("`accepts_overrides` that is a text", "`Tool(...)`", PromptValidationError, "accepts_overrides=False",
            lambda _: tool(accepts_overrides="no"), _TOOL),
    Mistake("a description with a lone surrogate", "`Tool(...)`", PromptValidationError, "has a lone surrogate",
            lambda _: tool(description="Pays \ud800."), _TOOL),
    Mistake("a copy with a wrong field", "`dataclasses.replace`", PromptValidationError, "description has 0 characters",
            lambda _: replace(tool(), description=""), _TOOL),
)  # fmt: skip
"""Tools."""

SECTIONS = (
    Mistake("a function among the tools", "`Section(...)`", PromptValidationError, "which is no Tool",
            lambda _: Section(title="Desk", tools=[wrong(pay)]), {"section_path": ("desk",)}),
    Mistake("one tool in the place of several", "`Section(...)`", PromptValidationError, "write tools=[...]",
            lambda _: Section(title="Desk", tools=wrong(tool())), {"section_path": ("desk",)}),
    Mistake("a class in the place of a policy", "`Section(...)`", PromptValidationError, "is no policy",
            lambda _: Section(title="Desk", policies=[wrong(Rule)]), {"section_path": ("desk",)}),
    Mistake("a policy without `on_result`", "`Section(...)`", PromptValidationError, "has no method on_result",
            lambda _: Section(title="Desk", policies=[wrong(Half())]), {"section_path": ("desk",)}),
    Mistake("a policy that is asynchronous", "`Section(...)`", PromptValidationError, "a policy answers at once",
            lambda _: Section(title="Desk", policies=[wrong(Late())]), {"section_path": ("desk",)}),
    Mistake("a policy that takes note asynchronously", "`Section(...)`", PromptValidationError,
            "on_result is asynchronous", lambda _: Section(title="Desk", policies=[wrong(LateNotes())]),
            {"section_path": ("desk",)}),
    Mistake("a decision that there is not", "`PolicyDecision(...)`", InvalidArgumentError, "PolicyDecision.allow()",
            lambda _: PolicyDecision(wrong("maybe")), given("PolicyDecision", "verdict", str)),
    Mistake("`enabled` that is a text", "`Section(...)`", PromptValidationError, "neither a boolean nor a function",
            lambda _: Section(title="Desk", enabled=wrong("yes")), {"section_path": ("desk",)}),
    Mistake("a placeholder that there is not", "`MarkdownSection(...)`", PromptValidationError, "colour",
            lambda _: MarkdownSection[Order](title="Desk", template="${colour}"), {"section_path": ("desk",)}),
    Mistake("tools that wait for each other", "`SequentialDependencyPolicy(...)`", PromptValidationError, "a -> b -> a",
            lambda _: SequentialDependencyPolicy(dependencies={"a": frozenset({"b"}), "b": frozenset({"a"})})),
    Mistake("a text in the place of names", "`ReadBeforeWritePolicy(...)`", PromptValidationError,
            "write the names of one tool or more", lambda _: ReadBeforeWritePolicy(read_tools="read_file")),
    Mistake("a policy on tools out of its reach", "`PromptTemplate(...)`", PromptValidationError,
            "Put the policy on a section that holds them all",
            lambda _: prompt(Section(title="Desk", tools=[tool()], policies=[
                SequentialDependencyPolicy(dependencies={"pay": frozenset({"look"})})])), {"section_path": ("desk",)}),
    Mistake("a path that can be none", "`PromptTemplate(...)`", PromptValidationError, "its field path is int",
            lambda _: prompt(Section(title="Desk", tools=[tool(), _LOOK], policies=[_UNPLACED])),
            {**_TOOL, "dataclass": Order, "section_path": ("desk",)}),
    Mistake("two tools of one name", "`PromptTemplate(...)`", PromptValidationError, "two tools have this name",
            lambda _: prompt(Section(title="Desk", tools=[tool()]), Section(title="Till", tools=[tool()])),
            {**_TOOL, "dataclass": Order, "section_path": ("till",)}),
    Mistake("a section in the place of several", "`PromptTemplate(...)`", PromptValidationError, "write sections=[...]",
            lambda _: PromptTemplate(ns="desk", key="pay", sections=wrong(Section(title="Desk")))),
    Mistake("a key with blanks", "`PromptTemplate(...)`", PromptValidationError, "key is 'pay now'",
            lambda _: PromptTemplate(ns="desk", key="pay now", sections=[])),
    Mistake("an answer that is not a dataclass", "`PromptTemplate(...)`", PromptValidationError,
            "the answer is a dataclass, str, or None",
            lambda _: PromptTemplate[int](ns="desk", key="pay", sections=[])),
)  # fmt: skip
"""Sections and policies."""

PROMPTS = (
    Mistake("a prompt in the place of a template", "`Prompt(...)`", InvalidArgumentError, "it must be a PromptTemplate",
            lambda _: Prompt(wrong(prompt())), given("Prompt", "template", Prompt)),
    Mistake("parameters that no section takes", "`Prompt.bind`", PromptValidationError, "take no parameters",
            lambda _: prompt().bind(Order("7")), {"dataclass": Order}),
    Mistake("a class in the place of parameters", "`Prompt.bind`", PromptValidationError, "the class Order itself",
            lambda _: prompt(MarkdownSection[Order](title="Desk", template="${number}")).bind(Order)),
    Mistake("no parameters", "`Prompt.render`", PromptRenderError, "Order",
            lambda _: prompt(MarkdownSection[Order](title="Desk", template="${number}")).render(),
            {"section_path": ("desk",), "dataclass": Order}),
    Mistake("a list of resources", "`Prompt.bind`", InvalidArgumentError, "it must be a mapping from types",
            lambda _: prompt().bind(resources=wrong([Client()])),
            given("ResourceRegistry.build", "resources", list)),
    Mistake("a resource of another type", "`Prompt.bind`", WrongResourceError, "which is no Client",
            lambda _: prompt().bind(resources={Client: "client"}), {"protocol": Client}),
    Mistake("`None` in the place of a resource", "`Prompt.bind`", InvalidArgumentError,
            "Binding.instance(Client, None)", lambda _: prompt().bind(resources={Client: None}),
            given("ResourceRegistry.build", "resources[Client]", type(None))),
    Mistake("a name in the place of a type", "`Prompt.bind`", ResourceError, "Bind it for its class",
            lambda _: prompt().bind(resources=wrong({"Client": Client()}))),
    Mistake("a provider that is asynchronous", "`Binding(...)`", ResourceError, "Binding.instance(Client, ...)",
            lambda _: Binding(Client, wrong(connect))),
    Mistake("two bindings of one type", "`ResourceRegistry.of`", DuplicateBindingError, "bound twice",
            lambda _: ResourceRegistry.of(Binding.instance(Client, Client()), Binding.instance(Client, Client())),
            {"protocol": Client}),
)  # fmt: skip
"""Prompts and resources."""

STORES = (
    Mistake("a path in the place of a URL", "`store.open`", InvalidArgumentError, "it must be the URL of a store",
            lambda folder: handrail.store.open(wrong(folder / "desk.db")),
            {"function": "store.open", "argument": "url"}),
    Mistake("a URL without a scheme", "`store.open`", StoreError, "sqlite:///desk.db",
            lambda _: handrail.store.open("desk.db"), {"store": "desk.db"}),
    Mistake("a wait without its unit", "`store.open`", InvalidArgumentError, "timedelta(seconds=5)",
            lambda _: handrail.store.open("memory:", busy=wrong(5)), given("store.open", "busy", int)),
    Mistake("a URL in the place of a store", "`Session.open`", InvalidArgumentError, "handrail.store.open(",
            lambda _: Session.open(wrong("sqlite:///desk.db"), "desk"), given("Session.open", "store", str)),
    Mistake("a number as session id", "`Session.open`", InvalidArgumentError, "it must be text",
            lambda _: Session.open(MemoryStore(), wrong(7)), given("Session.open", "session_id", int)),
    Mistake("a tag that is not text", "`Session.open`", InvalidArgumentError, "write str(...) around it",
            lambda _: Session.open(MemoryStore(), "desk", tags={"customer": wrong(7)}),
            given("Session.open", "tags['customer']", int)),
    Mistake("a name in the place of a class", "`Session.open`", InvalidArgumentError, "classes: types=[Plan]",
            lambda _: Session.open(MemoryStore(), "desk", types=[wrong("Plan")]),
            given("Session.open", "one of types", str)),
    Mistake("a session that there is not", "`Session.open`", SessionNotFoundError, "has no session 'desk'",
            lambda _: Session.open(MemoryStore(), "desk", create=False), {"session_id": "desk"}),
    Mistake("a text in the place of a slice's class", "`session[...]`", SessionUseError, "decorated with @dataclass",
            lambda _: Session()[wrong("Plan")].latest()),
    Mistake("two reducers of one slice and event", "`session.register`", ReducerError, "has another reducer for Order",
            two_reducers),
    Mistake("a URL in the place of the ledger's store", "`EffectLedger(...)`", InvalidArgumentError,
            "handrail.store.open(", lambda _: EffectLedger(wrong("sqlite:///desk.db")),
            given("EffectLedger", "store", str)),
    Mistake("a deadline without a time zone", "`Deadline(...)`", ValueError, "has no time zone",
            lambda _: Deadline(datetime(2030, 1, 1))),  # noqa: DTZ001 - the mistake
    Mistake("a deadline in seconds", "`Deadline.after`", InvalidArgumentError, "timedelta(minutes=5)",
            lambda _: Deadline.after(wrong(5)), given("Deadline.after", "span", int)),
    Mistake("a session id that is empty", "`Session.open`", InvalidArgumentError, "text of 1 character or more",
            lambda _: Session.open(MemoryStore(), ""), given("Session.open", "session_id", str)),
    Mistake("`create` that is a text", "`Session.open`", InvalidArgumentError, "True or False",
            lambda _: Session.open(MemoryStore(), "desk", create=wrong("no")), given("Session.open", "create", str)),
    Mistake("`checkpoint_every` that is no whole number", "`Session.open`", InvalidArgumentError,
            "a whole number of entries", lambda _: Session.open(MemoryStore(), "desk", checkpoint_every=wrong(1.5)),
            given("Session.open", "checkpoint_every", float)),
    Mistake("a negative wait", "`Session.open`", InvalidArgumentError, "zero or more",
            lambda _: Session.open(MemoryStore(), "desk", wait=timedelta(seconds=-1)),
            given("Session.open", "wait", timedelta)),
    Mistake("`stored_as` without its name", "`stored_as`", InvalidArgumentError, "@stored_as('desk.plan')",
            lambda _: stored_as(wrong(Order)), given("stored_as", "name", type)),
    Mistake("a version that is a text", "`stored_as`", InvalidArgumentError, "version=2",
            lambda _: stored_as("desk.order", version=wrong("2")), given("stored_as", "version", str)),
    Mistake("an upgrade that cannot be called", "`stored_as`", InvalidArgumentError, "a function",
            lambda _: stored_as("desk.order", version=2, upgrades={1: wrong("x")}),
            given("stored_as", "upgrades[1]", str)),
    Mistake("a subscriber that cannot be called", "`Dispatcher.subscribe`", InvalidArgumentError,
            "a function of one event", lambda _: Session().dispatcher.subscribe(Order, wrong(None)),
            given("Dispatcher.subscribe", "subscriber", type(None))),
    Mistake("a URL in the place of the filesystem's store", "`HostFilesystem(...)`", InvalidArgumentError,
            "handrail.store.open(", lambda folder: HostFilesystem(folder, store=wrong("sqlite:///desk.db")),
            given("HostFilesystem", "store", str)),
    Mistake("a number in the place of the ledger's clock", "`EffectLedger(...)`", InvalidArgumentError, "a Clock",
            lambda _: EffectLedger(clock=wrong(1)), given("EffectLedger", "clock", int)),
    Mistake("a number in the place of a clock", "`store.open`", InvalidArgumentError, "a Clock",
            lambda _: handrail.store.open("memory:", clock=wrong(1)), given("store.open", "clock", int)),
    Mistake("a number in the place of a budget", "`BudgetTracker(...)`", InvalidArgumentError, "max_total_tokens",
            lambda _: BudgetTracker(wrong(10_000)), given("BudgetTracker", "budget", int)),
)  # fmt: skip
"""Stores, sessions and limits."""

RUNS = (
    Mistake("a template in the place of a prompt", "`ToolExecutor(...)`", InvalidArgumentError, "Prompt(template)",
            lambda _: door(prompt=prompt().template), given("ToolExecutor", "prompt", PromptTemplate)),
    Mistake("a session id in the place of a session", "`ToolExecutor(...)`", InvalidArgumentError, "a Session",
            lambda _: door(session="desk"), given("ToolExecutor", "session", str)),
    Mistake("a span in the place of a deadline", "`ToolExecutor(...)`", InvalidArgumentError, "Deadline.after(",
            lambda _: door(deadline=timedelta(seconds=5)), given("ToolExecutor", "deadline", timedelta)),
    Mistake("a store in the place of a ledger", "`ToolExecutor(...)`", InvalidArgumentError, "EffectLedger(store)",
            lambda _: door(effect_ledger=MemoryStore()), given("ToolExecutor", "effect_ledger", MemoryStore)),
    Mistake("an approver that cannot be called", "`ToolExecutor(...)`", InvalidArgumentError, "a function of",
            lambda _: door(approver=True), given("ToolExecutor", "approver", bool)),
    Mistake("an approver of no parameters", "`ToolExecutor(...)`", InvalidArgumentError,
            "too many positional arguments", lambda _: door(approver=lambda: True),
            given("ToolExecutor", "approver", type(unclear))),
    Mistake("an approver of two parameters", "`ToolExecutor(...)`", InvalidArgumentError, "missing a required argument",
            lambda _: door(approver=both), given("ToolExecutor", "approver", type(unclear))),
    Mistake("an approver that is annotated to return a text", "`ToolExecutor(...)`", InvalidArgumentError,
            "is annotated to return str", lambda _: door(approver=says_yes),
            given("ToolExecutor", "approver", type(unclear))),
    Mistake("the class of answers in the place of an approver", "`ToolExecutor(...)`", InvalidArgumentError,
            "a function of an ApprovalRequest", lambda _: door(approver=Approval),
            given("ToolExecutor", "approver", type)),
    Mistake("an answer that is a text", "`Approval(...)`", InvalidArgumentError, "True or False",
            lambda _: Approval(wrong("no")), given("Approval", "approved", str)),
    Mistake("a mapping in the place of a call", "`ToolExecutor.execute`", InvalidArgumentError, "ToolCall(id, name",
            lambda _: door().execute(wrong({"id": "1", "name": "pay"})), given("ToolExecutor.execute", "call", dict)),
    Mistake("a number as the id of a call", "`ToolExecutor.execute`", InvalidArgumentError, "ToolCall(str(id)",
            lambda _: door().execute(ToolCall(wrong(1), "pay")), given("ToolExecutor.execute", "call.id", int)),
    Mistake("a number as the id of one of several calls", "`ToolExecutor.execute_all`", InvalidArgumentError,
            "ToolCall(str(id)", lambda _: door().execute_all([CALL, ToolCall(wrong(2), "pay")], reply="r"),
            given("ToolExecutor.execute", "call.id", int)),
    Mistake("the class of calls in the place of a call", "`ToolExecutor.execute`", InvalidArgumentError,
            "it must be a ToolCall", lambda _: door().execute(wrong(ToolCall)),
            given("ToolExecutor.execute", "call", type)),
    Mistake("one call in the place of several", "`ToolExecutor.execute_all`", InvalidArgumentError,
            "the calls of a reply", lambda _: door().execute_all(wrong(CALL)),
            given("ToolExecutor.execute_all", "calls", ToolCall)),
    Mistake("a number as reply", "`ToolExecutor.execute`", ValueError, "it names a reply of the model",
            lambda _: door().execute(CALL, reply=wrong(7))),
    Mistake("an approver of no parameters, for a model", "`PydanticAIAdapter(...)`", InvalidArgumentError,
            "too many positional arguments", lambda _: PydanticAIAdapter("test", approver=wrong(lambda: True)),
            given("PydanticAIAdapter", "approver", type(unclear))),
    Mistake("no model", "`PydanticAIAdapter(...)`", InvalidArgumentError, "a model of PydanticAI, or its name",
            lambda _: PydanticAIAdapter(wrong(None)), given("PydanticAIAdapter", "model", type(None))),
    Mistake("a template in the place of a prompt, for a model", "`PydanticAIAdapter.evaluate`", InvalidArgumentError,
            "Prompt(template)",
            lambda _: PydanticAIAdapter("test").evaluate(wrong(prompt().template), session=Session()),
            given("ToolExecutor", "prompt", PromptTemplate)),
    Mistake("a number of tokens in the place of a budget", "`PydanticAIAdapter.evaluate`", InvalidArgumentError,
            "Budget(max_total_tokens",
            lambda _: PydanticAIAdapter("test").evaluate(prompt(), session=Session(), budget=wrong(10_000)),
            given("PydanticAIAdapter.evaluate", "budget", int)),
)  # fmt: skip
"""Runs."""

CALLS = (
    Mistake("a resource that is not bound", "`context.resources`", UnboundResourceError, "nothing is bound for Client",
            lambda _: call(asking(Client)), {"protocol": Client, "needed_by": ()}),
    Mistake("a resource asked for by its name", "`context.resources`", ResourceUseError, "by its class",
            lambda _: call(asking("Client"))),
    Mistake("a provider of another type", "`context.resources`", WrongResourceError, "which is no Client",
            lambda _: call(asking(Client), resources={Client: Binding(Client, lambda _: wrong(7))}),
            {"protocol": Client}),
    Mistake("providers that need each other", "`context.resources`", CircularResourceError, "Client -> Till -> Client",
            lambda _: call(asking(Client), resources={
                Client: Binding(Client, lambda r: wrong(r.get(Till))),
                Till: Binding(Till, lambda r: wrong(r.get(Client)))}), {"path": (Client, Till, Client)}),
    Mistake("a singleton that needs what lives for one call", "`context.resources`", ResourceUseError, "a TOOL_CALL",
            lambda _: call(asking(Till), resources=_SHORT)),
    Mistake("a policy that returns `True`", "the pipeline", InvalidReturnError, "PolicyDecision.allow()",
            lambda _: call(policy=Rule(True)), {"function": "policy rule", "tool": "pay", "returned": bool}),
    Mistake("a policy that denies with a number", "`PolicyDecision.deny`", InvalidArgumentError,
            "text that is not blank", lambda _: PolicyDecision.deny(wrong(1)),
            given("PolicyDecision.deny", "reason", int)),
    Mistake("an approver that returns a text", "the pipeline", InvalidReturnError, "True, False or an Approval",
            lambda _: call(policy=Rule(PolicyDecision.ask("sure?")), approver=unclear),
            {"function": "the approver", "tool": "pay", "returned": str}),
    Mistake("a policy whose `on_result` returns a coroutine", "the pipeline", InvalidReturnError, "takes note at once",
            lambda _: call(policy=Notes()), {"function": "on_result of policy rule", "tool": "pay"}),
    Mistake("`path_of` that returns a number", "`ReadBeforeWritePolicy`", InvalidReturnError, "a path (str or",
            lambda _: ToolExecutor(
                prompt=prompt(Section(title="Desk", tools=[tool(), _LOOK], policies=[_FILES])).bind(
                    resources={Filesystem: InMemoryFilesystem()}), session=Session()).execute(CALL),
            {"tool": "pay", "returned": int}),
    Mistake("`key_fn` that returns a number", "the pipeline", InvalidReturnError, "a string of 1 to 512 characters",
            lambda _: ToolExecutor(prompt=prompt(Section(title="Desk", tools=[tool(idempotency=_KEYED)])),
                                   session=Session()).execute(CALL),
            {"function": "key_fn", "tool": "pay", "returned": int}),
    Mistake("files to be read first, and no `Filesystem`", "`ReadBeforeWritePolicy`", UnboundResourceError,
            "nothing is bound for Filesystem",
            lambda _: ToolExecutor(prompt=prompt(Section(title="Desk", tools=[tool(), _LOOK], policies=[_FILES])),
                                   session=Session()).execute(CALL), {"protocol": Filesystem}),
    Mistake("a reducer that returns a text", "`session.dispatch`", ReducerError, "return Append(item)",
            lambda _: call(change, session=with_reducer())),
    Mistake("a LOG that is to shrink", "`context.session`", SessionUseError, "which only grows",
            lambda _: call(shrink)),
    Mistake("a slice whose class JSON cannot say, in a store", "the commit", SessionUseError, "has no form in JSON",
            lambda _: keep(Impossible(1j))),
    Mistake("`Any` that holds what JSON cannot say, in a store", "the commit", SessionUseError,
            "declare the type of this place", lambda _: keep(Anything({1: 2}))),
    Mistake("a database where there is none", "`context.connection`", SessionUseError, "kept in no database",
            lambda _: call(write_rows)),
    Mistake("files and a session in two stores", "the commit", SecondStoreError, "commits in one store only",
            write_to_two_stores),
    Mistake("an identity that stands for another call", "`ToolExecutor.execute`", CallIdReusedError, "",
            reuse, {"call_id": "1", "reply": "r", "tool": "pay"}),
)  # fmt: skip
"""What shows only while a call runs: raised when the other calls of the reply have ended."""

MISTAKES: tuple[Mistake, ...] = (*TOOLS, *SECTIONS, *PROMPTS, *STORES, *RUNS, *CALLS)
"""All of them."""
