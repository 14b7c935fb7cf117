"""Making and opening a session: what it is made with, and the thread that may wait for its store and for its holder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from types import NoneType
from typing import Protocol, TypedDict, TypeVar, cast

from handrail.errors import InvalidArgumentError
from handrail.errors.developer import check_argument
from handrail.events import Dispatcher
from handrail.redaction import redacted_logger
from handrail.waiting import completed, run_in_thread

_log = redacted_logger("handrail.session")

_TEXT = "text of valid Unicode"
_TAGS = "a mapping from text to text: {'customer': '7'}"


def check_identity(function: str, session_id: object, tags: object = None) -> None:
    """Refuse an id or tags that no store could hold.

    Args:
        function: who was given them.
        session_id: the id; `None` for one that is yet to be made.
        tags: the tags; `None` for none.

    Raises:
        InvalidArgumentError: the id or a tag is not text, or has a lone surrogate.
    """
    if session_id is not None:
        _check_text(function, "session_id", session_id, f"{_TEXT}: 'desk' or str(number)")
    if tags is None:
        return
    check_argument(function, "tags", tags, Mapping, _TAGS)
    for name, value in cast("Mapping[object, object]", tags).items():
        _check_text(function, "a name in tags", name, _TAGS)
        _check_text(function, f"tags[{name!r}]", value, f"{_TEXT}; write str(...) around it")


def check_stored_id(function: str, session_id: object, tags: object) -> None:
    """As `check_identity`, and refuse to open a stored session without an id: it could not be opened again.

    Raises:
        InvalidArgumentError: so; or the id is `None`, empty, or has a zero character, which not every store can hold.
    """
    check_argument(function, "session_id", session_id, str, f"{_TEXT}: 'desk' or str(number)")
    if not session_id or "\0" in str(session_id):
        expected = "text of 1 character or more, without a zero character: 'desk'"
        raise InvalidArgumentError(function=function, argument="session_id", given=session_id, expected=expected)
    check_identity(function, session_id, tags)


def _check_text(function: str, argument: str, given: object, expected: str) -> None:
    check_argument(function, argument, given, str, expected)
    try:
        # A lone surrogate has no UTF-8, so stores cannot hold it.
        str(given).encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(function=function, argument=argument, given=given, expected=expected) from None


def check_relatives(function: str, session_type: type[object], parent: object, dispatcher: object) -> None:
    """Refuse what cannot be the parent or the dispatcher of a session.

    Args:
        function: what was called, for the error.
        session_type: the class of sessions.
        parent: given as the parent.
        dispatcher: given as the dispatcher.

    Raises:
        InvalidArgumentError: one of them is something else.
    """
    check_argument(function, "parent", parent, (session_type, NoneType), "a Session, or None")
    check_argument(function, "dispatcher", dispatcher, (Dispatcher, NoneType), "a Dispatcher, or None")


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
