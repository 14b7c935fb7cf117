"""What a process gives up before it evaluates code of a model; nothing of it can be taken again.

==================  ===================================================================================================
name                what a process and all that it starts have given up
==================  ===================================================================================================
`limits`            memory beyond a limit, files that grow, core dumps, more than a few descriptors
`privileges`        capabilities, and new ones by programs that are started (Linux)
`reaching`          the network, other processes by ptrace and their memory, other namespaces (Linux: seccomp)
`files`             all files but the libraries of the system, which it may read and execute; signals and sockets to
                    processes outside, where the kernel knows them (Linux 5.13 and later: Landlock)
`computation`       all system calls but those that compute and use open descriptors (Linux: seccomp)
==================  ===================================================================================================

`limits` are set everywhere. What else a system lacks is left out, and is not in the names that are returned; but
`confine_computation` fails.
"""

from __future__ import annotations

import errno
import math
import os
import resource
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from ctypes import CDLL, c_int, c_long, c_ulong, c_void_p, create_string_buffer, get_errno
from pathlib import Path

from handrail.python_worker.system_calls import COMPUTING_ALONE, NOT_REACHING

_OVERHEAD_BYTES = 1024 * 1024 * 1024
"""What an interpreter reserves of addresses beside the memory of code: stacks, arenas, its own program."""

Confine = Callable[[int, Iterable[str]], tuple[str, ...]]
"""Confines a process, as `confine_tree` does."""

MOST_FILES = 64
"""How many descriptors a process may have, and the largest one."""

_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITIES_VERSION = 0x20080522  # linux/capability.h

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # the same on all machines
_LANDLOCK_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_RIGHTS_OF_VERSION = (13, 14, 15, 15, 16)
"""How many rights on files there are in the first versions of Landlock; later ones have no more that matter here."""

_VERSION_OF_PORTS, _VERSION_OF_SCOPES = 4, 6
_PORTS, _SCOPES = 0b11, 0b11

_LIBRARIES = ("/usr", "/lib", "/lib64", "/nix/store", "/etc/ld.so.cache")
"""What starting a program reads."""


def confine_tree(
    memory_bytes: int, programs: Iterable[str]
) -> tuple[str, ...]:  # pragma: no cover - a confined process writes no report
    """Confine this process and what it starts.

    Args:
        memory_bytes: how much memory code may use.
        programs: the programs that it is to start.

    Returns:
        The names of what it has given up.
    """
    _limit(memory_bytes + _OVERHEAD_BYTES)
    if sys.platform != "linux":
        return ("limits",)
    given_up = ["limits"]
    steps = (
        ("privileges", _drop_privileges),
        ("files", lambda: _confine_files(programs)),
        ("reaching", NOT_REACHING.apply),
    )
    for name, step in steps:
        with suppress(OSError):
            step()
            given_up.append(name)
    return tuple(given_up)


def own_size() -> int:
    """How many bytes of addresses this process uses (Linux)."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()


def confine_computation(
    address_bytes: int, seconds: float
) -> None:  # pragma: no cover - a confined process writes no report
    """Let this process do nothing but compute, and use the descriptors that are open.

    Args:
        address_bytes: how many bytes of addresses it may use.
        seconds: how much time of the processor it may use.

    Raises:
        OSError: the system cannot.
    """
    _lower(resource.RLIMIT_AS, address_bytes)
    _lower(resource.RLIMIT_CPU, math.ceil(seconds) + 1)
    _drop_privileges()
    COMPUTING_ALONE.apply()


def _limit(address_bytes: int) -> None:  # pragma: no cover - a confined process writes no report
    if sys.platform == "linux":  # macOS knows the limit and does not apply it
        _lower(resource.RLIMIT_AS, address_bytes)
    for which, most in ((resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, MOST_FILES)):
        _lower(which, most)


def _lower(which: int, most: int) -> None:  # pragma: no cover - a confined process writes no report
    _, hard = resource.getrlimit(which)
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (least, least))


def _drop_privileges() -> None:  # pragma: no cover - a confined process writes no report
    libc = CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, c_ulong(1), c_ulong(0), c_ulong(0), c_ulong(0)):
        raise OSError(get_errno(), os.strerror(get_errno()))
    header, none = struct.pack("<Ii", _CAPABILITIES_VERSION, 0), bytes(24)
    if libc.capset(create_string_buffer(header, len(header)), create_string_buffer(none, len(none))):
        raise OSError(get_errno(), os.strerror(get_errno()))


def _confine_files(programs: Iterable[str]) -> None:  # pragma: no cover - a confined process writes no report
    """Let this process read and execute the libraries and some programs, and use the null device, and nothing else."""
    version = _landlock(_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION)
    rights = (1 << _RIGHTS_OF_VERSION[min(version, len(_RIGHTS_OF_VERSION)) - 1]) - 1
    ports = _PORTS if version >= _VERSION_OF_PORTS else 0
    scopes = _SCOPES if version >= _VERSION_OF_SCOPES else 0
    size = 24 if scopes else 16 if ports else 8
    attributes = struct.pack("<QQQ", rights, ports, scopes)[:size]
    ruleset = _landlock(_LANDLOCK_CREATE, attributes, size, 0)
    try:
        for path in (*_LIBRARIES, *programs):
            _allow(ruleset, path, _READ_FILE | _EXECUTE)
        _allow(ruleset, os.devnull, _READ_FILE | _WRITE_FILE)
        _landlock(_LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:  # pragma: no cover - a confined process writes no report
    with suppress(FileNotFoundError):
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if Path(path).is_dir():
                rights |= _READ_DIR
            _landlock(_LANDLOCK_ADD, ruleset, _PATH_BENEATH, struct.pack("<Qi", rights, beneath), 0)
        finally:
            os.close(beneath)


def _landlock(
    number: int, *arguments: int | bytes | None
) -> int:  # pragma: no cover - a confined process writes no report
    libc = CDLL(None, use_errno=True)
    given = [
        c_long(each) if isinstance(each, int) else c_void_p() if each is None else create_string_buffer(each, len(each))
        for each in arguments
    ]
    libc.syscall.restype = c_int
    returned: int = libc.syscall(c_long(number), *given)
    if returned < 0:
        raise OSError(get_errno() or errno.ENOSYS, os.strerror(get_errno()))
    return returned
