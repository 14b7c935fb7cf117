"""Fair turns: who may touch a session or a resource, and when.

Every participant of calls (a session, a snapshotable resource) has a `Turn`. A call draws a `Ticket` for the turns of
all its participants at once. The rules:

1. A ticket is *exclusive* (a call that writes) or *shared* (a call that reads). Two tickets conflict on a turn when one
   of them is exclusive.
2. A ticket may run when no earlier ticket conflicts with it on any of its turns. "Earlier" is the order in which the
   tickets were drawn, which is one order for all turns, because all are drawn under one lock. A ticket takes all its
   turns at one moment and holds nothing while it waits, so tickets cannot wait for each other in a circle.
3. A ticket drawn *inside* another (a nested call) goes ahead of those that wait and are not nested: they hold nothing,
   and they may be waiting for the call that this one is a part of.
4. Rule 3 lets a ticket hold turns while it waits for more, so here a circle is possible. It is looked for before the
   ticket waits, and found, it is refused with `TurnConflictError`: the model reads why, and nothing has run.
5. A shared ticket that runs may ask to be *first*: it then waits until every ticket that stands before it on its turns
   has been released. Reads run concurrently, and their results are applied in the order in which they were asked for.
   This is a preference: a ticket does not wait, or stops waiting, for one that cannot continue until this one is
   released.
6. A call may wait for another one outside of any queue, as for its effect: it *waits on* it. What would close a circle
   is refused as by rule 4, and withdraws preferences as by rule 5.

What waits for what is a graph: a ticket waits for those that rules 2, 3 and 5 put before it, a call for the calls
inside it and for those that it waits on. Rules 2 and 4 to 6 keep it free of circles, so each that waits runs once those
that run are released, in whatever order.

| module | what is in it |
|---|---|
| `queue` | the queue of one turn, in groups; and the search for circles, which most tickets do not need |
| `ticket` | turns and tickets: which tickets run, and which are first |
| `owners` | whose turn it is: participants that carry their own, and turns that are kept for those that do not |

Threads and tasks can both wait: a waiter is a `concurrent.futures.Future`, on which a thread blocks and which a task
awaits wrapped.

State: each `Turn` owns the queues of its unreleased tickets. All turns and tickets are guarded by one lock of the
package, which is held for a few operations and never while a waiter is woken.
"""

from handrail.turns.owners import HasTurn, own_turn, turn_of
from handrail.turns.ticket import Ticket, TicketLinks, Turn, draw_ticket

__all__ = ["HasTurn", "Ticket", "TicketLinks", "Turn", "draw_ticket", "own_turn", "turn_of"]
