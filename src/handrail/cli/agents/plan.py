"""`handrail run --plan` and `handrail apply`: a dry run that writes a plan, and the execution of exactly that plan."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from handrail import store as stores
from handrail.agents.run.interface import RunCommand, RunOptions, record_command
from handrail.cli.agents import RunChoices
from handrail.cli.agents.progress import TextProgress
from handrail.cli.agents.run import PreparedRun, prepare_run, set_up_process
from handrail.cli.options import check_can_ask
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Field, Screen
from handrail.errors import PlanDeviatedError, PlanRefusedError
from handrail.serde import codec, dump
from handrail.serde.formatting import count_noun
from handrail.session import Session
from handrail.undo import DryRunPlan, apply_plan, dry_run
from handrail.undo.plan_file import PlannedCall
from handrail.waiting import run_on_new_loop

CALL_FIELDS: Final[Sequence[Field[PlannedCall]]] = (
    Field("agent", lambda call: call.conversation),
    Field("call", lambda call: call.text),
    Field("effect", lambda call: call.effect),
    Field("result", lambda call: "preview" if call.is_preview else "ok" if call.success else "fails"),
    Field("asks", lambda call: "; ".join(call.asks)),
)
"""The columns of the table of a plan."""


def write_plan(path: Path, run: PreparedRun, screen: Screen) -> int:
    """Rehearses a run, prints its calls, and writes its plan to a file; returns the exit code."""
    assert run.store is not None  # noqa: S101 - for the type checkers: a plan needs one
    task = run.agent.task(replace(run.options, listener=TextProgress(screen)))
    with stores.open(run.store) as store:
        plan = run_on_new_loop(
            dry_run(task, run.input, store=store, session=run.choices.session, besides=[path.resolve()])
        )
    choices = dump(replace(run.choices, store=None))  # its URL may have a password
    origin = {"agent_file": str(run.agent_file), "folder": str(Path.cwd()), "choices": choices}
    plan = replace(plan, origin=origin).with_token()
    plan.save(path)
    print_plan(plan, screen)
    if plan.ends:
        screen.say(f"The plan is in {path}. Nothing was changed. It cannot be executed.")
        return FAILED
    screen.say(f"The plan is in {path}. Nothing was changed. Execute exactly this with:")
    screen.command(["handrail", "apply", shlex.quote(str(path))])
    return DONE


def execute_plan(path: Path, store: str | None, screen: Screen, *, yes: bool) -> int:
    """Executes the plan of a file, once it is approved; returns the exit code."""
    set_up_process()
    check_can_ask(screen, "executes a plan", yes=yes)
    plan = DryRunPlan.load(path)
    with redirect_stdout(sys.stderr):  # what modules, factories and tools print
        run = _prepared_again(plan, path, store)
        assert run.store is not None  # noqa: S101 - for the type checkers: a session needs one
        task = run.agent.task(replace(run.options, listener=TextProgress(screen)))
        approver = partial(_approve, screen, yes)
        with stores.open(run.store) as opened:
            try:
                execution = apply_plan(plan, task, store=opened, approver=approver, besides=[path.resolve()])
                answer = run_on_new_loop(execution)
            except PlanDeviatedError:
                words = run.command.resuming(plan.session, store=store)
                screen.remark(f"Session {plan.session} has what was done. Continue it without the plan with:")
                screen.command(words, aside=True)
                raise
            with Session.open(opened, plan.session) as session:
                record_command(session, run.command)
    screen.text(str(answer))
    return DONE


def print_plan(plan: DryRunPlan, screen: Screen) -> None:
    """Prints the calls of a plan, and where it ends."""
    screen.table(CALL_FIELDS, plan.calls)
    screen.note(f"{count_noun(len(plan.calls), 'call')}; session {plan.session}.")
    if plan.ends:
        screen.say(f"The plan is incomplete from here: {plan.ends}.")


def _approve(screen: Screen, yes: bool, plan: DryRunPlan) -> bool:  # noqa: FBT001 - of the command line
    if not yes:
        print_plan(plan, screen)
    return yes or screen.confirm("Execute exactly this?")


def _prepared_again(plan: DryRunPlan, path: Path, store: str | None) -> PreparedRun:
    origin: Any = plan.origin
    if not origin:
        raise PlanRefusedError(f"the plan {path} was made by a program, which has to execute it: undo.apply_plan")
    if origin["folder"] != str(Path.cwd()):
        raise PlanRefusedError(f"the plan {path} was made in {origin['folder']}; execute it there")
    url = plan.versions["store"]
    store = store or (url if url.startswith("sqlite:") else None)
    choices = replace(codec(RunChoices).parse(origin["choices"]), store=store, session=plan.session)
    return prepare_run(Path(origin["agent_file"]), plan.input, choices)


def prepare_again(command: RunCommand, prompt: str) -> PreparedRun:
    """A run as its session has recorded it; raises as `prepare_run`."""
    choices = RunChoices(
        model=command.model,
        rules=None if command.rules is None else Path(command.folder, command.rules),
        root=Path(command.folder, command.root or ""),
        max_depth=command.max_depth,
        request_limit=command.request_limit or RunOptions().request_limit or 1,
        retries=command.retries,
        no_stream=not command.stream,
        fallback_model=command.fallback_model,
    )
    return prepare_run(Path(command.folder, command.agent_file), prompt, choices)
