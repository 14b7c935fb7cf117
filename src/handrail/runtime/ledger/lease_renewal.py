"""Renews the leases of claims, and notifies waiters of changed rows.

`LeaseRenewer` owns the ledger's one timer for both. The timer, `RecurringTimer`, owns one thread, which sleeps while
there is nothing to do.

Tasks are due by a `Clock`; the thread sleeps in real time. Both agree on the system's clock. On a manual clock nothing
is due before the clock is advanced, and `RecurringTimer.tick` performs what is.

A task is scheduled without a lock, in about half a microsecond: an entry is put into a dictionary, and the thread is
woken only if it would otherwise sleep past the task. `_wakes_at` is when it wakes by itself; it is set to "never"
before the thread scans the entries, so a task that arrives during the scan may wake it once more than necessary, and
never once less. A task that is unscheduled is removed from the dictionary; the thread does not find it when it wakes. A
stream of short tasks therefore wakes the thread about once per delay of the first of them, and once more after the
last.

The thread is woken through a `SimpleQueue`, whose `put` may be called from a finalizer.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from handrail.clock import Clock
from handrail.errors import StoreClosedError
from handrail.redaction import redacted_logger
from handrail.runtime.ledger.effects import Claimed
from handrail.runtime.ledger.states import lease_renewed
from handrail.store.processes import LIVE_CLAIMS, NEW_CLAIMS
from handrail.store.protocol import EffectChange, EffectRow, LedgerStore, change_effect, disowned, proved
from handrail.transaction import UnitOfWork

_SHORTEST_BEAT = 0.001  # seconds; a tiny lease must not keep a processor busy

T = TypeVar("T", bound=Hashable)
Returned = TypeVar("Returned")

Due: TypeAlias = float | None
"""In how many seconds a task is due again; `None` when it is finished."""

_RETRY_SECONDS = 1.0

_STOP = -1.0

_LONGEST_SLEEP = 86_400.0  # some systems cannot sleep for as long as a lease may last

_logger = redacted_logger("handrail.runtime")


class _Watch:
    """A waiter for a change of a running row; the future is resolved once, by the first thread that sees the change."""

    __slots__ = ("_once", "future", "row")

    def __init__(self, row: EffectRow) -> None:
        self.row = row
        self.future: Future[None] = Future()
        self._once = threading.Lock()

    def look(self, row: EffectRow | None) -> bool:
        """Resolve the future if the row no longer belongs to its owner; returns whether it was resolved."""
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
        # The lock is never released: `set_result` raises if two threads that see the change both call it. The second
        # condition is false if the waiter has cancelled.
        if self._once.acquire(blocking=False) and self.future.set_running_or_notify_cancel():
            self.future.set_result(None)


class _Unsettled(NamedTuple):
    """What settles a claim in a store that has failed, and until when that is tried."""

    settle: Callable[[], object]
    until: float


class LeaseRenewer:
    """Renews the leases of claims, a third of a lease apart, and watches running rows.

    Args:
        store: where the rows are; its clock measures the leases.
        clock: measures when the next renewal is due, and whether a claim's `beat_until` has passed.
        jitter: a number from 0 to 1, drawn anew each time; it spreads the polls of a store.
    """

    __slots__ = ("_clock", "_jitter", "_pulse", "_store")

    def __init__(self, store: LedgerStore, *, clock: Clock, jitter: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._jitter = jitter
        self._pulse: RecurringTimer[Claimed | _Watch | _Unsettled] = RecurringTimer(
            self._perform, clock=clock, name="handrail-ledger"
        )

    def add(self, claim: Claimed) -> None:
        """Renew a claim until it is dropped, abandoned or lost, or its `beat_until` has passed; meanwhile it lives."""
        left = math.inf if claim.beat_until is None else (claim.beat_until - self._clock.now()).total_seconds()
        # By the monotonic clock: that the other one is set forward ends no claim.
        LIVE_CLAIMS[claim.row.claim] = self._clock.monotonic() + left
        NEW_CLAIMS.pop(claim.row.claim, None)
        self._pulse.schedule(claim, _beat_seconds(claim))

    def drop(self, claim: Claimed) -> None:
        """Stop renewing a claim that has ended; does nothing if it was not renewed."""
        LIVE_CLAIMS.pop(claim.row.claim, None)
        self._pulse.unschedule(claim)

    def abandon(self, claim: Claimed) -> None:
        """Stop renewing a claim that has not ended: its lease decides, for other processes from its next beat on."""
        self.drop(claim)
        if claim.row.owner.process:
            self._pulse.schedule(claim, _beat_seconds(claim))

    def settle_later(self, claim: Claimed, settle: Callable[[], object]) -> None:
        """Stop renewing a claim, and settle it if the store, which has failed, takes that before the lease ends."""
        self.drop(claim)
        self._pulse.schedule(_Unsettled(settle, self._clock.monotonic() + claim.lease.total_seconds()), _RETRY_SECONDS)

    def renew(self, claim: Claimed) -> bool:
        """Extend a claim by its lease, from now on; returns whether its owner still held it."""
        return change_effect(self._store, claim.row, lease_renewed(claim.row, self._store.now() + claim.lease))

    def watch(self, row: EffectRow) -> Future[None]:
        """A future that is done when `row` has changed or its lease has expired."""
        watch = _Watch(row)
        # Before the row is read: a change between the two would be missed in the other order.
        stop = self._store.watch(row.partition, row.key, watch.look)

        def end(_: Future[None]) -> None:
            stop()
            self._pulse.unschedule(watch)

        watch.future.add_done_callback(end)
        try:
            delay = self._look(watch)
        except BaseException:
            # Cancelling runs `end`, which removes the watch from the store.
            watch.future.cancel()
            raise
        if delay is not None:
            self._pulse.schedule(watch, delay)
            # Resolved before it was scheduled: `end` has run, so the task is unscheduled here.
            if watch.future.done():
                self._pulse.unschedule(watch)
        return watch.future

    def tick(self) -> int:
        """Perform the tasks that are due by the clock; returns how many claims and watches were handled."""
        return self._pulse.tick()

    def stop(self) -> None:
        """Stop the timer, and abandon all claims. May be called from a finalizer."""
        for task in self._pulse.tasks():
            if isinstance(task, Claimed):
                self.drop(task)
                self._pulse.schedule(task, 0)
        self._pulse.stop()

    def _perform(self, task: Claimed | _Watch | _Unsettled) -> Due | Callable[[], Due]:
        if isinstance(task, _Watch):
            return self._look(task)
        if isinstance(task, _Unsettled):
            return self._settle(task)
        if LIVE_CLAIMS.get(task.row.claim, -math.inf) <= self._clock.monotonic():
            self._disown(task)
            return None
        renewed = lease_renewed(task.row, self._store.now() + task.lease)
        # Submitted, because the store writes renewals that wait together in one transaction.
        answer = self._store.submit(UnitOfWork((EffectChange(task.row, renewed),)))
        return lambda: _beat_seconds(task) if answer.result() is None else None

    def _disown(self, claim: Claimed) -> None:
        """Remove the name of this process from the row: it would prove to others that the owner lives."""
        LIVE_CLAIMS.pop(claim.row.claim, None)
        claim.row = disowned(claim.row)  # which its owner may still renew
        with suppress(StoreClosedError):  # which has disowned what it had claimed
            row = self._store.get(claim.row.partition, claim.row.key)
            if row is not None and row.owner.process and EffectChange(claim.row, None).fits(row):
                change_effect(self._store, row, disowned(row))

    def _settle(self, task: _Unsettled) -> float | None:
        try:
            task.settle()
        except StoreClosedError:  # which has disowned what it had claimed
            return None
        except Exception:  # noqa: BLE001 - its call has logged that the store fails
            return _RETRY_SECONDS if self._clock.monotonic() < task.until else None
        return None

    def _look(self, watch: _Watch) -> float | None:
        """Check a watched row; returns in how many seconds to check again, `None` if the watch has ended."""
        row = self._store.get(watch.row.partition, watch.row.key)
        if watch.look(row) or row is None or row.lease_until is None:
            return None
        now = self._store.now()
        lease_until = proved(self._store, row, now).lease_until
        if lease_until is None or lease_until <= now:
            watch.resolve()
            return None
        left = (lease_until - now).total_seconds()
        poll_every = self._store.poll_every
        # Between half of the interval and one and a half, so that many processes do not poll a store together.
        return left if poll_every is None else min(left, poll_every.total_seconds() * (0.5 + self._jitter()))


def _beat_seconds(claim: Claimed) -> float:
    # A third of the lease, so that a renewal may fail or be late without the loss of the claim.
    return max(claim.lease.total_seconds() / 3, _SHORTEST_BEAT)


class RecurringTimer(Generic[T]):
    """Performs recurring tasks when they are due, until they are unscheduled or finished.

    Args:
        perform: performs one task and returns in how many seconds it is due again; `None` when it is finished. It may
            start the task and return what ends it, which is called once all tasks that are due have been started. If
            one of the two raises, that is logged, and the task is tried again in a second.
        clock: what "due" is measured by.
        name: of the thread.
    """

    __slots__ = ("_bell", "_clock", "_due", "_name", "_perform", "_unstarted", "_wakes_at")

    def __init__(self, perform: Callable[[T], Due | Callable[[], Due]], *, clock: Clock, name: str) -> None:
        self._perform = perform
        self._clock = clock
        self._name = name
        self._due: dict[T, list[float]] = {}
        self._wakes_at = math.inf
        self._bell: SimpleQueue[float] = SimpleQueue()
        self._unstarted = threading.Lock()  # acquired once, by the caller that starts the thread

    def schedule(self, task: T, delay: float) -> None:
        """Schedule a task in `delay` seconds; a task that is already scheduled is rescheduled."""
        due = self._clock.monotonic() + delay
        self._due[task] = [due]
        if due < self._wakes_at:
            self._wakes_at = due
            self._bell.put(delay)
            if self._unstarted.acquire(blocking=False):
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def unschedule(self, task: T) -> None:
        """Unschedule a task; does nothing if it is not scheduled. It may be running at this moment."""
        self._due.pop(task, None)

    def tick(self) -> int:
        """Perform all tasks that are due by the clock, in this thread; returns how many."""
        now = self._clock.monotonic()
        # A copy, because other threads schedule tasks meanwhile, and a dictionary must not change while it is iterated.
        due = [(task, entry) for task, entry in list(self._due.items()) if entry[0] <= now]
        started = [self._attempt(partial(self._perform, task)) for task, _ in due]
        for (task, entry), again in zip(due, started, strict=True):
            delay = self._attempt(again) if callable(again) else again
            if delay is not None:
                # Into the entry, not into the dictionary: a task that was unscheduled meanwhile must not be scheduled
                # again.
                entry[0] = now + delay
            # A task that was scheduled again meanwhile has a new entry, which stays.
            elif self._due.get(task) is entry:
                self._due.pop(task, None)
        return len(due)

    def tasks(self) -> list[T]:
        """The scheduled tasks."""
        return list(self._due)

    def stop(self) -> None:
        """Perform what is due, and end the thread; from then on only `tick` does. May be called from a finalizer."""
        self._bell.put(_STOP)

    def _attempt(self, act: Callable[[], Returned]) -> Returned | float:
        try:
            return act()
        except Exception:  # one task that fails (a store that is down) must not stop the others
            _logger.warning("%s: a task failed and is tried again in %s s", self._name, _RETRY_SECONDS, exc_info=True)
            return _RETRY_SECONDS

    def _run(self) -> None:
        wake = math.inf  # in real seconds
        while True:
            try:
                ring = self._bell.get(timeout=None if wake == math.inf else _seconds_until(wake))
            except Empty:
                wake = time.monotonic() + self._round()
                continue
            if ring == _STOP:
                self.tick()
                return
            wake = min(wake, time.monotonic() + ring)

    def _round(self) -> float:
        """Perform what is due; returns the seconds until the next task, infinite if there is none."""
        self._wakes_at = math.inf
        self.tick()
        self._wakes_at = min((entry[0] for entry in list(self._due.values())), default=math.inf)
        return self._wakes_at - self._clock.monotonic()


def _seconds_until(wake: float) -> float:
    return min(max(0.0, wake - time.monotonic()), _LONGEST_SLEEP)
