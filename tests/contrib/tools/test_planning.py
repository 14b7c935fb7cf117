"""The planning suite: what the model reads, what is refused, and any sequence of events against a plain model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from handrail.contrib.tools import planning
from handrail.errors import ReducerError, ToolValidationError
from handrail.runtime import Session, ToolInvoked
from handrail.session import upsert_by
from tests.contrib.suites import SuiteRun
from tests.kit import raises
from tests.wording import Wording

TOOLS = ("planning_setup_plan", "planning_add_step", "planning_update_step", "planning_read_plan")


def planning_run(*, session: Session | None = None) -> SuiteRun:
    """A run over the planning suite, whose section was given the session of the run."""
    session = Session() if session is None else session
    return SuiteRun(planning.PlanningToolsSection(session=session), session=session)


def planned() -> SuiteRun:
    """A run that has a plan of two steps."""
    run = planning_run()
    run.told("planning_setup_plan", objective="Ship it", initial_steps=["Build", "Upload"])
    return run


def test_model_reads_the_plan_as_it_is_after_each_call(wording: Wording) -> None:
    """Each message is the whole plan, so that the model need not ask for it."""
    run = planning_run()
    assert run.told("planning_setup_plan", objective="Ship it", initial_steps=["Build", "Upload"]) == wording
    assert run.told("planning_add_step", steps=["Announce"]) == wording
    assert run.told("planning_update_step", step_id=1, title="Build 0.4.0", status="done") == wording
    assert run.told("planning_read_plan") == wording


@pytest.mark.parametrize("tool, arguments", [
    ("planning_add_step", {"steps": ["Build"]}), ("planning_update_step", {"step_id": 1, "status": "done"}),
    ("planning_read_plan", {}),
])  # fmt: skip
def test_without_a_plan_the_model_is_told_so(tool: str, arguments: dict[str, object], wording: Wording) -> None:
    """Only a setup works without a plan; the others change nothing and name the tool to call first."""
    run = planning_run()
    assert run.refused(tool, **arguments) == wording
    assert run.session[planning.Plan].latest() is None


@pytest.mark.parametrize("tool", TOOLS)
def test_call_on_another_session_keeps_its_plan_there(tool: str) -> None:
    """A prompt may serve several sessions, as for an agent used as a tool: each has a plan of its own."""
    given = Session()
    run = SuiteRun(planning.PlanningToolsSection(session=given), session=given.child())
    arguments: dict[str, dict[str, object]] = {
        "planning_setup_plan": {"objective": "Ship it"}, "planning_add_step": {"steps": ["Build"]},
        "planning_update_step": {"step_id": 1, "status": "done"}, "planning_read_plan": {},
    }  # fmt: skip
    run.session[planning.Plan].seed(planning.Plan("Old", "active", (planning.PlanStep(1, "Think", "pending"),)))
    run.told(tool, **arguments[tool])
    assert len(run.session[planning.Plan]) == 1
    assert run.session.kinds == (planning.Plan, ToolInvoked)
    assert given[planning.Plan].latest() is None


def test_session_with_other_reducers_for_the_plan_is_refused(wording: Wording) -> None:
    """Two opinions on what becomes of a plan cannot both hold; making the section says so."""
    session = Session()
    session[planning.Plan].register(planning.Plan, upsert_by(lambda plan: plan.objective))
    with raises(ReducerError, wording):
        planning.PlanningToolsSection(session=session)


TWO_STEPS = planning.new_plan(planning.SetupPlan("Ship it", ("Build", "Upload")))
LONGEST = "x" * planning.MAX_TITLE


REFUSED: Mapping[str, Callable[[], planning.Plan]] = {
    "every fault of a setup": lambda: planning.new_plan(planning.SetupPlan(" ", ("Build", "", f"{LONGEST}x"))),
    "no added step": lambda: planning.with_added_steps(TWO_STEPS, planning.AddStep(())),
    "every fault of added steps": lambda: planning.with_added_steps(
        TWO_STEPS, planning.AddStep(("\n", "Announce", ""))
    ),
    "an unknown step": lambda: planning.with_updated_step(TWO_STEPS, planning.UpdateStep(3, status="done")),
    "a plan without steps": lambda: planning.with_updated_step(
        planning.new_plan(planning.SetupPlan("Ship it")), planning.UpdateStep(1, status="done")
    ),
    "no change": lambda: planning.with_updated_step(TWO_STEPS, planning.UpdateStep(1)),
    "a blank title": lambda: planning.with_updated_step(TWO_STEPS, planning.UpdateStep(1, title="  ", status="done")),
}


@pytest.mark.parametrize("change", REFUSED)
def test_a_change_that_cannot_be_meant_is_refused_with_what_would_be_right(change: str, wording: Wording) -> None:
    """All faults of one call at once, each with its path: the model mends it in one turn."""
    with raises(ToolValidationError, wording):
        REFUSED[change]()


@pytest.mark.parametrize("strategy", ["react", "plan_act_reflect", "goal_decompose_route_synthesise"])
def test_text_of_each_strategy(strategy: str, wording: Wording) -> None:
    """What a model sees; the values are what a configuration file holds."""
    assert planning.planning_guidance(planning.PlanningStrategy(strategy)) == wording
    assert len(planning.PlanningStrategy) == 3


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=500).filter(str.strip)
TITLES = st.lists(TEXTS, max_size=4).map(tuple)
STATUSES: st.SearchStrategy[planning.StepStatus] = st.sampled_from(("pending", "in_progress", "done"))


class PlanMachine(RuleBasedStateMachine):
    """A session that receives planning events, and what a plan should be after each."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session()
        planning.PlanningToolsSection(session=self.session)
        self.objective: str | None = None
        self.steps: list[list[str]] = []

    @property
    def planned(self) -> bool:
        return self.objective is not None

    @rule(objective=TEXTS, titles=TITLES)
    def set_up(self, objective: str, titles: tuple[str, ...]) -> None:
        self.session.dispatch(planning.SetupPlan(objective, titles))
        self.objective = objective.strip()
        self.steps = [[title.strip(), "pending"] for title in titles]

    @precondition(lambda self: self.planned)
    @rule(titles=TITLES.filter(bool))
    def add(self, titles: tuple[str, ...]) -> None:
        self.session.dispatch(planning.AddStep(titles))
        self.steps += [[title.strip(), "pending"] for title in titles]

    @precondition(lambda self: self.steps)
    @rule(data=st.data(), title=st.none() | TEXTS, status=STATUSES)
    def update(self, data: st.DataObject, title: str | None, status: planning.StepStatus) -> None:
        number = data.draw(st.integers(1, len(self.steps)))
        self.session.dispatch(planning.UpdateStep(number, title, status))
        step = self.steps[number - 1]
        step[:] = [step[0] if title is None else title.strip(), status]

    @precondition(lambda self: self.planned)
    @rule()
    def read(self) -> None:
        self.session.dispatch(self.session[planning.Plan].latest())

    @precondition(lambda self: not self.planned)
    @rule(event=st.sampled_from((planning.AddStep(("Build",)), planning.UpdateStep(1, "Build"))))
    def change_without_a_plan(self, event: object) -> None:
        with pytest.raises(ToolValidationError, match="planning_setup_plan"):
            self.session.dispatch(event)

    @precondition(lambda self: self.planned)
    @rule(blank=st.sampled_from(("", " ", "\n")), beyond=st.integers(1, 9))
    def send_what_is_refused(self, blank: str, beyond: int) -> None:
        for event in (
            planning.SetupPlan(blank),
            planning.AddStep(("Build", blank)),
            planning.AddStep(()),
            planning.UpdateStep(len(self.steps) + beyond, "Build"),
            planning.UpdateStep(1 - beyond, status="done"),
            planning.UpdateStep(1),
        ):
            with pytest.raises(ToolValidationError):
                self.session.dispatch(event)

    @invariant()
    def session_holds_the_plan_that_the_model_expects(self) -> None:
        plans = self.session[planning.Plan].all()
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
        assert self.session.kinds in {(), (planning.Plan,)}


TestPlanMachine = PlanMachine.TestCase
