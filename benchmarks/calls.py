"""What one call costs, beside the floor: pydantic reads the arguments, the handler runs, pydantic writes the result."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any, cast

from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypeAliasType

from benchmarks.timing import Bound, Limit
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import (
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolResult,
    tool,
)
from handrail.runtime import IdempotencyConfig, Session, ToolCall
from handrail.taint import TaintPolicy

ARGUMENTS = '{"entity_id":"abc-123","limit":5,"tags":["a","b"]}'
EARLIER = 10_000
FILES = 5_000

SAME = "success, writing to the session"
VIEW = "success, writing through context.session"
"""What a view costs that is bound to the call; `success` asks for none."""

ALLOWED = "success, external, with a policy that allows"
GUARDED = "success, external, with the policy about taint"
"""In a session that has read nothing untrusted. Beside any other policy, what differs is the cost of taint."""

RECORDED = "replay, from its record"
"""A call that is made again under its reply and its id."""

IN_LEDGER = "replay, from the ledger"
"""A call whose effect is done, and which has no name of a reply: the ledger knows it by its key."""

BOUNDS = (
    Bound("success", "floor", 4.0),
    Bound("success, a function", "floor", 4.0),
    Bound("success, read", "floor", 4.0),
    Bound("success, a function", "success", 1.02),
    Bound(VIEW, SAME, 1.3),
    Bound(GUARDED, ALLOWED, 1.05),
    Bound(GUARDED, "success, external", 1.05),
    Bound("success after 10,000 results", "success", 1.1),
    Bound("rollback", "success", 1.1),
    Bound(RECORDED, "success", 1.2),
    Bound("success, external", "success", 2.5),
    Bound("success, 5,000 files", "success", 1.1),
    Bound("rollback, 5,000 files", "rollback", 1.1),
)


KEPT = "kept in memory of each call"
SESSION_CALLS = 20_000
SESSION_KEPT = f"a session of {SESSION_CALLS:,} calls, kept of each call"
STORED_KEPT = f"{SESSION_KEPT}, SQLite"
LIMITS = (Limit(KEPT, 0.5, "kB"), Limit(SESSION_KEPT, 1.0, "kB"), Limit(STORED_KEPT, 1.0, "kB"))


@dataclass(frozen=True, slots=True)
class Lookup:
    """The arguments of the calls."""

    entity_id: str
    limit: int
    tags: list[str]


@dataclass(frozen=True, slots=True)
class Found:
    """The result of the calls."""

    entity_id: str
    url: str

    def render(self) -> str:
        """The JSON of the result, as the floor writes it."""
        return WRITE(self).decode()


_CLOSED = ConfigDict(extra="forbid")
LookupAlias = TypeAliasType("LookupAlias", Lookup)  # an alias takes the configuration that a plain dataclass cannot
FoundAlias = TypeAliasType("FoundAlias", Found)
READ = TypeAdapter[Lookup](cast("Any", LookupAlias), config=_CLOSED).validate_json
WRITE = TypeAdapter[Found](cast("Any", FoundAlias), config=_CLOSED).dump_json


_NO_CONTEXT = ToolContext.of()


def _find(params: Lookup) -> Found:
    return Found(params.entity_id, f"https://example.org/{params.entity_id}")


def _succeed(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    return ToolResult.ok(_find(params))


def _succeed_by_name(entity_id: str, limit: int, tags: list[str]) -> Found:
    return Found(entity_id, f"https://example.org/{entity_id}")


def _fail(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    context.session[Found].append(_find(params))
    return ToolResult(message="there is no such entity", value=None, success=False)


def _note(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    context.session[Found].append(_find(params))
    return ToolResult.ok(_find(params))


def _note_past_views(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    context.environment.session[Found].append(_find(params))
    return ToolResult.ok(_find(params))


def _raise(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    context.session[Found].append(_find(params))
    raise KeyError(params.entity_id)


def _write(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    context.resources.get(Filesystem).write_text("found.txt", params.entity_id)
    return ToolResult.ok(_find(params))


def _tools() -> list[Tool[Any, Found]]:
    once = IdempotencyConfig()
    return [
        Tool[Lookup, Found](name="succeed", description="Succeeds.", handler=_succeed),
        tool(name="function", description="Succeeds.")(_succeed_by_name),
        Tool[Lookup, Found](name="read", description="Succeeds, and only reads.", handler=_succeed, effect="read"),
        Tool[Lookup, Found](name="fail", description="Writes, then fails.", handler=_fail),
        Tool[Lookup, Found](name="raise", description="Writes, then raises.", handler=_raise),
        Tool[Lookup, Found](name="note", description="Notes.", handler=_note),
        Tool[Lookup, Found](name="same", description="Notes, without a view.", handler=_note_past_views),
        Tool[Lookup, Found](name="write", description="Writes a file.", handler=_write),
        Tool[Lookup, Found](name="charge", description="External.", handler=_succeed, effect="external"),
        Tool[Lookup, Found](
            name="once", description="External, once.", handler=_succeed, effect="external", idempotency=once
        ),
    ]


class _Allows:
    """A policy that allows every call."""

    name = "allows"

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:  # noqa: ARG002 - the protocol's
        """Allow it."""
        return PolicyDecision.allow()

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Take no note."""


def _executor(
    *, earlier: int = 0, files: int | None = None, policies: Sequence[ToolPolicy] = (), session: Session | None = None
) -> ToolExecutor:
    session = Session() if session is None else session
    for number in range(earlier):
        session.dispatch(Found(str(number), ""))
    section = MarkdownSection(title="Tools", key="tools", template="Use them.", tools=_tools(), policies=policies)
    paths = {f"area{number % 50}/file{number}.txt": "x" for number in range(files or 0)}
    resources = {} if files is None else {Filesystem: InMemoryFilesystem(paths)}
    prompt = Prompt(PromptTemplate(ns="benchmarks", key="calls", sections=[section])).bind(resources=resources)
    return ToolExecutor(prompt=prompt, session=session)


def _calling(
    executor: ToolExecutor, name: str, *, success: bool = True, fresh_ids: bool = False
) -> Callable[[], object]:
    number = 0
    request = ToolCall("call-0", name, ARGUMENTS)

    def call() -> object:
        nonlocal number, request
        if fresh_ids:
            number += 1
            request = ToolCall(f"call-{number}", name, ARGUMENTS)
        message = executor.execute(request)
        assert message.success is success, message.content
        return message

    return call


def _repeating(executor: ToolExecutor, name: str, reply: str | None = None) -> Callable[[], object]:
    request = ToolCall("call-0", name, ARGUMENTS)
    executor.execute(request, reply=reply)

    def call() -> object:
        message = executor.execute(request, reply=reply)
        assert message.replayed, message.content
        return message

    return call


def memory_cases() -> dict[str, Callable[[], object]]:
    """What is measured in kilobytes."""
    return {
        KEPT: lambda: _kept_per_call(_calling(_executor(), "succeed", fresh_ids=True), EARLIER),
        SESSION_KEPT: lambda: _kept_of_session(Session()),
        STORED_KEPT: _kept_of_stored_session,
    }


def _kept_of_stored_session() -> float:
    with (
        TemporaryDirectory(prefix="handrail-bench-") as folder,
        store.open(f"sqlite:///{folder}/calls.db", durability="normal") as database,
        Session.open(database, "calls") as session,
    ):
        return _kept_of_session(session)


def _kept_of_session(session: Session) -> float:
    """The same of a session whose calls name their replies, as those of a model do: it finds each of them again."""
    executor, numbers = _executor(session=session), count()

    def call() -> None:
        number = next(numbers)
        message = executor.execute(ToolCall(f"call-{number}", "succeed", ARGUMENTS), reply=f"reply-{number}")
        assert message.success, message.content

    return _kept_per_call(call, SESSION_CALLS)


def _kept_per_call(call: Callable[[], object], calls: int) -> float:
    """The kilobytes that a call leaves in memory: its event, its identity, its result in a slice."""
    for _ in range(100):
        call()
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(calls):
        call()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / calls / 1000


def _floor() -> bytes:
    """The arguments read, a bare function run, what it returns written; nothing else."""
    return WRITE(_find(READ(ARGUMENTS, strict=True)))


def _floor_with_result() -> bytes:
    """The same with the tool's own handler, which makes a `ToolResult`."""
    value = _succeed(READ(ARGUMENTS, strict=True), context=_NO_CONTEXT).value
    assert value is not None
    return WRITE(value)


def cases() -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    assert json.loads(WRITE(_find(READ(ARGUMENTS)))) == {"entity_id": "abc-123", "url": "https://example.org/abc-123"}
    empty = _executor()
    return {
        "floor": _floor,
        "floor, with a ToolResult": _floor_with_result,
        "success": _calling(empty, "succeed"),
        f"success after {EARLIER:,} results": _calling(_executor(earlier=EARLIER), "succeed"),
        "rollback": _calling(empty, "fail", success=False),
        f"success, {FILES:,} files": _calling(_executor(files=FILES), "succeed"),
        f"rollback, {FILES:,} files": _calling(_executor(files=FILES), "fail", success=False),
        "success, a function": _calling(empty, "function"),
        "success, read": _calling(empty, "read"),
        SAME: _calling(_executor(), "same"),
        VIEW: _calling(_executor(), "note"),
        "success, writing a file": _calling(_executor(files=0), "write"),
        "success, external": _calling(_executor(), "charge", fresh_ids=True),
        ALLOWED: _calling(_executor(policies=[_Allows()]), "charge", fresh_ids=True),
        GUARDED: _calling(_executor(policies=[TaintPolicy()]), "charge", fresh_ids=True),
        RECORDED: _repeating(_executor(), "succeed", "reply"),
        IN_LEDGER: _repeating(_executor(), "once"),
    }
