"""What a plan is, and what becomes of it: `Plan`, the events that change it, and the three ways in which they do.

The rules, all of them here and none of them anywhere else:

* Steps are numbered 1, 2, 3, ... in the order in which they are added. No tool removes a step, so a number is never
  given twice in one plan. A new plan starts at 1 again.
* A plan is completed when it has steps and all of them are done, and active otherwise. So a completed plan becomes
  active again when a step is added to it or taken up again.
* The objective and the titles of steps are stripped of white space at both ends; then they are neither empty nor longer
  than `MAX_TITLE` characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from handrail.errors import ToolValidationError
from handrail.serde.naming import enumerated, shortened
from handrail.session import stored_as

StepStatus: TypeAlias = Literal["pending", "in_progress", "done"]
"""How far a step is."""

PlanStatus: TypeAlias = Literal["active", "completed"]
"""Whether there is something left to do."""

MAX_TITLE = 500
"""The longest objective and the longest title, in characters."""

_MOST_FAULTS = 20
"""So many faults of a plan are told; one more line says how many are left out."""

_LONGEST_SHOWN = 100
"""Digits of an unknown number that are given back."""

_MOST_LISTED = 500
"""Bytes of the numbers of steps in an error."""


@dataclass(slots=True, frozen=True)
class PlanStep:
    """One thing to be done.

    Attributes:
        step_id: its number in the plan, from 1.
        title: what is to be done, or what has come of it.
        status: how far it is.
    """

    step_id: int
    title: str
    status: StepStatus


@stored_as("handrail.plan")
@dataclass(slots=True, frozen=True)
class Plan:
    """What is to be achieved, and the steps that lead there. A session holds one at most: `session[Plan].latest()`.

    Attributes:
        objective: what the plan is to achieve.
        status: `"completed"` when there are steps and all of them are done.
        steps: the steps by their number.
    """

    objective: str
    status: PlanStatus
    steps: tuple[PlanStep, ...] = ()

    def render(self) -> str:
        """The plan as the model reads it: a line for the plan, and one for each step."""
        done = sum(step.status == "done" for step in self.steps)
        progress = f"{done} of {len(self.steps)} steps done" if self.steps else "no steps yet"
        lines = [f"Plan ({self.status}, {progress}): {_on_one_line(self.objective)}"]
        lines += [f"{step.step_id}. [{step.status}] {_on_one_line(step.title)}" for step in self.steps]
        return "\n".join(lines)


@stored_as("handrail.setup_plan")
@dataclass(slots=True, frozen=True)
class SetupPlan:
    """A plan is begun, in place of the one there is.

    Attributes:
        objective: what the plan is to achieve.
        initial_steps: titles of its first steps.
    """

    objective: str = field(metadata={"description": "What the plan is to achieve, in at most 500 characters."})
    initial_steps: tuple[str, ...] = field(
        default=(), metadata={"description": "Titles of the first steps, in order, each of at most 500 characters."}
    )


@stored_as("handrail.add_step")
@dataclass(slots=True, frozen=True)
class AddStep:
    """Steps are appended to the plan.

    Attributes:
        steps: their titles, at least one.
    """

    steps: tuple[str, ...] = field(
        metadata={"description": "Titles of the steps to append, in order, each of at most 500 characters."}
    )


@stored_as("handrail.update_step")
@dataclass(slots=True, frozen=True)
class UpdateStep:
    """A step gets another title or status.

    Attributes:
        step_id: the number of the step.
        title: its new title; `None` leaves it.
        status: its new status; `None` leaves it.
    """

    step_id: int = field(metadata={"description": "The number of the step, as the plan shows it."})
    title: str | None = field(
        default=None,
        metadata={"description": "The new title, of at most 500 characters; leave it out to keep the old."},
    )
    status: StepStatus | None = field(
        default=None, metadata={"description": "The new status; leave it out to keep the old."}
    )


@stored_as("handrail.read_plan")
@dataclass(slots=True, frozen=True)
class ReadPlan:
    """The plan is asked for."""


def begun(event: SetupPlan) -> Plan:
    """The plan that a setup begins.

    Raises:
        ToolValidationError: the objective or a title is empty or too long; the message names every fault.
    """
    _check(_fault("$.objective", event.objective), *_faults("$.initial_steps", event.initial_steps))
    return _with_steps(Plan(event.objective.strip(), "active"), _numbered(event.initial_steps, first=1))


def extended(plan: Plan, event: AddStep) -> Plan:
    """The plan with more steps at its end.

    Raises:
        ToolValidationError: there is no title, or one is empty or too long; the message names every fault.
    """
    if not event.steps:
        raise ToolValidationError('$.steps is empty; give at least one title, as in {"steps": ["Write the report"]}.')
    _check(*_faults("$.steps", event.steps))
    first = max((step.step_id for step in plan.steps), default=0) + 1
    return _with_steps(plan, (*plan.steps, *_numbered(event.steps, first=first)))


def updated(plan: Plan, event: UpdateStep) -> Plan:
    """The plan with one step changed; an equal plan if the step was so already.

    Raises:
        ToolValidationError: there is no such step, nothing is to be changed, or the title is empty or too long.
    """
    known = [step.step_id for step in plan.steps]
    if not known:
        raise ToolValidationError("the plan has no steps yet; call planning_add_step first.")
    if event.step_id not in known:
        asked = shortened(str(event.step_id), _LONGEST_SHOWN)
        numbers = enumerated([str(number) for number in known], limit=_MOST_LISTED, wanted=asked)
        raise ToolValidationError(f"$.step_id: the plan has no step {asked}. Its steps are {numbers}.")
    if event.title is None and event.status is None:
        raise ToolValidationError(
            f"nothing is to be changed in step {event.step_id}; give a title, a status (pending, in_progress or done), "
            "or both."
        )
    if event.title is not None:
        _check(_fault("$.title", event.title))
    return _with_steps(plan, tuple(_changed(step, event) for step in plan.steps))


def _changed(step: PlanStep, event: UpdateStep) -> PlanStep:
    if step.step_id != event.step_id:
        return step
    title = step.title if event.title is None else event.title.strip()
    return PlanStep(step.step_id, title, event.status or step.status)


def _numbered(titles: tuple[str, ...], *, first: int) -> tuple[PlanStep, ...]:
    return tuple(PlanStep(number, title.strip(), "pending") for number, title in enumerate(titles, first))


def _with_steps(plan: Plan, steps: tuple[PlanStep, ...]) -> Plan:
    completed = bool(steps) and all(step.status == "done" for step in steps)
    return replace(plan, status="completed" if completed else "active", steps=steps)


def _check(*faults: str | None) -> None:
    found = [fault for fault in faults if fault is not None]
    if found:
        more = len(found) - _MOST_FAULTS
        rest = [f"{more} more faults, not listed"] if more > 0 else []
        raise ToolValidationError("\n".join([*found[:_MOST_FAULTS], *rest]))


def _faults(path: str, titles: tuple[str, ...]) -> Iterator[str | None]:
    return (_fault(f"{path}[{index}]", title) for index, title in enumerate(titles))


def _fault(path: str, text: str) -> str | None:
    length = len(text.strip())
    if not length:
        return f"{path} is empty; say in a few words what is to be done."
    if length > MAX_TITLE:
        return f"{path} has {length} characters, and may have {MAX_TITLE}; shorten it."
    return None


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
