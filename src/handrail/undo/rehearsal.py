"""A dry run: the real pipeline on copies, which makes a plan; and the execution of exactly that plan.

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

import inspect
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Protocol, TypeAlias

from handrail import __version__
from handrail.adapters.run_task import AgentFunction, RunTask, digest_module, name_function
from handrail.errors import DryRunEndedError, PlanRefusedError
from handrail.filesystem.copies import digest_folder, walk_folder
from handrail.runtime.environment import RUN_GUARD
from handrail.runtime.execution import ASYNC
from handrail.session import Session
from handrail.store import Store
from handrail.store.rehearsal import copy_store
from handrail.undo.guards import FOLDER_VERSION, ExecutionGuard, RehearsalGuard
from handrail.undo.plan_file import DryRunPlan, changed_names

PlanApprover: TypeAlias = Callable[[DryRunPlan], bool | Awaitable[bool]]
"""Answers whether a plan may be executed."""


class HasTask(Protocol):
    """An agent that a function carries out; `LoadedAgent` is one."""

    def task(self) -> AgentFunction:
        """The function."""
        ...


async def dry_run(
    agent: AgentFunction | HasTask,
    input: str | None = None,
    *,
    store: Store,
    session: str | None = None,
    besides: Collection[Path] = (),
) -> DryRunPlan:
    """Rehearses a run on copies, and returns its plan. Nothing of the rehearsal is left.

    Args:
        agent: the agent of a file (`agent.task(options)` sets the options of its runs), or a function.
        input: what it is to do; without one, it finishes what the session has begun.
        store: the store in which the plan is to be executed.
        session: the session; a new one without.
        besides: files that may change until the plan is executed, such as that of the plan.

    Raises:
        PlanRefusedError: something cannot be copied.
        BaseException: what ends the run otherwise.
    """
    function, session_id = as_function(agent), session or uuid.uuid4().hex
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="handrail-dry-run-")
        folder = await ASYNC.in_thread(lambda: Path(stack.enter_context(temporary)).resolve())
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


async def apply_plan(
    plan: DryRunPlan,
    agent: AgentFunction | HasTask,
    *,
    store: Store,
    approver: PlanApprover | None = None,
    besides: Collection[Path] = (),
) -> object:
    """Executes exactly a plan, and returns the answer of the run.

    Args:
        plan: the plan.
        agent: the same agent or function that it was made with.
        store: the store of the session.
        approver: is asked once about the plan; there has to be one if policies ask about calls of the plan.
        besides: as of `dry_run`.

    Raises:
        PlanRefusedError: the plan is not complete, is not approved, or something has changed; nothing has run.
        PlanDeviatedError: the run deviated from the plan, and was stopped there; the session has what it did before.
        BaseException: what ends the run otherwise.
    """
    function = as_function(agent)
    plan.check_token()
    if plan.ends:
        raise PlanRefusedError(f"the plan is not complete, so it is not executed: {plan.ends}")
    check = partial(ASYNC.in_thread, partial(_check_versions, plan, function, store, besides))
    await check()
    if plan.questions and approver is None:
        asked = ", ".join(call.text for call in plan.questions)
        raise PlanRefusedError(f"the plan has calls that need approval, and there is no approver: {asked}")
    answer = True if approver is None else approver(plan)
    if not (await answer if inspect.isawaitable(answer) else answer):
        raise PlanRefusedError("the plan was not approved")
    async with await Session.open_async(store, plan.session) as session:
        await check()  # as long as the session was not held, another process may have written to it
        guard = ExecutionGuard(plan)
        session.attached[RUN_GUARD] = guard
        output = await function(RunTask(session, plan.input))
        guard.finish()
        return output


def _check_versions(plan: DryRunPlan, function: AgentFunction, store: Store, besides: Collection[Path]) -> None:
    folders = [name for name in plan.versions if name.startswith(FOLDER_VERSION)]
    present = run_versions(function, store, plan.session)
    present |= {name: digest_folder(Path(name.removeprefix(FOLDER_VERSION)), besides=besides) for name in folders}
    if changes := tuple(changed_names(plan.versions, present)):
        named = ", ".join(f"{name}{_newest(name, besides)}" for name in changes)
        text = f"the plan is not executed, because this has changed since it was made: {named}. Make it anew"
        raise PlanRefusedError(text, changes=changes)


def _newest(name: str, besides: Collection[Path]) -> str:
    folder = Path(name.removeprefix(FOLDER_VERSION))
    entries = walk_folder(folder) if name.startswith(FOLDER_VERSION) and folder.is_dir() else ()
    times = [(status.st_ctime_ns, path) for path, status in entries if path not in besides]
    return f" (newest entry: {max(times)[1].relative_to(folder)})" if times else ""


def as_function(agent: AgentFunction | HasTask) -> AgentFunction:
    """The function that carries an agent out."""
    return agent if callable(agent) else agent.task()


def run_versions(function: AgentFunction, store: Store, session_id: str) -> dict[str, str]:
    """What a run begins with, by names: digests of the session and the agent, and not the folders on which it works."""
    names = {"Handrail": __version__, "agent": name_function(function), "store": store.url}
    own: Callable[[], Mapping[str, str]] | None = getattr(function, "versions", None)
    code = {"code": digest_module(function)} if own is None else own()
    return {**names, "session": digest_session(store, session_id), **code}


def digest_session(store: Store, session_id: str) -> str:
    """A digest of all that is stored of a session: entries, tags, answers of people, and the effects below it."""
    row, whole = store.find(session_id), sha256()
    if row is not None and row.head:
        for entry in store.entries(session_id, until=row.head):
            whole.update(repr(entry).encode())
        effects = sorted(repr((*effect[:4], effect.status, effect.fence)) for effect in store.effects_below(session_id))
        whole.update(repr((sorted(row.tags.items()), store.answers(session_id), effects)).encode())
    return whole.hexdigest()
