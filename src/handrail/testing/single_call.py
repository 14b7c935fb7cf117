"""Runs one call of one tool through the whole pipeline, without a model, in a prompt with only this tool.

`assert_reads_only` finds a tool that is declared to read only, and changes a resource that cannot refuse it: one that
has `snapshot` and `restore`, and does not call `handrail.transaction.check_write` before each change. What the tool
changes there is not rolled back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import InvalidArgumentError
from handrail.errors.developer import check_argument
from handrail.prompt import Prompt, PromptTemplate, Section, Tool
from handrail.resources import ResourceContext, ResourceRegistry, Scope
from handrail.resources.binding import is_snapshotable
from handrail.runtime import EffectLedger, ToolCall, ToolMessage
from handrail.serde import dump
from handrail.session import Session

Resources = ResourceRegistry | Mapping[type[Any], object]
"""Resources as `Prompt.bind` takes them."""


def run_tool(
    tool: Tool[Any, Any],
    params: object = None,
    *,
    session: Session | None = None,
    resources: Resources | None = None,
    effect_ledger: EffectLedger | None = None,
) -> ToolMessage:
    """Run one tool as if a model had called it, and return the message that the model would read.

    The message's `result` is what the handler returned, or the failed result that describes the failure.

    Args:
        tool: the tool.
        params: an instance of its parameter type, a mapping, or JSON text, which may be invalid; `None` for no
            arguments.
        session: where results are stored; by default a new one.
        resources: the content of `context.resources`. Resources created by providers are closed at the end.
        effect_ledger: records effects; pass one to test that a second call is replayed.

    Raises:
        RunAbortedError: the call ends the run.
    """
    executor = executor_of(tool, session, resources, effect_ledger)
    # One call has no run around it, so resources of providers are closed here.
    with executor.environment.prompt.resources:
        return executor.execute(call_of_tool(tool, params))


async def run_tool_async(
    tool: Tool[Any, Any],
    params: object = None,
    *,
    session: Session | None = None,
    resources: Resources | None = None,
    effect_ledger: EffectLedger | None = None,
) -> ToolMessage:
    """Run one tool on the running event loop; see `run_tool`."""
    executor = executor_of(tool, session, resources, effect_ledger)
    with executor.environment.prompt.resources:
        return await executor.execute_async(call_of_tool(tool, params))


def executor_of(
    tool: Tool[Any, Any],
    session: Session | None,
    resources: Resources | None,
    effect_ledger: EffectLedger | None = None,
) -> ToolExecutor:
    """An executor in whose prompt this is the only tool; see `run_tool`."""
    template = PromptTemplate(ns="testing", key="run-tool", sections=[Section(title="Tool", tools=[tool])])
    return ToolExecutor(
        prompt=Prompt(template).bind(resources=resources),
        session=Session() if session is None else session,
        effect_ledger=effect_ledger,
    )


def call_of_tool(tool: Tool[Any, Any], params: object) -> ToolCall:
    """A call of a tool, with its arguments as a model sends them; see `run_tool`."""
    arguments: Any = params
    if params is None:
        arguments = {}
    elif dataclasses.is_dataclass(params):
        arguments = dump(params)
    return ToolCall("call-1", tool.name, arguments)


# ------------------------------------------------------------------------------------------------- tools that only read


_SHOWN = 100
"""Characters of a value that the error shows."""

_ABSENT = object()


def assert_reads_only(
    tool: Tool[Any, Any],
    params: object = None,
    *,
    session: Session | None = None,
    resources: Resources | None = None,
) -> ToolMessage:
    """Run a `"read"` tool once, through the whole pipeline, and check that it has changed no resource.

    The snapshots of every `Snapshotable` among the resources are compared, of before and after the call: values by
    `==`, and objects of classes that do not define it by their attributes. The snapshots of before are copied deeply
    where that is possible, so that a snapshot may share values with its resource. What a snapshot does not show is not
    compared: the variables of a function, for example. A write that is refused has changed nothing, so it is found only
    if the call fails of it. Resources of providers are built before the
    call; one that lives for a call alone is not compared.

    Args:
        tool: the tool; its effect is `"read"`.
        params: an instance of its parameter type, a mapping, or JSON text; `None` for no arguments.
        session: the session of the call; by default a new one.
        resources: the content of `context.resources`.

    Returns the message of the call, which has succeeded.

    Raises:
        AssertionError: a resource has changed, and is named with what differs in its snapshots; or the call has failed,
            as it does where a write is refused, so that nothing is known of the tool.
        InvalidArgumentError: it is not a tool, or is declared to change something. It was not run.
        RunAbortedError: the call ends the run.
    """
    check_argument("assert_reads_only", "tool", tool, Tool, 'a Tool: a function with @tool(effect="read")')
    if tool.effect != "read":
        expected = f'a tool with effect="read"; that of {tool.name} is "{tool.effect}"'
        raise InvalidArgumentError(function="assert_reads_only", argument="tool", given=tool, expected=expected)
    executor = executor_of(tool, session, resources)
    with executor.environment.prompt.resources as context:
        watched = _snapshotables(resources, context)
        before = {name: _held(resource) for name, resource in watched.items()}
        message = executor.execute(call_of_tool(tool, params))
        after = {name: resource.snapshot() for name, resource in watched.items()}
    if not message.success:
        raise AssertionError(f"{tool.name} failed, so it is not known whether it only reads: {message.content}")
    changed = [
        f"{name}{found}" for name in watched if (found := _difference(before[name], after[name], "", [])) is not None
    ]
    if changed:
        raise AssertionError(
            f'{tool.name} is declared with effect="read" and has changed what it was given: {"; ".join(changed)}. '
            'Declare it with effect="state", so that its changes are rolled back with a call that fails.'
        )
    return message


def _snapshotables(resources: Resources | None, context: ResourceContext) -> dict[str, Any]:
    """What can be compared, by the name of the type that it is bound for."""
    registry = resources if isinstance(resources, ResourceRegistry) else ResourceRegistry.build(resources or {})
    singletons = {
        binding.name: context.get(binding.protocol) for binding in registry if binding.scope is Scope.SINGLETON
    }
    return {name: value for name, value in singletons.items() if is_snapshotable(value)}


def _held(resource: Any) -> object:  # noqa: ANN401 - any `Snapshotable`
    """A snapshot that no change of its resource reaches, or the snapshot itself if it cannot be copied so."""
    snapshot: object = resource.snapshot()
    # The snapshots of one with a turn may refer to how it restores them.
    if hasattr(resource, "turn"):
        return snapshot
    try:
        held = deepcopy(snapshot)
    except Exception:  # noqa: BLE001 - a lock, a connection: whatever the classes of the program raise
        return snapshot
    # A copy of what is compared by identity, within a set for example, differs from the original.
    return held if _difference(held, snapshot, "", []) is None else snapshot


def _difference(before: object, after: object, path: str, within: list[int]) -> str | None:
    """Where two snapshots differ, and how; `None` if they do not."""
    if before is after or id(before) in within:
        return None
    if type(before) is not type(after):
        return _differs(before, after, path)
    whole: object = before
    within = [*within, id(before)]
    if isinstance(before, Mapping | list | tuple):
        return _in_parts(_parts_of(whole), _parts_of(after), path, within)
    # An object that is compared by identity is another one in each snapshot; what counts is what it holds.
    if type(before).__eq__ is object.__eq__:
        return _in_attributes(before, after, path, within)
    # NaN differs from itself, and has not changed.
    is_same = before == after or (before != before and after != after)  # noqa: PLR0124
    return None if is_same else _differs(before, after, path)


def _parts_of(value: object) -> Mapping[Any, object]:
    if isinstance(value, Mapping):
        return cast("Mapping[Any, object]", value)
    return dict(enumerate(cast("Sequence[object]", value)))  # the caller has looked


def _in_attributes(before: object, after: object, path: str, within: list[int]) -> str | None:
    for name in (*getattr(before, "__dict__", ()), *_slots_of(type(before))):
        ours, theirs = getattr(before, name, _ABSENT), getattr(after, name, _ABSENT)
        found = _difference(ours, theirs, f"{path}.{name}", within)
        if found is not None:
            return found
    return None


def _in_parts(before: Mapping[Any, object], after: Mapping[Any, object], path: str, within: list[int]) -> str | None:
    for key in (*before, *(key for key in after if key not in before)):
        part = f"{path}[{key!r:.{_SHOWN}}]"
        if key not in after:
            return f"{part} is gone: it was {before[key]!r:.{_SHOWN}}"
        if key not in before:
            return f"{part} is new: {after[key]!r:.{_SHOWN}}"
        found = _difference(before[key], after[key], part, within)
        if found is not None:
            return found
    return None


def _slots_of(kind: type[object]) -> Sequence[str]:
    declared: list[str] = []
    for base in kind.__mro__:
        named: object = vars(base).get("__slots__", ())
        declared += [named] if isinstance(named, str) else cast("Sequence[str]", named)
    return [name for name in declared if not name.startswith("__")]


def _differs(before: object, after: object, path: str) -> str:
    return f"{path} was {before!r:.{_SHOWN}}, and is {after!r:.{_SHOWN}}"
