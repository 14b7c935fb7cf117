"""What is left when the agent has answered, and whether it proves that the runtime kept its word."""

from __future__ import annotations

from collections.abc import Sequence

from call_trace import CallTrace, TracedCall
from coder import PRIVATE, PROJECT, Place
from day_proof import ANSWERED, TRACED, UNDONE, Finding, traced, undone
from handrail.filesystem import HostFilesystem

GREEN = "the tests pass at the end, and are those of the beginning"
ENDED = "nothing that a command has left running writes on"
APART = "what is beside the folder was not read"

LEFT_RUNNING = "watch.log"
"""What the scripted model's command writes to, and goes on to when it has ended."""

_TESTS = "unittest"


def promises(place: Place) -> tuple[str, ...]:
    """What must be true at the end, whatever the model does wrong."""
    return (ANSWERED, GREEN, UNDONE, ENDED, *((APART,) if place.is_sandbox else ()), TRACED)


def findings(
    place: Place, files: HostFilesystem, trace: CallTrace, invoked: int, *, failure: str
) -> tuple[Finding, ...]:
    """Whether each promise holds.

    Args:
        place: where commands ran.
        files: the package at the end.
        trace: what happened.
        invoked: how many calls the session has recorded.
        failure: why the agent did not come to its end; empty if it did.
    """
    found = [Finding(ANSWERED, not failure, failure or "it has answered"), _green(place, files, trace.calls)]
    found += [undone(trace.calls), _ended(files)]
    if place.is_sandbox:
        found.append(_apart(trace.calls))
    return (*found, traced(trace.calls, invoked))


def _green(place: Place, files: HostFilesystem, calls: Sequence[TracedCall]) -> Finding:
    tests = {
        path.relative_to(PROJECT).as_posix(): path.read_text(encoding="utf-8") for path in PROJECT.rglob("test_*.py")
    }
    changed = [path for path, text in tests.items() if not files.exists(path) or files.read_text(path) != text]
    runs = [call for call in calls if call.event.name == place.tool and _TESTS in str(call.event.call.arguments)]
    if changed:
        return Finding(GREEN, holds=False, found=f"changed: {', '.join(sorted(changed))}")
    if not runs or not runs[-1].event.success:
        return Finding(GREEN, holds=False, found=f"they were run {len(runs)} times, and failed the last time")
    if runs[-1].state_after != calls[-1].state_after:
        return Finding(
            GREEN, holds=False, found=f"files were changed after call {runs[-1].number}, the last that ran them"
        )
    return Finding(GREEN, holds=True, found=f"call {runs[-1].number} has run them")


def _ended(files: HostFilesystem) -> Finding:
    is_there = files.exists(LEFT_RUNNING)
    return Finding(ENDED, not is_there, f"{LEFT_RUNNING} is {'there again' if is_there else 'gone, and stays so'}")


def _apart(calls: Sequence[TracedCall]) -> Finding:
    read = [f"call {call.number} has read it" for call in calls if PRIVATE in call.event.result.render()]
    return Finding(APART, not read, ", ".join(read) or f"{len(calls)} results, and it is in none")
