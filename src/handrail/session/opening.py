"""Opening a session on a thread, which may wait for its store and for another holder of the session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Protocol, TypedDict, TypeVar

from handrail.events import Dispatcher
from handrail.redaction import redacted_logger
from handrail.waiting import completed, run_in_thread

_log = redacted_logger("handrail.session")


class Closable(Protocol):
    """A session, as far as it is used here."""

    def close(self) -> None:
        """Let others open the session."""
        ...


Opened = TypeVar("Opened", bound=Closable)


class OpenOptions(TypedDict, total=False):
    """What `Session.open` takes beside the store and the id; see there."""

    types: Iterable[type[object]]
    tags: Mapping[str, str] | None
    dispatcher: Dispatcher | None
    create: bool
    wait: timedelta
    checkpoint_every: int
    evict: bool


async def open_on_thread(opening: Callable[[], Opened]) -> Opened:
    """Open a session on a thread; one that is opened after this task has been cancelled is closed again.

    Raises:
        CancelledError: the task was cancelled; the session may be held for as long as the opening still waits.
        Exception: what `opening` raises.
    """
    opened = run_in_thread(opening)
    try:
        await completed(opened)
    except BaseException:
        opened.add_done_callback(_close_again)
        raise
    return opened.result()


def _close_again(opened: Future[Opened]) -> None:
    if opened.exception() is not None:
        return  # it was not opened, and no caller waits for the reason
    try:
        opened.result().close()
    except Exception:  # noqa: BLE001 - logged: no caller waits
        _log.exception("a session that was opened for a cancelled task could not be closed")
