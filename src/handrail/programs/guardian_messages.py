"""What an agent process, its guardian and the supervisors of calls send to each other."""

from __future__ import annotations

import struct

PLACED, FAILED, ENDED, GONE = b"P", b"F", b"E", b"G"
"""What a supervisor reports: pids of program and supervisor; an errno; the exit code; how many processes are left."""

RELEASE, KILL = b"r", b"k"
"""What an agent sends to a supervisor; the end of the socket means `KILL` too."""

REPORT = struct.Struct("<cqq")
"""A report: its kind, and two numbers."""

LENGTH = struct.Struct("<I")
"""Precedes a request: how long the rest is."""

REQUEST_FILES = 4
"""How many descriptors come with a request: the socket of the call, the program's input, its output, its errors."""
