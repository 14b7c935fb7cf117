"""Recovery at the opening of a filesystem on disk: each journal of a dead process is rolled back or discarded.

======================================================  ===========================================================
what the journal's folder holds                         what is done
======================================================  ===========================================================
the record of a program                                 it and what it has started are killed, before all else
a journal without a whole record                        nothing had been changed: it is discarded
one that no store decides about, or not prepared        its tree and images are restored, then it is discarded
a prepared one, and the store has its id                the call is committed: it is discarded, then its id deleted
a prepared one, and the store does not have its id      its tree and images are restored, then it is discarded
a prepared one, and its store was not given             nothing; `JournalError` names the store to give
one of another root that was at the same path           nothing; `JournalError` explains how to discard it
the same, with a tree, and the root is empty            its tree and images are restored there
a damaged one, or one whose contents are damaged        nothing; `JournalError` explains how to discard it
the file that records that a journal was discarded      the store deletes the id, if it was given
======================================================  ===========================================================

If the process dies meanwhile, the journal is unchanged and the next opening continues.
"""

from __future__ import annotations

from handrail.crash_points import reached
from handrail.errors import FilesystemError, JournalError
from handrail.filesystem.host.changes import WholeTree
from handrail.filesystem.journal.before_images import BeforeImages, file_kind
from handrail.filesystem.journal.folder import JournalFolder, drop_commit_record
from handrail.filesystem.journal.journal_file import JournalFile, JournalHeader, beside_of, read_journal
from handrail.filesystem.journal.recorded_programs import RecordedPrograms
from handrail.filesystem.journal.restore import RestoreTarget, TreeRestorer
from handrail.filesystem.paths import ROOT, parent_of
from handrail.filesystem.root import Root
from handrail.redaction import redacted_logger
from handrail.transaction.unit_of_work import CommitRecordStore

_LOGGER = redacted_logger("handrail.filesystem")


def recover(tree: WholeTree, folder: JournalFolder, store: CommitRecordStore | None) -> None:
    """End programs that are left over, and restore the tree to the state after the last committed transaction.

    Raises:
        JournalError: a journal cannot be read, belongs to something else, or needs its store; or a program cannot be
            ended.
        StoreUnavailableError: the store does not answer.
        OSError: the tree cannot be restored; the next opening tries again.
    """
    # First: a program must not change what is being restored.
    RecordedPrograms(folder, tree.images.disk).end_left_over()
    for journal_id in folder.ids("journal"):
        _settle(journal_id, tree, folder, store)
    for journal_id in folder.ids("settled"):
        if store is not None:
            drop_commit_record(journal_id, store, tree.images)
    folder.clean()


def _settle(journal_id: str, tree: WholeTree, folder: JournalFolder, store: CommitRecordStore | None) -> None:
    """Roll back or discard one journal."""
    written = read_journal(journal_id, folder.read(f"journal-{journal_id}"), folder.read(f"marks-{journal_id}"))
    header = written.header
    # Opened to append to: a rollback marks what it restores, so that a second crash is recovered in the same way.
    journal = JournalFile(journal_id, folder.descriptor, tree.images.disk, synced=True, written=written)
    try:
        was_committed = False
        # Without a header nothing was recorded, and nothing is changed before it is recorded.
        if header is not None:
            # A tree can be restored into an empty folder: a program may have removed the root.
            if written.tree is None or any(tree.root.path.iterdir()):
                _refuse_other_root(journal_id, header, tree.root, folder)
            # Only a prepared journal can have been recorded by a store, so that others are settled without one.
            was_committed = written.prepared and _was_committed(journal_id, header, store)
            if not was_committed:
                # Before anything is restored: a rollback that stops half way would leave a mixture of two states.
                _refuse_damaged(journal, tree.images)
                _undo(journal, tree)
        reached("journal-before-discard")
        journal.discard(settled=was_committed)
        reached("journal-after-discard")
    finally:
        journal.close()


def _was_committed(journal_id: str, header: JournalHeader, store: CommitRecordStore | None) -> bool:
    if header.store is None:
        return False
    if store is None or store.url != header.store:
        given = "none was given" if store is None else f"{store.url!r} was given"
        msg = (
            f"a process died while the call of the journal {journal_id} was being committed, and its outcome is "
            f"recorded in the store {header.store!r}; {given}. Pass that one: HostFilesystem(root, store=...)."
        )
        raise JournalError(msg, path=ROOT)
    return store.is_committed(journal_id)


def _refuse_other_root(journal_id: str, header: JournalHeader, root: Root, folder: JournalFolder) -> None:
    if not header.is_of(root.identity[1], root.generation):
        msg = (
            f"the journal {journal_id} belongs to a folder that was at {str(root.path)!r} before; the one there now is "
            f"another. If that is right, remove {str(folder.path)!r}."
        )
        raise JournalError(msg, path=ROOT)


def _refuse_damaged(journal: JournalFile, images: BeforeImages) -> None:
    for path, image in journal.written.images.items():
        if not images.is_kept(image):
            name = f"journal-{journal.journal_id}"
            msg = (
                f"what was at {path!r} cannot be restored, so nothing is: {image.blob!r} in the journal's folder "
                "is not what was saved there, or is missing. Restore it from a copy; or look at the tree, and remove "
                f"the file {name} from that folder to keep the tree as it is."
            )
            raise JournalError(msg, path=ROOT)


def _undo(journal: JournalFile, tree: WholeTree) -> None:
    root, images, written, beside = tree.root, tree.images, journal.written, beside_of(journal.journal_id)
    wanted = RestoreTarget(written.images, written.marks, beside, shared=True)
    try:
        # The tree first: the images are of paths that it does not include.
        if written.tree is not None:
            tree.put_back(written.tree, journal)
        # Once the journal is discarded, nothing knows the temporary name any more.
        for folder in {parent_of(path) for path in written.images}:
            if file_kind(root.look(folder)) == "folder":
                with root.folder(folder) as held:
                    # New content that was written beside its path, and not renamed yet.
                    images.disk.discard(beside, at=held)
        TreeRestorer(root, images, wanted, lambda path, mark: journal.mark([(path, mark)])).run()
        # Before the journal is discarded: a loss of power after that would find nothing to restore from.
        root.sync_folders(written.images)
        if written.tree is not None:
            tree.sync()
    except (OSError, FilesystemError) as error:
        msg = (
            f"the changes of a dead process cannot be rolled back: {error}. Fix that and open the filesystem again; "
            f"what is still to be restored stays in the journal {journal.journal_id}."
        )
        raise JournalError(msg, path=ROOT) from error
    what = "" if written.tree is None else "the whole tree and "
    _LOGGER.info("%s%d paths that a dead process had changed have been restored", what, len(written.images))
