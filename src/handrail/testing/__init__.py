"""Test helpers for users of Handrail: fakes of its interfaces, scripts of calls, and crashes.

`ScriptedModel` is imported lazily, because it needs extras that the other helpers do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.testing.clock import FakeClock
from handrail.testing.crash import Crashed, Finished, crash_at, run_to_crash
from handrail.testing.playback import play, play_async
from handrail.testing.script import Call, Expect, Outcome, Reply, Script
from handrail.testing.single_call import run_tool, run_tool_async

if TYPE_CHECKING:
    from handrail.testing.scripted_model import ScriptedModel

__all__ = [
    "Call",
    "Crashed",
    "Expect",
    "FakeClock",
    "Finished",
    "Outcome",
    "Reply",
    "Script",
    "ScriptedModel",
    "crash_at",
    "play",
    "play_async",
    "run_to_crash",
    "run_tool",
    "run_tool_async",
]


# Called only for names that the module does not define (PEP 562).
def __getattr__(name: str) -> object:
    if name == "ScriptedModel":
        from handrail.testing.scripted_model import ScriptedModel  # noqa: PLC0415 - see the docstring of this module

        return ScriptedModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
