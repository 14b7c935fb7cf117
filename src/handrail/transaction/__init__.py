"""The transaction that wraps one call: what a write belongs to, and what is undone when the call fails.

Rolling back is the default; committing is the act::

    with Transaction("write_file", ticket=ticket, writes=True) as transaction:
        ...                      # whatever is raised here, `BaseException` included, is undone
        transaction.commit()     # without this line, so is everything else

A transaction moves one way: *open*, then *closed* (it takes no more writes), then *ended* (everything it had to undo
has been undone). It is current in its `with` block, and in the threads and tasks that copy the block's context, by a
context variable: that is how a session or a filesystem reached by closure knows to which call a write belongs, and how
a handler that runs on after its call has ended cannot write.

Participants
    What a transaction can undo is `Snapshotable`. A participant that also carries a `turn`
    promises to call `check_write` before each change; it joins with its first write. Any
    other participant does not report that it is written to, so it joins when the transaction begins.

Nesting
    A transaction begun inside another is a savepoint of it. Whatever joins the inner one joins the outer ones too, with
    the same snapshot: no one else could have written to it meanwhile. An inner transaction is open only as long as the
    outer ones are; once an outer one has been closed, undoing is the outer one's alone.

Another database
    A handler enlists a participant of its own (`enlist`): it prepares before the unit of the
    call is written, and commits after it.

Late writers
    A thread that a call left behind may write at any moment, also while the call is being closed. Why it cannot slip
    through: a transaction is closed before it puts anything back, and a participant that joins is registered first and
    then looks whether the transaction is still open. A write is made under its participant's lock, and so is putting
    back: either the write comes first and is undone, or it meets a closed transaction. A write that a commit overtakes
    ends under that lock too, before the next call can take its snapshot: it is the last write of its own call.

This package lies below sessions, filesystems and resources, because all three ask it whether they may write.
"""

from handrail.transaction.commit import CommitParticipant, Snapshotable, TwoPhaseParticipant, is_rolling_back
from handrail.transaction.transaction import Transaction, check_write, current, enlist, in_call, view_for_call
from handrail.transaction.unit_of_work import RecordCommit, UnitOfWork, UnitStore

__all__ = [
    "CommitParticipant",
    "RecordCommit",
    "Snapshotable",
    "Transaction",
    "TwoPhaseParticipant",
    "UnitOfWork",
    "UnitStore",
    "check_write",
    "current",
    "enlist",
    "in_call",
    "is_rolling_back",
    "view_for_call",
]
