"""Renews the leases of claims, and notifies waiters of changed rows.

`LeaseRenewer` has tasks that are due by a `Clock`, and one thread, which sleeps in real time while there is nothing to
do. Both agree on the system's clock. On a manual clock nothing is due before the clock is advanced, and
`LeaseRenewer.tick` performs what is.

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
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeAlias, TypeVar

from handrail.clock import Clock
from handrail.errors import StoreClosedError
from handrail.redaction import redacted_logger
from handrail.runtime.ledger.effects import Claimed
from handrail.store.locks import LIVE_CLAIMS, NEW_CLAIMS
from handrail.store.protocol import EffectChange, EffectRow, LedgerStore, change_effect, disown, prove_owner
from handrail.transaction import UnitOfWork

T = TypeVar("T")

# In how many seconds a task is due again; `None` when it is finished.
_Due: TypeAlias = float | None

# Performs a task. It may start it and return what ends it, which is called once all that is due has been started.
_Perform: TypeAlias = Callable[[], _Due | Callable[[], _Due]]

_SHORTEST_BEAT = 0.001  # seconds; a tiny lease must not keep a processor busy

_RETRY_SECONDS = 1.0

_LONGEST_SLEEP = 86_400.0  # some systems cannot sleep for as long as a lease may last

_logger = redacted_logger("handrail.runtime")


class LeaseRenewer:
    """Renews the leases of claims, a third of a lease apart, and watches running rows.

    `clock` measures when renewals are due; that of `store` measures the leases.
    """

    __slots__ = ("_bell", "_clock", "_due", "_store", "_unstarted", "_wakes_at")

    def __init__(self, store: LedgerStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._due: dict[Hashable, tuple[list[float], _Perform]] = {}
        self._wakes_at = math.inf
        self._bell: SimpleQueue[float | None] = SimpleQueue()
        self._unstarted = threading.Lock()  # acquired once, by the caller that starts the thread

    def add(self, claim: Claimed) -> None:
        """Renews a claim until it is dropped, abandoned or lost, or its `beat_until` has passed; meanwhile it lives."""
        seconds = math.inf if claim.beat_until is None else (claim.beat_until - self._clock.now()).total_seconds()
        # By the monotonic clock: that the other one is set forward ends no claim.
        LIVE_CLAIMS[claim.row.claim] = self._clock.monotonic() + seconds
        NEW_CLAIMS.pop(claim.row.claim, None)
        self.schedule(claim, _beat_seconds(claim), partial(self._beat, claim))

    def drop(self, claim: Claimed) -> None:
        """Stops renewing a claim that has ended; does nothing if it was not renewed."""
        LIVE_CLAIMS.pop(claim.row.claim, None)
        self.unschedule(claim)

    def abandon(self, claim: Claimed, *, at_once: bool = False) -> None:
        """Stops renewing a claim that has not ended: its lease decides, for other processes from its next beat on."""
        self.drop(claim)
        if claim.row.owner.process:
            self.schedule(claim, 0 if at_once else _beat_seconds(claim), partial(self._beat, claim))

    def settle_later(self, claim: Claimed, settle: Callable[[], object]) -> None:
        """Stops renewing a claim, and settles it if the store, which has failed, takes that before the lease ends."""
        self.drop(claim)
        until = self._clock.monotonic() + claim.lease.total_seconds()

        def attempt() -> None:  # again, if it raises
            if self._clock.monotonic() < until:
                with suppress(StoreClosedError):  # which has disowned what it had claimed
                    settle()

        self.schedule(settle, _RETRY_SECONDS, attempt)

    def renewal(self, claim: Claimed) -> EffectChange:
        """The write that extends a claim by its lease, from now on; refused if its owner has lost it."""
        return EffectChange(claim.row, claim.row._replace(lease_until=self._store.now() + claim.lease))

    def watch(self, row: EffectRow) -> Future[None]:
        """A future that is done when `row` has changed or its lease has expired."""
        future: Future[None] = Future()
        # Before the row is read: a change between the two would be missed in the other order.
        stop = self._store.watch(row.partition, row.key, partial(_look, future, row))

        def end(_: Future[None]) -> None:
            stop()
            self.unschedule(future)

        try:
            delay = self._poll(future, row)
            if delay is not None:
                self.schedule(future, delay, partial(self._poll, future, row))
        except BaseException:
            future.cancel()
            raise
        finally:
            future.add_done_callback(end)  # which runs `end` at once if the future is done or cancelled by now
        return future

    def schedule(self, task: Hashable, delay: float, perform: _Perform) -> None:
        """Schedules a task in `delay` seconds, anew if it is scheduled; one that raises is logged, and tried again."""
        due = self._clock.monotonic() + delay
        self._due[task] = [due], perform
        if due < self._wakes_at:
            self._wakes_at = due
            self._bell.put(delay)
            if self._unstarted.acquire(blocking=False):
                threading.Thread(target=self._run, name="handrail-ledger", daemon=True).start()

    def unschedule(self, task: Hashable) -> None:
        """Unschedules a task; does nothing if it is not scheduled. It may be running at this moment."""
        self._due.pop(task, None)

    def tick(self) -> int:
        """Performs all tasks that are due by the clock, in this thread; returns how many."""
        now = self._clock.monotonic()
        # A copy, because other threads schedule tasks meanwhile, and a dictionary must not change while it is iterated.
        due = [(task, entry) for task, entry in list(self._due.items()) if entry[0][0] <= now]
        for (task, entry), again in [(item, self._attempt(item[1][1])) for item in due]:
            delay = self._attempt(again) if callable(again) else again
            if delay is not None:
                # Into the entry, not into the dictionary: a task that was unscheduled meanwhile must not be scheduled
                # again.
                entry[0][0] = now + delay
            # A task that was scheduled again meanwhile has a new entry, which stays.
            elif self._due.get(task) is entry:
                self.unschedule(task)
        return len(due)

    def stop(self) -> None:
        """Abandons all claims, perform what is due, and ends the thread. May be called from a finalizer."""
        for task in list(self._due):
            if isinstance(task, Claimed):
                self.abandon(task, at_once=True)
        self._bell.put(None)

    def _beat(self, claim: Claimed) -> Callable[[], _Due] | None:
        if LIVE_CLAIMS.get(claim.row.claim, -math.inf) <= self._clock.monotonic():
            return partial(self._disown, claim)
        self._store.process()  # whose lock may have been lost while the handler runs
        # Submitted, because the store writes renewals that wait together in one transaction.
        answer = self._store.submit(UnitOfWork((self.renewal(claim),)))
        return lambda: _beat_seconds(claim) if answer.result() is None else None

    def _disown(self, claim: Claimed) -> None:
        # The name of this process would prove to others that the owner lives.
        LIVE_CLAIMS.pop(claim.row.claim, None)
        claim.row = disown(claim.row)  # which its owner may still renew
        with suppress(StoreClosedError):  # which has disowned what it had claimed
            row = self._store.get(claim.row.partition, claim.row.key)
            if row is not None and row.owner.process and EffectChange(claim.row, None).fits(row):
                change_effect(self._store, row, disown(row))

    def _poll(self, future: Future[None], claimed_row: EffectRow) -> _Due:
        # Returns in how many seconds to look again, `None` if the watch has ended.
        row, now = self._store.get(claimed_row.partition, claimed_row.key), self._store.now()
        until = None if row is None else prove_owner(self._store, row, now).lease_until
        _look(future, claimed_row, row if until is not None and until > now else None)
        if future.done() or until is None:
            return None
        seconds = (until - now).total_seconds()
        poll_every = self._store.poll_every
        return seconds if poll_every is None else min(seconds, poll_every.total_seconds())

    def _attempt(self, act: Callable[[], T]) -> T | float:
        try:
            return act()
        except Exception:  # one task that fails (a store that is down) must not stop the others
            _logger.warning("handrail-ledger: a task failed and is tried again in %s s", _RETRY_SECONDS, exc_info=True)
            return _RETRY_SECONDS

    def _run(self) -> None:
        wake = math.inf  # in real seconds
        while True:
            try:
                ring = self._bell.get(timeout=min(max(0.0, wake - time.monotonic()), _LONGEST_SLEEP))
            except Empty:
                self._wakes_at = math.inf
                self.tick()
                self._wakes_at = min((due for (due,), _ in list(self._due.values())), default=math.inf)
                wake = time.monotonic() + self._wakes_at - self._clock.monotonic()
                continue
            if ring is None:
                self.tick()
                return
            wake = min(wake, time.monotonic() + ring)


def _look(future: Future[None], claimed_row: EffectRow, row: EffectRow | None) -> None:
    if not EffectChange(claimed_row, None).fits(row):
        with suppress(InvalidStateError):  # another thread has seen the change, or the waiter has cancelled
            future.set_result(None)


def _beat_seconds(claim: Claimed) -> float:
    # A third of the lease, so that a renewal may fail or be late without the loss of the claim.
    return max(claim.lease.total_seconds() / 3, _SHORTEST_BEAT)
