"""What participants keep past a commit, so that a call can be undone later.

Rolling back comes before the commit and is done by the call's own transaction. To undo comes after it, and is done by
another call. For that a participant that is `KeepsUndo` keeps what each call has changed:

1. Before the commit of the outermost call of a stored session, `keep_undo` says under which id it keeps the state that
   the call began with. The id is recorded with the call. If the call is rolled back after all, nothing is kept.
2. Later, perhaps in another process, `undo_changes` says what the call has changed, and `present_images` what is there
   now. A path whose present image differs from the one that the call left has been changed since: undoing would lose
   that change.
3. Inside the call that undoes, `undo` restores. Its changes are changes of that call: they are rolled back if it fails,
   and kept for undo when it is committed.

What is kept is bounded by `MOST_UNDONE_CALLS` and `UNDO_LASTS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, cast, runtime_checkable

from handrail.redaction import redacted_logger
from handrail.transaction.changes import CallChange, has_files
from handrail.transaction.commit import InThread, Snapshotable
from handrail.transaction.transaction import Enlisted, Transaction

_log = redacted_logger("handrail.transaction")

NOT_KEPT: Final = "-"
"""The beginning of an id in the record of a call that is the name of a participant which keeps nothing."""

MOST_UNDONE_CALLS: Final = 1_000
"""Of how many calls a participant keeps what undo needs: of the newest ones."""

UNDO_LASTS: Final = timedelta(days=7)
"""How long files on disk are kept for undo."""


class UndoImage(NamedTuple):
    """A path, or another part, as it was or is. Equal images mean equal content.

    Attributes:
        kind: `"nothing"`, `"file"`, `"folder"`, `"symlink"`, or `"special"` for a socket, fifo or device.
        mode: the permissions of a file or folder; 0 for what has none.
        content: the digest of the content of a file, or of the target of a link; else empty.
    """

    kind: str
    mode: int = 0
    content: str = ""


NO_UNDO_IMAGE: Final = UndoImage("nothing")
"""There is nothing."""


class UndoChange(NamedTuple):
    """A change of a call that is kept for undo.

    Attributes:
        path: the path that was changed.
        before: what was there before the call, which undo restores.
        after: what the call left there.
    """

    path: str
    before: UndoImage
    after: UndoImage


@runtime_checkable
class KeepsUndo(Protocol):
    """A participant, `Snapshotable` too, that keeps what each call has changed. All methods may wait for a disk."""

    def keep_undo(self, snapshot: Any, call: str, /) -> str | None:  # noqa: ANN401 - its own
        """Keeps the changes since the snapshot with which an outermost call has joined, once the call is committed.

        Called after the last change and before the commit. `call` names the session and the call, for people.

        Returns:
            The id under which they are kept; `None` if nothing has changed; `-` and the name of the participant if
            something has changed that is not kept.
        """
        ...

    def undo_changes(self, undo_id: str, /) -> Sequence[UndoChange] | None:
        """The changes that are kept under an id, sorted by path; `None` if they are not, or no longer, kept here."""
        ...

    def present_images(self, paths: Iterable[str], /) -> Mapping[str, UndoImage]:
        """What is at each of some paths now."""
        ...

    def describe_undo(self, undo_id: str, path: str, /) -> CallChange:
        """The change that undo would make at a path of `undo_changes`, from its present content, for people."""
        ...

    def undo(self, undo_id: str, /) -> None:
        """Restores what was there before the changes of an id, and leaves everything else as it is.

        It is a change of the call that calls it, and made in full or not at all.

        Raises:
            PathConflictError: something has changed since the call. Nothing has been changed.
            SnapshotError: it is not kept, or no longer. Nothing has been changed.
            ModelVisibleError: the call may not write; see `check_write`.
        """
        ...


async def keep_undo(
    transaction: Transaction, session: Snapshotable[Any], call: object, in_thread: InThread
) -> tuple[str, ...] | None:
    """Has the participants of an outermost call but its session keep what undo needs, before the commit.

    Returns the ids for its record; `None` if nothing but the session has changed. A participant that fails is logged,
    and keeps nothing.
    """
    # The participants of most calls are the session, and the claim of an effect.
    wrapped = [part.wraps for part in transaction.enlisted if isinstance(part, Enlisted)]
    if not wrapped and transaction.snapshots.keys() <= {id(session)}:
        return None
    collect = partial(_keep_each, transaction, session, f"{session!r} {call}")
    ids = collect() if not has_files(transaction) else cast("list[str]", await in_thread(collect))
    return (*ids, *map(_unkept, wrapped)) or None


def _keep_each(transaction: Transaction, session: object, name: str) -> list[str]:
    ids: list[str] = []
    for participant, snapshot in tuple(transaction.snapshots.values()):
        if participant is session:
            continue
        try:
            keep = getattr(participant, "keep_undo", None)
            undo_id: str | None = _unkept(participant) if keep is None else keep(snapshot, name)
        except Exception:  # noqa: BLE001 - logged; the call is not at fault
            _log.exception("%s keeps nothing for undo of %s", type(participant).__name__, transaction.tool)
            undo_id = _unkept(participant)
        ids += [] if undo_id is None else [undo_id]
    return ids


def _unkept(participant: object) -> str:
    return f"{NOT_KEPT}{type(participant).__name__}"
