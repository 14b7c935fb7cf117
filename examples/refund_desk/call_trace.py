"""What the runtime did with each call, told from the events that it records of every one."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from handrail.filesystem import Filesystem
from handrail.runtime import Session, ToolInvoked
from handrail.session import SlicePolicy


class Outcome(StrEnum):
    """What became of a call."""

    COMMITTED = "committed"
    REPLAYED = "replayed"
    REFUSED = "refused"
    ROLLED_BACK = "rolled back"


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call in the trace.

    Attributes:
        number: counted from 1, in the order in which the calls ended.
        event: what the runtime recorded.
        outcome: what became of the call.
        state_before: the hash of files and slices before the call.
        state_after: the same when the call was over.
        with_files: whether files are part of it.
    """

    number: int
    event: ToolInvoked
    outcome: Outcome
    state_before: str
    state_after: str
    with_files: bool = True

    @property
    def sound(self) -> bool:
        """Whether the runtime kept its word: what did not succeed has left nothing behind."""
        return self.event.success or self.state_before == self.state_after


def outcome_of(event: ToolInvoked) -> Outcome:
    """What became of a call. One that failed before its handler was started was refused; after that it was undone."""
    if event.success:
        return Outcome.REPLAYED if event.replayed else Outcome.COMMITTED
    return Outcome.REFUSED if event.handler_seconds is None else Outcome.ROLLED_BACK


def state_digest(session: Session, files: Filesystem | None) -> str:
    """A hash over all files and all slices that can be rolled back."""
    digest = hashlib.sha256()
    if files is not None:
        for stat in files.glob("**"):
            content = files.identity(stat.path) if stat.kind == "file" else ""
            digest.update(f"{stat.path!r} {stat.kind} {content}\n".encode())
    for kind in sorted(session.kinds, key=lambda kind: kind.__qualname__):
        if getattr(kind, "slice_policy", SlicePolicy.STATE) is SlicePolicy.STATE:
            digest.update(f"{kind.__qualname__} {session[kind].all()!r}\n".encode())
    return digest.hexdigest()


class CallTrace:
    """Follows a session: subscribe it to `ToolInvoked`.

    Attributes:
        calls: all calls so far.
    """

    def __init__(self, session: Session, files: Filesystem | None, show: Callable[[TracedCall], object]) -> None:
        """Start from the state as it is; `show` is called with each call as it ends.

        It runs where the call ends. If that is an event loop, files on a disk would hold it: then `files` is `None`,
        and the trace follows the slices.
        """
        self.calls: list[TracedCall] = []
        self._session = session
        self._files = files
        self._show = show
        self._digest = state_digest(session, files)

    def __call__(self, event: ToolInvoked) -> None:
        """Take a call into the trace. The runtime tells of it when it is over, while no other call may write."""
        before, self._digest = self._digest, state_digest(self._session, self._files)
        call = TracedCall(len(self.calls) + 1, event, outcome_of(event), before, self._digest, self._files is not None)
        self.calls.append(call)
        self._show(call)

    def count(self) -> dict[str, int]:
        """How many calls came to what."""
        return {outcome.value: Counter(call.outcome for call in self.calls)[outcome] for outcome in Outcome}
