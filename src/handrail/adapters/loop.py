"""The duties of every way in, as functions: what is done once for a run, and for several calls of a reply.

When a run is set up, its ledger is found, each of its tools is checked against session and ledger, and what every run
reads of a resumed session is read. The calls of a reply that only read may run side by side, and one that opens
sections has a message.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import SchemaError, SecondStoreError, VisibilityExpansionRequired
from handrail.prompt import Tool, ToolResult
from handrail.prompt.disclosure import OpenSections, PromptRendering, listed_paths, opened_text
from handrail.prompt.signature import is_async
from handrail.runtime.calls import ToolMessage
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.serde import stored_codec
from handrail.session import Session
from handrail.session.calls import ToolCall

if TYPE_CHECKING:
    from handrail.prompt import ApprovalRequest
    from handrail.runtime.ledger.ledger import EffectLedger

# Of the process: the sessions of a store share a ledger, with its thread. By the identity of store and clock.
_OF_STORES: WeakValueDictionary[tuple[int, int], EffectLedger] = WeakValueDictionary()


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
    return _OF_STORES.get(key := (id(store), id(clock))) or _OF_STORES.setdefault(key, EffectLedger(store, clock=clock))


def check_one_store(tool_name: str, environment: Environment) -> None:
    """Check that what a tool applies can be committed with its effect: session and ledger are in one store.

    Raises:
        SecondStoreError: they are not; the error names the tool and both places.
    """
    store, second = environment.session.store, environment.effect_ledger.units
    if store is not second:
        raise SecondStoreError(store=store, second=second, tool=tool_name)


def check_tool(tool: Tool[Any, Any], environment: Environment) -> None:
    """Check that what a tool applies is committed with its effect, and that what is stored of its result can be read.

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


async def read_ahead(session: Session, *others: type[object]) -> None:
    """Read the slices of a resumed session that each run uses, on a thread, so that the event loop never reads them.

    A slice of a stored session is read when it is first used, and reading it has no asynchronous form.

    Args:
        session: the session; for one in memory, nothing is done.
        others: the types of further slices.

    Raises:
        StoreError: the items cannot be read.
        UnknownTypeError: they do not fit their class.
    """
    if session.store is None:
        return
    from handrail.session.persistence.protocol import ForkedFrom  # noqa: PLC0415
    from handrail.taint import DelimiterSecret, Tainted  # noqa: PLC0415

    used_by_runs = (OpenSections, Tainted, DelimiterSecret, ForkedFrom)
    kinds = [kind for kind in (*used_by_runs, *others) if session[kind].version is not None]
    if kinds:
        await ASYNC.write_to(session.store, lambda: [session[kind].all() for kind in kinds])


def may_run_beside(environment: Environment, call: ToolCall, reply: str | None) -> bool:
    """Whether a call may run beside its neighbours in a reply; what is not one is refused where it is executed."""
    is_call = type(call) is ToolCall and type(call.id) is type(call.name) is str
    tool = environment.tool(call.name, reply) if is_call else None
    return tool is not None and not tool.writes


def for_neighbours(environment: Environment, reply: str | None) -> Environment:
    """The same run for calls of one reply that run side by side, where a program expects that they do not.

    A `def` approver is asked one question at a time, so that questions on a screen do not mix.
    """
    shared, approver, lock = environment.for_reply(reply), environment.approver, threading.Lock()
    if approver is None or is_async(approver):
        return shared

    def ask(request: ApprovalRequest) -> Any:  # noqa: ANN401 - whatever it answers is checked where it was asked
        with lock:
            return approver(request)

    return replace(shared, approver=ask)


def expansion_message(call: ToolCall, error: VisibilityExpansionRequired, rendering: PromptRendering) -> ToolMessage:
    """The message for a call that has opened sections.

    A call of a tool that does more than that was undone, and has to be made again.

    Args:
        call: the call.
        error: what it has raised.
        rendering: the prompt of the run.

    Raises:
        VisibilityExpansionRequired: it has opened none, so that the run ends unless the program catches it.
    """
    if not error.opened:
        raise error
    if call.name == rendering.names.open:
        result = ToolResult[None].ok(None, opened_text(error.section_keys))
    else:
        listed = listed_paths(error.opened)
        result = ToolResult[None].error(
            f"{call.name} was undone: it needs the sections {listed}, which are open now. Call it again if it is still "
            "needed."
        )
    return ToolMessage(call.id, result.render(), result.success, result)
