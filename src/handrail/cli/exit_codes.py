"""What the exit code of a command means."""

from __future__ import annotations

DONE = 0
"""It was done."""

FAILED = 1
"""It was refused, it failed, or there is no such thing."""

USAGE = 2
"""The command line is wrong, or a file or name that it leads to; nothing has run."""

WAITING = 3
"""A run waits for approvals; it is stored, and can be resumed."""

READER_GONE = 141
"""Nobody reads the output any more: 128 and the number of the signal."""
