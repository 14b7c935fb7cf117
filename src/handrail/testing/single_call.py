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
    """Runs one tool as if a model had called it, and returns the message that the model would read.

    The message's `result` is the one of the handler, or the failed result that describes the failure.

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
    executor = make_executor(tool, session, resources, effect_ledger)
    # One call has no run around it, so resources of providers are closed here.
    with executor.environment.prompt.resources:
        return executor.execute(make_call(tool, params))


async def run_tool_async(
    tool: Tool[Any, Any],
    params: object = None,
    *,
    session: Session | None = None,
    resources: Resources | None = None,
    effect_ledger: EffectLedger | None = None,
) -> ToolMessage:
    """Runs one tool on the running event loop; see `run_tool`."""
    executor = make_executor(tool, session, resources, effect_ledger)
    with executor.environment.prompt.resources:
        return await executor.execute_async(make_call(tool, params))


def make_executor(
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


def make_call(tool: Tool[Any, Any], params: object) -> ToolCall:
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


def assert_reads_only(
    tool: Tool[Any, Any], params: object = None, *, session: Session | None = None, resources: Resources | None = None
) -> ToolMessage:
    """Runs a `"read"` tool once, through the whole pipeline, and checks that it has changed no resource.

    The snapshots of every `Snapshotable` among the resources are compared, of before and after the call: values by
    `==`, and objects of classes that do not define it by their attributes. Resources of providers are built before the
    call; one that lives for a call alone is not compared.

    Args:
        tool: the tool; its effect is `"read"`.
        params: an instance of its parameter type, a mapping, or JSON text; `None` for no arguments.
        session: the session of the call; by default a new one.
        resources: the content of `context.resources`.

    Returns the message of the call, which has succeeded.

    Raises:
        AssertionError: a resource has changed, and is named with the difference of its snapshots; or the call has
            failed, as it does where a write is refused.
        InvalidArgumentError: it is not a tool, or is declared to change something. It was not run.
        RunAbortedError: the call ends the run.
    """
    check_argument("assert_reads_only", "tool", tool, Tool, 'a Tool: a function with @tool(effect="read")')
    if tool.effect != "read":
        expected = f'a tool with effect="read"; that of {tool.name} is "{tool.effect}"'
        raise InvalidArgumentError(function="assert_reads_only", argument="tool", value=tool, expected=expected)
    executor = make_executor(tool, session, resources)
    with executor.environment.prompt.resources as context:
        snapshotables = _snapshotables(resources, context)
        before = {name: _copy_snapshot(resource) for name, resource in snapshotables.items()}
        message = executor.execute(make_call(tool, params))
        after = {name: resource.snapshot() for name, resource in snapshotables.items()}
    if not message.success:
        raise AssertionError(f"{tool.name} failed, so it is not known whether it only reads: {message.content}")
    changes = [
        f"{name}{difference}"
        for name in snapshotables
        if (difference := _difference(before[name], after[name], "", [])) is not None
    ]
    if changes:
        raise AssertionError(
            f'{tool.name} is declared with effect="read" and has changed what it was given: {"; ".join(changes)}. '
            'Declare it with effect="state", so that its changes are rolled back with a call that fails.'
        )
    return message


def _snapshotables(resources: Resources | None, context: ResourceContext) -> dict[str, Any]:
    registry = resources if isinstance(resources, ResourceRegistry) else ResourceRegistry.build(resources or {})
    singletons = {
        binding.name: context.get(binding.protocol) for binding in registry if binding.scope is Scope.SINGLETON
    }
    return {name: value for name, value in singletons.items() if is_snapshotable(value)}


def _copy_snapshot(resource: Any) -> object:  # noqa: ANN401 - any `Snapshotable`
    snapshot: object = resource.snapshot()
    # The snapshots of one with a turn may refer to how it restores them.
    if hasattr(resource, "turn"):
        return snapshot
    try:
        copy = deepcopy(snapshot)
    except Exception:  # noqa: BLE001 - a lock, a connection: whatever the classes of the program raise
        return snapshot
    # A copy of what is compared by identity, within a set for example, differs from the original.
    return copy if _difference(copy, snapshot, "", []) is None else snapshot


def _difference(before: object, after: object, path: str, within: list[int]) -> str | None:
    if before is after or id(before) in within:
        return None
    parts, others = _parts(before), _parts(after)
    if type(before) is not type(after) or parts is None or others is None:
        # NaN differs from itself, and has not changed.
        is_same = type(before) is type(after) and (before == after or (before != before and after != after))  # noqa: PLR0124
        return None if is_same else f"{path} was {before!r:.{_SHOWN}}, and is {after!r:.{_SHOWN}}"
    for key in (*parts, *(key for key in others if key not in parts)):
        part = f"{path}{_place(before, key)}"
        if key not in others:
            return f"{part} is gone: it was {parts[key]!r:.{_SHOWN}}"
        if key not in parts:
            return f"{part} is new: {others[key]!r:.{_SHOWN}}"
        difference = _difference(parts[key], others[key], part, [*within, id(before)])
        if difference is not None:
            return difference
    return None


def _place(whole: object, key: object) -> str:
    return f"[{key!r:.{_SHOWN}}]" if isinstance(whole, Mapping | list | tuple) else f".{key}"


def _parts(value: object) -> Mapping[Any, object] | None:
    if isinstance(value, Mapping):
        return cast("Mapping[Any, object]", value)
    if isinstance(value, list | tuple):
        return dict(enumerate(cast("Sequence[object]", value)))
    # An object that is compared by identity is another one in each snapshot; its attributes count.
    if type(value).__eq__ is not object.__eq__:
        return None
    names = (*getattr(value, "__dict__", ()), *_slots(type(value)))
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _slots(kind: type[object]) -> Sequence[str]:
    names: list[str] = []
    for base in kind.__mro__:
        slots: object = vars(base).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else cast("Sequence[str]", slots)
    return [name for name in names if not name.startswith("__")]
