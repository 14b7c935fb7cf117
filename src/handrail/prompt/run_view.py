"""What feedback providers and completion checkers see of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.filesystem import Filesystem
from handrail.limits import BudgetTracker, Deadline
from handrail.prompt.context import resource_for_call
from handrail.resources import Resolver
from handrail.resources.context import BoundResources
from handrail.session import Session
from handrail.session.bound_session import bound_session
from handrail.transaction import Transaction, view_for_call

V = TypeVar("V", bound="RunView")


@dataclass(frozen=True, slots=True)
class RunFilesystem:
    """Finds the files of a run whose prompt binds none; a resource of the prompts of a run that has several.

    Attributes:
        find: the `Filesystem` of another prompt of the run, if there is one.
    """

    find: Callable[[], Filesystem | None]

    def view_for_call(self, call: Transaction, /) -> RunFilesystem:
        """The same for a call; what it finds is a view that is bound to the call."""

        def find() -> Filesystem | None:
            found = self.find()
            return None if found is None else view_for_call(found, call)

        return RunFilesystem(find)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run between two calls of the model: its session, its resources and its limits. It is read, not changed.

    A provider or checker is given views of session and resources, as a handler is: what is written through them is
    refused, also when the provider or checker has been left behind.

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
    resources: Resolver
    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    clock: Clock = SYSTEM_CLOCK

    def within(self, transaction: Transaction, kind: type[V], /, **more: Any) -> V:  # noqa: ANN401 - of any class
        """The same for a hook, with views of session and resources that are bound to the transaction of the hook.

        Args:
            transaction: that transaction.
            kind: the class of what the hook sees.
            more: its other fields.
        """
        return kind(
            prompt=self.prompt,
            session=bound_session(self.session, transaction),
            resources=BoundResources(self.resources, transaction, view_for_call=resource_for_call),
            deadline=self.deadline,
            budget_tracker=self.resources.get(BudgetTracker, self.budget_tracker),
            clock=self.clock,
            **more,
        )

    @property
    def filesystem(self) -> Filesystem | None:
        """The bound `Filesystem`, or that of another prompt of the run; `None` if there is none."""
        bound = self.resources.get(Filesystem, None)
        if bound is not None:
            return bound
        beside = self.resources.get(RunFilesystem, None)
        return None if beside is None else beside.find()
