"""The journal's folder, and the restoring of a tree: from before-images, from a saved tree, and after a crash.

The folder lies outside the tree and belongs to one root. One `HostFilesystem` at a time works with both: it holds the
lock of the file `lock` and that of the root itself, which the operating system releases when the process dies. At the
opening each journal of a dead process is rolled back or discarded:

======================================================  ===========================================================
what the journal's folder holds                         what is done
======================================================  ===========================================================
the record of a program, `program-CALL`                 processes with the call's id in their environment, and their
                                                        descendants, are killed before all else; `JournalError`
                                                        names those that cannot be killed, and nothing is restored
a journal without a whole record                        nothing had been changed: it is discarded
one that no store decides about, or not prepared        its tree and images are restored, then it is discarded
a prepared one, and the store has its id                the call is committed: it is discarded or kept for undo, then
                                                        its id deleted
a prepared one, and the store does not have its id      its tree and images are restored, then it is discarded
a prepared one, and its store was not given             nothing; `JournalError` names the store to give
one of another root that was at the same path           nothing; `JournalError` explains how to discard it
the same, with a tree, and the root is empty            its tree and images are restored there
a damaged one, or one whose contents are damaged        nothing; `JournalError` explains how to discard it
the file that records that a journal was discarded      the store deletes the id, if it was given
a journal that is kept for undo                         nothing, until it is too old (`undo_history`)
======================================================  ===========================================================

If the process dies meanwhile, the journal is unchanged and the next opening continues.

Before-images define what is to be at some paths, so restoring is the same whether all changes were made, or some, or
some have been restored already: it can be interrupted and repeated. Three passes over the paths:

1. from the deepest up, remove what is not to be there or is of another kind;
2. from the top down, make folders, files and links, each file under a temporary name first and then renamed;
3. from the deepest up, set the permissions of folders, which might have prevented the other passes.

What another process made is not lost. It is recognised by not being marked as made by the transaction; a file or link
is then moved into the journal's folder as `NAME.found`. A folder that is not empty, a device, a socket or a fifo stays
where it is, or, if something else belongs there, is renamed to `NAME.found`: it cannot be moved to another disk, where
the journal's folder may be. A warning is logged.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from handrail.clock import Clock
from handrail.crash_points import reached
from handrail.errors import FilesystemBusyError, FilesystemError, HandrailError, JournalError, SnapshotError
from handrail.filesystem.disk import Disk, Root
from handrail.filesystem.host.journal import (
    BeforeImage,
    BeforeImages,
    JournalFile,
    JournalHeader,
    file_identity,
    file_kind,
    read_journal,
    temporary_name,
    unused_name,
)
from handrail.filesystem.paths import ROOT, folders_above, parent_folder
from handrail.filesystem.shadow.repository import ShadowRepository
from handrail.filesystem.shadow.tree import spell_paths
from handrail.filesystem.undo_journal import SavedTree
from handrail.process import ProcessName, fcntl
from handrail.programs import ProgramRecord
from handrail.redaction import redacted_logger
from handrail.transaction.unit_of_work import CommitRecordStore
from handrail.waiting import check_blocking

_POLL_SECONDS = 0.02
_CURE = "Give another folder as journal=."


class JournalFolder:
    """The folder of a root's journals; it may not be changed before `acquire` has acquired its locks."""

    __slots__ = ("_disk", "_lock", "descriptor", "is_held", "path")

    def __init__(self, path: Path, disk: Disk) -> None:
        """Makes and opens the folder; `JournalError` if it cannot be used. `acquire` must follow."""
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
        """Acquires the lock of the folder, and of the root that a descriptor is open on.

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
        """Raises `JournalError` if the folder belongs to another root, or lies inside the root."""
        if self.path == root or root in self.path.parents:
            msg = f"the journal would lie inside its own root, in {str(self.path)!r}. Give a folder outside it."
            raise JournalError(msg, path=ROOT)
        owner = self.read("root")
        if owner not in {b"", os.fsencode(root)}:
            msg = (
                f"the journal's folder {str(self.path)!r} belongs to the root {os.fsdecode(owner)!r}, not to "
                f"{str(root)!r}. Give each root a folder of its own as journal=."
            )
            raise JournalError(msg, path=ROOT)

    def assign(self, root: Path) -> None:
        """Assigns the folder to a root permanently; `JournalError` as by `check_owner`. The locks are held."""
        # Again, under the locks: another root may have been assigned while this one waited for them.
        self.check_owner(root)
        # Also if the file exists and is empty, as a crash before the write leaves it.
        if not self.read("root"):
            (self.path / "root").write_bytes(os.fsencode(root))

    def ids(self, kind: str) -> list[str]:
        """The ids of the files of a kind: `journal`, `settled`, `undo` or `program`."""
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

    def clean(self) -> set[bytes]:
        """Removes what no journal needs, when none is left but those kept for undo; returns the contents of these."""
        undo_ids = {undo_id.encode() for undo_id in self.ids("undo")}
        names = [name for name in self._disk.names(self.descriptor) if name.startswith((b"image-", b"marks-"))]
        contents = {name for name in names if name.startswith(b"image-") and name.split(b"-")[1] in undo_ids}
        for name in names:
            if name not in contents:
                self._disk.discard(name, at=self.descriptor)
        return contents

    def close(self, root: int, *, is_owner: bool) -> None:
        """Releases folder and root; a forked process does not own the locks and does not release them."""
        for descriptor in (root, self._lock):
            if is_owner:
                # A lock belongs to the open file, which a forked process shares: if the fork unlocked, its parent would
                # lose the lock.
                with suppress(OSError):  # where it could not be locked
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
        os.close(self.descriptor)

    def _busy(self, root: int) -> str | None:
        try:
            # Always the folder before the root, and the folder stays locked meanwhile: two openings with the same
            # journal cannot hold one lock each. Locking it again at the next poll changes nothing.
            if not _try_lock(self._lock):
                return repr(str(self.path / "lock"))
        except OSError as error:
            msg = f"the journal cannot be stored in {str(self.path)!r}: files cannot be locked there. {_CURE}"
            raise JournalError(msg, path=ROOT) from error
        with suppress(OSError):
            return None if _try_lock(root) else "the root itself, with another folder as journal="
        return None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def default_journal_folder(root: Path, environment: Mapping[str, str]) -> Path:
    """The default folder for the journal of a root: by the root's path, below `$XDG_STATE_HOME`."""
    state_home = environment.get("XDG_STATE_HOME", "")
    # A relative path is ignored, as the XDG specification says.
    state = Path(state_home) if state_home.startswith("/") else Path.home() / ".local" / "state"
    return state / "handrail" / "journals" / hashlib.sha256(os.fsencode(root)).hexdigest()[:32]


def drop_commit_record(journal_id: str, store: CommitRecordStore, images: BeforeImages) -> None:
    """Deletes the id of a removed journal in the store, or, if that fails, leaves it to the next opening."""
    try:
        # The id first: after a crash in between, `recover` finds the file and deletes the id again, which is
        # idempotent. The other way round, the id would stay in the store permanently.
        store.delete_commit_record(journal_id)
        images.disk.discard(f"settled-{journal_id}".encode(), at=images.folder)
    except (HandrailError, OSError):
        _LOGGER.warning(
            "the store could not delete the journal id %s; the next opening tries again", journal_id, exc_info=True
        )


@dataclass(slots=True)
class RecordedPrograms:
    """The records of the programs over one root, in the folder of its journals, whose locks are held.

    A record holds the name of the first process of the PID namespace that the program enters, if any. It is not synced:
    after a power failure no program runs.
    """

    journals: JournalFolder
    disk: Disk

    def record(self, program: ProgramRecord) -> None:
        """Records a program that is about to run; after an `OSError` it must not run."""
        descriptor = self.disk.append_file(_name(program.call), at=self.journals.descriptor)
        try:
            self.disk.write(descriptor, str(program.namespace or "").encode())
        finally:
            self.disk.close(descriptor)

    def discard(self, program: ProgramRecord) -> None:
        """Removes the record of a program that has ended; a failure is left to the next opening."""
        try:
            self.disk.discard(_name(program.call), at=self.journals.descriptor)
        except OSError:
            _LOGGER.warning("the record of a program that has ended could not be removed", exc_info=True)

    def end_left_over(self) -> None:
        """Kills what programs of a dead process have left running; `JournalError` if it cannot."""
        for call in self.journals.ids("program"):
            namespace = self.journals.read(f"program-{call}").decode(errors="replace")
            if survivors := ProgramRecord(call, ProcessName.parse(namespace)).kill():
                pids = ", ".join(str(process.pid) for process in sorted(survivors))
                msg = (
                    f"a program of a dead process still runs and cannot be killed (process {pids}). It could change "
                    "the files again, so nothing is restored. End it, then open the filesystem again."
                )
                raise JournalError(msg, path=ROOT)
            self.disk.discard(_name(call), at=self.journals.descriptor)


def _name(call: str) -> bytes:
    return f"program-{call}".encode()


_LOGGER = redacted_logger("handrail.filesystem")

GIT_DIR = "tree.git"
"""The name in the journal's folder of the git dir that holds the trees."""


class WholeTree:
    """Saves the tree below a root in a shadow repository, and restores it."""

    __slots__ = ("_left_out", "_newest", "_synced", "images", "root", "shadow")

    def __init__(self, root: Root, images: BeforeImages, shadow: ShadowRepository) -> None:
        self.root: Root = root
        self.images: BeforeImages = images
        self.shadow: ShadowRepository = shadow
        self._newest = self._synced = ""
        self._left_out: frozenset[str] = frozenset()

    def save(self, *, synced: bool, is_first: bool) -> SavedTree:
        """Saves the tree as it is now; `synced` to fsync it. `is_first` says that the call has saved none yet."""
        check_blocking("saving the whole tree")
        self.images.separate()
        # What the first tree of a call leaves out, the later ones do, too: so images are taken of what the first one
        # does not restore, also after a program has changed the rules.
        snapshot = self.shadow.snapshot(frozenset() if is_first else self._left_out)
        self._left_out, self._newest = snapshot.left_out, snapshot.id
        # Syncing the whole disk is slow, and the same tree has been synced already.
        if synced and snapshot.id != self._synced:
            self.sync()
        return snapshot._replace(left_out=spell_paths(snapshot.left_out))

    def restore(self, tree: SavedTree, journal: JournalFile) -> None:
        """Restores the tree, before images are restored; a repetition continues where it stopped."""
        check_blocking("restoring the whole tree")
        self.images.separate()
        try:
            left_out = self.shadow.restore(tree.id)
        except SnapshotError as error:
            msg = f"the folder {GIT_DIR!r} in the journal's folder has lost the tree to restore; put it back"
            raise JournalError(msg, path=ROOT) from error
        # The restored files are new inodes. If the process dies before they are marked, the next rollback restores the
        # tree again and marks them then.
        changed = dict.fromkeys([*journal.records.images, *journal.records.marks])
        saved_tree = SavedTree(tree.id, spell_paths(left_out))
        journal.mark([(path, file_identity(self.root.look(path))) for path in changed if saved_tree.covers(path)])

    def sync(self) -> None:
        """Syncs everything that a program may have written, and the newest tree."""
        self.images.disk.sync_all()
        self._synced = self._newest


def recover(tree: WholeTree, folder: JournalFolder, store: CommitRecordStore | None) -> None:
    """Ends programs that are left over, and restores the tree to the state after the last committed transaction.

    Raises:
        JournalError: a journal cannot be read, belongs to something else, or needs its store; or a program cannot be
            ended. Whatever is raised, the next opening tries again.
    """
    # First: a program must not change what is being restored.
    RecordedPrograms(folder, tree.images.disk).end_left_over()
    for journal_id in folder.ids("journal"):
        _settle_journal(journal_id, tree, folder, store)
    for journal_id in folder.ids("settled"):
        if store is not None:
            drop_commit_record(journal_id, store, tree.images)
    tree.images.undo_contents |= folder.clean()


def _settle_journal(journal_id: str, tree: WholeTree, folder: JournalFolder, store: CommitRecordStore | None) -> None:
    records = read_journal(journal_id, folder.read(f"journal-{journal_id}"), folder.read(f"marks-{journal_id}"))
    header = records.header
    # Opened to append to: a rollback marks what it restores, so that a second crash is recovered in the same way.
    journal = JournalFile(journal_id, folder.descriptor, tree.images.disk, synced=True, records=records)
    try:
        was_committed = False
        # Without a header nothing was recorded, and nothing is changed before it is recorded.
        if header is not None:
            # A tree can be restored into an empty folder: a program may have removed the root.
            if records.tree is None or any(tree.root.path.iterdir()):
                _refuse_other_root(journal_id, header, tree.root, folder)
            # Only a prepared journal can have been recorded by a store, so that others are settled without one.
            was_committed = records.prepared and _was_committed(journal_id, header, store)
            if not was_committed:
                # Before anything is restored: a rollback that stops half way would leave a mixture of two states.
                _refuse_damaged(journal, tree.images)
                _undo(journal, tree)
        reached("journal-before-discard")
        journal.discard(keep_record=was_committed, committed=was_committed)
        reached("journal-after-discard")
    finally:
        journal.close()


def _was_committed(journal_id: str, header: JournalHeader, store: CommitRecordStore | None) -> bool:
    if header.store is None:
        return False
    if store is None or store.url != header.store:
        argument = "none was given" if store is None else f"{store.url!r} was given"
        msg = (
            f"a process died while the call of the journal {journal_id} was being committed, and its outcome is "
            f"recorded in the store {header.store!r}; {argument}. Pass that one: HostFilesystem(root, store=...)."
        )
        raise JournalError(msg, path=ROOT)
    return store.is_committed(journal_id)


def _refuse_other_root(journal_id: str, header: JournalHeader, root: Root, folder: JournalFolder) -> None:
    if not header.matches(root.identity[1], root.generation):
        msg = (
            f"the journal {journal_id} belongs to a folder that was at {str(root.path)!r} before; the one there now is "
            f"another. If that is right, remove {str(folder.path)!r}."
        )
        raise JournalError(msg, path=ROOT)


def _refuse_damaged(journal: JournalFile, images: BeforeImages) -> None:
    for path, image in journal.records.images.items():
        if not images.has_content(image):
            msg = (
                f"what was at {path!r} cannot be restored, so nothing is: {image.blob!r} in the journal's folder "
                "is not what was saved there, or is missing. Restore it from a copy; or look at the tree, and remove "
                f"the file journal-{journal.journal_id} from that folder to keep the tree as it is."
            )
            raise JournalError(msg, path=ROOT)


def _undo(journal: JournalFile, tree: WholeTree) -> None:
    root, images, records, temporary = tree.root, tree.images, journal.records, temporary_name(journal.journal_id)
    try:
        # The tree first: the images are of paths that it does not include.
        if records.tree is not None:
            tree.restore(records.tree, journal)
        # Once the journal is discarded, nothing knows the temporary name any more.
        for folder in {parent_folder(path) for path in records.images}:
            if file_kind(root.look(folder)) == "folder":
                with root.folder(folder) as descriptor:
                    # New content that was written beside its path, and not renamed yet.
                    images.disk.discard(temporary, at=descriptor)
        TreeRestorer(root=root, images=images, journal=journal, before=records.images, shared=True).run()
        # Before the journal is discarded: a loss of power after that would find nothing to restore from.
        root.sync_folders(records.images)
        if records.tree is not None:
            tree.sync()
    except (OSError, FilesystemError) as error:
        msg = (
            f"the changes of a dead process cannot be rolled back: {error}. Fix that and open the filesystem again; "
            f"what is still to be restored stays in the journal {journal.journal_id}."
        )
        raise JournalError(msg, path=ROOT) from error
    what = "" if records.tree is None else "the whole tree and "
    _LOGGER.info("%s%d paths that a dead process had changed have been restored", what, len(records.images))


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRestorer:
    """Restores images in a tree; the journal gets the mark of what will be at a path before it is made.

    Attributes:
        root: the tree.
        images: where the contents are.
        journal: the journal, with what the transaction put at each path.
        before: for each path its image, in the order in which they were taken.
        shared: whether the journal's files may be linked into the tree, since they are not needed again.
        by_hand: whether anything at a path may be removed.
    """

    root: Root
    images: BeforeImages
    journal: JournalFile
    before: Mapping[str, BeforeImage]
    shared: bool
    by_hand: bool = False

    def run(self) -> None:
        """Restores everything; after an `OSError`, a repetition continues where it stopped."""
        newest_first = tuple(reversed(tuple(self.before.items())))  # one file may have had two spellings
        deepest_first = sorted(newest_first, key=_depth, reverse=True)
        for path, image in deepest_first:
            self._clear(path, image)
        for path, image in sorted(newest_first, key=_depth):
            if image.kind != "nothing":
                self._make(path, image)
        for path, image in deepest_first:
            if image.kind == "folder":
                self._dress(path, image)

    def _clear(self, path: str, image: BeforeImage) -> None:
        status = self.root.look(path)
        # What an earlier attempt has restored is left as it is.
        if status is None or self.images.is_there(image, status):
            return
        with self.root.entry(path) as (folder, name):
            # A folder is not compared with the marks: it is removed only if it is empty, so nothing can be lost with
            # it.
            kind, needed = file_kind(status), image.kind != "nothing"
            is_ours = self.by_hand or file_identity(status) in self.journal.records.marks.get(path, ())
            if kind == "folder":
                self._clear_folder(path, name, at=folder, needed=needed)
            elif not is_ours:
                self._set_aside(path, name, at=folder, kind=kind, needed=needed)
            # A file or link stays until `_make_anew` renames the old one over it, so that readers find one of the two.
            elif image.kind in {"nothing", "folder"}:
                self.images.disk.unlink(name, at=folder)

    def _clear_folder(self, path: str, name: bytes, *, at: int, needed: bool) -> None:
        try:
            self.images.disk.remove_folder(name, at=at)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            self._leave_in_tree(f"the folder {path!r} holds files of another process", name, at=at, needed=needed)

    def _leave_in_tree(self, what: str, name: bytes, *, at: int, needed: bool) -> None:
        if not needed:
            _LOGGER.warning("%s, so it stays", what)
            return
        # If another process takes this name meanwhile, the rename fails, or replaces an empty folder.
        aside = unused_name(name, at=at, disk=self.images.disk)
        self.images.disk.rename(name, aside, at=at, to=at)
        _LOGGER.warning("%s; it is now called %r", what, os.fsdecode(aside))

    def _make(self, path: str, image: BeforeImage) -> None:
        self._make_missing_above(path)
        with self.root.entry(path) as (folder, name):
            status = self.images.disk.look(name, at=folder)
            if status is None or not self.images.is_there(image, status):
                self._make_anew(path, image, name, at=folder)

    def _make_anew(self, path: str, image: BeforeImage, name: bytes, *, at: int) -> None:
        if image.kind == "folder":
            self.journal.mark([(path, image.mark)])
            self.images.disk.make_folder(name, at=at)
            return
        disk, temporary = self.images.disk, temporary_name(self.journal.journal_id)
        # An attempt that failed or crashed may have left one.
        disk.discard(temporary, at=at)
        if image.kind == "symlink":
            disk.make_link(image.target, temporary, at=at)
        else:
            self.images.write_copy(image, temporary, at=at, shared=self.shared)
        # Before the rename: in the other order, a crash between the two would leave a file without a mark, and the next
        # attempt would set it aside as one of another process.
        self.journal.mark([(path, file_identity(disk.look(temporary, at=at)))])
        disk.rename(temporary, name, at=at, to=at)

    def _make_missing_above(self, path: str) -> None:
        for folder in reversed(tuple(folders_above(path))):
            status = self.root.look(folder)
            if status is not None and stat.S_ISDIR(status.st_mode):
                continue
            # Without a mark: the folder has no image, and `read_journal` takes a mark without an image for damage.
            with self.root.entry(folder) as (parent, name):
                if status is not None:
                    self._set_aside(folder, name, at=parent, kind=file_kind(status), needed=True)
                self.images.disk.make_folder(name, at=parent)
            _LOGGER.warning(
                "the folder %r was removed or replaced by another process, and is needed: it was made again", folder
            )

    def _set_aside(self, path: str, name: bytes, *, at: int, kind: str, needed: bool) -> None:
        if kind == "special":
            self._leave_in_tree(f"{path!r} is a device, socket or fifo of another process", name, at=at, needed=needed)
            return
        aside = self.images.set_aside(name, at=at)
        _LOGGER.warning("%r was made or changed by another process; it is now %r in the journal's folder", path, aside)

    def _dress(self, path: str, image: BeforeImage) -> None:
        status = self.root.look(path)
        if status is None or (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (image.mode, *image.owner):
            return
        # `listed`, because a descriptor of O_PATH does not permit `fchmod`.
        with self.root.folder(path, for_listing=True) as folder:
            self.images.disk.dress(folder, owner=image.owner, mode=image.mode)


def _depth(item: tuple[str, BeforeImage]) -> int:
    return item[0].count("/")
