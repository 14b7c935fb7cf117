"""What a filesystem on disk has changed and can restore: by hand, when a call fails, and after a crash.

Two journals record every change, and both refer to the same images (`handrail.filesystem.host.journal`). The
one in memory (`handrail.filesystem.undo_journal`) serves every snapshot that is referenced. The one on disk serves only
the beginning of the transaction, for recovery after a crash; so it holds each path once.

The order of one operation, and what a crash after each step leaves behind:

=====================================================  ============================================================
step                                                   a crash after it
=====================================================  ============================================================
images of all paths are taken                          nothing has been changed
they are recorded in the journal on disk, and synced   the journal restores what is there already
new content is written beside the path, and synced     the same, and what lies beside is removed
what the path will be is marked                        the same
the path is changed                                    the journal restores the image
at the commit: the folders are synced, the journal     the store has the journal's id: it is discarded;
is prepared, and the store records its id              else everything is restored
the journal is discarded                               the change stays
=====================================================  ============================================================

Outside calls an operation is a transaction of its own, which no store decides about.

A call saves the whole tree before it starts other programs (`HostFilesystem.keep_tree`). A *tree* is a snapshot of a
shadow repository, whose git dir lies in the journal's folder. Images that are files of the tree too become copies; the
tree is saved, synced, and recorded in the journal on disk. After that a crash restores the tree, and then the images.

The earliest tree wins. It covers everything that changes after it, by a program or by the filesystem itself, so later
images are needed only to restore later snapshots, which the journal in memory does. Images from before it are restored
after it. The root's own `.git` and what is left out are not part of a tree: their images count, whenever they were
taken. Restoring the tree makes new files, which are marked as made by the call. What another process has written since
the tree was saved cannot be distinguished from what the program has written, and is removed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

from handrail.crash_points import reached
from handrail.errors import FilesystemError, JournalError
from handrail.filesystem.disk import Root, read_file, translate_os_errors
from handrail.filesystem.host.journal import (
    NO_BEFORE_IMAGE,
    BeforeImage,
    BeforeImages,
    FileIdentity,
    JournalFile,
    JournalHeader,
    UndoRecord,
    file_identity,
    file_kind,
    temporary_name,
)
from handrail.filesystem.host.recovery import TreeRestorer, drop_commit_record
from handrail.filesystem.host.undo_history import UndoHistory, look_for_undo
from handrail.filesystem.paths import ROOT, changed_since_call, undo_not_kept
from handrail.filesystem.undo_journal import LOST, SavedTree, Snapshot, UndoJournal
from handrail.redaction import redacted_logger
from handrail.transaction import RecordCommit, Transaction, current, is_rolling_back
from handrail.transaction.changes import MOST_COMPARED_BYTES, CallChange, FileContent, file_change
from handrail.transaction.undoing import UndoImage
from handrail.transaction.unit_of_work import CommitRecordStore
from handrail.waiting import check_blocking

_LOGGER = redacted_logger("handrail.filesystem")


class HostChanges:
    """The changes of one filesystem on disk, which are settled with the call that makes them (`CommitParticipant`).

    The caller holds its lock, except for the methods that settle.

    Attributes:
        lock: guards the tree, within this process, and its state here.
        store: decides whether the calls that changed something are committed; `None` without a store.
        synced: whether changes also survive a power failure, not only the death of the process.
        history: the committed calls that can be undone, and the whole tree.
    """

    __slots__ = (
        *("_call", "_fault", "_journal", "_pid", "_tree_now", "_undo"),
        *("history", "images", "lock", "root", "store", "synced"),
    )

    def __init__(self, history: UndoHistory, store: CommitRecordStore | None, *, synced: bool) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.root: Root = history.tree.root
        self.images: BeforeImages = history.tree.images
        self.store: CommitRecordStore | None = store
        self.synced: bool = synced
        self.history: UndoHistory = history
        self._pid = self.images.disk.process()
        self._undo = UndoJournal[BeforeImage]()
        self._journal: JournalFile | None = None
        self._call: Transaction | None = None
        self._fault: BaseException | None = None
        self._tree_now = ""  # the whole tree as this call has left it, if that is known without reading it

    @property
    def is_open(self) -> bool:
        """Returns whether a transaction has changed something and has not been settled."""
        return self._journal is not None

    @property
    def is_ours(self) -> bool:
        """Returns whether this process opened the root, and is not a fork of it."""
        return self.images.disk.process() == self._pid

    def check(self) -> None:
        """Checks that changes made now could be rolled back; `JournalError` after a rollback that failed."""
        if self._fault is not None:
            msg = (
                "the files could not be restored, or the journal could not be closed, so nothing can be changed any "
                f"more ({self._fault}). Close this filesystem and open it again: that tries once more."
            )
            raise JournalError(msg, path=ROOT) from self._fault

    def check_use(self) -> None:
        """Checks that the root exists (`RootMissingError`), and that this process opened it."""
        self._check_process()
        self.root.check()

    def snapshot(self) -> Snapshot[BeforeImage]:
        """A snapshot of the present state; see `UndoJournal.snapshot`."""
        return self._undo.snapshot()

    @contextmanager
    def operation(self, what: str, path: str) -> Generator[None]:
        """Makes the changes in the block: all of them, or none if the block or the syncing raises."""
        self.images.sweep()
        # From here on nothing is recorded yet, so images are taken even of paths that the call has changed before:
        # without them this operation could not be rolled back alone.
        before = self._undo.snapshot()
        with translate_os_errors(what, path):
            try:
                yield
                # Outside calls the operation is the transaction: it is durable before its journal is removed.
                if self._call is None and self._journal is not None:
                    self._sync(self._journal)
            except BaseException:
                with self._blocking_faults():
                    # In a call the images are still needed for the call's own rollback, so a file that is restored is a
                    # copy.
                    self._restore(before, shared=self._call is None)
                    if self._call is None:
                        self._discard(keep_record=False)
                raise
        if self._call is None:
            # The snapshot holds the images; without it, `_discard` can remove their contents at once.
            del before
            reached("journal-before-discard")
            with self._blocking_faults():
                self._discard(keep_record=False)
            reached("journal-after-discard")

    def about_to_change(self, paths: Iterable[str], *, stay: Collection[str] = ()) -> None:
        """Takes the images of paths without links, durably; files in `stay` stay in the tree."""
        reached("journal-before-image")
        self._tree_now = ""
        journal = self._open_journal()
        images = {path: self._image(path, stays=path in stay) for path in paths}
        # The journal on disk serves only the beginning of the transaction, so a path that it has is not recorded again.
        new = {path: image for path, image in images.items() if journal.records.lacks(path)}
        if new:
            journal.record_images(new, self._header())
        # After the record on disk: if that fails, nothing is noted here, and nothing has been changed.
        for path, image in images.items():
            self._undo.record(path, image)
        reached("journal-after-image")

    def keep_tree(self) -> SavedTree:
        """Saves the whole tree, and record it durably."""
        reached("journal-before-image")
        self._tree_now = ""
        is_first = self._journal is None or self._journal.records.tree is None
        tree = self.history.tree.save(synced=self.synced, is_first=is_first)
        journal = self._open_journal()
        if is_first:
            # Only the first: the journal restores the beginning of the transaction. Later trees serve newer snapshots.
            journal.record_tree_id(tree, self._header())
        self._undo.record_tree(tree)
        reached("journal-after-image")
        return tree

    def expect(self, marks: Iterable[tuple[str, FileIdentity]]) -> None:
        """Records what will be at paths, so that a rollback recognises it."""
        self._open_journal().mark(marks)

    @property
    def temporary_name(self) -> bytes:
        """The temporary name under which new content is written."""
        return temporary_name(self._open_journal().journal_id)

    def describe(self, snapshot: object) -> Iterator[CallChange]:
        """What has changed since a snapshot, for people."""
        images, tree = self._undo.since(snapshot)
        if tree is not None:
            yield CallChange("file", ROOT, "@@ a program has run, which may have changed any file @@")
        for path, image in sorted(images.items()):
            before, now = self._content_before(image), self._content_now(path)
            if before != now:
                yield file_change(path, before, now)

    def _content_before(self, image: BeforeImage) -> FileContent:
        if image.kind == "file":
            size = 0 if image.blob_stat is None else image.blob_stat[0]
            return self._read(image.blob.encode(), self.images.folder, size)
        return {"nothing": None, "folder": "a folder"}.get(image.kind, _link(image.target))

    def _content_now(self, path: str) -> FileContent:
        with suppress(FileNotFoundError, NotADirectoryError), self.root.entry(path) as (folder, name):
            status = self.images.disk.look(name, at=folder)
            kind = file_kind(status)
            if status is None or kind == "nothing":
                return None
            if kind == "file":
                return self._read(name, folder, status.st_size)
            return _link(self.images.disk.target(name, at=folder)) if kind == "symlink" else f"a {kind}"
        return None

    def keep_undo(self, call: str) -> str | None:
        """Keeps what the call that is open has changed, once it is committed; see `KeepsUndo`."""
        journal = self._journal
        if journal is None or journal.records.header is None:
            return None
        if not self.history.is_on:
            return "-HostFilesystem"
        records, after = journal.records, dict[str, UndoImage]()
        for path, image in records.images.items():
            # Below a tree all count: a program may have changed what the call has changed back.
            if records.tree is not None or file_identity(self.root.look(path)) != image.mark:
                after[path] = self.look(path)
        # Synced with all that the program has written, at the commit.
        tree = records.tree
        now = self._tree_now or ("" if tree is None else self.history.tree.save(synced=False, is_first=False).id)
        trees = None if tree is None else (tree.id, now)
        if not after and (trees is None or trees[0] == trees[1]):
            return None
        records.undo = UndoRecord(call, after, trees)
        return journal.journal_id

    def look(self, path: str) -> UndoImage:
        """What is at a path now."""
        return look_for_undo(self.root, self.images.disk, path)

    def describe_undo(self, undo_id: str, path: str) -> CallChange:
        """The change that undo would make at a path; see `KeepsUndo`."""
        records, changes = self.history.records(undo_id), self.history.changes(undo_id) or ()
        before = next((change.before for change in changes if change.path == path), None)
        if records is None or before is None:
            raise undo_not_kept(undo_id)
        image = records.images.get(path)
        content = self._content_of_tree(before) if image is None else self._content_before(image)
        return file_change(path, self._content_now(path), content)

    def _content_of_tree(self, before: UndoImage) -> FileContent:
        if before.kind not in {"file", "symlink"}:
            return None if before.kind == "nothing" else f"a {before.kind}"
        content = self.history.tree.shadow.content(before.content)
        return _link(content) if before.kind == "symlink" and isinstance(content, bytes) else content

    def undo(self, undo_id: str) -> None:
        """Restores what was there before the changes of a call, and nothing else; see `KeepsUndo`."""
        if (records := self.history.records(undo_id)) is None or (record := records.undo) is None:
            raise undo_not_kept(undo_id)
        with self.operation("undo a call", ROOT):
            for path, image in record.after.items():
                if self.look(path) != image:
                    raise changed_since_call(path)
            if record.trees is not None:
                merged = self.history.tree.shadow.revert(*record.trees, self.keep_tree().id)
                self.history.tree.restore(SavedTree(merged), self._open_journal())
                self._tree_now = merged
            if before := records.undo_images:
                self.about_to_change(before)
                self._restorer(before, shared=False, by_hand=True).run()

    def _read(self, name: bytes, folder: int, size: int) -> FileContent:
        content = read_file(name, at=folder, most_bytes=MOST_COMPARED_BYTES) if size <= MOST_COMPARED_BYTES else None
        return f"{size:,} bytes" if content is None else content

    def restore(self, snapshot: object) -> None:
        """Restores a snapshot, as a rollback or by hand."""
        if not is_rolling_back():
            with self.operation("restore a snapshot", ROOT):
                self._restore(snapshot, shared=False, by_hand=True)
            return
        with self._blocking_faults():
            # Once the outermost call has ended, nothing needs the images after this rollback, and files are restored as
            # they were, with their inode. A nested call may be followed by further rollbacks of its parent.
            self._restore(snapshot, shared=self._call is None or not self._call.is_open())
            if self._call is None and self._journal is not None:  # written outside a call that changed nothing
                self._sync(self._journal)
                self._discard(keep_record=False)

    queue = None
    waits = True

    def prepare(self) -> None:
        """Does nothing: there is nothing to look at."""

    def write(self) -> Sequence[RecordCommit]:
        """Makes the call's changes durable; the store gets the journal's id. Idempotent."""
        with self.lock:
            journal = self._open_journal()
            # Nothing was recorded, so that nothing was changed.
            if journal.records.header is None:
                return ()
            self.check()
            self._check_process()
            with translate_os_errors("save the changed files", ROOT):
                # Synced first: once the journal is prepared, the store may decide that the changes stay.
                self._sync(journal)
                journal.prepare()
            reached("journal-prepared")
            # In the unit that commits the call: the store has the id if, and only if, the call is committed.
            return () if self.store is None else (RecordCommit(journal.journal_id),)

    def after_commit(self) -> None:
        """Discards the journal of a committed call; a fault is logged, and blocks further changes."""
        journal_id: str | None = None
        with self.lock:
            try:
                with self._blocking_faults():
                    reached("journal-before-discard")
                    journal_id = self._settle(committed=True)
            except FilesystemError:
                _LOGGER.exception("the journal of a committed call could not be removed")
            finally:
                self._abandon()
        self._drop_record(journal_id)

    def after_rollback(self) -> None:
        """Discards the journal of a call that was rolled back; it stays if the rollback failed."""
        journal_id: str | None = None
        with self.lock:
            try:
                # After a rollback that failed, the next opening restores from the journal.
                if self._fault is None:
                    with self._blocking_faults():
                        self._check_process()
                        self._sync(self._open_journal())
                        journal_id = self._settle(committed=False)
            finally:
                self._abandon()
        self._drop_record(journal_id)

    def in_doubt(self) -> None:
        """Leaves the journal to the next opening, when the store can be read, and refuses changes."""
        with self.lock:
            self._fault = JournalError("the store was lost while a call was being committed", path=ROOT)
            self._abandon()

    def _check_process(self) -> None:
        if not self.is_ours:
            msg = "this filesystem was opened before the process was forked. Open one in the process that uses it."
            raise FilesystemError(msg, path=ROOT)

    def _settle(self, *, committed: bool) -> str | None:
        journal = self._open_journal()
        # Also after a rollback: the commit may have failed after `write`. Deleting an id that the store does not have
        # is not an error.
        is_in_store = self.store is not None and journal.records.prepared
        self._discard(keep_record=is_in_store, committed=committed)
        reached("journal-after-discard")
        return journal.journal_id if is_in_store else None

    def _drop_record(self, journal_id: str | None) -> None:
        # Without `lock`: a unit that commits files holds the lock of its store and waits for `lock`.
        if journal_id is not None and self.store is not None:
            drop_commit_record(journal_id, self.store, self.images)

    def _restore(self, snapshot: object, *, shared: bool, by_hand: bool = False) -> None:
        images, tree = self._undo.since(snapshot)
        if images or tree is not None:
            check_blocking("restoring files")
        if not images and tree is None:
            return
        self._check_process()
        self.root.check()
        journal = self._open_journal()
        if tree is not None:
            if journal.records.tree is None or (by_hand and self._undo.lacks_tree()):
                self.keep_tree()
            self._undo.record_tree(LOST)  # a rollback does not preserve snapshots taken in what it undoes
            self.history.tree.restore(tree, journal)
        # Restoring changes paths too, and may be interrupted: the journal must be able to restore them first.
        lacking = [path for path in images if journal.records.lacks(path) or self._undo.lacks(path)]
        if lacking:
            self.about_to_change(lacking)
        self._restorer(images, shared=shared, by_hand=by_hand).run()
        self._undo.record_restore(snapshot)

    def _restorer(self, before: Mapping[str, BeforeImage], *, shared: bool, by_hand: bool) -> TreeRestorer:
        journal = self._open_journal()
        return TreeRestorer(
            root=self.root, images=self.images, journal=journal, before=before, shared=shared, by_hand=by_hand
        )

    def _image(self, path: str, *, stays: bool) -> BeforeImage:
        try:
            with self.root.entry(path) as (folder, name):
                journal_id = self._open_journal().journal_id
                return self.images.take(name, journal_id, at=folder, synced=self.synced, stays=stays)
        except (FileNotFoundError, NotADirectoryError):
            return NO_BEFORE_IMAGE  # its folder will be made in the same operation

    def _open_journal(self) -> JournalFile:
        if self._journal is None:
            transaction = current()
            call = None if transaction is None else transaction.root
            # First: a call that has ended meanwhile refuses it, and would leave a journal that no other call settles.
            if call is not None:
                call.check_files(self)
                call.enlist(self)
            self._journal = JournalFile(uuid4().hex, self.images.folder, self.images.disk, synced=self.synced)
            self._call = call
        return self._journal

    def _detach_journal(self) -> JournalFile:
        journal = self._open_journal()
        self._journal, self._call, self._tree_now = None, None, ""
        return journal

    def _abandon(self) -> None:
        if self._journal is not None:
            self._detach_journal().close()

    def _discard(self, *, keep_record: bool, committed: bool = False) -> None:
        if self._journal is not None:
            journal = self._detach_journal()
            journal.discard(keep_record=keep_record, committed=committed)
            if committed and journal.records.undo is not None:
                self.history.add(journal)
            # Its contents can be removed at once.
            del journal
        self.images.sweep()

    def _header(self) -> JournalHeader:
        # Outside calls no unit records the id, so the header names no store.
        store = self.store if self._call is not None else None
        return JournalHeader(self.root.identity[1], None if store is None else store.url, self.root.generation)

    def _sync(self, journal: JournalFile) -> None:
        if self.synced and journal.records.tree is not None:
            self.history.tree.sync()
        elif self.synced:
            self.root.sync_folders(journal.records.images)

    @contextmanager
    def _blocking_faults(self) -> Generator[None]:
        try:
            with translate_os_errors(
                "restore the files or close their journal", ROOT, after="Open the filesystem again"
            ):
                yield
        except BaseException as error:
            # The next opening restores from the journal. In a call, `after_commit` or `after_rollback` leaves it.
            self._fault = error
            if self._call is None:
                self._abandon()
            raise


def _link(target: bytes) -> str:
    return f"a link to {os.fsdecode(target)}"
