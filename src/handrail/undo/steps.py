"""The values of a plan, what it takes to undo one call, and the call that does.

Parameters, result, slices and files are loaded from the record of the call, so that another process can undo it.

The call `undo:c` undoes call `c` of the same reply, by a tool that is made for it.

Its parameters are those of the call, so the policies of the tool judge it as they judge that. What it restores is a
change of state like any other. What it compensates is an external effect: the function of `Tool.undo` is its handler,
and what the call changed besides is restored by its `apply`, in the unit that records that the effect has happened,
also if a reconciler or a person finds that out.

A failure that is known to have changed nothing is never final, and neither is a denial: the same undo may be tried
again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from pydantic_core import from_json, to_json

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import ParseError, SnapshotError, ToolValidationError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.prompt.signature import AnyCallable, Effect, takes_context
from handrail.prompt.undo import captured_codec
from handrail.redaction import MASK
from handrail.runtime.calls import ToolInvoked
from handrail.runtime.environment import Environment
from handrail.runtime.ledger.records import load_result, started_params
from handrail.runtime.undo_records import UndoRegistration
from handrail.serde import digest, dump
from handrail.serde.formatting import json_line
from handrail.session import Session
from handrail.session.calls import CallRef, ToolCall
from handrail.session.persistence.loading import ItemReader, decode_items
from handrail.session.persistence.protocol import EntryIndex
from handrail.session.persistence.stored_types import find_type
from handrail.transaction.changes import CallChange, shorten_diff
from handrail.transaction.undoing import KeepsUndo, UndoChange
from handrail.undo.records import UNDO, UNDO_TOOL, CallHistory, SliceEntry

_LONGEST_NAME = 64

UndoOutcome: TypeAlias = Literal["restored", "compensated", "impossible", "unknown", "blocked", "conflict"]
"""The outcome of a call in a plan; `handrail.undo.planning` defines them."""

Stay: TypeAlias = tuple[UndoOutcome, str]
"""That a call stays, and why."""


class KeptFiles(NamedTuple):
    """What a participant keeps of a call."""

    participant: KeepsUndo
    undo_id: str
    changes: Sequence[UndoChange]


@dataclass(frozen=True, slots=True, eq=False)
class UndoWork:
    """What it takes to undo a call.

    Attributes:
        call: the call, as the journal has it.
        event: its record.
        environment: that of the executor which has its tool.
        tool: its tool; of an undo, that of the call which was undone first.
        params: its parameters.
        result: its result, if it is compensated; else `None`.
        before: what `capture` returned before it.
        files: what participants keep of it.
    """

    call: CallHistory
    event: ToolInvoked
    environment: Environment
    tool: Tool[Any, Any]
    params: object = None
    result: ToolResult[Any] | None = None
    before: object = None
    files: tuple[KeptFiles, ...] = ()

    def restore(self, session: Session) -> None:
        """Restores slices and files, inside the call that undoes; raises if they are not as the call left them."""
        for change in reversed(self.call.changes):
            _restore_slice(session, change)
        for files in self.files:
            files.participant.undo(files.undo_id)

    def describe(self, session: Session) -> Iterator[CallChange]:
        """What `restore` would change, for people."""
        for change in self.call.changes:
            parts = (("-", from_json(change.entry.items)), ("+", _items_before(session, change)))
            lines = (f"{sign}{json_line(dump(item))}" for sign, items in parts for item in items)
            yield CallChange("slice", change.entry.type_name, shorten_diff(lines))
        for files in self.files:
            for path, _, _ in files.changes:
                yield files.participant.describe_undo(files.undo_id, path)


@dataclass(frozen=True, slots=True)
class UndoStep:
    """A call in a plan.

    Attributes:
        ref: the identity of the call.
        tool: its tool.
        arguments: its arguments, decoded.
        outcome: whether it is undone, or why it stays.
        why: why it stays; empty if it is undone.
        changes: what its undo changes in slices and files, for people; of a conflict, what it would.
        work: what its undo takes; `None` if it stays.
    """

    ref: CallRef
    tool: str
    arguments: Any
    outcome: UndoOutcome
    why: str = ""
    changes: tuple[CallChange, ...] = ()
    work: UndoWork | None = field(default=None, compare=False, repr=False)

    @property
    def is_undone(self) -> bool:
        """True if the plan undoes it."""
        return self.work is not None

    @property
    def digest(self) -> str:
        """The identity of all that was compared."""
        work = self.work
        entries = () if work is None else [change.entry.number for change in work.call.changes]
        images = () if work is None else [(files.undo_id, *map(tuple, files.changes)) for files in work.files]
        key = None if work is None else work.event.effect_key
        return digest(dump([*self.ref, self.tool, self.arguments, self.outcome, key, entries, images]))


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """What `handrail.undo.apply` would do.

    Attributes:
        session: the session.
        steps: the calls, the newest first.
        after: the journal entry after which the calls begin that it covers.
        executors: those that have the tools and the files.
    """

    session: Session = field(repr=False, compare=False)
    steps: tuple[UndoStep, ...]
    after: int = 0
    executors: tuple[ToolExecutor, ...] = field(default=(), repr=False, compare=False)

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self.session.session_id

    @property
    def is_complete(self) -> bool:
        """True if every call is undone."""
        return all(step.is_undone for step in self.steps)

    @property
    def digest(self) -> str:
        """The identity of the plan, to which an approval is bound."""
        return digest([self.session_id, *(step.digest for step in self.steps)])


# ------------------------------------------------------------------------------------------------- from the record


def load_params(tool: Tool[Any, Any], event: ToolInvoked) -> tuple[object] | str:
    """The parameters of a recorded call, as the only item; text if they cannot be loaded."""
    params, kind = event.params, cast("Any", tool.params_type)
    if kind is None:
        return (None,)
    record = to_json(dump(params))
    if tool.masking.hides and MASK.encode() in record:
        return "its parameters have secrets, which are not stored"
    if isinstance(kind, type) and kind is not dict and isinstance(params, kind):
        return (params,)
    try:
        params_read = started_params(record, event.call, tool.parse(event.call.arguments), tool)
    except ParseError as error:
        return f"its parameters do not fit its tool any more: {error}"
    return params_read or "its parameters do not fit its tool any more"


def with_result(work: UndoWork, registered: UndoRegistration | None) -> UndoWork | str:
    """The work with what `undo` of the tool is called with; text if that cannot be loaded."""
    tool, event, row = work.tool, work.event, work.call.row
    if tool.capture is not None and (registered is None or not registered.before):
        return "what its capture would have returned before it is not known"
    try:
        if event.success:
            value = event.result.value if event.value_read is None else tool.load_value(to_json(event.value_read))
            result = replace(event.result, value=value)
        else:  # that it has happened is known from its row
            result = load_result(tool, cast("Any", row))
        before = captured_codec(tool.capture).parse_json("null" if registered is None else registered.before)
        fault = tool.result_fault(result)
    except (ParseError, ValueError, ToolValidationError) as error:
        return f"its record does not fit its tool any more: {error}"
    if fault is not None:
        return f"its record does not fit its tool: {fault}"
    obstacle: Any = tool.undo and tool.undo.obstacle and tool.undo.obstacle(work.params, result)
    return obstacle or replace(work, result=result, before=before)


# ----------------------------------------------------------------------------------------------------------- slices


def slice_kind(session: Session, type_name: str) -> type[Any] | None:
    """The class of a slice of a stored session; `None` if it is not known."""
    return None if session.recorder is None else session.recorder.kinds.get(type_name) or find_type(type_name)


def _items_before(session: Session, change: SliceEntry) -> list[Any]:
    recorder, entry = session.recorder, change.entry
    kind = slice_kind(session, entry.type_name)
    if recorder is None or kind is None or not change.removed:
        return []
    form = recorder.stored_type(kind)
    reader = ItemReader(recorder.store, session.session_id, EntryIndex("state", change.removed), form)
    return reader(0, entry.removed)


def _restore_slice(session: Session, change: SliceEntry) -> None:
    recorder, entry = session.recorder, change.entry
    kind = slice_kind(session, entry.type_name)
    if recorder is None or kind is None:  # pragma: no cover - the plan has compared it
        raise AssertionError
    form, items = recorder.stored_type(kind), session[kind].all()
    end = entry.start + entry.added
    after = decode_items(form, entry, session.session_id, recorder.store)
    if form.dump(items[entry.start : end]) != form.dump(after):
        raise SnapshotError(f"the slice {entry.type_name} is not as the call left it; plan the undo anew")
    session[kind].seed([*items[: entry.start], *_items_before(session, change), *items[end:]])


# --------------------------------------------------------------------------------------------- the call that undoes


def undo_call(work: UndoWork) -> tuple[ToolCall, Environment]:
    """The call that undoes another one, and the environment that has its tool."""
    call, environment, name = work.call, work.environment, f"{UNDO_TOOL}{work.call.tool}"[:_LONGEST_NAME]
    prompt = environment.rendered_prompt
    policies = prompt.policies.get(work.tool.name, prompt.prompt_policies)
    tools = (*prompt.tools, _undo_tool(work, name))
    with_tool = replace(prompt, tools=tools, policies={**prompt.policies, name: policies})
    # It is not a call of the run, which may have ended at its deadline; the model does not read its message.
    environment = replace(environment.with_rendered(with_tool), deadline=None, feedback=None, final_failures=False)
    return ToolCall(f"{UNDO}{call.ref.call_id}", name, work.event.call.arguments), environment


def _undo_tool(work: UndoWork, name: str) -> Tool[Any, Any]:
    tool, undo = work.tool, work.tool.undo
    session = work.environment.session
    effect: Any = "state"

    def restore(params: Any, /, *, context: ToolContext) -> ToolResult[None]:  # noqa: ANN401, ARG001 - a handler
        work.restore(session)
        return ToolResult.ok(None, message="what it changed was restored")

    def apply(params: Any, result: ToolResult[Any], /, *, context: ToolContext) -> None:  # noqa: ANN401, ARG001 - as above
        work.restore(session)

    handler: Callable[..., Any] = restore
    if undo is not None and work.result is not None:
        # Two calls that equal each other are undone one after the other: neither is a repeat.
        effect = replace(undo.effect, repeat_unknown="allow", apply=apply if work.call.changes or work.files else None)
        handler = partial(_compensate, work, undo.run)
    build = cast("Callable[..., Tool[Any, Any]]", Tool)  # checkers do not see the last fields
    return build(
        name=name,
        description=f"Undoes a call of {tool.name}.",
        handler=handler,
        effect=cast("Effect", effect),
        timeout=tool.timeout,
        given_types=(tool.params_type, None),
        given_schema=getattr(tool, "given_schema"),  # noqa: B009 - a field that type checkers do not see
    )


def _compensate(
    work: UndoWork, run: AnyCallable, _params: object, /, *, context: ToolContext
) -> ToolResult[None] | Awaitable[ToolResult[None]]:
    keywords = {"context": context} if takes_context(run) else {}
    answer = run(work.params, work.result, work.before, **keywords)
    return _later(cast("Awaitable[object]", answer)) if inspect.isawaitable(answer) else _result(answer)


async def _later(answer: Awaitable[object]) -> ToolResult[None]:
    return _result(await answer)


def _result(answer: Any) -> ToolResult[None]:  # noqa: ANN401 - what a function of the program returns
    if not isinstance(answer, ToolResult):  # it has happened, whatever the other side has said
        return ToolResult.ok(None, message="its effect was compensated")
    if not answer.success:
        return ToolResult.error(answer.message)
    return ToolResult.ok(None, message=answer.message or "its effect was compensated")
