"""The duties of every way in, as functions over plain values. An entry point only translates calls and messages.

| duty | functions |
|---|---|
| set up a run: its ledger, checks of tools, what is read first | `session_ledger`, `check_tool`, `read_ahead` |
| name a reply: its provider's id, unless another reply has that | `read_open_replies`, `claim_reply_name` |
| bound requests by deadline and budget | `check_budget`, `count_reply`, `make_request` |
| run a call; a question that is left open, or sections that it opens, end no reply | `run_call`, `find_outcome` |
| say if the framework has opened a span for a call | `Environment.has_span` |
| run the calls of a reply in their order | `run_in_order`, `run_concurrently` |
| raise mistakes of the program when the other calls have ended | `DeferredMistakes` |
| record calls that waited, and that the program answers itself | `list_waiting`, `record_answer` |

The pipeline answers unknown names. `handrail.adapters.settlement` settles effects before a run.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from inspect import iscoroutinefunction
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import (
    BudgetExceededError,
    CallPostponed,
    DeadlineExceededError,
    PromptEvaluationError,
    SchemaError,
    SecondStoreError,
    SessionError,
    StoreError,
    UnknownTypeError,
    VisibilityExpansionRequired,
)
from handrail.errors.developer import check_argument, mistakes_in, note_mistakes
from handrail.prompt import Tool, ToolResult
from handrail.prompt.disclosure import OpenSections, PromptRendering, listed_paths, opened_text
from handrail.prompt.signature import is_async
from handrail.redaction import redacted_logger
from handrail.runtime.calls import ToolInvoked, ToolMessage
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC, BLOCKING, SIDE_BY_SIDE, ExecutionMode, run_to_completion
from handrail.runtime.invoke import invoke
from handrail.serde import stored_codec
from handrail.serde.canonical import canonical_json
from handrail.session import Session
from handrail.session.calls import CallRef, ToolCall, checked_reply, distinct_call
from handrail.transaction import current
from handrail.waiting import asynchronous_entry, loop_is_running, synchronous_entry

if TYPE_CHECKING:
    import asyncio

    from handrail.limits import Deadline, TokenUsage
    from handrail.prompt import ApprovalRequest
    from handrail.runtime.ledger.ledger import EffectLedger
    from handrail.session.open_calls import PostponedCall

T = TypeVar("T")
C = TypeVar("C", bound=type[object])

LoopOutcome: TypeAlias = ToolMessage | CallPostponed
"""The message of a call, or that it waits."""

_Make: TypeAlias = Callable[[ToolCall, str | None, Environment, ExecutionMode], Coroutine[Any, Any, T]]

_log = redacted_logger("handrail.adapters")

# Of the process: the sessions of a store share a ledger, with its thread. By the identity of store and clock.
_STORE_LEDGERS: WeakValueDictionary[tuple[int, int], EffectLedger] = WeakValueDictionary()

# ----------------------------------------------------------------------------------------------------- set-up of a run


def asynchronous_entries(kind: C) -> C:
    """Marks the public coroutine methods of a class as asynchronous entries (`handrail.waiting`)."""
    for name, method in tuple(vars(kind).items()):
        if iscoroutinefunction(method) and not name.startswith("_"):
            setattr(kind, name, asynchronous_entry(method))
    return kind


def session_ledger(session: Session, *, clock: Clock = SYSTEM_CLOCK) -> EffectLedger:
    """The ledger in the store of the session, so that an effect is recorded in one unit with the call.

    All sessions of a store share it, with the thread that renews its claims. A session in memory has one in memory.
    """
    from handrail.runtime.ledger.ledger import EffectLedger  # noqa: PLC0415
    from handrail.store.protocol import LedgerStore  # noqa: PLC0415

    store: object = session.store
    if store is None or not isinstance(store, LedgerStore):
        attached, own = session.attached, (EffectLedger, id(clock))
        return cast("EffectLedger", attached.get(own) or attached.setdefault(own, EffectLedger(clock=clock)))
    # A ledger refers to both, so their ids name no other objects while it is used.
    key = id(store), id(clock)
    return _STORE_LEDGERS.get(key) or _STORE_LEDGERS.setdefault(key, EffectLedger(store, clock=clock))


def check_one_store(tool_name: str, environment: Environment) -> None:
    """Checks that what a tool applies can be committed with its effect: session and ledger are in one store.

    Raises:
        SecondStoreError: they are not.
    """
    store, second = environment.session.store, environment.find_ledger().units
    if store is not second:
        raise SecondStoreError(store=store, second=second, tool=tool_name)


def check_tool(tool: Tool[Any, Any], environment: Environment) -> None:
    """Checks that what a tool applies is committed with its effect, and that what is stored of its result can be read.

    Raises:
        SecondStoreError: as `check_one_store`.
        SchemaError: JSON does not distinguish the members of a union in the result; the error names the tool.
    """
    if tool.apply is not None:
        check_one_store(tool.name, environment)
    if tool.result_type is None or not (tool.claims or environment.session.store is not None):
        return
    try:
        stored_codec(tool.result_type)
    except SchemaError as error:
        fault = f"the result of tool {tool.name} is stored, in the session or in the ledger: {error}"
        raise SchemaError(fault, type=error.type, path=error.path) from error


def tool_description(tool: Tool[Any, Any]) -> str:
    """The description for the model, with the examples, for which providers have no field."""
    examples = [
        f"Example ({example.description}): {canonical_json({} if example.input is None else example.input).decode()}"
        for example in tool.examples
    ]
    return "\n".join((tool.description, *examples))


async def read_ahead(session: Session, *others: type[object]) -> None:
    """Reads the slices of a stored session that each run uses, and `others`, without holding the event loop.

    Raises:
        StoreError: the items cannot be read.
        UnknownTypeError: they do not fit their class.
    """
    if session.store is None:
        return
    from handrail.taint import DelimiterSecret, Tainted  # noqa: PLC0415

    used_by_runs = (OpenSections, Tainted, DelimiterSecret)
    kinds = [kind for kind in (*used_by_runs, *others) if session[kind].version is not None]
    if kinds:
        await ASYNC.write_to(session.store, lambda: [session[kind].all() for kind in kinds])


# ---------------------------------------------------------------------------------------------------- names of replies


class _ReplyNames(NamedTuple):
    """The provider ids that name replies of a session: since when, by this process and by calls that were open."""

    own: dict[str, datetime]
    open: dict[str, datetime]


async def read_open_replies(session: Session) -> None:
    """Reads which replies of a session have open calls, without holding the event loop; once for each session.

    `claim_reply_name` needs them. What cannot be read is read again then, and is reported if it is needed.
    """
    if session.store is None or _ReplyNames in session.attached:
        return
    with suppress(StoreError, SessionError):
        await ASYNC.write_to(session.store, partial(_reply_names, session))


def claim_reply_name(session: Session, name: str, call_ids: Sequence[str], arrived: datetime) -> bool:
    """Claims the id that a provider gave a reply for it; false if it is the name of another reply of the session.

    Some servers reuse ids of replies, or always send the same. A reply that durable execution delivers again, with its
    time, keeps its name.
    """
    try:
        names = _reply_names(session)
        records = [session.calls.find(CallRef(name, call_id)) for call_id in call_ids]
    except StoreError:  # no call starts without its store
        return False
    if names.own.get(name) == arrived:
        return True
    is_earlier = any(isinstance(record, ToolInvoked) and record.at < arrived for record in records)
    if is_earlier or names.open.get(name, arrived) < arrived:
        return False
    # `dict.setdefault` is atomic, so of two threads with the same id only the first one gets the name.
    return names.own.setdefault(name, arrived) == arrived


def _reply_names(session: Session) -> _ReplyNames:
    names: _ReplyNames | None = session.attached.get(_ReplyNames)
    if names is not None:
        return names
    since: dict[str, datetime] = {}
    for call in session.open_calls:
        start = call.claimed_at or datetime.min.replace(tzinfo=UTC)
        # A nested call is recorded under its own reply, but its ancestors' replies are in use as well.
        for reply in (ref.reply for ref in (call.call, *call.call.ancestors) if ref.reply is not None):
            since[reply] = min(start, since.get(reply, start))
    # Two threads may both read the store; `setdefault` makes both use the first result.
    return cast("_ReplyNames", session.attached.setdefault(_ReplyNames, _ReplyNames({}, since)))


# ------------------------------------------------------------------------------------------------------ limits of a run


def check_budget(environment: Environment) -> None:
    """Checks the budget of a run, before a request and after a reply.

    Raises:
        PromptEvaluationError: it is exceeded, or its deadline has passed.
    """
    if environment.budget_tracker is None:
        return
    try:
        environment.budget_tracker.check()
    except (BudgetExceededError, DeadlineExceededError) as error:
        raise budget_error(error) from error


def budget_error(error: BudgetExceededError | DeadlineExceededError) -> PromptEvaluationError:
    """The error for an exceeded budget."""
    phase = "budget" if isinstance(error, BudgetExceededError) else "request"
    return PromptEvaluationError(str(error), phase=phase)


def count_reply(environment: Environment, run_id: str, usage: TokenUsage, calls: int) -> None:
    """Counts a reply, before any of its calls runs.

    `run_id` identifies the run among those that share its budget, and `usage` has the tokens of all its replies so far.
    """
    tracker = environment.budget_tracker
    if tracker is not None:
        tracker.record(run_id, usage)
        for _ in range(calls):
            tracker.record_call()
        check_budget(environment)


async def make_request(deadline: Deadline | None, request: Callable[[], Awaitable[T]]) -> T:
    """Makes a request of a model, bounded by the deadline of the run.

    Raises:
        PromptEvaluationError: the deadline passed, before or meanwhile.
    """
    if deadline is None:
        return await request()
    # The timeout below would cancel the request only at its first wait, when it may have been sent.
    if deadline.expired:
        raise _late(deadline, "before")
    from asyncio import timeout  # noqa: PLC0415

    bound = timeout(deadline.remaining().total_seconds())
    try:
        async with bound:
            reply = await request()
    except TimeoutError as error:
        # A `TimeoutError` of the HTTP client is not the deadline's, and keeps its own meaning.
        if not bound.expired():
            raise
        raise _late(deadline, "while") from error
    # A model that does not yield to the event loop is not interrupted by the timeout.
    if deadline.expired:
        raise _late(deadline, "while")
    return reply


def _late(deadline: Deadline, when: str) -> PromptEvaluationError:
    text = f"the deadline ({deadline.expires_at.isoformat()}) passed {when} the model was asked"
    return PromptEvaluationError(text, phase="request")


# ------------------------------------------------------------------------------------------------------------ one call


async def run_call(call: ToolCall, reply: str | None, environment: Environment, mode: ExecutionMode) -> ToolMessage:
    """Runs a call through the pipeline.

    Raises:
        InvalidArgumentError: it is not a call.
        ValueError: `reply` cannot name a reply.
        BaseException: as `invoke`.
    """
    try:
        if type(call.id) is not str:
            _check_call(mode, call)
        name = None if reply is None else checked_reply(reply)
        if environment.within is None:
            return await invoke(call, name, environment, mode)
        with environment.in_call():
            return await invoke(call, name, environment, mode)
    # The pipeline converts those of handlers: `call` is not a `ToolCall`, or the library is at fault.
    except (AttributeError, TypeError):  # only on failure, because every call passes here
        _check_call(mode, call)
        raise


async def find_outcome(call: ToolCall, reply: str | None, environment: Environment, mode: ExecutionMode) -> LoopOutcome:
    """As `run_call`; a call whose question is left open, or that opens sections, does not end its reply."""
    try:
        return await run_call(call, reply, environment, mode)
    except VisibilityExpansionRequired as error:
        return _expansion_message(call, error, environment.rendering)
    except CallPostponed as postponed:
        return postponed


@synchronous_entry
def run_here(make: _Make[T], call: ToolCall, reply: str | None, environment: Environment) -> T:
    """Runs a call on this thread, by `run_call` or `find_outcome`."""
    # Refused before it begins, and out of `run_to_completion`, in which all waits are allowed.
    if (recorder := environment.session.recorder) is not None and current() is None:
        recorder.check_wait()
    return run_to_completion(make(call, reply, environment, BLOCKING))


def _check_call(mode: ExecutionMode, call: object) -> None:
    function = "ToolExecutor.execute" if mode.inline else "ToolExecutor.execute_async"
    check_argument(function, "call", call, ToolCall, "a ToolCall: ToolCall(id, name, arguments)")
    if isinstance(call, ToolCall):
        check_argument(function, "call.id", call.id, str, "text: ToolCall(str(id), name, arguments)")


def _expansion_message(call: ToolCall, error: VisibilityExpansionRequired, rendering: PromptRendering) -> ToolMessage:
    if not error.open_sections:  # the run ends unless the program catches it
        raise error
    if call.name == rendering.opener:
        result = ToolResult[None].ok(None, opened_text(error.section_keys))
    else:  # a call that does more than to open sections was undone, and has to be made again
        result = ToolResult[None].error(
            f"{call.name} was undone: it needs the sections {listed_paths(error.open_sections)}, which are open now. "
            "Call it again if it is still needed."
        )
    return ToolMessage(call.id, result.render(), result.success, result)


# ------------------------------------------------------------------------------------------------- the calls of a reply


class DeferredMistakes:
    """The developer's mistakes of a reply: they are raised when its other calls have ended."""

    __slots__ = ("_mistakes",)

    def __init__(self) -> None:
        self._mistakes: list[BaseException] = []

    def defer(self, error: BaseException) -> None:
        """Defers a mistake.

        Raises:
            BaseException: `error`, if it is not a mistake. It ends the run, with the mistakes so far as notes.
        """
        if not mistakes_in(error):
            self.add_notes(error)
            raise error
        self._mistakes.append(error)

    def add_notes(self, error: BaseException) -> None:
        """Adds the mistakes so far as notes to an exception that ends the run."""
        note_mistakes(error, self._mistakes)

    def raise_first(self) -> None:
        """Raises the first mistake, with the others as notes, and forgets them; does nothing if there is none."""
        if self._mistakes:
            mistakes, self._mistakes = self._mistakes, []
            raise note_mistakes(mistakes[0], mistakes)


def run_in_order(environment: Environment, calls: Sequence[ToolCall], reply: str | None) -> list[LoopOutcome]:
    """Runs the calls of a reply on this thread, neighbours that only read side by side.

    Raises:
        DeveloperMistake: the first one, after the remaining calls.
        BaseException: what ends the run; the calls after it have not been run.
    """
    outcomes: list[LoopOutcome] = []
    mistakes = DeferredMistakes()
    for call, outcome in zip(calls, _order(environment, calls, reply), strict=True):
        try:
            outcomes.append(_with_id(outcome(), call))
        except BaseException as error:  # noqa: BLE001 - raised there unless it is a mistake
            mistakes.defer(error)
    mistakes.raise_first()
    return outcomes


def _order(
    environment: Environment, calls: Sequence[ToolCall], reply: str | None
) -> Iterator[Callable[[], LoopOutcome]]:
    run, used_ids = _reply_view(environment, reply), set[str]()
    distinct = [distinct_call(call, reply, used_ids) for call in calls]
    is_alone = len(distinct) <= 1 or loop_is_running()  # another loop cannot run on this thread then
    for is_beside, part in groupby(distinct, lambda call: not is_alone and _may_run_beside(run, call, reply)):
        neighbours = tuple(part)
        if is_beside and len(neighbours) > 1:
            from handrail.runtime.handler_loop import run_beside  # noqa: PLC0415

            shared = _for_neighbours(run, reply)
            yield from run_beside([partial(find_outcome, call, reply, shared, SIDE_BY_SIDE) for call in neighbours])
        else:
            yield from (partial(run_here, find_outcome, call, reply, run) for call in neighbours)


async def run_concurrently(environment: Environment, calls: Sequence[ToolCall], reply: str | None) -> list[LoopOutcome]:
    """Runs the calls of a reply as tasks; turns decide which wait for others.

    Raises:
        DeveloperMistake: as `run_in_order`.
        BaseException: what ends the run; the calls that had not ended are cancelled and rolled back.
    """
    from asyncio import ensure_future  # noqa: PLC0415

    from handrail.runtime.handler_loop import cancel_all  # noqa: PLC0415

    # Tasks start as they are made, and `invoke` draws its ticket before its first wait: they queue as asked.
    run, used_ids = _reply_view(environment, reply).for_reply(reply), set[str]()
    distinct = (distinct_call(call, reply, used_ids) for call in calls)
    tasks = [ensure_future(find_outcome(call, reply, run, ASYNC)) for call in distinct]
    try:
        errors = await _await_errors(tasks)
    finally:
        # Also when this coroutine is cancelled itself: without this, the calls would continue without an owner.
        await cancel_all(tasks)
    mistakes = DeferredMistakes()
    # An error that ends the run takes precedence over mistakes, even if the mistake belongs to a later call.
    for error in sorted(errors, key=lambda error: not mistakes_in(error)):
        mistakes.defer(error)
    mistakes.raise_first()
    # A call that was cancelled from outside raises `CancelledError` here.
    return [_with_id(task.result(), call) for task, call in zip(tasks, calls, strict=True)]


async def _await_errors(tasks: Sequence[asyncio.Future[LoopOutcome]]) -> list[BaseException]:
    from asyncio import FIRST_EXCEPTION, wait  # noqa: PLC0415

    pending = set(tasks)
    while pending:
        # `FIRST_EXCEPTION` returns at each exception, also at a mistake, after which the other calls are waited for.
        done, pending = await wait(pending, return_when=FIRST_EXCEPTION)
        if any(task.cancelled() or ((error := task.exception()) and not mistakes_in(error)) for task in done):
            break
    return [error for task in tasks if task.done() and not task.cancelled() and (error := task.exception()) is not None]


def _with_id(outcome: LoopOutcome, call: ToolCall) -> LoopOutcome:
    return outcome._replace(call_id=call.id) if isinstance(outcome, ToolMessage) else outcome


def _reply_view(environment: Environment, reply: str | None) -> Environment:
    # With a name of the reply the calls know by themselves what was opened by one of them.
    is_fixed = reply is not None or not environment.rendering.may_change
    return environment if is_fixed else environment.with_rendered(environment.rendered_prompt)


def _may_run_beside(environment: Environment, call: ToolCall, reply: str | None) -> bool:
    is_call = type(call) is ToolCall and type(call.id) is type(call.name) is str  # else refused where it is executed
    tool = environment.tool(call.name, reply) if is_call else None
    return tool is not None and not tool.writes


def _for_neighbours(environment: Environment, reply: str | None) -> Environment:
    # A `def` approver is asked one question at a time, so that questions on a screen do not mix.
    shared, approver, lock = environment.for_reply(reply), environment.approver, threading.Lock()
    if approver is None or is_async(approver):
        return shared

    def ask(request: ApprovalRequest) -> Any:  # noqa: ANN401 - whatever it answers is checked where it was asked
        with lock:
            return approver(request)

    return replace(shared, approver=ask)


# ------------------------------------------------------------------------------------------------------ calls that wait


async def list_waiting(environment: Environment) -> dict[CallRef, PostponedCall]:
    """The calls of a stored session that wait, by their identities; a store that fails is logged."""
    from handrail.runtime.approval import calls_that_wait, has_pending  # noqa: PLC0415

    session = environment.session
    # The common case costs no reading, and so no thread.
    if not has_pending(session):
        return {}
    try:
        return await ASYNC.write_to(session.store, lambda: {call.call: call for call in calls_that_wait(session)})
    except (StoreError, UnknownTypeError):  # the latter of items of other versions
        _log.warning("it cannot be read which calls of %s wait", session.session_id, exc_info=True)
        return {}


async def record_answer(environment: Environment, ref: CallRef, call: ToolCall, text: str, *, success: bool) -> None:
    """Records a call that waited as the program has answered it, without the pipeline.

    `text` is what the model reads: with `success` the result, otherwise why it was refused.
    """
    from handrail.runtime.approval import record_outside_answer  # noqa: PLC0415

    result = ToolResult[None].ok(None, text) if success else ToolResult[None].error(text)
    await record_outside_answer(environment, ASYNC, ref, call, result)
