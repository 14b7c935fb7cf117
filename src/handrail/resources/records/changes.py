"""What changed in the records of a program: before-images for rollback, and the committed content for other readers.

Each change of a container first records what was there, once for each *span* between two snapshots. A dict is recorded
key by key, so that a change costs the same however many keys it has; with the first removal also the order of its keys.
A list is recorded whole. Restoring a snapshot means restoring the oldest entry of each key since then.

Who sees what
    Containers are changed in place, under one lock, so the call that writes sees its changes at once. Until it has
    ended, other readers get the committed content of a changed container, made from the before-images.

Cost: a snapshot costs the same whatever there is, and restoring it costs what has changed since. Spans whose snapshots
are no longer referenced are merged or dropped with the next snapshot.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from contextvars import ContextVar, Token
from itertools import dropwhile
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from handrail.errors import ResourceBusyError, SnapshotError, TransactionClosedError, TurnConflictError
from handrail.transaction import Snapshotable, Transaction, current, is_rolling_back
from handrail.turns import Turn

C = TypeVar("C")

_BY_PROGRAM: ContextVar[bool] = ContextVar("handrail_records_by_program", default=False)
"""Whether a handle of the program is what calls here; see `handrail.resources.records.program_handles`."""


class ProgramWrite:
    """A block in which what is written outside of calls is a write of the program."""

    __slots__ = ("_token",)

    _token: Token[bool]

    def __enter__(self) -> None:
        self._token = _BY_PROGRAM.set(True)

    def __exit__(self, *_exc: object) -> None:
        _BY_PROGRAM.reset(self._token)


class _Absent:
    """The type of `ABSENT`."""

    __slots__ = ()


class _Whole:
    """The type of `ORDER` and `WHOLE`."""

    __slots__ = ()


ABSENT: Final = _Absent()
"""In a before-image: the key was absent."""

ORDER: Final = _Whole()
"""The key under which the order of the keys of a dict is recorded."""

WHOLE: Final = _Whole()
"""The key under which a list is recorded."""


class RecordContainer(Protocol):
    """A dict or list whose changes are recorded. All methods are called with the lock held."""

    def content_before(self, before: Mapping[object, Any], /) -> Any:  # noqa: ANN401 - decoded JSON
        """The content before the changes, as a plain dict or list; its parts are those of the container."""
        ...

    def record_before(self, before: Mapping[object, Any], /) -> None:
        """Record what `restore_before` is about to change."""
        ...

    def restore_before(self, before: Mapping[object, Any], /) -> None:
        """Restore the content before the changes, and record nothing."""
        ...


class ContainerBefore(NamedTuple):
    """A container that has changed, and what was under each key before its first change."""

    container: RecordContainer
    values: dict[object, Any]


Before = dict[int, ContainerBefore]
"""The containers that have changed, by their identity."""


class RecordsSnapshot:
    """A state of `Records` that can be restored for as long as the snapshot is referenced.

    Attributes:
        changes: the changes of the records that it belongs to.
    """

    __slots__ = ("__weakref__", "changes")

    def __init__(self, changes: RecordChanges) -> None:
        """Made by `Records.snapshot`."""
        self.changes: RecordChanges = changes


class RecordSpan:
    """The changes between one snapshot and the next.

    Attributes:
        snapshot: the snapshot that it begins with, weakly.
        before: what each container that has changed was at the snapshot.
    """

    __slots__ = ("before", "snapshot")

    def __init__(self, snapshot: RecordsSnapshot) -> None:
        """Make a span in which nothing has changed."""
        self.snapshot: weakref.ref[RecordsSnapshot] = weakref.ref(snapshot)
        self.before: Before = {}


class RecordsParticipant(Snapshotable[RecordsSnapshot], Protocol):
    """The records whose changes these are, as a participant of calls."""

    @property
    def turn(self) -> Turn:
        """Their turn."""
        ...


class RecordChanges:
    """The changes of one `Records` since the oldest snapshot that is referenced.

    Attributes:
        lock: held while a container is read or changed; all methods are called with it.
        last_call: the call that was given a container last; `None` before the first one.
    """

    __slots__ = ("_committed", "_participant", "_since", "_spans", "_writer", "last_call", "lock")

    def __init__(self, participant: RecordsParticipant) -> None:
        """Make the record of no changes."""
        self.lock: threading.RLock = threading.RLock()
        self.last_call: Transaction | None = None
        self._participant = participant
        self._spans: list[RecordSpan] = []
        self._writer: Transaction | None = None  # the outermost transaction that wrote last
        self._since: RecordSpan | None = None  # begins with the state before that transaction
        self._committed: dict[int, Any] = {}  # containers that it changed, as other readers see them

    def check(self, what: str) -> None:
        """Let the caller change a container, or say why it may not.

        Args:
            what: completes the sentence "it cannot ...": `"set 'status'"`.

        Raises:
            ResourceBusyError: outside of calls, while a call uses the records.
            TransactionClosedError: outside of calls, to what a call was given, and that has ended.
            ModelVisibleError: the call may not write; see `handrail.transaction.check_write`.
        """
        participant = self._participant
        what = f"{what} in {type(participant).__name__}"
        call = current()
        if call is None:
            last = self.last_call
            if not _BY_PROGRAM.get() and last is not None:
                # A thread without the context of its call: it need not be the last one.
                raise (
                    ResourceBusyError(type(participant).__name__)
                    if last.is_open()
                    else TransactionClosedError(last.tool, what)
                )
            # A call that begins now waits for the lock before it reads, so that this write comes before the call.
            if participant.turn.queue:
                raise ResourceBusyError(type(participant).__name__)
            self._release()  # before a call writes, its snapshot does
            return
        root = call.root
        writer = self._writer
        # A call that has been closed is left to `admit`, whose error states that.
        if writer is not root and writer is not None and writer.state != "ended" and call.is_open():
            msg = f"{call.tool} cannot {what} while {writer.tool} writes there; make the calls one after the other"
            raise TurnConflictError(msg)
        call.admit(participant, what)
        if writer is not root:
            self._writer = root
            self._since = self._spans[-1]  # of the snapshot that the call has just taken
            self._committed = {}

    def lacks(self, container: RecordContainer, key: object) -> bool:
        """Whether a snapshot needs what is under a key of a container now."""
        if not self._spans:
            return False
        image = self._spans[-1].before.get(id(container))
        return image is None or key not in image.values

    def record(self, container: RecordContainer, key: object, value: Any) -> None:  # noqa: ANN401 - decoded JSON
        """Record what is under a key of a container, which is about to change, unless it has changed already."""
        if self._spans:
            # Only the first change since the snapshot counts: later ones replace what the call itself has written.
            _image(self._spans[-1].before, container).setdefault(key, value)

    def snapshot(self) -> RecordsSnapshot:
        """A snapshot of the present state."""
        self._release()
        snapshot = RecordsSnapshot(self)
        self._spans.append(RecordSpan(snapshot))
        return snapshot

    def restore(self, snapshot: RecordsSnapshot) -> None:
        """Restore a snapshot; those that were taken later stay valid.

        Raises:
            SnapshotError: the snapshot is of other records.
            ResourceBusyError: as of `check`.
            ModelVisibleError: as of `check`.
        """
        if snapshot.changes is not self:
            raise SnapshotError("this snapshot was taken from something else; restore what `snapshot` returned here")
        # A rollback has no current transaction, and its call still holds the turn: `check` would refuse it.
        if not is_rolling_back():
            self.check("restore a snapshot")
        start = next(place for place, span in enumerate(self._spans) if span.snapshot() is snapshot)
        target = self._spans[start]
        since: Before = {}
        for span in self._spans[start:]:
            _add(span.before, to=since)
        for container, before in since.values():
            if target is not self._spans[-1]:
                container.record_before(before)
            container.restore_before(before)
        if target is self._spans[-1]:
            target.before = {}  # nothing has changed since

    def seen(self, container: C) -> C:
        """The container itself, or its committed content where another call has changed it and has not ended."""
        writer = self._writer
        if writer is None or writer.state == "ended":
            return container
        call = current()
        if call is not None and call.root is writer:
            return container
        committed: C | None = self._committed.get(id(container))
        return self._committed_content(container) if committed is None else committed

    def _committed_content(self, container: Any) -> Any:  # noqa: ANN401 - any of the containers
        before: dict[object, Any] = {}
        # Spans that are older than the call do not count. If its own is gone, the call is about to end as committed.
        for span in dropwhile(lambda span: span is not self._since, self._spans):
            image = span.before.get(id(container))
            if image is not None:
                before = image.values | before
        if not before:
            return container
        # Stored, because what other readers see is the same until the call ends.
        content = self._committed[id(container)] = container.content_before(before)
        return content

    def _release(self) -> None:
        """Drop what no snapshot and no call needs any more."""
        if self._writer is not None and self._writer.state == "ended":
            self._writer = self._since = None
            self._committed = {}
        spans = self._spans
        oldest = None
        while spans:
            # A strong reference, so that no other thread can drop the oldest snapshot before the end of this method.
            oldest = spans[0].snapshot()
            if oldest is not None:
                break
            del spans[0]
        while spans and spans[-1].snapshot() is None:
            newest = spans.pop()
            _add(newest.before, to=spans[-1].before)
        del oldest


def _image(before: Before, container: RecordContainer) -> dict[object, Any]:
    """What was under the keys of a container, to be added to."""
    image = before.get(id(container))
    if image is None:
        image = before[id(container)] = ContainerBefore(container, {})
    return image.values


def _add(later: Before, *, to: Before) -> None:
    """Add the before-images of a later span, where there is no older one."""
    for container, values in later.values():
        image = _image(to, container)
        for key, value in values.items():
            image.setdefault(key, value)
