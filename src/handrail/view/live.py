"""Sessions while they run. What was read of one is kept, so that one reading serves all who look at it.

The messages, breaks and calls of a session have an order that does not depend on when they are read. A browser is at a
place in it: the number of those that it has.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from handrail.errors import HandrailError, SessionNotFoundError
from handrail.redaction import redacted
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.transcript.messages import CallOutcome
from handrail.view.render import count_outcomes, render_part, render_status
from handrail.view.run_page import CallView, PagePart, RunReader, calls_in

_STEP: Final = 500  # entries that are read before what they say is sent
_SHORTEST_PAUSE: Final = 0.5  # seconds between two looks at a store
_MOST_RUNS: Final = 16


class RunUpdate(NamedTuple):
    """What has come to a session: parts, the place after them, and what may still change."""

    place: int
    parts: tuple[Markup, ...]
    open_parts: Markup
    status: Markup


@dataclass(slots=True)
class _Part:
    place: int  # after it
    part: PagePart
    html: Markup

    def after(self, place: int) -> Markup:
        """What of it a browser does not have that is at a place before its end."""
        if isinstance(self.part, Sequence) and (missing := self.place - place) < len(self.part):
            return render_part(self.part[-missing:])
        return self.html


class LiveRun:
    """A session as far as it was read; used by many threads."""

    def __init__(self, store: Store, row: SessionRow) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._open_parts = Markup()
        self._open_calls: dict[str, CallView] = {}
        self._open_outcomes: Counter[CallOutcome] = Counter()
        self._looked_at = 0.0
        self.created_at: datetime = row.created_at  # another session may get its id later
        self._start(row)

    def _start(self, row: SessionRow) -> None:
        self._reader = RunReader(self._store, row)
        self._parts: list[_Part] = []
        self._calls: dict[str, CallView] = {}
        self._outcomes: Counter[CallOutcome] = Counter()
        self.place: int = 0  # after the parts that were read

    @property
    def row(self) -> SessionRow:
        """The session, when it was read last."""
        return self._reader.row

    def stream(self, tails: list[RunUpdate]) -> Iterator[Markup]:
        """What there is now, each part as soon as it was read; `tails` gets what stands below them, at the end.

        What cannot be read is said there: the first parts have been sent by then.
        """
        update = RunUpdate(0, (), Markup(), Markup())
        while not tails:
            try:
                update = self.read_on(update.place)
                yield from update.parts
            except HandrailError as error:
                update = update._replace(parts=(), status=escape(redacted(str(error))))
            tails += () if update.parts else (update,)

    def read_on(self, place: int) -> RunUpdate:
        """The parts after a place, as soon as there are some; without any, it is the end."""
        with self._lock:
            while place >= self.place and self._step():
                pass
            parts = self._parts_after(place)
            return RunUpdate(self.place, parts, Markup(), Markup()) if parts else self._update(())

    def update(self, after: int) -> RunUpdate:
        """What has come after a place; the store is looked at once in a while.

        Raises:
            SessionNotFoundError: the session was deleted.
            StoreError: it cannot be read.
            UnknownTypeError: it has entries of a newer version.
        """
        with self._lock:
            if time.monotonic() - self._looked_at >= _SHORTEST_PAUSE:
                while self._step():
                    pass
            return self._update(self._parts_after(after))

    def _parts_after(self, place: int) -> tuple[Markup, ...]:
        first = bisect_right(self._parts, place, key=attrgetter("place"))
        return tuple(part.after(place) for part in self._parts[first:])

    def find_call(self, view_id: str) -> CallView | None:
        """A call by its name on the page, as it is now."""
        self.update(self.place)
        with self._lock:
            return self._open_calls.get(view_id) or self._calls.get(view_id)

    def _step(self) -> bool:
        # Reads on; false at the end.
        self._take(self._reader.head + _STEP)
        if self._reader.head < self._reader.row.head:
            return True
        self._looked_at = time.monotonic()
        open_parts = self._reader.open_parts()
        self._open_calls = {view.id: view for view in calls_in(open_parts)}
        self._open_outcomes = count_outcomes(open_parts)
        self._open_parts = Markup().join(map(render_part, open_parts))
        return False

    def _take(self, until: int) -> None:
        try:
            parts = self._reader.read(until)
        except HandrailError:
            self._start(self.row)  # what the reader has passed is lost to it
            raise
        self._calls.update((view.id, view) for view in calls_in(parts))
        self._outcomes += count_outcomes(parts)
        for part in parts:
            self.place += len(part) if isinstance(part, Sequence) else 1
            self._parts.append(_Part(self.place, part, render_part(part)))

    def _update(self, parts: tuple[Markup, ...]) -> RunUpdate:
        is_held = self.row.session_id in self._store.held_sessions()
        status = render_status(self._outcomes + self._open_outcomes, is_held=is_held)
        return RunUpdate(self.place, parts, self._open_parts, status)


class LiveRuns:
    """The sessions that are looked at; of those, the last ones are kept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, LiveRun] = OrderedDict()

    def open(self, session_id: str) -> LiveRun:
        """A session.

        Raises:
            SessionNotFoundError: there is no such session.
            StoreError: the store cannot be read.
        """
        row = self._store.find(session_id)
        if row is None:
            raise SessionNotFoundError(f"{self._store.url} has no session {session_id!r}", session_id=session_id)
        with self._lock:
            run = self._runs.pop(session_id, None)
            if run is None or run.created_at != row.created_at:
                run = LiveRun(self._store, row)
            self._runs[session_id] = run
            while len(self._runs) > _MOST_RUNS:
                self._runs.popitem(last=False)
            return run
