"""A dry run: the real pipeline on copies, which makes a plan; `handrail.undo.execution` executes exactly that.

| | a dry run | the execution of its plan |
|---|---|---|
| session, folders | copies, see `handrail.store.rehearsal` | the real ones, as the dry run began with them |
| other resources that are bound | restored at the end | the real ones |
| a reply of a model | asked for, and recorded | the recorded one, if the request is the same |
| a call that may act outside | the `preview=` of its tool; without one the plan ends | runs |
| any other call | runs | runs |
| a question of a policy | is recorded, and answered with yes | the approval of the plan answers it |
| the result of a call | is recorded | is compared; of a preview only what later calls use |

A process that is killed in a dry run leaves a temporary folder, whose name begins with `handrail-dry-run-`.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic_core import from_json, to_json

from handrail import __version__
from handrail.adapters.run_task import AgentFunction, RunTask, name_function
from handrail.errors import DryRunEndedError, PlanRefusedError
from handrail.filesystem.copies import copy_folder, digest_folder, folder_size
from handrail.prompt import PolicyDecision, Tool, ToolContext
from handrail.prompt.signature import is_async, takes_context
from handrail.resources.binding import is_snapshotable
from handrail.runtime import ToolInvoked
from handrail.runtime.environment import RUN_GUARD
from handrail.runtime.execution import ASYNC
from handrail.runtime.guard import AskModel, Workplace
from handrail.serde import codec
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.store import Store
from handrail.store.rehearsal import check_size, copy_store
from handrail.transaction import Snapshotable
from handrail.undo.guards import CallGuard, RunningCall, add_result, bound_resources
from handrail.undo.plan_file import DryRunPlan, PlannedCall, PlannedReply, digest_request
from handrail.undo.versions import agent_versions, digest_session

FOLDER_VERSION: Final = "folder "
"""How the names of the folders begin in the versions of a plan."""


class HasTask(Protocol):
    """An agent that a function carries out; `LoadedAgent` is one."""

    def task(self) -> AgentFunction:
        """The function."""
        ...


async def dry_run(
    agent: AgentFunction | HasTask,
    input: str | None = None,
    *,
    store: Store | None = None,
    session: str | None = None,
    besides: Collection[Path] = (),
) -> DryRunPlan:
    """Rehearses a run on copies, and returns its plan. Nothing of the rehearsal is left.

    Args:
        agent: the agent of a file (`agent.task(options)` sets the options of its runs), or a function.
        input: what it is to do; without one, it finishes what the session has begun.
        store: the store in which the plan is to be executed; it may be left out for a new session.
        session: the session; a new one without.
        besides: files that may change until the plan is executed, such as that of the plan.

    Raises:
        PlanRefusedError: something cannot be copied.
        BaseException: what ends the run otherwise.
    """
    function, session_id = as_function(agent), session or uuid.uuid4().hex
    with ExitStack() as stack:
        folder = await ASYNC.in_thread(lambda: Path(stack.enter_context(_temporary_folder())).resolve())
        versions = await ASYNC.in_thread(partial(run_versions, function, store, session_id))
        copy = stack.enter_context(await ASYNC.in_thread(partial(copy_store, store, folder)))
        guard = RehearsalGuard(session_id, folder, besides)
        stack.callback(guard.restore)
        async with await Session.open_async(copy, session_id, evict=True) as rehearsed:
            rehearsed.attached[RUN_GUARD] = guard
            ends, output = "", ""
            try:
                output = str(await function(RunTask(rehearsed, input)))
            except DryRunEndedError as end:
                ends = str(end)
        calls, replies = tuple(guard.calls), tuple(guard.replies)
        versions |= guard.folders
        output = guard.with_real_paths(output)
    plan = DryRunPlan(input=input, session=session_id, versions=versions, calls=calls, replies=replies)
    return replace(plan, ends=ends, output=output).with_token()


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="handrail-dry-run-")


def as_function(agent: AgentFunction | HasTask) -> AgentFunction:
    """The function that carries an agent out."""
    return agent if callable(agent) else agent.task()


def run_versions(function: AgentFunction, store: Store | None, session_id: str) -> dict[str, str]:
    """What a run begins with, by names; without the folders on which it works."""
    names = {"Handrail": __version__, "agent": name_function(function), "store": "" if store is None else store.url}
    return {**names, "session": digest_session(store, session_id), **agent_versions(function)}


class RehearsalGuard(CallGuard):
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
        self._places: dict[Path, Workplace] = {}
        self._asks: dict[RunningCall, tuple[str, ...]] = {}
        self._held: dict[int, tuple[Snapshotable[Any], Any]] = {}

    def stand_in(self, tool: Tool[Any, Any]) -> Tool[Any, Any]:
        """The tool with its preview for a handler, if it may act outside."""
        handler = None if tool.preview is None else _as_handler(tool.preview)
        return self.replaced(tool, concurrent=False, handler=handler) if tool.may_act else tool

    def workplace(self, folder: Path) -> Workplace:
        """The copy of a folder, made when it is first asked for; `PlanRefusedError` if it is too large."""
        if folder.is_relative_to(self._folder):
            return next(place for place in self._places.values() if place.folder == folder)
        if folder not in self._places:
            check_size(folder, folder_size(folder))
            number = len(self._places)
            place = self._places[folder] = Workplace(
                self._folder / f"root-{number}", self._folder / f"journal-{number}"
            )
            copy_folder(folder, place.folder)
            self.folders[f"{FOLDER_VERSION}{folder}"] = digest_folder(folder, besides=self._besides)
        return self._places[folder]

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        """Records a call that begins, or ends the plan before it."""
        call = self.begin(tool, params, context)
        if tool.may_act and tool.handler is None:
            cure = "its tool has no preview" if tool.effect == "external" else "its tool does not declare its effect"
            raise DryRunEndedError(f"{call.text} may act outside, and {cure}", tool=tool.name)
        if tool.masking.hides and tool.masking.masks_in(call.arguments):
            raise DryRunEndedError(f"{call.text} has secrets in its arguments, which no plan has", tool=tool.name)
        for resource in bound_resources(context):
            self._hold(resource)
        name = context.session.session_id, context.call
        self.running[name] = len(self.calls)
        self.calls.append(self._real(replace(call, asks=self._asks.get(name, ()))))
        return PolicyDecision.allow()

    def note_questions(self, session_id: str, call: CallRef, questions: Iterable[str]) -> None:
        """Records questions about a call."""
        asks = self._asks[session_id, call] = tuple(questions)
        self._change((session_id, call), lambda planned: replace(planned, asks=asks))

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
        for folder, place in self._places.items():
            text = text.replace(str(place.folder), str(folder))
        return text

    def restore(self) -> None:
        """Restores the resources of the program, the newest first."""
        while self._held:
            resource, snapshot = self._held.popitem()[1]
            resource.restore(snapshot)

    def _hold(self, resource: object) -> None:
        root: object = getattr(resource, "root", None)
        if isinstance(root, Path) and not root.is_relative_to(self._folder):
            raise PlanRefusedError(
                f"a dry run would change {root}: open the folder by task.filesystem(...), or by RunOptions(root=...)"
            )
        if is_snapshotable(resource) and not isinstance(root, Path) and id(resource) not in self._held:
            self._held[id(resource)] = resource, resource.snapshot()

    def _change(self, call: RunningCall, change: Callable[[PlannedCall], PlannedCall]) -> None:
        if (place := self.running.get(call)) is not None:
            self.calls[place] = change(self.calls[place])

    def _real(self, call: PlannedCall) -> PlannedCall:
        return codec(PlannedCall).parse_json(self.with_real_paths(to_json(asdict(call)).decode()))


def _as_handler(preview: Callable[..., Any]) -> Callable[..., Any]:
    has_context = takes_context(preview)

    def run(params: Any, /, *, context: ToolContext) -> Any:  # noqa: ANN401 - of the tool
        return preview(params, context=context) if has_context else preview(params)

    async def run_async(params: Any, /, *, context: ToolContext) -> Any:  # noqa: ANN401 - as above
        return await run(params, context=context)

    return run_async if is_async(preview) else run
