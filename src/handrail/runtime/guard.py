"""The guard of a run that only rehearses, or that executes a plan: what such a run asks before it acts.

Calls know it by their environment, which finds it by the session of the run, or by one above it. A run without a guard
pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from handrail.prompt import Tool, ToolPolicy
from handrail.session import Session
from handrail.session.calls import CallRef

if TYPE_CHECKING:
    from handrail.prompt import Approval, ApprovalRequest
    from handrail.runtime.ledger.ledger import EffectLedger
    from handrail.session import DatabaseConnection

AskModel: TypeAlias = Callable[[], Awaitable[Any]]
"""Asks a model; its reply is JSON."""


class Workplace(NamedTuple):
    """A folder in which a run works, and where the journal of its changes is; `None` for the usual place."""

    folder: Path
    journal: Path | None = None


class RunGuard(ToolPolicy, Protocol):
    """Guards a run that only rehearses, or that executes a plan: `handrail.undo` has one for each.

    As a policy it is asked last about each call of the run and of the agents that it calls, and sees each success.
    """

    def stand_in(self, tool: Tool[Any, Any]) -> Tool[Any, Any]:
        """The tool that runs in the place of one, under the same name."""
        ...

    def approve(self, request: ApprovalRequest) -> Approval:
        """Answers a question of a policy, in the place of the approver of the run."""
        ...

    def note_questions(self, session_id: str, call: CallRef, questions: Iterable[str]) -> Approval:
        """Answers questions about a call, before it begins or then."""
        ...

    def watch(self, session: Session, connection: DatabaseConnection, call: CallRef) -> DatabaseConnection:
        """The database for a call of a session."""
        ...

    def times(self, session_id: str, call: CallRef) -> Sequence[datetime]:
        """The times that the clock of a call says, in order; after these, the present ones."""
        ...

    def ledger(self, session: Session, find: Callable[[], EffectLedger]) -> EffectLedger:
        """The ledger of the calls of a session; `find` finds that of the program."""
        ...

    def workplace(self, folder: Path) -> Workplace:
        """The folder in which the run works in the place of one."""
        ...

    async def reply(self, session: Session, request: Mapping[str, Any], ask: AskModel) -> Any:  # noqa: ANN401 - decoded JSON
        """The reply of a model to a request, as JSON; `ask` asks the model."""
        ...
