"""The `handrail` command: run agents, look at a store, and decide what only a person can decide.

::

    handrail run|check AGENT_FILE
    handrail new NAME
    handrail sessions list|show|fork
    handrail ledger list|show|reconcile|invalidate|prune
    handrail completion bash|zsh|fish

Exit codes: 0 it was done; 1 it was refused, or there is no such thing, or the store cannot be used; 2 the command line
is wrong; 3 a run waits for approvals; 130 interrupted; 141 whoever read the output has gone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec

from handrail.cli.process_exit import INTERRUPTED, interrupted_once

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Carry one command out, and return its exit code; `argv` is what stands after the command's name.

    Nothing is raised: what goes wrong is said on standard error, in one line.
    """
    missing = [name for name in ("cyclopts", "rich") if find_spec(name) is None]
    if missing:
        install = 'not installed here: pip install "handrail[cli]"'
        sys.stderr.write(f"handrail: the command line needs {' and '.join(missing)}, {install}\n")
        return 1
    try:
        # Without `argv` the process is this command, and nobody else's.
        with interrupted_once() if argv is None else nullcontext():
            from handrail.cli.application import run  # noqa: PLC0415 - needs the extra, which has just been looked for

            return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:  # while modules are imported, or while a command is carried out
        return INTERRUPTED
