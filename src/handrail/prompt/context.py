"""`ToolContext`, the second argument of a handler.

A prompt has tools, a tool's handler takes a context, and a context has the prompt. To break the import cycle, the
context has the prompt and the rendered prompt as protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.resources import CallScope, ResourceContext, ResourceRegistry
from handrail.resources.context import BoundResources
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.transaction import Transaction, view_for_call

if TYPE_CHECKING:
    from handrail.filesystem import Filesystem
    from handrail.limits import BudgetTracker, Deadline, Heartbeat, RunContext
    from handrail.session import DatabaseConnection


# Properties in these protocols, and not attributes, which would have to be assignable.
class PromptView(Protocol):
    """A prompt as handlers see it. `Prompt` is one."""

    @property
    def name(self) -> str:
        """The name of the prompt in logs and events."""
        ...

    @property
    def resources(self) -> ResourceContext:
        """The resources that all calls of the prompt share."""
        ...


class RenderedView(Protocol):
    """A rendered prompt as handlers see it. `RenderedPrompt` is one."""

    @property
    def text(self) -> str:
        """The instructions that the model received."""
        ...

    @property
    def tools(self) -> tuple[Any, ...]:
        """The tools that the model may call, each a `Tool`, in the order of their declaration."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunScope:
    """What the calls of one run share, as handlers see it; `runtime.environment.Environment` has the rest.

    Attributes:
        prompt: the prompt of the run; its resources are `context.resources` of handlers.
        session: the session of the run: results are stored in it, and it is rolled back.
        adapter: what drives the run; `context.adapter` of handlers.
        deadline: no handler starts or runs past it.
        heartbeat: the heartbeat of `context.beat()`, if the run is watched.
        run_context: the correlation ids of the run, for `ToolInvoked`.
        budget_tracker: `context.budget_tracker` of handlers.
        clock: the source of the time.
        on_progress: called with what `context.progress` reports, in any thread.
        watch: wraps the database that a call uses; `None` for the database as it is.
        times: the times that a call gets again in a replay; `None` for the present ones.
    """

    prompt: PromptView
    session: Session
    adapter: object = None
    deadline: Deadline | None = None
    heartbeat: Heartbeat | None = None
    run_context: RunContext | None = None
    budget_tracker: BudgetTracker | None = None
    clock: Clock = SYSTEM_CLOCK
    on_progress: Callable[[CallRef, float, float | None, str | None], object] | None = None
    watch: Callable[[DatabaseConnection, CallRef], DatabaseConnection] | None = None
    times: Callable[[CallRef], Sequence[datetime]] | None = None

    @property
    def rendered_prompt(self) -> RenderedView | None:
        """The prompt as the model received it, if there is one."""
        return None


class ToolContext:
    """The context of a call, for handlers and policies. Immutable; one is created for each call."""

    __slots__ = (
        "_beat_claim",
        "_bound_resources",
        "_bound_session",
        "_call",
        "_environment",
        "_fence",
        "_idempotency_key",
        "_resources",
        "_times",
        "_transaction",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - a value with many fields, created by the pipeline
        self,
        environment: RunScope,
        resources: CallScope,
        ref: CallRef,
        idempotency_key: str | None = None,
        fence: int | None = None,
        beat_claim: Callable[[], object] | None = None,
        transaction: Transaction | None = None,
        times: list[datetime] | None = None,
    ) -> None:
        self._environment = environment
        self._resources = resources
        self._call = ref
        self._idempotency_key = idempotency_key
        self._fence = fence
        self._beat_claim = beat_claim
        self._transaction = transaction
        self._times = times
        # Made when they are first asked for: a call that asks for no view pays nothing for it.
        self._bound_resources: CallScope | None = None
        self._bound_session: Session | None = None

    @staticmethod
    def of(
        *,
        session: Session | None = None,
        resources: ResourceRegistry | Mapping[type[Any], object] | None = None,
        deadline: Deadline | None = None,
        clock: Clock = SYSTEM_CLOCK,
        call_id: str = "call",
    ) -> ToolContext:
        """A context without a run or a prompt, for tests of a handler or a policy; `resources` as for `Prompt.bind`."""
        registry = resources if isinstance(resources, ResourceRegistry) else ResourceRegistry.build(resources or {})
        # Not closed here: `context.prompt.resources` is the same object, so that a test can close it.
        shared = registry.open()
        own = Session() if session is None else session
        scope = RunScope(prompt=_NoPrompt(shared), session=own, deadline=deadline, clock=clock)
        return ToolContext(scope, shared.call_scope(), CallRef(None, call_id))

    @property
    def environment(self) -> RunScope:
        """The environment that all calls of the run share."""
        return self._environment

    @property
    def resources(self) -> CallScope:
        """The resources as this call sees them; those of scope `TOOL_CALL` are its own.

        In a handler, a resource whose class has views (`handrail.transaction.view_for_call`) is bound to the call, as
        `session` is. A provider gets the program's own object.
        """
        resources = self._bound_resources
        if resources is None:
            resources, call = self._resources, self._transaction
            if call is not None:
                resources = BoundResources(resources, call, view_for_call=resource_for_call)
            self._bound_resources = resources
        return resources

    @property
    def call_id(self) -> str:
        """The id of the call, as the model gave it."""
        return self._call.call_id

    @property
    def reply(self) -> str | None:
        """The reply of the model that asked for the call; `None` if it was not given."""
        return self._call.reply

    @property
    def call(self) -> CallRef:
        """The identity of the call within its session."""
        return self._call

    @property
    def idempotency_key(self) -> str | None:
        """The key of the effect; `None` for a call that claims none.

        Forward it to an API that takes such keys, and the effect happens once, however often it is tried.
        """
        return self._idempotency_key

    @property
    def fence(self) -> int | None:
        """The fencing token, higher for each new owner of the effect; `None` for a call that claims none."""
        return self._fence

    @property
    def prompt(self) -> PromptView:
        """The prompt that the call belongs to."""
        return self._environment.prompt

    @property
    def rendered_prompt(self) -> RenderedView | None:
        """The prompt as rendered for the model, if there is one."""
        return self._environment.rendered_prompt

    @property
    def adapter(self) -> object:
        """The adapter that drives the run, or `None`; its type depends on the adapter."""
        return self._environment.adapter

    @property
    def session(self) -> Session:
        """The session of the run; writes to it are part of the call.

        In a handler it is a view that is bound to the call: equal to the session, and not the same object. Any thread
        may write through it until the call has ended; later writes are refused (`handrail.session.views`).
        """
        session = self._bound_session
        if session is None:
            session, transaction = self._environment.session, self._transaction
            if transaction is not None:
                from handrail.session.views import bound_session  # noqa: PLC0415

                session = bound_session(session, transaction)
            self._bound_session = session
        return session

    @property
    def connection(self) -> DatabaseConnection:
        """The database of the session's store, inside the transaction that commits this call.

        Writes are committed in one unit with all other changes of the call, and rolled back with them: an effect inside
        the store's own database happens exactly once. The database refuses the writes of a call that may only read.

        Raises:
            SessionError: the session is not in a database.
        """
        connection, watch = self._environment.session.connection(), self._environment.watch
        return connection if watch is None else watch(connection, self._call)

    @property
    def deadline(self) -> Deadline | None:
        """The moment by which the run must have ended, if there is one."""
        return self._environment.deadline

    @property
    def heartbeat(self) -> Heartbeat | None:
        """The heartbeat of the run, if it is watched."""
        return self._environment.heartbeat

    @property
    def run_context(self) -> RunContext | None:
        """The correlation ids of the run, if it has any."""
        return self._environment.run_context

    @property
    def clock(self) -> Clock:
        """The source of the time. What it says to a call of a stored session is recorded, for a replay."""
        scope = self._environment
        if self._times is None:
            return scope.clock
        return _CallClock(scope.clock, self._times, () if scope.times is None else scope.times(self._call))

    @property
    def filesystem(self) -> Filesystem | None:
        """The bound `Filesystem`, if there is one: `resources.get(Filesystem, None)`."""
        from handrail.filesystem import Filesystem  # noqa: PLC0415

        return self.resources.get(Filesystem, None)

    @property
    def budget_tracker(self) -> BudgetTracker | None:
        """The bound `BudgetTracker`, or else that of the run, if there is one."""
        # A bound tracker counts for one prompt only, so it precedes the tracker that the whole run shares.
        from handrail.limits import BudgetTracker  # noqa: PLC0415

        return self._resources.get(BudgetTracker, self._environment.budget_tracker)

    def beat(self) -> None:
        """Beats the run's heartbeat and renews the lease of the claim; for handlers that take long.

        Raises:
            LeaseLostError: another owner has claimed the effect. If it is not done yet, stop without doing it.
        """
        # The heartbeat comes first: renewing raises if the lease is lost, and the handler is working nevertheless.
        if self._environment.heartbeat is not None:
            self._environment.heartbeat.beat()
        if self._beat_claim is not None:
            self._beat_claim()

    def progress(self, done: float, total: float | None = None, text: str | None = None) -> None:
        """Reports how far the call is, to a caller that listens, and beats the run's heartbeat; from any thread."""
        if self._environment.heartbeat is not None:
            self._environment.heartbeat.beat()
        if self._environment.on_progress is not None:
            self._environment.on_progress(self._call, done, total, text)


CALL_CONTEXT: Final[ContextVar[ToolContext | None]] = ContextVar("handrail_tool_context", default=None)
"""The context of the handler that runs here. A thread or task that runs on after its call still has it."""


def tool_context() -> ToolContext | None:
    """The context of the handler that runs here, for code without a parameter for it; `None` outside of handlers."""
    return CALL_CONTEXT.get()


def resource_for_call(resource: object, call: Transaction) -> object:
    """The view of a resource that is bound to a call; the resource itself if it has none."""
    if not isinstance(resource, Session):
        return view_for_call(resource, call)
    from handrail.session.views import bound_session  # noqa: PLC0415

    return bound_session(resource, call)


class _CallClock(NamedTuple):
    # A clock whose times are noted; of a replay the recorded ones come first.

    clock: Clock
    times: list[datetime]
    earlier: Sequence[datetime]

    def now(self) -> datetime:
        place = len(self.times)
        self.times.append(self.earlier[place] if place < len(self.earlier) else self.clock.now())
        return self.times[place]

    def monotonic(self) -> float:
        return self.clock.monotonic()


class _NoPrompt(NamedTuple):
    resources: ResourceContext
    name: str = "no prompt"
