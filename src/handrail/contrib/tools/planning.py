"""The planning suite: four tools that keep a plan in the session, and the guidance for them.

A handler returns what is to happen (`SetupPlan`, `AddStep`, `UpdateStep`), and the reducers of this module make the
`Plan` of it when the call succeeds; so a call that is rolled back has not planned anything. What becomes of a plan is
decided in `handrail.contrib.tools.planning_plan`, for handlers and reducers alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from handrail.contrib.tools.planning_guidance import PlanningStrategy, guidance
from handrail.contrib.tools.planning_plan import (
    AddStep,
    Plan,
    PlanStep,
    ReadPlan,
    SetupPlan,
    UpdateStep,
    begun,
    extended,
    updated,
)
from handrail.errors import ToolValidationError
from handrail.prompt import Section, Tool, ToolContext, ToolExample, ToolResult
from handrail.session import Replace, Session, SliceView, replace_latest

E = TypeVar("E")


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanningToolsSection(Section[None]):
    """A section with the tools by which a model keeps a plan: `session[Plan].latest()` is the plan.

    Making it registers the reducers on `session`; making another one for the same session adds nothing. A call that
    runs on another session (one made by `session.child()`, say) registers them there first, and keeps its plan there.

    Attributes:
        session: the session that holds the plan.
        strategy: the style of reasoning that the text asks for.
        accepts_overrides: whether the descriptions of the tools may be replaced when a prompt is tuned.

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
        object.__setattr__(self, "tools", _tools(_Planner(self.session), accepts_overrides=self.accepts_overrides))
        Section.__post_init__(self)
        _register(self.session)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance; of all that it says, only the mindset depends on the strategy."""
        return guidance(self.strategy)


def _register(session: Session) -> None:
    plan = session[Plan]
    plan.register(Plan, replace_latest)
    plan.register(SetupPlan, _reduce_setup)
    plan.register(AddStep, _reduce_add)
    plan.register(UpdateStep, _reduce_update)


def _reduce_setup(_view: SliceView[Plan], event: SetupPlan) -> Replace[Plan]:
    return Replace((begun(event),))


def _reduce_add(view: SliceView[Plan], event: AddStep) -> Replace[Plan]:
    return Replace((extended(_existing(view), event),))


def _reduce_update(view: SliceView[Plan], event: UpdateStep) -> Replace[Plan]:
    return Replace((updated(_existing(view), event),))


def _existing(view: SliceView[Plan]) -> Plan:
    plan = view.latest()
    if plan is None:
        raise ToolValidationError("there is no plan yet; call planning_setup_plan first.")
    return plan


@dataclass(frozen=True, slots=True)
class _Planner:
    """The handlers.

    Attributes:
        session: the session that has the reducers already.
    """

    session: Session

    def setup_plan(self, params: SetupPlan, *, context: ToolContext) -> ToolResult[SetupPlan]:
        self._ensure_reducers(context.session)
        return _will_be(begun(params), params)

    def add_step(self, params: AddStep, *, context: ToolContext) -> ToolResult[AddStep]:
        self._ensure_reducers(context.session)
        return _will_be(extended(_existing(context.session[Plan]), params), params)

    def update_step(self, params: UpdateStep, *, context: ToolContext) -> ToolResult[UpdateStep]:
        self._ensure_reducers(context.session)
        before = _existing(context.session[Plan])
        after = updated(before, params)
        note = f"Nothing has changed: step {params.step_id} was so already.\n" if after == before else ""
        return _will_be(after, params, note=note)

    def read_plan(self, params: ReadPlan, *, context: ToolContext) -> ToolResult[Plan]:  # noqa: ARG002 - has no fields
        self._ensure_reducers(context.session)
        return ToolResult.ok(_existing(context.session[Plan]))

    def _ensure_reducers(self, session: Session) -> None:
        if session is not self.session:
            _register(session)


def _will_be(plan: Plan, event: E, *, note: str = "") -> ToolResult[E]:
    """The event, for the reducers; for the model, who knows what it asked for, the plan that they will make of it."""
    return ToolResult.ok(event, f"{note}{plan.render()}", exclude_value_from_context=True)


def _tools(planner: _Planner, *, accepts_overrides: bool) -> tuple[Tool[Any, Any], ...]:
    return (
        Tool[SetupPlan, SetupPlan](
            name="planning_setup_plan",
            description="Begin a plan with an objective and, if known, its first steps. Replaces the plan there is.",
            handler=planner.setup_plan,
            examples=(
                _example(
                    "A plan of two steps",
                    SetupPlan("Publish the release", ("Write the changelog", "Build the package")),
                ),
            ),
            accepts_overrides=accepts_overrides,
        ),
        Tool[AddStep, AddStep](
            name="planning_add_step",
            description="Append one or more steps at the end of the plan.",
            handler=planner.add_step,
            examples=(_example("Append two steps", AddStep(("Upload the package", "Announce the release"))),),
            accepts_overrides=accepts_overrides,
        ),
        Tool[UpdateStep, UpdateStep](
            name="planning_update_step",
            description="Change the title of a step, its status (pending, in_progress or done), or both.",
            handler=planner.update_step,
            examples=(
                _example("Begin a step", UpdateStep(2, status="in_progress")),
                _example("Finish a step and note what came of it", UpdateStep(2, "Build the package: 0.4.0", "done")),
            ),
            accepts_overrides=accepts_overrides,
        ),
        Tool[ReadPlan, Plan](
            name="planning_read_plan",
            description="Show the plan: its objective, its status, and its steps with their numbers and statuses.",
            handler=planner.read_plan,
            examples=(ToolExample(description="Show the plan", input=ReadPlan(), output=_PLAN),),
            accepts_overrides=accepts_overrides,
            effect="read",
        ),
    )


def _example(description: str, event: E) -> ToolExample[E, E]:
    return ToolExample(description=description, input=event, output=event)


_PLAN = Plan(
    "Publish the release",
    "active",
    (PlanStep(1, "Write the changelog", "done"), PlanStep(2, "Build the package", "in_progress")),
)
