"""Runs that survive their process: `submit` stores one, and workers `resume` it, each from where its record ends.

See `docs/how-to/scale-out.md`.
"""

from handrail.adapters.run_task import AgentFunction, RunTask
from handrail.worker.resuming import Again, Failed, Finished, ResumeOptions, RunOutcome, Waiting, resume
from handrail.worker.submitting import submit

__all__ = [
    "Again",
    "AgentFunction",
    "Failed",
    "Finished",
    "ResumeOptions",
    "RunOutcome",
    "RunTask",
    "Waiting",
    "resume",
    "submit",
]
