"""What happens to effects while time passes: claims are kept alive, and those who wait are told of a change.

It owns the ledger's one timer (`handrail.runtime.ledger.pulse.Pulse`), on which both rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from handrail.clock import Clock
from handrail.runtime.ledger.effects import Claimed
from handrail.runtime.ledger.pulse import Pulse
from handrail.runtime.ledger.states import kept_alive, lapsed
from handrail.store.protocol import EffectRow, LedgerStore

_SHORTEST_BEAT = 0.001  # seconds; an absurd lease must not keep a processor busy


class _Watch:
    """One who waits for a running row to change; the future is resolved once, whoever sees the change first."""

    __slots__ = ("_once", "future", "row")

    def __init__(self, row: EffectRow) -> None:
        self.row = row
        self.future: Future[None] = Future()
        self._once = threading.Lock()

    def look(self, row: EffectRow | None) -> bool:
        """Resolve the future if the row has left the hands of the owner it was in; returns whether it has."""
        seen = self.row
        if (
            row is not None
            and row.status == seen.status
            and row.fence == seen.fence
            and row.effect_id == seen.effect_id
        ):
            return False
        self.resolve()
        return True

    def resolve(self) -> None:
        if self._once.acquire(blocking=False) and self.future.set_running_or_notify_cancel():
            self.future.set_result(None)


class EffectKeeper:
    """Gives the signs of life of the claims it holds, a third of a lease apart, and watches running rows.

    Args:
        store: where the rows are; its clock measures the leases.
        clock: measures when the next sign is due, and whether a claim's `beat_until` has passed.
        jitter: a number from 0 to 1, drawn anew each time; it spreads those who poll a store.
    """

    __slots__ = ("_clock", "_jitter", "_pulse", "_store")

    def __init__(self, store: LedgerStore, *, clock: Clock, jitter: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._jitter = jitter
        self._pulse: Pulse[Claimed | _Watch] = Pulse(self._perform, clock=clock, name="handrail-ledger")

    def hold(self, claim: Claimed) -> None:
        """Keep a claim alive until it is dropped or lost, or its `beat_until` has passed."""
        self._pulse.schedule(claim, _beat_seconds(claim))

    def drop(self, claim: Claimed) -> None:
        """Keep a claim alive no longer; nothing happens if it was not held."""
        self._pulse.unschedule(claim)

    def beat(self, claim: Claimed) -> bool:
        """Extend a claim by its lease, from now on; returns whether it was still its owner's."""
        return self._store.replace(claim.row, kept_alive(claim.row, self._store.now() + claim.lease))

    def watch(self, row: EffectRow) -> Future[None]:
        """A future that is done when `row` is no longer running as it is, or its lease has passed."""
        watch = _Watch(row)
        stop = self._store.watch(row.partition, row.key, watch.look)

        def end(_: Future[None]) -> None:
            stop()
            self._pulse.unschedule(watch)

        watch.future.add_done_callback(end)
        try:
            delay = self._look(watch)
        except BaseException:
            watch.future.cancel()
            raise
        if delay is not None:
            self._pulse.schedule(watch, delay)
            if watch.future.done():
                self._pulse.unschedule(watch)
        return watch.future

    def tick(self) -> int:
        """Do what is due by the clock; returns how many claims and watches were looked after."""
        return self._pulse.tick()

    def stop(self) -> None:
        """Look after nothing any more. May be called from a finalizer."""
        self._pulse.stop()

    def _perform(self, task: Claimed | _Watch) -> float | None:
        if isinstance(task, _Watch):
            return self._look(task)
        if task.beat_until is not None and task.beat_until <= self._clock.now():
            return None
        return _beat_seconds(task) if self.beat(task) else None

    def _look(self, watch: _Watch) -> float | None:
        """Look at a watched row; returns in how many seconds to look again, `None` if the watch has ended."""
        row = self._store.get(watch.row.partition, watch.row.key)
        if watch.look(row) or row is None or row.lease_until is None:
            return None
        now = self._store.now()
        if lapsed(row, now) or self._store.is_dead(row.owner.process):
            watch.resolve()
            return None
        left = (row.lease_until - now).total_seconds()
        poll_every = self._store.poll_every
        return left if poll_every is None else min(left, poll_every.total_seconds() * (0.5 + self._jitter()))


def _beat_seconds(claim: Claimed) -> float:
    return max(claim.lease.total_seconds() / 3, _SHORTEST_BEAT)
