"""The observer of the calls of a process: the points that a call comes to, and how it ends.

There is one, that of `handrail.telemetry`, or none; then a call pays for a comparison at each point. How a call ends,
by the first row that fits:

| the call | outcome |
|---|---|
| succeeds by its record, or by a result in the ledger | `replayed` |
| succeeds, and is committed: in memory, in its store, or into the call that it is nested in | `committed` |
| fails, and its effect may have happened, now or in an earlier attempt; or its commit may have | `unknown` |
| is interrupted when it has been committed | `committed` |
| opens sections, which is committed | `committed`; `rolled_back` if its tool was to do more |
| stays open: its question, or a question before it, has no answer; its handler postpones it | `postponed` |
| is refused by a policy or an approver, or these fail | `denied` |
| ends before its handler is started, also because an equal call is unknown | `refused` |
| ends later, and is undone | `rolled_back` |

A call that is answered from the record of a failure is `replayed`, too. What a call that is rolled back has done
outside may stay: the ledger says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from handrail.errors import CallIdReusedError, CommitInDoubtError, VisibilityExpansionRequired
from handrail.events import Subscription
from handrail.runtime.calls import CallObserver, Step
from handrail.runtime.failures import OutcomeUnknownError

if TYPE_CHECKING:
    from handrail.runtime.call import CallState
    from handrail.runtime.calls import ToolMessage

CallEnd: TypeAlias = Literal["committed", "rolled_back", "replayed", "unknown", "denied", "refused", "postponed"]
"""How a call has ended; see this module."""


ObserveCall: TypeAlias = "Callable[[CallState], CallObserver | None]"
"""Begins to observe a call that has arrived; must not raise."""

# Of the process: traces and metrics are of all sessions, and a call pays nothing to find out that there are none.
_observe: ObserveCall | None = None


def observe_calls(observe: ObserveCall) -> Subscription:
    """Observes each call that arrives from now on, in the place of an earlier observer, until this is closed."""
    global _observe  # noqa: PLW0603 - one process has one
    _observe = observe
    subscription = Subscription()
    subscription.callback(_end, observe)
    return subscription


def _end(observe: ObserveCall) -> None:
    global _observe  # noqa: PLW0603 - as above
    if _observe is observe:
        _observe = None


def find_observer(run: CallState) -> CallObserver | None:
    """The observer of a call that has arrived; `None` if no call is observed."""
    return None if _observe is None else _observe(run)


def find_end(run: CallState, message: ToolMessage | None, error: BaseException | None) -> CallEnd:
    """How a call has ended, by the table of this module."""
    if message is not None and (message.replayed or message.success):
        return "replayed" if message.replayed else "committed"
    if run.claim.unsettled or isinstance(error, CommitInDoubtError) or run.failure is OutcomeUnknownError:
        return "unknown"
    is_opener = run.call.name == run.environment.rendering.opener
    if run.refused_at is None or (is_opener and isinstance(error, VisibilityExpansionRequired)):
        return "committed"
    if error is not None and run.is_unrecorded(error) and not isinstance(error, CallIdReusedError):
        return "postponed"
    if run.refused_at in {Step.POLICY, Step.APPROVAL}:
        return "denied"
    return "refused" if run.handler_seconds is None else "rolled_back"
