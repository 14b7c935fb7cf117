"""Executing a plan: exactly its calls, in its order, until the first deviation.

The guard of the run is asked last about each call, before its handler starts: no call starts that the plan does not
have next, or after one that has ended otherwise. A result that differs rolls its call back, unless the call has acted
outside. The model is not asked: its recorded replies are given to the requests that they answered.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_core import from_json, to_json

from handrail.adapters.run_task import AgentFunction, RunTask
from handrail.errors import PlanDeviatedError, PlanRefusedError
from handrail.filesystem.copies import digest_folder
from handrail.prompt import PolicyDecision, Tool, ToolContext, ToolResult
from handrail.runtime import ToolInvoked
from handrail.runtime.environment import RUN_GUARD
from handrail.runtime.execution import ASYNC
from handrail.runtime.guard import AskModel, Workplace
from handrail.session import Session
from handrail.store import Store
from handrail.undo.guards import CallGuard, RunningCall, add_result
from handrail.undo.plan_file import DryRunPlan, PlannedCall, changed_names, digest_request, json_diff, texts_in
from handrail.undo.rehearsal import FOLDER_VERSION, HasTask, as_function, run_versions

PlanApprover: TypeAlias = Callable[[DryRunPlan], bool | Awaitable[bool]]
"""Answers whether a plan may be executed."""

_SHORTEST_TEXT = 4  # a shorter one occurs by chance


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
    present["store"] = store.url if plan.versions["store"] else ""  # a plan without a store is for any
    if changes := tuple(changed_names(plan.versions, present)):
        text = f"the plan is not executed, because this has changed since it was made: {', '.join(changes)}"
        raise PlanRefusedError(f"{text}. Make it anew", changes=changes)


class ExecutionGuard(CallGuard):
    """The guard of a plan that is executed: it compares, and stops the run at the first deviation."""

    def __init__(self, plan: DryRunPlan) -> None:
        super().__init__(plan.session)
        self._plan = plan
        self._replies = list(plan.replies)
        self._began: set[int] = set()
        self._reads: dict[int, int] = {}
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
        place = self._find(call.conversation, call.id)
        if place is None:
            raise self._deviate(f"the plan does not have {call.text}")
        planned = self._plan.calls[place]
        if (planned.tool, planned.arguments) != (call.tool, call.arguments):
            raise self._deviate(
                f"it makes {call.text} in the place of {planned.text}", json_diff(planned.arguments, call.arguments)
            )
        if changes := changed_names(planned.versions, call.versions):
            raise self._deviate(f"of {call.text} has changed since the plan was made: {', '.join(changes)}")
        for earlier, other in enumerate(self._plan.calls[:place]):
            is_awaited = other.conversation == call.conversation and other.effect != "read"
            if is_awaited and earlier not in self._began:
                raise self._deviate(f"{call.text} comes before {other.text}")
        self._began.add(place)
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
        number = self._reads[place] = self._reads.get(place, -1) + 1
        if self._plan.calls[place].reads[number : number + 1] != (rows,):
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
        missing = [call.text for place, call in enumerate(self._plan.calls) if place not in self._began]
        if missing or self._replies:
            raise self._deviate(f"it ended without {', '.join(missing) or 'asking the model as often'}")

    def _find(self, conversation: str, call_id: str) -> int | None:
        names = enumerate((other.conversation, other.id) for other in self._plan.calls)
        return next(
            (place for place, name in names if name == (conversation, call_id) and place not in self._began), None
        )

    def _compare(self, planned: PlannedCall, call: PlannedCall) -> None:
        names = ["success", "replayed", "message", "value"]
        if planned.is_preview and planned.success and call.success:
            names, real = ["success", "replayed"], "\n".join(texts_in([call.message, call.value]))
            later = self._plan.calls[self._plan.calls.index(planned) + 1 :]
            later_texts = "\n".join(texts_in([other.arguments for other in later]))
            texts = {text for text in texts_in(planned.value) if len(text) >= _SHORTEST_TEXT and text in later_texts}
            if missing := sorted(text for text in texts if text not in real):
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
