"""The folder outside the tree in which a filesystem on disk stores its journals, and the locks on it.

It belongs to one root, and one `HostFilesystem` at a time works with both: it holds the lock of the file `lock` and
that of the root itself, which the operating system releases when the process dies.

Both the journal and what the call has written to a store survive a crash. The store decides whether the call is
committed: the unit of work that commits the call records the journal's id. A journal that is found later is discarded
if the store has its id, and rolled back if not.

A program that a call has started over the tree is recorded in a file `program-CALL`, until it has ended:

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

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from handrail.clock import Clock
from handrail.errors import FilesystemBusyError, HandrailError, JournalError
from handrail.filesystem.disk import Disk
from handrail.filesystem.host.journal import BeforeImages
from handrail.filesystem.paths import ROOT
from handrail.process import ProcessName, fcntl
from handrail.programs import ProgramRecord
from handrail.redaction import redacted_logger
from handrail.transaction.unit_of_work import CommitRecordStore

_POLL_SECONDS = 0.02
_CURE = "Give another folder as journal=."

_LOGGER = redacted_logger("handrail.filesystem")


class JournalFolder:
    """A journal's folder that is held by this process.

    Attributes:
        path: where it is.
        descriptor: what it is open as.
        is_held: whether `acquire` has acquired the locks; the folder may not be changed before that.
    """

    __slots__ = ("_disk", "_lock", "descriptor", "is_held", "path")

    def __init__(self, path: Path, disk: Disk) -> None:
        """Make the folder if it does not exist, and open it; `acquire` must follow.

        Raises:
            JournalError: it cannot be made or used.
        """
        self._disk = disk
        self.is_held: bool = False
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path: Path = path.resolve(strict=True)
            self.descriptor: int = disk.open_root(self.path)
            try:
                self._lock = disk.append_file(b"lock", at=self.descriptor)
            except BaseException:
                disk.close(self.descriptor)
                raise
        except OSError as error:
            msg = f"the journal cannot be stored in {str(path)!r}: {error.strerror}. {_CURE}"
            raise JournalError(msg, path=ROOT) from error

    def acquire(self, root: int, wait: timedelta, clock: Clock, pause: Callable[[float], object] = time.sleep) -> None:
        """Acquire the lock of the folder, and of the root that a descriptor is open on.

        Where folders cannot be locked, as over a network, only filesystems with the same journal's folder are excluded.

        Raises:
            FilesystemBusyError: another filesystem, of this process or another one, still holds a lock after `wait`.
            JournalError: files have no locks where the journal's folder is.
        """
        until = clock.monotonic() + wait.total_seconds()
        # Polled, because a blocking `flock` has no timeout.
        while (busy := self._busy(root)) is not None:
            if clock.monotonic() >= until:
                msg = (
                    f"another filesystem works on the same root (it holds {busy}), and still did after "
                    f"{wait.total_seconds():g} seconds. Close that one, share it, or wait longer with wait=."
                )
                raise FilesystemBusyError(msg, path=ROOT)
            pause(_POLL_SECONDS)
        self.is_held = True

    def check_owner(self, root: Path) -> None:
        """Check that the folder belongs to a root, or to none yet; if it does not, there is no use in waiting for it.

        Raises:
            JournalError: it belongs to another root, or lies inside the root.
        """
        if self.path == root or root in self.path.parents:
            msg = f"the journal would lie inside its own root, in {str(self.path)!r}. Give a folder outside it."
            raise JournalError(msg, path=ROOT)
        found = self.read("root")
        if found not in {b"", os.fsencode(root)}:
            msg = (
                f"the journal's folder {str(self.path)!r} belongs to the root {os.fsdecode(found)!r}, not to "
                f"{str(root)!r}. Give each root a folder of its own as journal=."
            )
            raise JournalError(msg, path=ROOT)

    def assign(self, root: Path) -> None:
        """Assign the folder to a root permanently; the locks are held, so that two openings cannot both assign it.

        Raises:
            JournalError: it belongs to another root, or lies inside the root.
        """
        # Again, under the locks: another root may have been assigned while this one waited for them.
        self.check_owner(root)
        # Also if the file exists and is empty, as a crash before the write leaves it.
        if not self.read("root"):
            (self.path / "root").write_bytes(os.fsencode(root))

    def ids(self, kind: str) -> list[str]:
        """The ids of the files of a kind: `journal` or `settled`."""
        names = sorted(self._disk.names(self.descriptor))
        return [os.fsdecode(name).partition("-")[2] for name in names if name.startswith(f"{kind}-".encode())]

    def read(self, name: str) -> bytes:
        """The content of a file; empty if it does not exist."""
        if self._disk.look(name.encode(), at=self.descriptor) is None:
            return b""
        descriptor = self._disk.open_file(name.encode(), at=self.descriptor)
        try:
            return b"".join(self._disk.chunks(descriptor))
        finally:
            self._disk.close(descriptor)

    def clean(self) -> None:
        """Remove the contents and marks that no journal needs; called by the holder, when no journal exists."""
        for name in self._disk.names(self.descriptor):
            if name.startswith((b"image-", b"marks-")):
                self._disk.discard(name, at=self.descriptor)

    def close(self, root: int, *, owned: bool) -> None:
        """Release folder and root; a forked process does not own the locks and does not release them."""
        for each in (root, self._lock):
            if owned:
                # A lock belongs to the open file, which a forked process shares: if the fork unlocked, its parent would
                # lose the lock.
                with suppress(OSError):  # where it could not be locked
                    fcntl.flock(each, fcntl.LOCK_UN)
            os.close(each)
        os.close(self.descriptor)

    def _busy(self, root: int) -> str | None:
        """The lock that another process holds; `None` if this process now holds all."""
        try:
            # Always the folder before the root, and the folder stays locked meanwhile: two openings with the same
            # journal cannot hold one lock each. Locking it again at the next poll changes nothing.
            if not _taken(self._lock):
                return repr(str(self.path / "lock"))
        except OSError as error:
            msg = f"the journal cannot be stored in {str(self.path)!r}: files cannot be locked there. {_CURE}"
            raise JournalError(msg, path=ROOT) from error
        with suppress(OSError):
            return None if _taken(root) else "the root itself, with another folder as journal="
        return None


def _taken(descriptor: int) -> bool:
    """Whether the lock of a file or folder has been acquired."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def default_journal_folder(root: Path, environment: Mapping[str, str]) -> Path:
    """The default folder for the journal of a root: by the root's path, below `$XDG_STATE_HOME`."""
    given = environment.get("XDG_STATE_HOME", "")
    # A relative path is ignored, as the XDG specification says.
    state = Path(given) if given.startswith("/") else Path.home() / ".local" / "state"
    return state / "handrail" / "journals" / hashlib.sha256(os.fsencode(root)).hexdigest()[:32]


def drop_commit_record(journal_id: str, store: CommitRecordStore, images: BeforeImages) -> None:
    """Have the store delete the id of a removed journal; if it does not answer, the next opening tries again.

    Args:
        journal_id: the id of the journal, whose file `settled-ID` remains.
        store: the store that decides about it.
        images: the journal's folder.
    """
    try:
        # The id first: after a crash in between, `recover` finds the file and deletes the id again, which is
        # idempotent. The other way round, the id would stay in the store permanently.
        store.delete_commit_record(journal_id)
        images.disk.discard(f"settled-{journal_id}".encode(), at=images.folder)
    except (HandrailError, OSError):
        _LOGGER.warning(
            "the store could not delete the journal id %s; the next opening tries again", journal_id, exc_info=True
        )


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
        for call in self._folder.ids("program"):
            namespace = self._folder.read(f"program-{call}").decode(errors="replace")
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
    return f"program-{call}".encode()
