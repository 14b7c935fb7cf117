"""The end of a `with` block: an exception that leaves the block is not replaced by what closing raises."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from handrail.redaction import redacted_logger

_log = redacted_logger("handrail")


@contextmanager
def closing_after(error: BaseException | None, resource: object) -> Generator[None]:
    """A block that closes a resource; if `error` leaves the block of that, what closing raises is logged and noted.

    Raises:
        Exception: what closing raises, if `error` is `None`.
    """
    try:
        yield
    except Exception as failure:
        if error is None:
            raise
        _log.warning("%r could not be closed", resource, exc_info=True)
        error.add_note(f"{resource!r} could not be closed: {failure}")
