"""Reading slices of a resumed session on a thread, before the thread of an event loop would read them.

A slice of a stored session is read when it is first used, and reading it has no asynchronous form. What a run uses by
itself on the thread of its loop is read here, before the run begins.
"""

from __future__ import annotations

from handrail.runtime.disclosure import OpenSections
from handrail.runtime.execution import ASYNC
from handrail.session import Session
from handrail.session.persistence.protocol import ForkedFrom
from handrail.taint.state import DelimiterSecret, Tainted

_USED_BY_RUNS = (OpenSections, Tainted, DelimiterSecret, ForkedFrom)


async def read_ahead(session: Session, *others: type[object]) -> None:
    """Read the slices of a session that each run uses, without holding the event loop; none is read twice.

    Args:
        session: the session; for one in memory, nothing is done.
        others: the types of further slices.

    Raises:
        StoreError: the items cannot be read.
        UnknownTypeError: they do not fit their class.
    """
    if session.store is None:
        return
    kinds = [kind for kind in (*_USED_BY_RUNS, *others) if session.version_of(kind) is not None]

    def read() -> None:
        for kind in kinds:
            session[kind].all()

    if kinds:
        await ASYNC.write_to(session.store, read)
