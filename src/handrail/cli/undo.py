"""`handrail undo`: plans the undo of calls, shows what it would change, and applies it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from cyclopts import CycloptsError, Parameter

from handrail import undo
from handrail.adapters.tool_executor import ToolExecutor
from handrail.cli.agents import imports_unsearched
from handrail.cli.ledger import executor_maker
from handrail.cli.options import Entity, StoreOptions, Yes, check_can_ask
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Field, Screen
from handrail.operations import need_extra
from handrail.operations.sessions import find_session
from handrail.runtime.execution import ASYNC
from handrail.serde.formatting import count_noun
from handrail.session import Session
from handrail.session.persistence.loading import known_items
from handrail.store import Store
from handrail.undo import UndoPlan, UndoReport, UndoStep
from handrail.waiting import run_on_new_loop

_Act: TypeAlias = Callable[[tuple[ToolExecutor, ...]], Coroutine[Any, Any, int]]
_STYLES = {"restored": "green", "compensated": "green", "unknown": "bold red", "impossible": "red"}

STEP: Entity[UndoStep] = Entity(
    "calls to undo",
    ("call", "tool", "outcome", "why", "arguments"),
    (
        Field("call", lambda step: str(step.ref), key=""),
        Field("", lambda step: step.ref.reply, key="reply"),
        Field("", lambda step: step.ref.call_id, key="call_id"),
        Field("tool", lambda step: step.tool),
        Field("outcome", lambda step: step.outcome, styles=_STYLES),
        Field("why", lambda step: step.why),
        Field("arguments", lambda step: step.arguments),
        Field("", lambda step: [change._asdict() for change in step.changes], key="changes"),
    ),
)
"""A call in a plan, the newest first."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class UndoChoices:
    """What is undone, and how.

    Attributes:
        to: The oldest call that is undone, as `sessions show` writes it. By default the first of the session.
        tools: What has the tools and the files: an agent file; a file of MCP servers, as of `handrail proxy`; or
            MODULE:FUNCTION, which takes a Session and returns its ToolExecutor. By default the agent of the run.
        partial: Undo what can be undone, although other calls stay.
        yes: whether to undo without asking.
        dry_run: Only show the plan; nothing is changed or settled.
    """

    to: Annotated[str | None, Parameter(metavar="CALL")] = None
    tools: Annotated[str | None, Parameter(metavar="NAME")] = None
    partial: bool = False
    yes: Yes = False
    dry_run: bool = False


def undo_calls(session: str, /, *, choices: UndoChoices = UndoChoices(), options: StoreOptions = StoreOptions()) -> int:
    """Undo the calls of a session: what they changed is restored, and what they did outside is compensated.

    The plan is shown first, the newest call first. It is refused unless every call can be undone; --partial undoes the
    others. Each undo is a call of its own: asked again after a failure or a crash, the command continues.

    Example: `handrail undo desk-7 --to reply-3/call_1 --dry-run`

    Args:
        session: The session.
        choices: What is undone, and how.
        options: The store and the output format.
    """
    check_can_ask(Screen(), "undoes calls", yes=choices.yes or choices.dry_run)
    with options.open(writing=True) as store:
        with redirect_stdout(sys.stderr):
            enter = _find_program(store, session, choices.tools)
        with Session.open(store, session, create=False) as opened:
            return enter(opened, lambda executors: _undo(opened, executors, choices, options))


async def _undo(
    session: Session, executors: tuple[ToolExecutor, ...], choices: UndoChoices, options: StoreOptions
) -> int:
    screen = Screen()
    if not choices.dry_run:
        for executor in executors:
            await executor.settle_open_async()
    plan = await ASYNC.in_thread(partial(undo.plan, session, choices.to, executors=executors))
    is_refused = not (plan.is_complete or choices.partial)
    if not options.as_json:
        _show(screen, plan)
    if choices.dry_run or is_refused:
        if options.as_json:
            screen.json(_plan_json(plan))
        elif is_refused:
            screen.remark("Some calls cannot be undone. --partial undoes the others.")
        return FAILED if is_refused else DONE
    count = count_noun(sum(step.is_undone for step in plan.steps), "call")
    if plan.steps and not choices.yes and not await ASYNC.in_thread(lambda: screen.confirm(f"Undo {count}?")):
        screen.remark("Nothing was undone.")
        return FAILED
    # The person has approved the plan that was shown.
    report = await undo.apply(plan, partial=choices.partial, approver=lambda _: True)
    _report(screen, report, options)
    return DONE if report.failed is None else FAILED


def _show(screen: Screen, plan: UndoPlan) -> None:
    if not plan.steps:
        screen.note("There is nothing to undo.")
    STEP.table(screen, plan.steps)
    for step in plan.steps:
        for change in step.changes:
            screen.text(f"\n{step.ref} {change.name}")
            screen.text(change.diff, indent=2)


def _plan_json(plan: UndoPlan) -> dict[str, Any]:
    steps = [STEP.json(step) for step in plan.steps]
    return {"session_id": plan.session_id, "digest": plan.digest, "complete": plan.is_complete, "steps": steps}


def _report(screen: Screen, report: UndoReport, options: StoreOptions) -> None:
    undone, failed = [str(step.ref) for step, _ in report.undone], report.failed
    if options.as_json:
        why = None if failed is None else {"call": str(failed[0].ref), "message": failed[1].content}
        screen.json({**_plan_json(report.plan), "undone": undone, "failed": why, "message": report.message})
        return
    if undone:
        screen.say(f"Undone: {', '.join(undone)}.")
    if failed is not None:
        screen.problem(f"{failed[0].ref} was not undone, and older calls were not tried: {failed[1].content}")
    if not report.in_conversation:
        screen.remark(
            "The last reply waits for answers. Run the command again then, so that the model reads what was undone."
        )


def _find_program(store: Store, session_id: str, name: str | None) -> Callable[[Session, _Act], int]:
    row = find_session(store, session_id)
    if name is not None and name.endswith(".yaml"):
        from handrail.adapters.mcp.proxy import open_proxy  # noqa: PLC0415 - needs the extra `mcp`
        from handrail.adapters.mcp.settings import read_servers  # noqa: PLC0415

        servers = read_servers(Path(name))

        async def behind_proxy(session: Session, act: _Act) -> int:
            async with open_proxy(servers, session=session) as proxy:
                return await act((proxy.executor,))

        return lambda session, act: run_on_new_loop(behind_proxy(session, act))
    if name is not None and not name.endswith(".agent"):
        make = executor_maker(name, option="--tools")

        def enter(session: Session, act: _Act) -> int:
            with make(session) as executor:
                return run_on_new_loop(act((executor,)))

        return enter
    need_extra()
    with imports_unsearched():
        from handrail.agents import RunOptions, load_agent  # noqa: PLC0415 - needs the extra, which is there
        from handrail.agents.approval.rules import read_rules  # noqa: PLC0415
        from handrail.agents.run.interface import RunCommand  # noqa: PLC0415
    commands: list[RunCommand] = known_items(store, row, lambda kind: kind is RunCommand).get(RunCommand, [])
    if not (commands or name):
        raise CycloptsError(
            msg=f"session {session_id} was not run by handrail run; name its program with --tools MODULE:FUNCTION"
        )
    command = commands[-1] if commands else RunCommand(agent_file=name or "")
    agent = load_agent(name or Path(command.folder, command.agent_file))
    rules = None if command.rules is None else read_rules(Path(command.folder, command.rules))
    root = Path(command.folder, command.root or "") if commands else None

    def enter_agent(session: Session, act: _Act) -> int:
        return run_on_new_loop(agent.with_executors(act, RunOptions(session=session, rules=rules, root=root)))

    return enter_agent
