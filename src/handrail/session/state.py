"""STATE slices: what their writer sees, what other readers see, and how a call is rolled back. LOG slices only grow.

The slices are a mapping from type to `Version` that is replaced, never changed. A snapshot is that mapping, so it costs
nothing; going back is putting the mapping back.

What a reader sees
    Readers take no lock: all they need is in one tuple, which is replaced atomically. It holds the outermost
    transaction that wrote last, the slices as it has left them so far, and the slices as they were before it. The
    latter are what readers outside of it see, until it has been committed. A reader that finds that it has been
    looks again whether the tuple is still the same, because the writer may have replaced it before it was committed.

When an end is cut off
    Undoing a call cuts off what it appended to lists that are still there, so that the next append can grow them in
    place. Nothing outside of the call can hold a version that looks at those items, but a handler inside can, which has
    taken a snapshot, made a fork, or gone back to a snapshot of an earlier call. Then nothing is cut off until the
    outermost transaction has ended, and the next append copies the list instead.

A LOG slice grows with each writer, whatever the outcome of the call. Only `Session.reset` empties it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from handrail.errors import SessionUseError, TurnConflictError
from handrail.session.slices import SessionSnapshot, SliceChange, SliceOwner, Version, Versions
from handrail.transaction import Snapshotable, Transaction, current

SliceChanges: TypeAlias = Iterable[tuple[type[Any], SliceChange]]
"""Changes of slices, each with its type."""


class StateSlices:
    """The STATE slices of one session. All methods but `seen` are called with the session's lock held.

    Attributes:
        owner: stands for the session.
        now: who wrote last, the slices as they are for the writer, and as they were before it.
        taken: the events that the writer has taken in so far, in a stored session.
    """

    __slots__ = ("_end_is_held", "now", "owner", "taken")

    def __init__(self, owner: SliceOwner, slices: Versions) -> None:
        """Make the state of a session without values."""
        self.owner: SliceOwner = owner
        self.now: tuple[Transaction | None, Versions, Versions] = (None, slices, slices)
        self.taken: list[object] = []
        self._end_is_held = False

    def seen(self) -> Versions:
        """The slices as this context sees them: its call's own changes, or what has been committed."""
        while True:
            now = self.now
            writer, working, before = now
            if writer is not None and not writer.committed:
                call = current()
                return working if call is not None and call.root is writer else before
            if self.now is now:  # else it was committed with more in it than was read
                return working

    def is_used(self, kind: type[Any]) -> bool:
        """Whether a slice holds something, for its writer or for other readers."""
        writer, working, before = self.now
        views = (working,) if writer is None or writer.committed else (working, before)
        return any(kind in slices and slices[kind].length for slices in views)

    def held(self) -> Versions:
        """The slices as this context sees them, for a caller that may hold them for ever."""
        slices = self.seen()
        # The slices from before the writer are never cut off, so a holder of these needs no protection.
        if slices is not self.now[2]:
            self._end_is_held = True
        return slices

    def open(self, participant: Snapshotable[Any], call: Transaction, what: str) -> bool:
        """Make sure that a call may write to the participant whose state this is, and keep apart what it writes.

        Args:
            participant: the session.
            call: the call that is about to write.
            what: the write, for messages.

        Returns whether this is the first write of the outermost transaction.

        Raises:
            ModelVisibleError: it may not; see `handrail.transaction.check_write`.
        """
        root = call if call.parent is None else call.root
        writer = self.now[0]
        # A call that has been closed is left to `check_may_write`, whose error states that.
        if writer is not root and writer is not None and writer.state != "ended" and call.is_open():
            msg = f"{call.tool} cannot {what} while {writer.tool} writes there; make the calls one after the other"
            raise TurnConflictError(msg)
        call.check_may_write(participant, what, snapshot=self._snapshot)
        writer, working, before = self.now
        if root is not writer:
            committed = working if writer is None or writer.committed else before
            self.now = (root, committed, committed)
            self._end_is_held = False
            self.taken = []
            return True
        return False

    def _snapshot(self) -> SessionSnapshot:
        """What a call that joins is rolled back to; unlike that of `Session.snapshot`, it is dropped with the call."""
        call = current()
        taken = len(self.taken) if call is not None and call.root is self.now[0] else 0
        return SessionSnapshot(self.owner, self.seen(), taken)

    def append(self, kind: type[Any], item: object) -> None:
        """Let a slice get an item more, for the writer that `open` let in."""
        writer, working, before = self.now
        version = working.get(kind)
        # A copy, because snapshots and readers without the lock hold the mapping that is replaced.
        becomes = dict(working)
        becomes[kind] = Version(self.owner, [item], 1) if version is None else version.append(self.owner, item)
        self.now = (writer, becomes, before)

    def apply(self, changes: SliceChanges) -> None:
        """Change slices, all atomically, for the writer that `open` admitted.

        Raises:
            SessionUseError: a predicate that removes items has written to the session.
        """
        now = self.now
        writer, working, before = now
        becomes = dict(working)
        for kind, change in changes:
            version = change.apply(becomes.get(kind), self.owner)
            if version is not None:
                becomes[kind] = version
        if self.now is not now:
            raise SessionUseError("the predicate of clear wrote to the session; it may only look at the item")
        self.now = (writer, becomes, before)

    def restore(self, slices: Versions) -> None:
        """Restore what a snapshot holds, for the writer that `open` admitted."""
        writer, _, before = self.now
        # The caller holds the snapshot, whose versions may count items at the end of lists that an undo would cut off.
        self._end_is_held = True
        self.now = (writer, slices, before)

    def undo(self, slices: Versions, taken: int) -> None:
        """Become again what a transaction held when it joined; costs what has changed since."""
        writer, working, before = self.now
        del self.taken[taken:]
        # Otherwise a snapshot or a fork may look at the items at the end of the list.
        if not self._end_is_held:
            for kind, version in slices.items():
                later = working.get(kind)
                if later is not version and later is not None:
                    version.cut_off(later)
        self.now = (writer, slices, before)


class LogSlices:
    """The LOG slices of one session; `append` is called with the session's lock held.

    Attributes:
        owner: stands for the session.
        slices: the slices by their type.
    """

    __slots__ = ("owner", "slices")

    def __init__(self, owner: SliceOwner, slices: Versions) -> None:
        """Begin with what another session has logged, in versions of its own, because those of a LOG grow."""
        self.owner: SliceOwner = owner
        self.slices: dict[type[Any], Version[Any]] = {
            kind: Version(each.owner, each.items, each.length) for kind, each in slices.items()
        }

    def cut_off_start(self, lengths: Iterable[tuple[type[Any], int]]) -> None:
        """Remove so many of the oldest items of some slices; with the session's lock held."""
        for kind, length in lengths:
            version = self.slices[kind]
            left = version.items[length : version.length]
            # A new version: readers and forks may look at the one that there was.
            self.slices[kind] = Version(self.owner, list(left), len(left))

    def append(self, kind: type[Any], item: object) -> None:
        """Add an item; the list is never copied, but for the first item that a fork adds."""
        version = self.slices.get(kind)
        if version is None:
            self.slices[kind] = Version(self.owner, [item], 1)
        elif not version.grow(self.owner, item):
            self.slices[kind] = version.append(self.owner, item)
