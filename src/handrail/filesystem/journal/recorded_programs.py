"""The programs that calls have started over a tree, each recorded in a file of the journal's folder until it has ended.

======================================================  ===========================================================
a file `program-CALL` that an opening finds             what is done before anything is restored
======================================================  ===========================================================
a part of a record                                      its program was never released: the file is removed
a record of another boot, or of another PID namespace   nothing of it runs here: the file is removed
its supervisor runs                                     it is waited for: it ends what descends from the program
processes of this boot with the id of the call in       they and their descendants are killed
their environment, not older than the program
some of them cannot be killed                           `JournalError` names them; nothing is restored
======================================================  ===========================================================

A record is not synced: it survives the death of the process, and after a power failure no program runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from handrail.errors import JournalError
from handrail.filesystem.disk import Disk
from handrail.filesystem.journal.folder import JournalFolder
from handrail.filesystem.paths import ROOT
from handrail.programs.launch import ProgramIdentity
from handrail.redaction import redacted_logger

_KIND = "program"
_MOST_LOOKS = 150
_PAUSE_SECONDS = 0.02
"""The supervisor has three seconds: it may wait for processes that the kernel does not end at once."""

_LOGGER = redacted_logger("handrail.filesystem")


class RecordedPrograms:
    """The records of the programs over one root; a `handrail.programs.launch.ProgramRecords`."""

    __slots__ = ("_disk", "_folder")

    def __init__(self, folder: JournalFolder, disk: Disk) -> None:
        """Keep the records in the folder of a journal, whose locks are held."""
        self._folder = folder
        self._disk = disk

    def record(self, program: ProgramIdentity) -> None:
        """Record a program that is about to run.

        Raises:
            OSError: the disk fails, and the program must not run.
        """
        descriptor = self._disk.append_file(_name(program.call), at=self._folder.descriptor)
        try:
            self._disk.write(descriptor, program.to_json())
        finally:
            self._disk.close(descriptor)

    def discard(self, program: ProgramIdentity) -> None:
        """Remove the record of a program of which nothing is left. A failure is logged: the next opening removes it."""
        try:
            self._disk.discard(_name(program.call), at=self._folder.descriptor)
        except OSError:
            _LOGGER.warning("the record of a program that has ended could not be removed", exc_info=True)

    def end_left_over(self, pause: Callable[[float], object] = time.sleep) -> None:
        """Kill what programs of a dead process have left running, and wait for its end.

        Raises:
            JournalError: a process cannot be killed. The record stays, so that the next opening tries again.
            OSError: the disk fails.
        """
        for call in self._folder.ids(_KIND):
            program = ProgramIdentity.from_json(self._folder.read(f"{_KIND}-{call}"))
            if program is not None:
                self._end(program, pause)
            self._disk.discard(_name(call), at=self._folder.descriptor)

    def _end(self, program: ProgramIdentity, pause: Callable[[float], object]) -> None:
        for _ in range(_MOST_LOOKS):
            if not program.is_supervised():
                break
            pause(_PAUSE_SECONDS)
        left = program.kill()
        if left:
            pids = ", ".join(str(process.pid) for process in sorted(left))
            msg = (
                f"a program of a dead process still runs and cannot be killed (process {pids}). It could change the "
                "files again, so nothing is restored. End it, then open the filesystem again."
            )
            raise JournalError(msg, path=ROOT)
        _LOGGER.info("what the program of a dead process had left running has ended")


def _name(call: str) -> bytes:
    return f"{_KIND}-{call}".encode()
