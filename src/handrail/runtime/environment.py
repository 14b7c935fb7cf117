"""What all calls of one run share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from handrail.errors import DumpError, SchemaError, StoreError
from handrail.prompt import Prompt, RenderedPrompt, Tool
from handrail.prompt.context import RunScope
from handrail.prompt.disclosure import PromptRendering
from handrail.prompt.prompt import free_name
from handrail.resources import ResourceContext
from handrail.runtime.calls import READER, written_arguments
from handrail.serde import digest
from handrail.session import Session
from handrail.session.calls import CallRef, ToolCall
from handrail.session.persistence.stored_types import loaded_type, name_late
from handrail.transaction import Transaction, in_call

if TYPE_CHECKING:
    from handrail.prompt import Approval, ApprovalRequest, Approver
    from handrail.runtime.calls import ToolMessage
    from handrail.runtime.execution import ExecutionMode
    from handrail.runtime.guard import RunGuard
    from handrail.runtime.ledger.ledger import EffectLedger
    from handrail.store.protocol import EffectRow
    from handrail.taint import TaintIndex

name_late(
    {
        "handrail.prompt.read_before_write": "handrail.files_known",
        "handrail.runtime.claim_step": "handrail.effect_applied",
        "handrail.runtime.undo_records": "handrail.undo_registration",
        "handrail.undo.applying": "handrail.undo_message",
        "handrail.adapters.hooks": "handrail.feedback_given handrail.sent_back",
        "handrail.runtime.long_results": "handrail.cut_result handrail.read_result",
        "handrail.taint.policy": "handrail.sanitized",
        "handrail.taint": "handrail.tainted handrail.delimiter_secret",
    }
)

MAX_ARGUMENT_BYTES = 1_048_576
"""The limit on the arguments of one call, as JSON in UTF-8."""

MessageHook: TypeAlias = Callable[["ToolMessage", ToolCall, CallRef, "ExecutionMode"], Awaitable["ToolMessage"]]
"""Adds to the message of a call that is not nested; `handrail.adapters.hooks` has the one that there is."""


RUN_GUARD: Final = "handrail.run_guard"
"""Where the guard of a run is in `Session.attached`."""


def find_guard(session: Session) -> RunGuard | None:
    """The guard of the run that a session is of: its own, or that of a session above it."""
    above: Session | None = session.unbound
    while above is not None:
        if (guard := above.attached.get(RUN_GUARD)) is not None:
            return cast("RunGuard", guard)
        above = above.parent
    return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Environment(RunScope):
    """All that the calls of one run share; `begin` makes it, once for each run.

    Attributes:
        rendering: the prompt as it is rendered now; the owner of its renderings.
        find_ledger: finds what records effects; the ledger of a session in memory is made with its first effect.
        approver: asked where a policy requires approval; without one, such calls are refused.
        caller_answer: the answer of the caller of the run to a call that it makes again, or `None`; it counts where the
            approver leaves the question open.
        reply_ends: for each reply that an interrupt such as `KeyboardInterrupt` has ended, the newest such end; see
            `end_reply`. It has `None` where calls without a reply are those of one; else each of these is by itself.
        open_questions: the calls about which the approver is asked, or was when it was interrupted.
        records_questions: the approver itself records the questions that it leaves open.
        has_span: says of a call if the entry point has opened a span for it; telemetry adds to the current one then.
        reader_name: the name of the tool that reads long results: `read_result`, or the next that is free.
        feedback: adds what the feedback providers of the prompt say; `None` if it has none.
        within: the call whose handler has made the run, by giving it the view that it has of its session: all calls of
            the run are nested in it, in whatever thread or task they are made. `None` for any other run.
        settles: the done effect whose result is applied without a call of the model; `None` for a run. No policy or
            approver is asked then, and no handler runs.
        final_failures: whether a repeat of a call that was refused may be answered from its record; that of an undo is
            judged and tried anew.
        guard: guards a run that rehearses, or that executes a plan; `None` for any other.
    """

    prompt: Prompt[Any]
    rendering: PromptRendering
    reader_name: str
    find_ledger: Callable[[], EffectLedger] = field(repr=False)
    approver: Approver | None = None
    caller_answer: Callable[[ApprovalRequest], Approval | None] = lambda _: None
    reply_ends: dict[str | None, object] = field(default_factory=dict[str | None, object], repr=False)
    open_questions: set[CallRef] = field(default_factory=set[CallRef], repr=False)
    records_questions: bool = False
    has_span: Callable[[CallRef], bool] = lambda _: False
    feedback: MessageHook | None = None
    within: Transaction | None = None
    settles: EffectRow | None = None
    final_failures: bool = True
    guard: RunGuard | None = None
    plans: dict[str, Any] = field(init=False, repr=False, default_factory=dict[str, Any])
    """What `handrail.runtime.plan` has worked out for tools, by their names."""
    _taints: dict[str, TaintIndex] = field(repr=False, default_factory=dict[str, "TaintIndex"])

    @classmethod
    def begin(cls, prompt: Prompt[Any], rendering: PromptRendering, session: Session, **shared: Any) -> Environment:  # noqa: ANN401 - the other attributes
        """The environment of a run that begins now; `shared` are its other attributes."""
        unbound = session.unbound
        if (guard := find_guard(unbound)) is not None:
            shared |= {"guard": guard, "approver": guard.approve, "watch": partial(guard.watch, unbound)}
            shared["times"] = partial(guard.times, unbound.session_id)
            shared["find_ledger"] = partial(guard.ledger, unbound, shared["find_ledger"])
        # Also beside the tools of closed sections, which may be opened later.
        placed, offered = prompt.template.placed_tools(), rendering.seen_by().tools
        names = {tool.name for tool in (*(tool for tool, _ in placed), *offered)}
        return cls(
            prompt=prompt,
            rendering=rendering,
            session=unbound,
            reader_name=free_name(READER, names),
            within=getattr(session, "bound_to", None),  # a call's view has one
            **shared,
        )

    def digest_arguments(self, call: ToolCall) -> str | None:
        """Distinguishes what the model wrote from the same with other secrets; `None` without a key, or JSON."""
        store, ledger = self.session.store, self.find_ledger()
        if store is not None and store is not ledger.units:  # another process may have another ledger, with another key
            return None
        try:
            return digest(written_arguments(call), key=ledger.store.hash_key())
        except (DumpError, SchemaError, StoreError, RecursionError):  # not JSON, or no key
            return None

    @property
    def is_tainted(self) -> bool:
        """True if the session has read untrusted content."""
        return (kind := loaded_type("handrail.tainted")) is not None and self.session[kind].version is not None

    @property
    def taints(self) -> TaintIndex:
        """The untrusted content that the session has read."""
        from handrail.taint import TaintIndex  # noqa: PLC0415

        return self._taints.setdefault("", TaintIndex(self.session))

    @property
    def resources(self) -> ResourceContext:
        """The resources of the prompt."""
        return self.prompt.resources

    def in_call(self) -> AbstractContextManager[None]:
        """A block in which the call that the run is `within` is the current one."""
        return nullcontext() if self.within is None else in_call(self.within)

    @property
    def rendered_prompt(self) -> RenderedPrompt[Any]:
        """The prompt as the model receives it with the next request."""
        return self.rendering.seen_by()

    def with_rendered(self, prompt: RenderedPrompt[Any]) -> Environment:
        """The same run with another prompt, which shows what it shows whatever is opened."""
        return replace(self, rendering=self.rendering.showing(prompt))

    @property
    def tools(self) -> tuple[Tool[Any, Any], ...]:
        """The tools that the model is offered now: those of the prompt, and those that the session adds."""
        return (*self.rendered_prompt.tools, *self.added_tools)

    @property
    def added_tools(self) -> tuple[Tool[Any, Any], ...]:
        """The tools that no section brings: for closed sections, and `read_result` once a result is cut."""
        from handrail.runtime.long_results import CutResult, result_reader  # noqa: PLC0415

        if not self.session[CutResult]:
            return self.rendering.tools
        return (*self.rendering.tools, result_reader(self.reader_name, untrusted=self.is_tainted))

    @property
    def added_names(self) -> tuple[str, ...]:
        """The names of all tools that may be added."""
        return (*(tool.name for tool in self.rendering.tools), self.reader_name)

    def tool(self, name: str, reply: str | None = None) -> Tool[Any, Any] | None:
        """The tool of that name, as the calls of a reply see the prompt, or `None`."""
        own = self.rendering.seen_by(reply).tool(name)
        return own or next((tool for tool in self.added_tools if tool.name == name), None)

    def end_reply(self, reply: str | None) -> None:
        """Has no waiting call of the reply begin, after an interrupt; a cancellation of a call does not."""
        if reply is not None or None in self.reply_ends:
            self.reply_ends[reply] = object()

    def is_held_back(self, reply: str | None, reply_end: object) -> bool:
        """True if a call that has not begun waits behind a question of its reply, or that has ended (`reply_end`)."""
        if reply is None and None not in self.reply_ends:
            return False
        asks = any(call.reply == reply for call in tuple(self.open_questions))
        return asks or self.reply_ends.get(reply) is not reply_end

    def for_reply(self, reply: str | None) -> Environment:
        """The same run for the calls of one reply: those of one without a name belong together."""
        return self if reply is not None else replace(self, reply_ends={None: None}, open_questions=set[CallRef]())
