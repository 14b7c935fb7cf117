"""The turns of a call: queued for on arrival and released at the end. `handrail.turns` defines the rules of turns.

| tool | turns | concurrently |
|---|---|---|
| `effect="state"`, `"external"` | the session's and its resources' | never |
| `effect="read"` | the same | with reads |
| `concurrent=True`, or no such tool | the session's | with reads |

A nested call shares the turns that its parent holds: it takes turns only with nested calls of the same parent, and
queues for what the parent does not hold. The exception is a call on another session made inside a `concurrent` call, as
an agent used as a tool does, or inside one that has called an agent in a stored session: it is independent.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from handrail.errors import DeadlineExceededError, ReadOnlyViolation, TransactionClosedError, TurnConflictError
from handrail.prompt import Tool
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ExecutionMode, ExecutionTimeoutError
from handrail.transaction import Transaction, current
from handrail.turns import Ticket, Turn, draw_ticket, turn_of

if TYPE_CHECKING:
    from concurrent.futures import Future

    from handrail.limits import Deadline

_WITHIN: ContextVar[Ticket | None] = ContextVar("handrail_within", default=None)
"""The ticket of the call that is made in this context. A call that code of the program makes meanwhile, a policy, an
approver, a parser of arguments, is nested in it: one that needs the same turns is refused, because it would wait for
the call that it is made in.
"""


class CallTurn:
    """The queue positions of a call with its participants, from `queue` on; owned by the call.

    Attributes:
        caller: the transaction of the call in whose handler this one is made; `None` if there is none.
        outer: the transaction in which this call's will be a savepoint; `None` for an independent call.
        shared: whether it may run concurrently with other calls.
        ticket: the ticket; it has no turns if the call is not permitted here.
        is_first: whether no other call writes concurrently, once the turn is acquired.
    """

    __slots__ = ("_before", "_refused", "caller", "is_first", "outer", "shared", "ticket")

    def __init__(self, tool: Tool[Any, Any] | None, environment: Environment) -> None:
        """Decide what the call belongs to."""
        self._refused: Exception | None = None
        # A call that writes runs alone, so it is first as soon as it runs.
        writes = tool is not None and tool.writes
        self.is_first: bool = writes
        self.shared: bool = not writes
        caller = current()
        is_independent = caller is None or (caller.concurrent and not caller.holds(environment.session.turn))
        self.caller: Transaction | None = caller
        self.outer: Transaction | None = None if is_independent else caller

    def queue(self, tool: Tool[Any, Any] | None, environment: Environment) -> None:
        """Draw the ticket, which has to be released; nothing comes after it here that could raise.

        A call that is not permitted here has one too, without turns: `acquire` raises.
        """
        inside = self._before = _WITHIN.get()
        if inside is None or inside.released:  # a task or thread that a call has left
            inside = None if self.caller is None else self.caller.ticket
        try:
            turns = self._turns(tool, environment)
            self.ticket: Ticket = draw_ticket(turns, exclusive=not self.shared, inside=inside)
        except (ReadOnlyViolation, TransactionClosedError, TurnConflictError) as error:
            self._refused = error
            self.is_first = False
            self.ticket = draw_ticket((), exclusive=False)
        _WITHIN.set(self.ticket)

    def leave(self) -> None:
        """Release the ticket; calls that are made in this context from here on are not nested in it. Idempotent."""
        self.ticket.release()
        # Not by a token: the coroutine of a call may be closed in another context.
        _WITHIN.set(self._before)

    @property
    def waits(self) -> bool:
        """Whether the call waits for its turn, has waited for it, or is refused it."""
        return self.ticket.began != self.ticket.number or self._refused is not None

    async def acquire(self, mode: ExecutionMode, deadline: Deadline | None) -> None:
        """Wait for the turn.

        Raises:
            DeadlineExceededError: the deadline passed first.
            ModelVisibleError: the call is not permitted here.
        """
        # Raised here and not in the constructor, so that the refused call is recorded like any other.
        if self._refused is not None:
            raise self._refused
        await _wait(mode, self.ticket.waiter, deadline)

    async def wait_for_earlier_calls(self, mode: ExecutionMode, deadline: Deadline | None) -> None:
        """Wait until every call that arrived before on the same turns has ended, so that results apply in order."""
        if self.is_first:
            return
        # The results of a nested call are applied in its ancestors, so these must be first too; one that writes is.
        outer = () if self.outer is None else self.outer.chain()
        for ticket in (self.ticket, *(each.ticket for each in outer)):
            if not ticket.exclusive:
                await _wait(mode, ticket.request_first(), deadline)
        self.is_first = True

    def _turns(self, tool: Tool[Any, Any] | None, environment: Environment) -> tuple[Turn, ...]:
        """The turns that the call takes.

        Raises:
            ModelVisibleError: it is not permitted here.
        """
        turns: tuple[Turn, ...] = (environment.session.turn,)
        if tool is not None and not tool.concurrent:
            turns += environment.resources.turns()
        caller = self.caller
        if caller is None:
            return turns
        name = "an unknown tool" if tool is None else tool.name
        if caller.state != "open":
            raise TransactionClosedError(caller.tool, f"call {name}")
        if self.outer is None:
            return turns
        if not (self.shared or caller.writes):
            raise caller.read_only_violation(f"call {name}, which writes")
        return (turn_of(caller), *(turn for turn in turns if not caller.holds(turn)))


async def _wait(mode: ExecutionMode, waiter: Future[None] | None, deadline: Deadline | None) -> None:
    try:
        if waiter is not None:
            await mode.wait(waiter, seconds=None if deadline is None else deadline.remaining().total_seconds())
    except ExecutionTimeoutError:
        raise DeadlineExceededError("the deadline passed while the call waited for its turn; it was not run") from None
