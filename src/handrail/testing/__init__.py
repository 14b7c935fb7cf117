"""Test helpers for users of Handrail: fakes of its interfaces, scripts of calls, and crashes.

`ScriptedModel` is imported lazily, because it needs extras that the other helpers do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.lazy_exports import lazy_exports
from handrail.testing.clock import FakeClock
from handrail.testing.crash import Crashed, Finished, crash_at, run_to_crash
from handrail.testing.playback import play, play_async
from handrail.testing.read_only import assert_reads_only
from handrail.testing.script import Call, Expect, Outcome, Reply, Script
from handrail.testing.single_call import run_tool, run_tool_async

if TYPE_CHECKING:
    from handrail.testing.scripted_model import ScriptedModel
else:
    __getattr__ = lazy_exports(__name__, {"scripted_model": "ScriptedModel"})

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
    "assert_reads_only",
    "crash_at",
    "play",
    "play_async",
    "run_to_crash",
    "run_tool",
    "run_tool_async",
]
