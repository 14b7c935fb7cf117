"""Units of work that follow each other are written one at a time, in the order of asking."""

from __future__ import annotations

import threading

from handrail.transaction.unit_of_work import WriteQueue


def test_turns_come_in_the_order_of_asking() -> None:
    """Who stops waiting has no turn, and keeps nobody from theirs."""
    queue = WriteQueue()
    assert queue.enter("first") is None
    second, third = queue.enter("second"), queue.enter("third")
    assert second is not None
    assert third is not None
    queue.leave("second")
    queue.leave("stranger")
    assert not third.done()
    queue.leave("first")
    assert (third.done(), second.done()) == (True, False)


def test_a_thread_waits_for_its_turn() -> None:
    """The next one gets it when the block ends."""
    queue, order, asked = WriteQueue(), list[str](), threading.Event()

    def write() -> None:
        asked.set()
        with queue.turn():
            order.append("second")

    other = threading.Thread(target=write)
    with queue.turn():
        other.start()
        asked.wait()
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    assert queue.enter("third") is None
