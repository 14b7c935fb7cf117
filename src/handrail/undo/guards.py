"""The guards of a dry run, and of a plan that is executed.

A guard is asked last about each call of its run, before the handler starts, and about each request to a model. That of
a dry run copies and records. That of a plan compares: no call starts that the plan does not have next, or after one
that has ended otherwise. A result that differs rolls its call back, unless the call has acted outside. The model is not
asked: its recorded replies are given to the requests that they answered.

The code of a function counts with the whole file that it is in; what it is closed over does not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from pydantic_core import from_json, to_json

from handrail.adapters.run_task import digest_module
from handrail.errors import DryRunEndedError, PlanDeviatedError, PlanRefusedError, RunAbortedError, ToolValidationError
from handrail.filesystem import InMemoryFilesystem
from handrail.filesystem.copies import copy_folder, digest_folder, folder_size
from handrail.prompt import Approval, ApprovalRequest, PolicyDecision, Tool, ToolContext, ToolResult
from handrail.prompt.signature import is_async, takes_context
from handrail.resources.binding import is_snapshotable
from handrail.runtime import ToolInvoked
from handrail.runtime.environment import Environment
from handrail.runtime.failures import describe_error
from handrail.runtime.guard import AskModel, Workplace
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.serde import codec, digest
from handrail.session import DatabaseConnection, Session
from handrail.session.calls import CallRef
from handrail.session.conversation import digest_request
from handrail.session.persistence.protocol import FetchedRows
from handrail.store.rehearsal import check_size
from handrail.transaction import Snapshotable, current
from handrail.transaction.transaction import Enlisted
from handrail.undo.plan_file import DryRunPlan, Names, PlannedCall, PlannedReply, changed_names, json_diff, plain_value

FOLDER_VERSION: Final = "folder "
"""How the names of the folders begin in the versions of a plan."""

_DECLARED: Final = (
    *("name", "description", "effect", "external", "idempotency", "timeout", "concurrent", "max_result_chars"),
    *("untrusted", "sanitizes", "handler", "function", "undo", "capture", "preview"),
)

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

    def approve(self, request: ApprovalRequest) -> Approval:
        """Answers as `note_questions` does."""
        texts = [question.text for question in request.questions]
        return self.note_questions(request.session_id, request.call, texts)

    def note_questions(self, session_id: str, call: CallRef, questions: Iterable[str]) -> Approval:  # noqa: ARG002 - the protocol's
        """Answers with yes: the plan as a whole is approved."""
        return Approval(approved=True)

    def times(self, session_id: str, call: CallRef) -> Sequence[datetime]:  # noqa: ARG002 - the protocol's
        """Leaves the time as it is."""
        return ()

    def ledger(self, session: Session, find: Callable[[], EffectLedger]) -> EffectLedger:  # noqa: ARG002 - the protocol's
        """The ledger of the program."""
        return find()

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


class CopyGuard(CallGuard):
    """The part of a guard of a run on copies that refuses, or restores, what is not a copy.

    Attributes:
        kind: what the run is, for messages.
        places: the copies of folders.
    """

    kind = "a dry run"

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.places: dict[Path, Workplace] = {}
        self._held: dict[int, tuple[Snapshotable[Any], Any]] = {}

    def ledger(self, session: Session, find: Callable[[], EffectLedger]) -> EffectLedger:
        """The ledger of the program, which has to be in the copy of the store; raises `PlanRefusedError`."""
        ledger = find()
        if ledger.units is not session.store:
            raise PlanRefusedError(
                f"{self.kind} would write to the ledger of the program, which is not in the store of its session: "
                "leave effect_ledger= out, or make it of that store by EffectLedger(session.store)"
            )
        return ledger

    def hold(self, context: ToolContext) -> None:
        """Has the resources of a call restored at the end; raises `PlanRefusedError` for a folder itself."""
        for resource in bound_resources(context):
            root: object = getattr(resource, "root", None)
            if not isinstance(root, Path):
                if is_snapshotable(resource) and id(resource) not in self._held:
                    self._held[id(resource)] = resource, resource.snapshot()
            elif not any(root.is_relative_to(place.folder) for place in self.places.values()):
                raise PlanRefusedError(
                    f"{self.kind} would change {root}: open the folder by task.filesystem(...), or by "
                    "RunOptions(root=...); a function of a session by RunTask(session, None).filesystem(...)"
                )

    def restore(self) -> None:
        """Restores the resources of the program, the newest first."""
        while self._held:
            resource, snapshot = self._held.popitem()[1]
            resource.restore(snapshot)

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ARG002 - the protocol's
        """Rolls back a call that would commit to another database; raises `PlanRefusedError`."""
        call = current()
        for part in () if call is None else call.enlisted:
            if isinstance(part, Enlisted):
                raise PlanRefusedError(
                    f"{self.kind} would commit {type(part.wraps).__name__}, which {tool.name} enlists: nothing copies "
                    "what another database has. Write by context.connection, or in the handler of an external tool"
                )


class RehearsalGuard(CopyGuard):
    """The guard of a dry run: it copies and records.

    Attributes:
        calls: the calls that have begun.
        replies: the replies of the models.
        folders: digests of the folders that were copied, as versions of the plan.
    """

    def __init__(self, root: str, folder: Path, besides: Collection[Path]) -> None:
        super().__init__(root)
        self.calls: list[PlannedCall] = []
        self.replies: list[PlannedReply] = []
        self.folders: dict[str, str] = {}
        self._folder = folder
        self._besides = besides
        self._asks: dict[RunningCall, tuple[str, ...]] = {}

    def stand_in(self, tool: Tool[Any, Any]) -> Tool[Any, Any]:
        """The tool with its preview for a handler, if it may act outside."""
        handler = None if tool.preview is None else _as_handler(tool.name, tool.preview)
        return self.replaced(tool, concurrent=False, handler=handler) if tool.may_act else tool

    def workplace(self, folder: Path) -> Workplace:
        """The copy of a folder, made when it is first asked for; `PlanRefusedError` if it is too large."""
        if folder.is_relative_to(self._folder):
            return next(place for place in self.places.values() if place.folder == folder)
        if folder not in self.places:
            check_size(folder, folder_size(folder))
            number = len(self.places)
            place = Workplace(self._folder / f"root-{number}", self._folder / f"journal-{number}")
            self.places[folder] = place
            copy_folder(folder, place.folder)
            self.folders[f"{FOLDER_VERSION}{folder}"] = digest_folder(folder, besides=self._besides)
        return self.places[folder]

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        """Records a call that begins, or ends the plan before it."""
        call = self.begin(tool, params, context)
        if tool.may_act and tool.handler is None:
            cure = "its tool has no preview" if tool.effect == "external" else "its tool does not declare its effect"
            raise DryRunEndedError(f"{call.text} may act outside, and {cure}", tool=tool.name)
        if tool.masking.hides and tool.masking.masks_in(call.arguments):
            raise DryRunEndedError(f"{call.text} has secrets in its arguments, which no plan has", tool=tool.name)
        self.hold(context)
        name = context.session.session_id, context.call
        self.running[name] = len(self.calls)
        self.calls.append(self._real(replace(call, asks=self._asks.get(name, ()))))
        return PolicyDecision.allow()

    def note_questions(self, session_id: str, call: CallRef, questions: Iterable[str]) -> Approval:
        """Records questions about a call."""
        asks = self._asks[session_id, call] = tuple(questions)
        self._change((session_id, call), lambda planned: replace(planned, asks=asks))
        return Approval(approved=True)

    def read(self, call: RunningCall, rows: str) -> None:
        """Records rows that a call has read."""
        self._change(call, lambda call: replace(call, reads=(*call.reads, rows)))

    def end(self, session_id: str, event: ToolInvoked) -> None:
        """Records the end of a call."""
        name = session_id, event.ref
        self._change(name, lambda call: self._real(add_result(call, event.result, replayed=event.replayed)))
        self.running.pop(name, None)

    async def reply(self, session: Session, request: Mapping[str, Any], ask: AskModel) -> Any:  # noqa: ANN401 - the protocol's
        """Asks the model, and records its reply."""
        self.listen(session)
        message = await ask()
        real = from_json(self.with_real_paths(to_json([request, message]).decode()))
        self.replies.append(PlannedReply(self.conversation(session), digest_request(real[0]), real[1]))
        return message

    def with_real_paths(self, text: str) -> str:
        """A text in which the paths of copies are those of the originals."""
        for folder, place in self.places.items():
            text = text.replace(str(place.folder), str(folder))
        return text

    def _change(self, call: RunningCall, change: Callable[[PlannedCall], PlannedCall]) -> None:
        if (place := self.running.get(call)) is not None:
            self.calls[place] = change(self.calls[place])

    def _real(self, call: PlannedCall) -> PlannedCall:
        return codec(PlannedCall).parse_json(self.with_real_paths(to_json(asdict(call)).decode()))


def _as_handler(name: str, preview: Callable[..., Any]) -> Callable[..., Any]:
    has_context = takes_context(preview)

    def run(params: Any, /, *, context: ToolContext) -> Any:  # noqa: ANN401 - of the tool
        with _end_by_failure(name):
            return preview(params, context=context) if has_context else preview(params)

    async def run_async(params: Any, /, *, context: ToolContext) -> Any:  # noqa: ANN401 - as above
        with _end_by_failure(name):
            return await run(params, context=context)

    return run_async if is_async(preview) else run


@contextmanager
def _end_by_failure(name: str) -> Generator[None]:
    try:
        yield
    except (ToolValidationError, RunAbortedError):
        raise  # the first: as the handler would refuse the call
    except Exception as error:
        raise DryRunEndedError(f"the preview of {name} failed: {describe_error(error)}", tool=name) from error


class ExecutionGuard(CallGuard):
    """The guard of a plan that is executed: it compares, and stops the run at the first deviation."""

    def __init__(self, plan: DryRunPlan) -> None:
        super().__init__(plan.session)
        self._plan = plan
        self._replies = list(plan.replies)
        self._reads: dict[int, int] = {}  # by the calls that have begun, how often each has read
        self._deviation: PlanDeviatedError | None = None

    def stand_in(self, tool: Tool[Any, Any]) -> Tool[Any, Any]:
        """The tool; one that may act outside runs when those before it have ended."""
        return self.replaced(tool, concurrent=False) if tool.may_act and tool.concurrent else tool

    def workplace(self, folder: Path) -> Workplace:
        """The folder itself, if the dry run worked on it."""
        if f"{FOLDER_VERSION}{folder}" not in self._plan.versions:
            raise self._deviate(f"it works on {folder}, on which the dry run did not")
        return Workplace(folder)

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        """Lets a call begin that is the next one of the plan."""
        self._raise_deviation()
        call = self.begin(tool, params, context)
        place = self._find((call.conversation, call.id))
        if place is None:
            raise self._deviate(f"the plan does not have {call.text}")
        planned = self._plan.calls[place]
        if (planned.tool, planned.arguments) != (call.tool, call.arguments):
            diff = json_diff(planned.arguments, call.arguments)
            raise self._deviate(f"it makes {call.text} in the place of {planned.text}", diff)
        if changes := changed_names(planned.versions, call.versions):
            raise self._deviate(f"of {call.text} has changed since the plan was made: {', '.join(changes)}")
        for earlier, other in enumerate(self._plan.calls[:place]):
            is_awaited = other.conversation == call.conversation and other.effect != "read"
            if is_awaited and earlier not in self._reads:
                raise self._deviate(f"{call.text} comes before {other.text}")
        self._reads[place] = 0
        self.running[context.session.session_id, context.call] = place
        return PolicyDecision.allow()

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ARG002 - the protocol's
        """Rolls back a call with another result than planned, unless it has acted outside."""
        place = self.running.get((context.session.session_id, context.call))
        if place is not None and not tool.may_act and not tool.result_masking.hides:
            planned = self._plan.calls[place]
            self._compare(planned, add_result(planned, result, replayed=planned.replayed))
            self._raise_deviation()

    def read(self, call: RunningCall, rows: str) -> None:
        """Stops a call that reads other rows than planned, before it uses them."""
        place = self.running.get(call)
        if place is None or self._plan.calls[place].is_preview:
            return
        number = self._reads[place] = self._reads[place] + 1
        if self._plan.calls[place].reads[number - 1 : number] != (rows,):
            raise self._deviate(f"{self._plan.calls[place].text} reads other rows than in the dry run")

    def end(self, session_id: str, event: ToolInvoked) -> None:
        """Compares the end of a call."""
        place = self.running.pop((session_id, event.ref), None)
        if place is not None:
            planned = self._plan.calls[place]
            self._compare(planned, add_result(planned, event.result, replayed=event.replayed))

    async def reply(self, session: Session, request: Mapping[str, Any], ask: AskModel) -> Any:  # noqa: ANN401, ARG002 - the protocol's
        """Gives the recorded reply to a request; the model is not asked."""
        self._raise_deviation()
        self.listen(session)
        name = self.conversation(session)
        planned = next((reply for reply in self._replies if reply.conversation == name), None)
        if planned is None:
            raise self._deviate("it asks the model more often")
        self._replies.remove(planned)
        if changes := changed_names(planned.request, digest_request(from_json(to_json(request)))):
            raise self._deviate(f"what it asks the model differs in: {', '.join(changes)}")
        return planned.message

    def finish(self) -> None:
        """Checks that all of the plan was executed; raises `PlanDeviatedError`."""
        self._raise_deviation()
        missing = [call.text for place, call in enumerate(self._plan.calls) if place not in self._reads]
        if missing or self._replies:
            raise self._deviate(f"it ended without {', '.join(missing) or 'asking the model as often'}")

    def _find(self, key: tuple[str, str]) -> int | None:
        keys = enumerate((other.conversation, other.id) for other in self._plan.calls)
        return next((place for place, other in keys if other == key and place not in self._reads), None)

    def _compare(self, planned: PlannedCall, call: PlannedCall) -> None:
        names = ["success", "replayed", "message", "value"]
        if planned.is_preview and planned.success and call.success:
            names = ["success", "replayed"]
            later = self._plan.calls[self._plan.calls.index(planned) + 1 :]
            preview, real = (Names.read(one.value, one.message) for one in (planned, call))
            in_use = Names.read([other.arguments for other in later]).in_common(
                preview, Names.read(planned.arguments), besides=preview.leaves
            )
            if missing := sorted(name for name in in_use if not real.has(name)):
                self._deviate(f"later calls use {', '.join(map(repr, missing))}, which the result of {call.text} lacks")
        was, now = ({name: getattr(one, name) for name in names} for one in (planned, call))
        if was != now:
            self._deviate(f"{call.text} has another result", json_diff(was, now))

    def _deviate(self, why: str, diff: str = "") -> PlanDeviatedError:
        text = f"the run deviates from its plan, and was stopped: {why}"
        error = PlanDeviatedError(f"{text}\n{diff}" if diff else text, diff=diff)
        self._deviation = self._deviation or error
        return self._deviation

    def _raise_deviation(self) -> None:
        if self._deviation is not None:
            raise self._deviation


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


def call_versions(tool: Tool[Any, Any], environment: Environment) -> dict[str, str]:
    """Digests of what decides about a call, and of what carries it out."""
    described = {name: _describe(getattr(tool, name, None)) for name in _DECLARED}
    policies = environment.rendered_prompt.policies_for(tool.name)
    offered = [(one.name, one.description, one.parameters_schema, one.effect) for one in environment.tools]
    judged = [[policy.name, describe_code(type(policy).check), _describe(policy)] for policy in policies]
    own = [described, tool.parameters_schema, str(tool.result_type), repr(tool.examples)]
    return {"tool": digest(own), "policies": digest(judged), "tools": digest(offered)}


def describe_code(function: Callable[..., object]) -> list[object]:
    """The code of a function: its place, and the file that it is in."""
    inner = inspect.unwrap(function)
    inner = inner if hasattr(inner, "__code__") else type(inner).__call__
    line: int = getattr(getattr(inner, "__code__", None), "co_firstlineno", 0)
    return [getattr(function, "__qualname__", type(function).__qualname__), line, digest_module(inner)]


def _describe(value: Any) -> object:  # noqa: ANN401 - what a tool declares, or a policy has
    if inspect.isroutine(value):
        return describe_code(value)
    if is_dataclass(value) and not isinstance(value, type):
        # What a policy keeps for itself, such as earlier decisions, changes during a run.
        names = [one.name for one in fields(value) if one.init and not one.name.startswith("_")]
        return {name: _describe(getattr(value, name)) for name in names}
    return plain_value(value)
