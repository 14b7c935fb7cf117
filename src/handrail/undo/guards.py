"""What the guard of a dry run and that of a plan share: the calls that run, their ends, and the rows that they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, cast

from handrail.filesystem import InMemoryFilesystem
from handrail.prompt import ApprovalRequest, Tool, ToolContext, ToolResult
from handrail.runtime import ToolInvoked
from handrail.runtime.environment import Environment
from handrail.serde import digest
from handrail.session import DatabaseConnection, Session
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import FetchedRows
from handrail.undo.plan_file import PlannedCall
from handrail.undo.versions import call_versions, plain_value

RunningCall: TypeAlias = tuple[str, CallRef]
"""A call that has begun, by its session and its identity there."""


class CallGuard:
    """The part of a guard that does not depend on what it is for; see `handrail.runtime.guard.RunGuard`.

    Attributes:
        root: the session of the run.
        running: the calls that have begun and not ended, with their places in the plan.
    """

    name = "plan"

    def __init__(self, root: str) -> None:
        self.root: str = root
        self.running: dict[RunningCall, int] = {}
        self._sessions: set[str] = set()
        self._resources: dict[int, object] = {}  # those that calls have used, by their ids
        self._originals: dict[int, tuple[object, Tool[Any, Any]]] = {}  # by the id of what stands in, which is kept

    def replaced(self, tool: Tool[Any, Any], **changes: Any) -> Tool[Any, Any]:  # noqa: ANN401 - fields
        """A copy of a tool that stands in for it."""
        other = replace(tool, **changes)
        self._originals[id(other)] = other, tool
        return other

    def begin(self, tool: Tool[Any, Any], params: object, context: ToolContext) -> PlannedCall:
        """A call that is about to begin."""
        self.listen(context.session)
        original = self._originals.get(id(tool), (tool, tool))[1]
        versions = call_versions(original, cast("Environment", context.environment))
        resources = [one for one in bound_resources(context) if id(one) not in self._resources]
        self._resources.update((id(one), one) for one in resources)
        if files := [digest_files(one) for one in resources if isinstance(one, InMemoryFilesystem)]:
            versions["files in memory"] = digest(files)
        arguments = plain_value(params)
        ids = [*reversed([above.call_id for above in context.call.ancestors]), context.call_id]
        return PlannedCall(
            conversation=self.conversation(context.session),
            id="/".join(ids),
            tool=tool.name,
            effect=tool.effect,
            arguments=tool.masking.mask(arguments) if tool.masking.hides else arguments,
            versions=versions,
            is_preview=tool.may_act,
        )

    def conversation(self, session: Session) -> str:
        """The name of a conversation, the same in each execution: empty for the run, else the calls above it.

        The session of an agent that a call has called is named after replies and calls in turn; replies have new names.
        """
        return "/".join(session.session_id.removeprefix(self.root).split("/")[2::2])

    def listen(self, session: Session) -> None:
        """Has the ends of the calls of a session reported."""
        if session.session_id not in self._sessions:
            self._sessions.add(session.session_id)
            session.dispatcher.subscribe(ToolInvoked, partial(self.end, session.session_id))

    def end(self, session_id: str, event: ToolInvoked) -> None:
        """Sees the end of a call."""

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Sees a success."""

    def approve(self, request: ApprovalRequest) -> bool:
        """Answers with yes: the plan as a whole is approved."""
        self.note_questions(request.session_id, request.call, [question.text for question in request.questions])
        return True

    def note_questions(self, session_id: str, call: CallRef, questions: Iterable[str]) -> None:
        """Sees questions about a call."""

    def read(self, call: RunningCall, rows: str) -> None:
        """Sees rows that a call has read, by their digest."""

    def watch(self, session: Session, connection: DatabaseConnection, call: CallRef) -> DatabaseConnection:
        """The database, with `read` for the rows that a call selects."""
        return _WatchedConnection(connection, partial(self.read, (session.session_id, call)))


@dataclass(frozen=True, slots=True)
class _WatchedConnection:
    connection: DatabaseConnection
    read: Callable[[str], object]

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        return self._pass_on(sql, self.connection.execute(sql, parameters))

    async def execute_async(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        return self._pass_on(sql, await self.connection.execute_async(sql, parameters))

    def _pass_on(self, sql: str, fetched: FetchedRows) -> FetchedRows:
        # A statement that writes may return a number that was counted for it.
        if not sql.lstrip().lower().startswith("select"):
            return fetched
        rows = fetched.fetchall()
        self.read(digest(repr(rows)))
        return FetchedRows(rows, fetched.rowcount)


def bound_resources(context: ToolContext) -> list[object]:
    """The resources of the run of a call that have been made."""
    return list(cast("Environment", context.environment).resources.lifetime.values.values())


def digest_files(files: InMemoryFilesystem) -> str:
    """A digest of the folders and files of a filesystem in memory."""
    return digest([(one.path, files.identity(one.path) if one.kind == "file" else "") for one in files.glob("**")])


def add_result(call: PlannedCall, result: ToolResult[Any], *, replayed: bool = False) -> PlannedCall:
    """A call with its result."""
    value = plain_value(result.value)
    return replace(call, success=result.success, message=result.render(), value=value, replayed=replayed)
