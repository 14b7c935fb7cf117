"""The programs that calls have started over a tree, each recorded in a file of the journal's folder until it has ended.

=====================================================  ================================================================
a file `program-CALL` that an opening finds            what is done before anything is restored
=====================================================  ================================================================
processes with the id of the call in their             they and their descendants are killed, and the file is removed
environment
some of them cannot be killed                          `JournalError` names them; nothing is restored
=====================================================  ================================================================

The file holds the name of the first process of the PID namespace that the program enters, if it enters one. A part of
that is of no harm: its program was not started. A record is not synced: it survives the death of the process, and after
a power failure no program runs.
"""

from __future__ import annotations

from handrail.errors import JournalError
from handrail.filesystem.disk import Disk
from handrail.filesystem.journal.folder import JournalFolder
from handrail.filesystem.paths import ROOT
from handrail.process_identity import ProcessName
from handrail.programs import ProgramRecord
from handrail.redaction import redacted_logger

_KIND = "program"

_LOGGER = redacted_logger("handrail.filesystem")


class RecordedPrograms:
    """The records of the programs over one root."""

    __slots__ = ("_disk", "_folder")

    def __init__(self, folder: JournalFolder, disk: Disk) -> None:
        """Keep the records in the folder of a journal, whose locks are held."""
        self._folder = folder
        self._disk = disk

    def record(self, program: ProgramRecord) -> None:
        """Record a program that is about to run.

        Raises:
            OSError: the disk fails, and the program must not run.
        """
        descriptor = self._disk.append_file(_name(program.call), at=self._folder.descriptor)
        try:
            self._disk.write(descriptor, str(program.namespace or "").encode())
        finally:
            self._disk.close(descriptor)

    def discard(self, program: ProgramRecord) -> None:
        """Remove the record of a program of which nothing is left. A failure is logged: the next opening removes it."""
        try:
            self._disk.discard(_name(program.call), at=self._folder.descriptor)
        except OSError:
            _LOGGER.warning("the record of a program that has ended could not be removed", exc_info=True)

    def end_left_over(self) -> None:
        """Kill what programs of a dead process have left running.

        Raises:
            JournalError: a process cannot be killed. The record stays, so that the next opening tries again.
            OSError: the disk fails.
        """
        for call in self._folder.ids(_KIND):
            namespace = self._folder.read(f"{_KIND}-{call}").decode(errors="replace")
            left = ProgramRecord(call, ProcessName.parse(namespace)).kill()
            if left:
                pids = ", ".join(str(process.pid) for process in sorted(left))
                msg = (
                    f"a program of a dead process still runs and cannot be killed (process {pids}). It could change "
                    "the files again, so nothing is restored. End it, then open the filesystem again."
                )
                raise JournalError(msg, path=ROOT)
            self._disk.discard(_name(call), at=self._folder.descriptor)


def _name(call: str) -> bytes:
    return f"{_KIND}-{call}".encode()
