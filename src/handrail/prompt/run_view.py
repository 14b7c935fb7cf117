"""What feedback providers and completion checkers see of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.filesystem import Filesystem
from handrail.limits import BudgetTracker, Deadline
from handrail.resources import ResourceContext
from handrail.session import Session


@dataclass(frozen=True, slots=True)
class RunFilesystem:
    """Finds the files of a run whose prompt binds none; a resource of the prompts of a run that has several.

    Attributes:
        find: the `Filesystem` of another prompt of the run, if there is one.
    """

    find: Callable[[], Filesystem | None]


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
        """The bound `Filesystem`, or that of another prompt of the run; `None` if there is none."""
        bound = self.resources.get(Filesystem, None)
        if bound is not None:
            return bound
        beside = self.resources.get(RunFilesystem, None)
        return None if beside is None else beside.find()
