"""Undo of committed calls: a plan first, then each undo as a call of its own, the newest first.

    plan = undo.plan(session, to=("reply-3", "call_1"), executors=executor)
    report = await undo.apply(plan)

| a call is | when it | its undo |
|---|---|---|
| reversible | changed slices of the session, and files | restores exactly what was there before |
| compensable | acted outside, and its tool has `undo` | is a second effect, which offsets the first |
| irreversible | acted outside, and its tool has no `undo` | does not exist |

To undo comes after the commit, and is asked for by a person, the program, or `on_abort`; never by a failed call, which
is rolled back. `handrail.undo.planning` decides about each call, `handrail.undo.applying` undoes them.

A dry run makes a plan of a run that has not happened (`handrail.undo.rehearsal`), which is executed as it is:

    plan = await undo.dry_run(agent, "Refund A-17.", store=store)
    answer = await undo.apply_plan(plan, agent, store=store)
"""

from typing import TYPE_CHECKING

from handrail.lazy_exports import lazy_exports
from handrail.undo.applying import UndoneCalls, UndoReport, apply, on_abort
from handrail.undo.planning import plan
from handrail.undo.steps import UndoPlan, UndoStep

if TYPE_CHECKING:
    from handrail.undo.plan_file import DryRunPlan
    from handrail.undo.rehearsal import apply_plan, dry_run
else:
    __getattr__ = lazy_exports(__name__, {"plan_file": "DryRunPlan", "rehearsal": "apply_plan dry_run"})

__all__ = [
    "DryRunPlan",
    "UndoPlan",
    "UndoReport",
    "UndoStep",
    "UndoneCalls",
    "apply",
    "apply_plan",
    "dry_run",
    "on_abort",
    "plan",
]
