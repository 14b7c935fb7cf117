"""`handrail undo`: plans the undo of calls, shows what it would change, and applies it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import CycloptsError, Parameter

from handrail import undo
from handrail.adapters.tool_executor import ToolExecutor
from handrail.cli.options import Entity, StoreOptions, Yes, check_can_ask, import_object
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Field, Screen
from handrail.operations.sessions import find_session
from handrail.runtime.execution import ASYNC
from handrail.serde.formatting import count_noun
from handrail.session import Session
from handrail.session.persistence.loading import known_items
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.undo import UndoPlan, UndoReport, UndoStep
from handrail.waiting import run_on_new_loop

if TYPE_CHECKING:
    from handrail.agents.run.interface import RunCommand

ProgramAct: TypeAlias = Callable[[tuple[ToolExecutor, ...]], Coroutine[Any, Any, int]]
"""What is done with the executors of a program."""

SessionProgram: TypeAlias = Callable[[Session, ProgramAct], int]
"""Makes the executors of a session, and does something with them."""

_EXPECTED = "name an agent file, or MODULE:FUNCTION, which takes a Session and returns its ToolExecutor"
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
            enter = find_program(store, session, choices.tools)
        with Session.open(store, session, create=False) as opened:
            return enter(opened, lambda executors: _undo(opened, executors, choices, options))


async def _undo(
    session: Session, executors: tuple[ToolExecutor, ...], choices: UndoChoices, options: StoreOptions
) -> int:
    screen = Screen()
    if not choices.dry_run:
        await settle(executors)
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


async def settle(executors: tuple[ToolExecutor, ...]) -> int:
    """Settles the open calls of a session."""
    for executor in executors:
        await executor.settle_open_async()
    return DONE


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


def find_program(store: Store, session_id: str, name: str | None, *, option: str = "--tools") -> SessionProgram:
    """The program of a session, by the name that an option has, or as the session has recorded it.

    Raises:
        CycloptsError: there is no such program; `option` names the option.
        AgentError: its agent cannot be loaded.
        SessionNotFoundError: there is no such session.
    """
    row = find_session(store, session_id)
    if name is not None and name.endswith(".yaml"):
        from handrail.adapters.mcp.proxy import open_proxy  # noqa: PLC0415 - needs the extra `mcp`
        from handrail.adapters.mcp.settings import read_servers  # noqa: PLC0415

        servers = read_servers(Path(name))

        async def behind_proxy(session: Session, act: ProgramAct) -> int:
            async with open_proxy(servers, session=session) as proxy:
                return await act((proxy.executor,))

        return lambda session, act: run_on_new_loop(behind_proxy(session, act))
    if name is not None and not name.endswith(".agent"):
        make_executor = import_object(name, _EXPECTED)

        def enter(session: Session, act: ProgramAct) -> int:
            executor = make_executor(session) if callable(make_executor) else None
            if not isinstance(executor, ToolExecutor):
                raise CycloptsError(msg=f"{option} {name}: {_EXPECTED}")
            with executor:
                return run_on_new_loop(act((executor,)))

        return enter
    command = find_command(store, row, name, option=option)
    from handrail.agents import RunOptions, load_agent  # noqa: PLC0415 - needs the extra, which is there
    from handrail.agents.approval.rules import read_rules  # noqa: PLC0415

    agent = load_agent(name or Path(command.folder, command.agent_file))
    rules = None if command.rules is None else read_rules(Path(command.folder, command.rules))
    root = Path(command.folder, command.root or "")

    def enter_agent(session: Session, act: ProgramAct) -> int:
        return run_on_new_loop(agent.with_executors(act, RunOptions(session=session, rules=rules, root=root)))

    return enter_agent


def find_command(store: Store, row: SessionRow, agent_file: str | None, *, option: str) -> RunCommand:
    """The command of the run of a session, as it is recorded; else that of a run of an agent file.

    Raises:
        CycloptsError: there is neither; `option` names a program.
        ImportError: agents are not installed.
    """
    from handrail.agents.run.interface import RunCommand  # noqa: PLC0415 - needs the extra

    commands: list[RunCommand] = known_items(store, row, lambda kind: kind is RunCommand).get(RunCommand, [])
    if not (commands or agent_file):
        raise CycloptsError(
            msg=f"session {row.session_id} was not run by handrail run; name its program with {option} MODULE:FUNCTION"
        )
    return commands[-1] if commands else RunCommand(agent_file=agent_file or "")
