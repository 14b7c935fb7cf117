"""What feedback providers and completion checkers see of a run."""

from __future__ import annotations

from dataclasses import dataclass

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.filesystem import Filesystem
from handrail.limits import BudgetTracker, Deadline
from handrail.resources import ResourceContext
from handrail.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run between two calls of the model: its session, its resources and its limits. It is read, not changed.

    Attributes:
        prompt: the name of the prompt.
        session: the session of the run.
        resources: the resources that all calls of the prompt share.
        deadline: the moment by which the run must have ended, if there is one.
        budget_tracker: the tracker of the run's tokens, if there is one.
        clock: the source of the time.
    """

    prompt: str
    session: Session
    resources: ResourceContext
    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    clock: Clock = SYSTEM_CLOCK

    @property
    def filesystem(self) -> Filesystem | None:
        """The bound `Filesystem`, if there is one: `resources.get(Filesystem, None)`."""
        return self.resources.get(Filesystem, None)
