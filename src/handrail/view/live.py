"""Sessions while they run. What was read of one is kept, so that one reading serves all who look at it."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from markupsafe import Markup

from handrail.errors import SessionNotFoundError
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.transcript.messages import CallOutcome
from handrail.view.render import count_outcomes, render_part, render_status
from handrail.view.run_page import CallView, RunReader, calls_in

_STEP: Final = 500  # entries that are read before what they say is sent
_SHORTEST_PAUSE: Final = 0.5  # seconds between two looks at a store
_MOST_RUNS: Final = 16


class RunUpdate(NamedTuple):
    """What has come to a session: parts, what may still change, and the number of the newest entry."""

    head: int
    parts: tuple[Markup, ...]
    open_parts: Markup
    status: Markup


@dataclass(slots=True)
class _Part:
    head: int
    html: Markup


class LiveRun:
    """A session as far as it was read; used by many threads."""

    def __init__(self, store: Store, row: SessionRow) -> None:
        self._store = store
        self._reader = RunReader(store, row)
        self._lock = threading.Lock()
        self._parts: list[_Part] = []
        self._open_parts = Markup()
        self._calls: dict[str, CallView] = {}
        self._open_calls: dict[str, CallView] = {}
        self._outcomes: Counter[CallOutcome] = Counter()
        self._open_outcomes: Counter[CallOutcome] = Counter()
        self._looked_at = 0.0
        self.created_at: datetime = row.created_at  # another session may get its id later

    @property
    def row(self) -> SessionRow:
        """The session, when it was read last."""
        return self._reader.row

    def stream(self) -> RunStream:
        """What there is now, part by part."""
        return RunStream(self)

    def read_on(self, done: int) -> tuple[Sequence[Markup], RunUpdate | None]:
        """The parts after so many, as soon as there are some; at the end, what stands below them."""
        with self._lock:
            while done >= len(self._parts) and self._step():
                pass
            parts = [part.html for part in self._parts[done:]]
            return parts, None if parts else self._update(())

    def update(self, after: int) -> RunUpdate:
        """What has come after an entry; the store is looked at once in a while."""
        with self._lock:
            if not self._parts and after:  # in the steps in which the page was read, whose last part is that entry
                self._take(after)
            if time.monotonic() - self._looked_at >= _SHORTEST_PAUSE:
                while self._step():
                    pass
            return self._update(tuple(part.html for part in self._parts if part.head > after))

    def find_call(self, view_id: str) -> CallView | None:
        """A call by its name on the page, as it is now."""
        self.update(self._reader.head)
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
        parts = self._reader.read(until)
        self._calls.update((view.id, view) for view in calls_in(parts))
        self._outcomes += count_outcomes(parts)
        self._parts += [_Part(self._reader.head, render_part(part)) for part in parts]

    def _update(self, parts: tuple[Markup, ...]) -> RunUpdate:
        is_held = self.row.session_id in self._store.held_sessions()
        status = render_status(self._outcomes + self._open_outcomes, is_held=is_held)
        return RunUpdate(self._reader.head, parts, self._open_parts, status)


class RunStream:
    """The parts of a session, each as soon as it was read; `tail` is what stands below them, once all were taken."""

    tail: RunUpdate

    def __init__(self, run: LiveRun) -> None:
        self._run = run

    def __iter__(self) -> Iterator[Markup]:
        done, tail = 0, None
        while tail is None:
            parts, tail = self._run.read_on(done)
            yield from parts
            done += len(parts)
        self.tail = tail


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
