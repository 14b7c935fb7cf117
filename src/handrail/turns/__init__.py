"""Fair turns: who may touch a session or a resource, and when.

Every participant of calls (a session, a snapshotable resource) has a `Turn`, a shared/exclusive lock. A call draws a
`Ticket` for the turns of all its participants at once. The rules:

1. A ticket is *exclusive* (a call that writes) or *shared* (a call that reads). Two tickets conflict on a turn when one
   of them is exclusive.
2. A ticket runs when no ticket drawn before it conflicts with it on any of its turns. It takes all its turns at one
   moment and holds nothing while it waits, so tickets cannot wait for each other in a circle.
3. A *nested* ticket, drawn inside another one that runs, goes ahead of calls that wait: it waits only for conflicting
   tickets that run, and for conflicting nested ones that were drawn before it.
4. A nested ticket holds turns while it waits: those of the tickets that it was drawn inside. If what it would wait for
   waits, through any chain, for one of these, it is refused with `TurnConflictError`, and nothing was queued.
5. A shared ticket that runs may ask to be *first*: it waits until every ticket before it on its turns is released.
   Reads run concurrently, and their results are applied in the order in which they were asked for. Those before it are
   the tickets drawn before it, but for rule 3: a nested ticket is before the calls that waited when it was drawn. A
   ticket never waits, and stops waiting, to be first before one that cannot continue until it is released itself.
6. A call may wait for another one outside of any queue, as for its effect: it *waits on* it. What would close a circle
   is refused as by rule 4, and requests to be first give way as by rule 5.

So each that waits continues once those that run are released, in whatever order. That needs a search only when a
ticket waits while it holds turns: when a nested ticket waits, when a call waits on another one, and when a ticket asks
to be first while one of these waits.

Threads and tasks can both wait: a waiter is a `concurrent.futures.Future`, on which a thread blocks and which a task
awaits wrapped. All turns and tickets are guarded by one lock of the package, which is held for a few operations and
never while a waiter is woken.
"""

from handrail.turns.ticket import Ticket, Turn, draw_ticket, find_turn, own_turn

__all__ = ["Ticket", "Turn", "draw_ticket", "find_turn", "own_turn"]
