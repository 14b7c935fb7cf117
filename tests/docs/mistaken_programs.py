"""Programs with mistakes, for the rows of `tests.docs.developer_mistakes`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import handrail.store
from handrail import errors
from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import (
    ApprovalRequest,
    External,
    IdempotencyConfig,
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    ReadBeforeWritePolicy,
    Section,
    Tool,
    ToolContext,
    ToolResult,
    template_texts,
)
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.runtime import Session, ToolCall, ToolInvoked


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
    return Mistake(
        does, errors.InvalidArgumentError, make, {"function": function, "argument": argument, "value_type": kind}
    )


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
FILES = ReadBeforeWritePolicy(read_tools=("look",), write_tools=("pay",), find_paths=lambda _: wrong(7))
KEYED = IdempotencyConfig(strategy="custom", key_fn=lambda _: wrong(7))
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
            lambda _: call(policy=Rule(True)), {"function": "policy rule", "tool": "pay", "value_type": bool}),
    unfit("a policy that denies with a number", "PolicyDecision.deny", "reason", int,
          lambda _: PolicyDecision.deny(wrong(1))),
    Mistake("an approver that returns a text", errors.InvalidReturnError,
            lambda _: call(policy=Rule(PolicyDecision.ask("sure?")), approver=unclear),
            {"function": "the approver", "tool": "pay", "value_type": str}),
    Mistake("a policy whose `on_result` returns a coroutine", errors.InvalidReturnError,
            lambda _: call(policy=Notes()), {"function": "on_result of policy rule", "tool": "pay"}),
    Mistake("`find_paths` that returns a number", errors.InvalidReturnError,
            lambda _: ToolExecutor(
                prompt=prompt(Section(title="Desk", tools=[tool(), LOOK], policies=[FILES])).bind(
                    resources={Filesystem: InMemoryFilesystem()}), session=Session()).execute(CALL),
            {"tool": "pay", "value_type": int}),
    Mistake("`key_fn` that returns a number", errors.InvalidReturnError,
            lambda _: ToolExecutor(prompt=prompt(Section(title="Desk", tools=[tool(idempotency=KEYED)])),
                                   session=Session()).execute(CALL),
            {"function": "key_fn", "tool": "pay", "value_type": int}),
    Mistake("`reconcile` that returns a plain value", errors.InvalidReturnError,
            lambda _: reconcile_with(True), {"function": "reconcile", "tool": "pay", "value_type": bool}),
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
