"""The `handrail` command: run agents, inspect a store, and record what only a person can decide.

`handrail.cli.application` has the commands, and the exit codes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from handrail.cli.process_exit import FAILED, interrupt_exit_code, run_guarded

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command, and returns its exit code; `argv` is the command line after the command's name.

    Nothing is raised: an error is printed on standard error, in one line.
    """
    try:
        return run_guarded(lambda: _run(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt as interrupt:  # while modules are imported, or while a command runs
        return interrupt_exit_code(interrupt)
    finally:
        if argv is None:  # the process ends, and Python would search all that it has imported for garbage
            gc.freeze()


def _run(words: Sequence[str]) -> int:
    # Checked without importing them, so that the message does not need what is missing.
    missing = [name for name in ("cyclopts", "rich") if find_spec(name) is None]
    if missing:
        install = 'not installed here: pip install "handrail[cli]"'
        sys.stderr.write(f"handrail: the command line needs {' and '.join(missing)}, {install}\n")
        return FAILED
    from handrail.cli.application import run  # noqa: PLC0415 - needs the extra, which has just been checked

    return run(words)
