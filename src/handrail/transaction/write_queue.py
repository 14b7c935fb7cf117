"""The order in which units of work that follow each other are written: one at a time, in the order of asking."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager

from handrail.waiting import block_until_done


class WriteQueue:
    """Who writes the next unit; the one at the head of the queue has the turn.

    A turn may be released by another thread than the one that has taken it.

    Attributes:
        check_wait: called before a thread blocks until its turn comes; refuses what may not wait.
        unsure: whether a unit was handed to the store that is not known to be committed: its commit may have begun.
            While one is written it has the turn, so who has the turn and finds this true asks the store first.
    """

    __slots__ = ("_lock", "_waiting", "check_wait", "number", "unsure")

    def __init__(self) -> None:
        """Make an empty queue."""
        self.check_wait: Callable[[], None] = lambda: None
        self.unsure: bool = False
        self._lock = threading.Lock()
        self._waiting: dict[object, Future[None] | None] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a unit has the turn."""
        return bool(self._waiting)

    def enter(self, who: object) -> Future[None] | None:
        """Wait for the turn: `None` if it has come already, or else what is completed when it comes."""
        with self._lock:
            turn: Future[None] | None = Future() if self._waiting else None
            self._waiting[who] = turn
            return turn

    @contextmanager
    def turn(self) -> Generator[None]:
        """Have the turn in a block; blocks this thread until it has come."""
        who = object()
        try:
            turn = self.enter(who)
            if turn is not None:
                block_until_done(turn)
            yield
        finally:
            self.leave(who)

    def leave(self, who: object) -> None:
        """Release the turn, or stop waiting for it; without effect for who is not in the queue."""
        with self._lock:
            has_turn = next(iter(self._waiting), None) is who
            self._waiting.pop(who, None)
            following = next(iter(self._waiting.values()), None) if has_turn else None
        # Without the lock: the one that follows may write at once, in this thread.
        if following is not None:
            following.set_result(None)
