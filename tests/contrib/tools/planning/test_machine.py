"""The reducers of the plan against a plain model of it, over any sequence of events."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from handrail.contrib.tools import AddStep, Plan, PlanningToolsSection, SetupPlan, StepStatus, UpdateStep
from handrail.errors import ToolValidationError
from handrail.session import Session

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=500).filter(str.strip)
TITLES = st.lists(TEXTS, max_size=4).map(tuple)
STATUSES: st.SearchStrategy[StepStatus] = st.sampled_from(("pending", "in_progress", "done"))


class PlanMachine(RuleBasedStateMachine):
    """A session that receives planning events, and what a plan should be after each."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session()
        PlanningToolsSection(session=self.session)
        self.objective: str | None = None
        self.steps: list[list[str]] = []

    @property
    def planned(self) -> bool:
        return self.objective is not None

    @rule(objective=TEXTS, titles=TITLES)
    def set_up(self, objective: str, titles: tuple[str, ...]) -> None:
        self.session.dispatch(SetupPlan(objective, titles))
        self.objective = objective.strip()
        self.steps = [[title.strip(), "pending"] for title in titles]

    @precondition(lambda self: self.planned)
    @rule(titles=TITLES.filter(bool))
    def add(self, titles: tuple[str, ...]) -> None:
        self.session.dispatch(AddStep(titles))
        self.steps += [[title.strip(), "pending"] for title in titles]

    @precondition(lambda self: self.steps)
    @rule(data=st.data(), title=st.none() | TEXTS, status=STATUSES)
    def update(self, data: st.DataObject, title: str | None, status: StepStatus) -> None:
        number = data.draw(st.integers(1, len(self.steps)))
        self.session.dispatch(UpdateStep(number, title, status))
        step = self.steps[number - 1]
        step[:] = [step[0] if title is None else title.strip(), status]

    @precondition(lambda self: self.planned)
    @rule()
    def read(self) -> None:
        self.session.dispatch(self.session[Plan].latest())

    @precondition(lambda self: not self.planned)
    @rule(event=st.sampled_from((AddStep(("Build",)), UpdateStep(1, "Build"))))
    def change_without_a_plan(self, event: object) -> None:
        with pytest.raises(ToolValidationError, match="planning_setup_plan"):
            self.session.dispatch(event)

    @precondition(lambda self: self.planned)
    @rule(blank=st.sampled_from(("", " ", "\n")), beyond=st.integers(1, 9))
    def send_what_is_refused(self, blank: str, beyond: int) -> None:
        for event in (
            SetupPlan(blank),
            AddStep(("Build", blank)),
            AddStep(()),
            UpdateStep(len(self.steps) + beyond, "Build"),
            UpdateStep(1 - beyond, status="done"),
            UpdateStep(1),
        ):
            with pytest.raises(ToolValidationError):
                self.session.dispatch(event)

    @invariant()
    def session_holds_the_plan_that_the_model_expects(self) -> None:
        plans = self.session[Plan].all()
        if self.objective is None:
            assert plans == ()
            return
        (plan,) = plans
        assert plan.objective == self.objective
        assert [[step.title, step.status] for step in plan.steps] == self.steps
        assert [step.step_id for step in plan.steps] == list(range(1, len(self.steps) + 1))
        done = bool(self.steps) and {status for _, status in self.steps} == {"done"}
        assert (plan.status == "completed") is done

    @invariant()
    def events_leave_nothing_but_the_plan(self) -> None:
        assert self.session.kinds in {(), (Plan,)}


TestPlanMachine = PlanMachine.TestCase
