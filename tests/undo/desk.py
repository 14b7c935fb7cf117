"""A desk whose calls are undone: payments in a book outside, slices of the session, and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from handrail import undo
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import RunAbortedError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import External, Prompt, PromptTemplate, Tool, ToolContext, ToolResult, ToolsSection, Undo, tool
from handrail.runtime import IdempotencyConfig, Session, ToolCall, ToolMessage
from handrail.session import SlicePolicy
from handrail.store import Store
from handrail.undo import UndoPlan


@dataclass(frozen=True)
class Order:
    """An order of the desk."""

    order: str
    cents: int = 500


@dataclass(frozen=True)
class Receipt:
    """What the bank says of a payment."""

    payment: str
    order: str


@dataclass(frozen=True)
class Note:
    """A note of the desk, in a slice of its own."""

    text: str


@dataclass(frozen=True)
class Total:
    """How many notes there are; each call puts another value in the place of the last."""

    count: int


@dataclass(frozen=True)
class Seen:
    """What stays, whatever is undone."""

    survives_undo: ClassVar[bool] = True

    text: str


@dataclass(frozen=True)
class Heard:
    """A record of the desk."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    text: str


@dataclass
class Book:
    """The world outside: payments, and refunds with the keys under which they were made."""

    paid: list[str] = field(default_factory=list[str])
    refunded: dict[str, str] = field(default_factory=dict[str, str])
    order: list[str] = field(default_factory=list[str])
    calls: int = 0
    fails: Exception | None = None
    fails_after: Exception | None = None

    def pay(self, params: Order, *, context: ToolContext) -> ToolResult[Receipt]:
        self.calls += 1
        payment = f"payment-{self.calls}"
        self.paid.append(payment)
        if self.fails_after is not None:
            raise self.fails_after
        return ToolResult.ok(Receipt(payment, params.order), message="paid")

    def refund(self, params: Order, result: ToolResult[Receipt], before: int, *, context: ToolContext) -> None:
        if self.fails is not None:
            raise self.fails
        receipt = result.value
        assert receipt is not None
        assert receipt.payment in self.paid, "a payment is refunded once"
        self.paid.remove(receipt.payment)
        self.refunded[context.idempotency_key or ""] = receipt.payment
        self.order.append(f"{receipt.payment} after {before}")
        if self.fails_after is not None:
            raise self.fails_after

    def abort(self) -> None:
        raise RunAbortedError("the line is dead")

    def count(self, params: Order) -> int:
        return len(self.paid)

    def find_refund(self, params: Order, key: str) -> ToolResult[None] | None:
        return ToolResult.ok(None, message="found") if key in self.refunded else None

    def find_payment(self, params: Order, key: str) -> ToolResult[Receipt] | None:
        return ToolResult.ok(Receipt(self.paid[-1], params.order), message="found") if self.paid else None

    def pays(self, **options: Any) -> Tool[Order, Receipt]:
        """The tool `pay`, which is undone by `refund`."""
        return Tool[Order, Receipt](
            name="pay",
            description="Pays an order.",
            **cast(
                "Any",
                {"handler": self.pay, "effect": "external", "undo": self.refund, "capture": self.count, **options},
            ),
        )

    def asks(self, **options: Any) -> Tool[Order, Receipt]:
        """The same, with a bank that knows of payments and refunds."""
        effect = External(reconcile=self.find_payment, reconcile_proves_absence=True)
        own = Undo(self.refund, External(reconcile=self.find_refund, reconcile_proves_absence=True))
        return self.pays(**{"effect": effect, "undo": own, **options})


@tool
def note(text: str) -> Note:
    """Write a note."""
    return Note(text)


@tool
def count(by: int, *, context: ToolContext) -> str:
    """Count, and say so."""
    total = context.session[Total].latest() or Total(0)
    context.session[Total].seed(Total(total.count + by))
    context.session[Seen].append(Seen("counted"))
    context.session[Heard].append(Heard("counted"))
    return "counted"


@tool(effect="read")
def look(path: str) -> str:
    """Look at a file."""
    return path


@tool
def write(path: str, text: str, *, context: ToolContext) -> str:
    """Write a file."""
    context.resources.get(Filesystem).write_text(path, text)
    return "written"


@tool(effect="external")
def mail(to: str) -> str:
    """Send a mail, which nothing undoes."""
    return "sent"


KEYED = IdempotencyConfig(ttl=None)


class Desk:
    """A session in a store, with an executor over its tools; `tools` come before those of the desk."""

    def __init__(self, store: Store, *tools: Tool[Any, Any], book: Book | None = None, **options: Any) -> None:
        self.store = store
        self.book: Book = book or Book()
        self.files: InMemoryFilesystem = options.pop("files", None) or InMemoryFilesystem({"kept.txt": "as it was"})
        all_tools: tuple[Tool[Any, Any], ...] = (self.book.pays(), note, count, look, write, mail, *tools)
        named = {one.name: one for one in all_tools}
        self.policies: Sequence[Any] = options.pop("policies", ())
        self.tools: tuple[Tool[Any, Any], ...] = tuple(named.values())
        self.options = options
        self.session: Session = Session.open(store, options.pop("session_id", "desk"))
        self.executor: ToolExecutor = self.open_executor()
        self._number = 0

    def open_executor(self) -> ToolExecutor:
        """An executor over the tools of the desk."""
        section = ToolsSection(title="Desk", key="desk", tools=self.tools, policies=tuple(self.policies))
        template = PromptTemplate[str](ns="tests", key="desk", sections=[section])
        prompt = Prompt(template, resources={Filesystem: self.files})
        return ToolExecutor(prompt=prompt, session=self.session, **self.options)

    def resume(self) -> None:
        """Closes the session, and opens it as another process would; the files stay."""
        self.session.close()
        self.session = Session.open(self.store, self.session.session_id)
        self.executor = self.open_executor()

    def ask(self, name: str, *, reply: str | None = "r", id: str | None = None, **arguments: Any) -> ToolMessage:
        """Makes a call; ids are c1, c2, ..."""
        self._number += 1
        return self.executor.execute(ToolCall(id or f"c{self._number}", name, arguments), reply=reply)

    def plan(self, to: Any = None) -> UndoPlan:
        """A plan of what there is now."""
        return undo.plan(self.session, to, executors=self.executor)

    def outcomes(self, to: Any = None) -> list[str]:
        """The steps of such a plan: `c3: restored`."""
        return [f"{step.ref.call_id}: {step.outcome}" for step in self.plan(to).steps]

    @property
    def state(self) -> tuple[object, ...]:
        """What there is: payments, slices, files."""
        session = self.session
        return (*self.book.paid, session[Note].all(), session[Total].all(), session[Receipt].all(), dict(self.contents))

    @property
    def contents(self) -> dict[str, str]:
        """The files, by their paths."""
        return {entry.path: self.files.read_text(entry.path) for entry in self.files.list() if entry.kind == "file"}


def desk_in_doubt(store: Store, book: Book, **call: str) -> Desk:
    """A desk whose payment has no answer; the bank says what it was only when it is asked once more."""
    asked: list[str] = []

    def find(params: Order, key: str) -> Any:
        asked.append(key)
        if len(asked) == 1:
            raise ConnectionError("the line is dead")
        return book.find_payment(params, key)

    desk = Desk(store, book.pays(effect=External(reconcile=find)), book=book)
    book.fails_after = TimeoutError("the line is dead")
    desk.ask("pay", order="A-1", **call)
    book.fails_after = None
    return desk
