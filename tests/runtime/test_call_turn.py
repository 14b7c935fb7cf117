"""The turns of a call: whether it has to wait, and what it is nested in."""

from __future__ import annotations

import pytest

from handrail.errors import ReadOnlyViolation
from handrail.prompt import Tool
from handrail.runtime.call_turn import CallTurn
from handrail.runtime.environment import Environment
from handrail.runtime.execution import BLOCKING, run_to_completion
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.kit import Note, executor, tool

WRITES, READS = tool("write"), tool("look", effect="read")


def environment() -> Environment:
    """What the calls of one session share."""
    return executor(WRITES, READS).environment


def queued(asked: Tool[Note, Note] | None, shared: Environment) -> CallTurn:
    """The turn of a call that has arrived."""
    turn = CallTurn(asked, shared)
    turn.queue()
    return turn


@pytest.mark.parametrize("asked", [WRITES, READS, None], ids=["writes", "reads", "no such tool"])
def test_a_call_of_a_free_session_does_not_wait(asked: Tool[Note, Note] | None) -> None:
    """Nothing has changed since it arrived, so its identity is not looked up again."""
    turn = queued(asked, environment())
    assert (turn.waits, turn.ticket.runs) == (False, True)


@pytest.mark.parametrize("first, second, waits", [(WRITES, READS, True), (READS, WRITES, True), (READS, READS, False)])
def test_a_call_waits_for_an_earlier_one_that_it_conflicts_with(
    first: Tool[Note, Note], second: Tool[Note, Note], waits: bool
) -> None:
    """That it had to wait stays known when its turn has come: the same call may have run meanwhile."""
    shared = environment()
    earlier, later = queued(first, shared), queued(second, shared)
    assert (later.waits, later.ticket.runs) == (waits, not waits)
    earlier.ticket.release()
    assert (later.waits, later.ticket.runs) == (waits, True)


def test_a_call_that_is_not_permitted_waits() -> None:
    """Its ticket has no turns and runs at once; waiting for the turn raises what it is refused with."""
    shared = environment()
    outer = draw_ticket((shared.session.turn,), exclusive=False)
    with Transaction("look", ticket=outer, writes=False):
        turn = queued(WRITES, shared)
    assert (turn.waits, turn.ticket.runs, turn.ticket.turns) == (True, True, ())
    with pytest.raises(ReadOnlyViolation):
        run_to_completion(turn.acquire(BLOCKING, None))


def test_a_call_on_another_session_is_nested_unless_its_caller_is_concurrent() -> None:
    """It is undone with its caller; that of an agent used as a tool stands on its own."""
    ticket = draw_ticket((), exclusive=True)
    with Transaction("edit", ticket=ticket, writes=True) as caller:
        assert CallTurn(WRITES, environment()).outer is caller
    with Transaction("ask", ticket=ticket, writes=False, concurrent=True):
        assert CallTurn(WRITES, environment()).outer is None
