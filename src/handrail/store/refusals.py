"""What stores say when a session cannot be had or written to; the same words over every store."""

from __future__ import annotations

from collections.abc import Sequence

from handrail.errors import SessionError, SessionLostError, SessionNotFoundError
from handrail.session.storage import Entry, Hold


def no_session(session_id: str, store: str) -> SessionNotFoundError:
    """There is no session of that id."""
    msg = f"{store} has no session {session_id!r}; Session.open(store, session_id, create=True) makes it"
    return SessionNotFoundError(msg, session_id=session_id)


def lost(hold: Hold, head: int, found: tuple[str, int] | None) -> SessionLostError:
    """A hold is not valid, or somebody has written; `found` is the token and the head that stand, if any do."""
    if found is None:
        why = "it is no longer there"
    elif found[0] != hold.token:
        why = "it is no longer held: another process has taken it over, or it has been closed here"
    else:
        why = f"its newest entry is number {found[1]}, not {head}: somebody else has written to it"
    msg = f"session {hold.session_id!r} cannot be written to: {why}. Open it again to go on from what it holds now"
    return SessionLostError(msg, session_id=hold.session_id)


def newest_number(session_id: str, head: int, entries: Sequence[Entry]) -> int:
    """The number of the last of `entries`, which follow `head`; `head` if there are none.

    Raises:
        SessionError: they are not numbered so.
    """
    newest = head + len(entries)
    if entries and (entries[0].number != head + 1 or entries[-1].number != newest):
        msg = (
            f"session {session_id!r} takes entries {head + 1} to {newest} next, and was given {entries[0].number} to "
            f"{entries[-1].number}"
        )
        raise SessionError(msg)
    return newest


def too_few_entries(session_id: str, head: int, wanted: int) -> SessionError:
    """A copy of more entries than there are was asked for."""
    return SessionError(f"session {session_id!r} has {head} entries, so the first {wanted} cannot be copied")
