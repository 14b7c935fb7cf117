"""The planning suite: four tools for a plan in the session, and the guidance for them.

A handler returns an event (`SetupPlan`, `AddStep`, `UpdateStep`), and the reducers of this module update the `Plan`
when the call succeeds.

* Steps are numbered 1, 2, 3, ... as they are added. A number is never reused in one plan; a new plan starts at 1.
* A plan is completed when it has steps and all of them are done, and active otherwise.
* The objective and the titles are stripped, and then neither empty nor longer than `MAX_TITLE` characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, TypeAlias, TypeVar

from handrail.contrib import about, example, suite_tool
from handrail.errors import ToolValidationError
from handrail.prompt import Section, Tool, ToolContext, ToolResult
from handrail.prompt.hooks import CompletionContext
from handrail.serde.formatting import enumerated, shorten
from handrail.session import Replace, Session, SliceView, replace_latest, stored_as

StepStatus: TypeAlias = Literal["pending", "in_progress", "done"]
"""The status of a step."""

PlanStatus: TypeAlias = Literal["active", "completed"]
"""The status of a plan."""

MAX_TITLE = 500
"""The longest objective and the longest title, in characters."""

_LONGEST_LIST = 400

_MOST_FAULTS = 20  # how many faults of a plan are listed; one more line counts the others

_LONGEST_SHOWN = 100  # digits of an unknown number that an error repeats

_MOST_LISTED = 500  # bytes of the numbers of steps in an error

_REACT = """\
Alternate between thinking, acting and looking. Think briefly about what you know and what is missing, make one tool
call that brings you further, and look at what came back before you think again. Let what you observe decide the
next step, and add steps as you discover that they are needed. An observation that matters later belongs to the step
that brought it: note it at the end of the step's title."""

_PLAN_ACT_REFLECT = """\
Plan everything before you act: write down all steps that you can foresee, in the order in which they have to
happen. Then carry them out one after the other. After each step stop and reflect: did it do what it was meant to
do, and is the rest of the plan still right? Note the reflection at the end of the step's title, and change the
steps that are still to come before you continue."""

_GOAL_DECOMPOSE_ROUTE_SYNTHESISE = """\
Begin by restating the goal in your own words: that is the objective of the plan. Break it into sub-problems that
can be solved one by one, each of them a step, before you think about tools. Only then route each sub-problem:
decide which tool answers it, or whether you can answer it without one. When all are solved, synthesise: bring the
partial results together into one coherent answer to the goal, and say where they disagree."""

_TEXT = """\
Keep a plan for work that takes more than two or three steps, and keep it true: people read it to see how far you are.
Do without one when a single step is enough.

**Mindset**

{mindset}

**Tools**

- `planning_setup_plan` begins a plan: an objective and, if you know them, the first steps. It replaces the plan there
  is, finished or not.
- `planning_add_step` appends steps at the end of the plan. A completed plan becomes active again.
- `planning_update_step` changes the title or the status of one step.
- `planning_read_plan` shows the plan. The other tools show it too, so you need this one only when you do not remember
  the plan.

**Rules**

- Steps are numbered 1, 2, 3, ... as they are added, and keep their number. Use the numbers that the plan shows.
- A step is `pending`, `in_progress` or `done`. Set it to `in_progress` when you begin it and to `done` as soon as it is
  done, not before.
- The objective and each title have at most 500 characters.
- The plan is completed when all of its steps are `done`."""

E = TypeVar("E")


@dataclass(slots=True, frozen=True)
class PlanStep:
    """One step of a plan.

    Attributes:
        step_id: its number in the plan, from 1.
    """

    step_id: int
    title: str
    status: StepStatus


@stored_as("handrail.plan")
@dataclass(slots=True, frozen=True)
class Plan:
    """An objective, and the steps to it. A session holds at most one: `session[Plan].latest()`.

    Attributes:
        status: `"completed"` when there are steps and all of them are done.
    """

    objective: str
    status: PlanStatus
    steps: tuple[PlanStep, ...] = ()

    def render(self) -> str:
        """The plan as the model reads it: a line for the plan, and one for each step."""
        done = sum(step.status == "done" for step in self.steps)
        progress = f"{done} of {len(self.steps)} steps done" if self.steps else "no steps yet"
        # One line each: a title with a line break could otherwise look like a step of its own.
        lines = [f"Plan ({self.status}, {progress}): {_on_one_line(self.objective)}"]
        lines += [f"{step.step_id}. [{step.status}] {_on_one_line(step.title)}" for step in self.steps]
        return "\n".join(lines)


@dataclass(slots=True, frozen=True)
class PlanCompleted:
    """The plan of the session, if there is one or it is `required`, must be completed before an answer is accepted."""

    required: bool = False

    def missing(self, context: CompletionContext, /) -> Sequence[str]:
        """The steps that are not done, in one sentence."""
        if (plan := context.session[Plan].latest()) is None:
            return ("There is no plan yet. Make one, and do its steps.",) if self.required else ()
        if plan.status == "completed":
            return ()
        if not plan.steps:
            return ("The plan has no steps yet.",)
        open_steps = [f"{step.step_id}. {_on_one_line(step.title)}" for step in plan.steps if step.status != "done"]
        return (f"These steps of the plan are not done: {enumerated(open_steps, limit=_LONGEST_LIST)}.",)


@stored_as("handrail.setup_plan")
@dataclass(slots=True, frozen=True)
class SetupPlan:
    """A new plan, in place of the present one.

    Attributes:
        objective: what the plan is to achieve.
        initial_steps: titles of its first steps.
    """

    objective: str = field(metadata=about("What the plan is to achieve, in at most 500 characters."))
    initial_steps: tuple[str, ...] = field(
        default=(), metadata=about("Titles of the first steps, in order, each of at most 500 characters.")
    )


@stored_as("handrail.add_step")
@dataclass(slots=True, frozen=True)
class AddStep:
    """Steps are appended to the plan.

    Attributes:
        steps: their titles, at least one.
    """

    steps: tuple[str, ...] = field(
        metadata=about("Titles of the steps to append, in order, each of at most 500 characters.")
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

    step_id: int = field(metadata=about("The number of the step, as the plan shows it."))
    title: str | None = field(
        default=None, metadata=about("The new title, of at most 500 characters; leave it out to keep the old.")
    )
    status: StepStatus | None = field(default=None, metadata=about("The new status; leave it out to keep the old."))


@stored_as("handrail.read_plan")
@dataclass(slots=True, frozen=True)
class ReadPlan:
    """A request for the plan."""


def new_plan(event: SetupPlan) -> Plan:
    """The plan of a setup."""
    _check(_fault("$.objective", event.objective), *_faults("$.initial_steps", event.initial_steps))
    return _with_steps(Plan(event.objective.strip(), "active"), _numbered(event.initial_steps, first=1))


def with_added_steps(plan: Plan, event: AddStep) -> Plan:
    """The plan with more steps at its end."""
    if not event.steps:
        raise ToolValidationError('$.steps is empty; give at least one title, as in {"steps": ["Write the report"]}.')
    _check(*_faults("$.steps", event.steps))
    # The greatest number, and not the number of steps: a number must never be used again.
    first = max((step.step_id for step in plan.steps), default=0) + 1
    return _with_steps(plan, (*plan.steps, *_numbered(event.steps, first=first)))


def with_updated_step(plan: Plan, event: UpdateStep) -> Plan:
    """The plan with one step changed; an equal plan if nothing differs."""
    numbers = [step.step_id for step in plan.steps]
    if not numbers:
        raise ToolValidationError("the plan has no steps yet; call planning_add_step first.")
    if event.step_id not in numbers:
        missing = shorten(str(event.step_id), _LONGEST_SHOWN)
        # The number comes from the model and the list from the plan; both are bounded, because a plan may have
        # thousands of steps.
        text = enumerated([str(number) for number in numbers], limit=_MOST_LISTED, near=missing)
        raise ToolValidationError(f"$.step_id: the plan has no step {missing}. Its steps are {text}.")
    if event.title is None and event.status is None:
        raise ToolValidationError(
            f"step {event.step_id} has nothing to change; give a title, a status (pending, in_progress or done), "
            "or both."
        )
    if event.title is not None:
        _check(_fault("$.title", event.title))
    # The status of the plan depends on all steps, so it is computed again and not set by the event.
    return _with_steps(plan, tuple(_changed(step, event) for step in plan.steps))


def _changed(step: PlanStep, event: UpdateStep) -> PlanStep:
    if step.step_id != event.step_id:
        # Steps keep identity and order; only the named one is replaced.
        return step
    title = step.title if event.title is None else event.title.strip()
    return PlanStep(step.step_id, title, event.status or step.status)


def _numbered(titles: tuple[str, ...], *, first: int) -> tuple[PlanStep, ...]:
    return tuple(PlanStep(number, title.strip(), "pending") for number, title in enumerate(titles, first))


def _with_steps(plan: Plan, steps: tuple[PlanStep, ...]) -> Plan:
    completed = bool(steps) and all(step.status == "done" for step in steps)
    return replace(plan, status="completed" if completed else "active", steps=steps)


def _check(*faults: str | None) -> None:
    # All faults at once, so that the model needs one more call and not one for each.
    texts = [fault for fault in faults if fault is not None]
    if texts:
        more = len(texts) - _MOST_FAULTS
        rest = [f"{more} more faults, not listed"] if more > 0 else []
        raise ToolValidationError("\n".join([*texts[:_MOST_FAULTS], *rest]))


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


class PlanningStrategy(Enum):
    """The style of reasoning that the guidance asks for. The tools and their rules are the same in each.

    Attributes:
        REACT: reason, act and observe in turn; the plan follows what was observed.
        PLAN_ACT_REFLECT: plan everything first, then act, and reflect after each step.
        GOAL_DECOMPOSE_ROUTE_SYNTHESISE: restate the goal, break it up, find the tool for each part, and put the answers
            together.
    """

    REACT = "react"
    PLAN_ACT_REFLECT = "plan_act_reflect"
    GOAL_DECOMPOSE_ROUTE_SYNTHESISE = "goal_decompose_route_synthesise"


_MINDSETS = {
    PlanningStrategy.REACT: _REACT,
    PlanningStrategy.PLAN_ACT_REFLECT: _PLAN_ACT_REFLECT,
    PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE: _GOAL_DECOMPOSE_ROUTE_SYNTHESISE,
}


def planning_guidance(strategy: PlanningStrategy) -> str:
    """The text of the planning section, as Markdown."""
    return _TEXT.format(mindset=_MINDSETS[strategy])


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanningToolsSection(Section[None]):
    """A section with planning tools: `session[Plan].latest()` is the plan.

    Making it registers the reducers on `session`, once. A call that runs on another session (such as one made by
    `session.child()`) registers them there first, and its plan is stored there.

    Raises:
        ReducerError: the session has other reducers for these events.
    """

    session: Session
    strategy: PlanningStrategy = PlanningStrategy.REACT
    accepts_overrides: bool = False
    title: str = "Planning"
    key: str = "planning"
    tools: Sequence[Tool[Any, Any]] = field(init=False)

    def __post_init__(self) -> None:
        tools = tuple(replace(tool, accepts_overrides=self.accepts_overrides) for tool in self._tools())
        object.__setattr__(self, "tools", tools)
        # After the assignment of `tools`, which it checks.
        Section.__post_init__(self)
        _register(self.session)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance; only the mindset depends on the strategy."""
        return planning_guidance(self.strategy)

    def _tools(self) -> Iterator[Tool[Any, Any]]:
        setup = SetupPlan("Publish the release", ("Write the changelog", "Build the package"))
        more = AddStep(("Upload the package", "Announce the release"))
        begin, finish = UpdateStep(2, status="in_progress"), UpdateStep(2, "Build the package: 0.4.0", "done")
        yield suite_tool(
            self._setup_plan,
            "Begin a plan with an objective and, if known, its first steps. Replaces the plan there is.",
            example("A plan of two steps", setup, setup),
            name="planning_setup_plan",
        )
        yield suite_tool(
            self._add_step,
            "Append one or more steps at the end of the plan.",
            example("Append two steps", more, more),
            name="planning_add_step",
        )
        yield suite_tool(
            self._update_step,
            "Change the title of a step, its status (pending, in_progress or done), or both.",
            example("Begin a step", begin, begin),
            example("Finish a step and note its outcome", finish, finish),
            name="planning_update_step",
        )
        yield suite_tool(
            self._read_plan,
            "Show the plan: its objective, its status, and its steps with their numbers and statuses.",
            example("Show the plan", ReadPlan(), _PLAN),
            name="planning_read_plan",
            effect="read",
        )

    def _setup_plan(self, params: SetupPlan, *, context: ToolContext) -> ToolResult[SetupPlan]:
        self._ensure_reducers(context.session)
        # The handler applies the event to a copy first, so that a fault is reported before anything is stored, and the
        # model sees the result. The reducers repeat it when the call has succeeded.
        return _will_be(new_plan(params), params)

    def _add_step(self, params: AddStep, *, context: ToolContext) -> ToolResult[AddStep]:
        self._ensure_reducers(context.session)
        return _will_be(with_added_steps(_existing(context.session[Plan]), params), params)

    def _update_step(self, params: UpdateStep, *, context: ToolContext) -> ToolResult[UpdateStep]:
        self._ensure_reducers(context.session)
        before = _existing(context.session[Plan])
        after = with_updated_step(before, params)
        # An update without effect is not a fault, but the model should not take it for progress.
        note = f"Nothing has changed: step {params.step_id} already has these values.\n" if after == before else ""
        return _will_be(after, params, note=note)

    def _read_plan(self, params: ReadPlan, *, context: ToolContext) -> ToolResult[Plan]:  # noqa: ARG002 - has no fields
        self._ensure_reducers(context.session)
        return ToolResult.ok(_existing(context.session[Plan]))

    def _ensure_reducers(self, session: Session) -> None:
        # A child session has slices of its own, without the reducers that the section has registered.
        if session != self.session:
            _register(session)


def _register(session: Session) -> None:
    plan = session[Plan]
    # `planning_read_plan` returns the plan itself, and the value of a result is an event. Without this reducer the
    # default one would append it as another item.
    plan.register(Plan, replace_latest)
    plan.register(SetupPlan, _reduce_setup)
    plan.register(AddStep, _reduce_add)
    plan.register(UpdateStep, _reduce_update)


def _reduce_setup(_view: SliceView[Plan], event: SetupPlan) -> Replace[Plan]:
    return Replace((new_plan(event),))


def _reduce_add(view: SliceView[Plan], event: AddStep) -> Replace[Plan]:
    return Replace((with_added_steps(_existing(view), event),))


def _reduce_update(view: SliceView[Plan], event: UpdateStep) -> Replace[Plan]:
    return Replace((with_updated_step(_existing(view), event),))


def _existing(view: SliceView[Plan]) -> Plan:
    if (plan := view.latest()) is None:
        raise ToolValidationError("there is no plan yet; call planning_setup_plan first.")
    return plan


def _will_be(plan: Plan, event: E, *, note: str = "") -> ToolResult[E]:
    # The event is for the reducers only; in the context of the model it would repeat the arguments of the call.
    return ToolResult.ok(event, f"{note}{plan.render()}", exclude_value_from_context=True)


_PLAN = Plan(
    "Publish the release",
    "active",
    (PlanStep(1, "Write the changelog", "done"), PlanStep(2, "Build the package", "in_progress")),
)
