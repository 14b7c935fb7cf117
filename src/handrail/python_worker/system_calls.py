"""Numbers of system calls, and a filter of them for the kernel (seccomp, Linux).

A filter is a program for the kernel's classic BPF machine: it compares the architecture and the number of each call.
It is inherited by processes that are started, and cannot be removed.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable, Mapping
from ctypes import CDLL, POINTER, Structure, byref, c_char, c_ulong, c_ushort, cast, create_string_buffer, get_errno
from dataclasses import dataclass

_COMPUTING = {
    "x86_64": (*(0, 1, 3, 7, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 28, 39, 60, 96, 131, 202, 219, 228, 231, 271, 318),),
    "aarch64": (
        *(
            62,
            63,
            64,
            57,
            73,
            93,
            94,
            98,
            113,
            124,
            128,
            132,
            134,
            135,
            139,
            169,
            172,
            214,
            215,
            216,
            222,
            226,
            233,
            278,
        ),
    ),
}
"""What a process needs that computes, and uses descriptors which are open: read, write, close, poll, lseek, mmap,
mprotect, munmap, brk, rt_sigaction, rt_sigprocmask, rt_sigreturn, sched_yield, mremap, madvise, getpid, exit,
gettimeofday, sigaltstack, futex, restart_syscall, clock_gettime, exit_group, ppoll and getrandom."""

_REACHING = {
    "x86_64": (*(41, 101, 248, 249, 250, 272, 298, 308, 310, 311, 321, 323, 425, 438),),
    "aarch64": (*(198, 117, 217, 218, 219, 97, 241, 268, 270, 271, 280, 282, 425, 438),),
}
"""By what a process reaches the network, other processes, and namespaces: socket, ptrace, add_key, request_key, keyctl,
unshare, perf_event_open, setns, process_vm_readv, process_vm_writev, bpf, userfaultfd, io_uring_setup, pidfd_getfd."""

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_FOREIGN_NUMBERS = 0x40000000  # the x32 calls of x86_64, which have the same architecture

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # linux/bpf_common.h
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4  # in struct seccomp_data
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000  # linux/seccomp.h
_INSTRUCTION = struct.Struct("<HBBI")

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


class _Program(Structure):
    _fields_ = (("length", c_ushort), ("instructions", POINTER(c_char)))


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Which system calls a process may make.

    Attributes:
        numbers: the numbers of some calls, by the machine.
        allows: whether only these are allowed; otherwise they are refused.
    """

    numbers: Mapping[str, tuple[int, ...]]
    allows: bool

    def apply(self) -> None:  # pragma: no cover - a confined process writes no report
        """Let the kernel refuse the other calls, from now on, with `EPERM`.

        Raises:
            OSError: the system cannot.
        """
        machine = filtering_machine()
        program = _program(_ARCHITECTURES[machine], self.numbers[machine], allows=self.allows)
        buffer = create_string_buffer(program, len(program))
        described = _Program(len(program) // _INSTRUCTION.size, cast(buffer, POINTER(c_char)))
        libc = CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_SECCOMP, c_ulong(_SECCOMP_MODE_FILTER), byref(described), c_ulong(0), c_ulong(0)):
            raise OSError(get_errno(), f"system calls cannot be filtered: {os.strerror(get_errno())}")


COMPUTING_ALONE = CallFilter(_COMPUTING, allows=True)
"""Calls to compute, and to use what is open: no file is opened, and nothing is started, signalled or connected to."""

NOT_REACHING = CallFilter(_REACHING, allows=False)
"""All calls but those that reach the network, other processes, or other namespaces."""


def filtering_machine() -> str:
    """The machine, if its system calls can be filtered.

    Raises:
        OSError: they cannot: the system is not Linux, or the machine is not known here.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"system calls cannot be filtered on {sys.platform}, {machine}")
    return machine


def _program(
    architecture: int, numbers: Iterable[int], *, allows: bool
) -> bytes:  # pragma: no cover - a confined process writes no report
    listed, other = (_ALLOW, _REFUSE) if allows else (_REFUSE, _ALLOW)
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_AT_LEAST, 0, 1, _FOREIGN_NUMBERS),
        (_RETURN, 0, 0, _KILL),
    ]
    for number in numbers:
        # If it is not this number, the return is skipped.
        instructions += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, listed)]
    instructions.append((_RETURN, 0, 0, other))
    return b"".join(_INSTRUCTION.pack(*each) for each in instructions)
