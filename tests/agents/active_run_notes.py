"""Tools of an agent file that keep what `current_run()` has given them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from handrail.agents import current_run
from handrail.errors import HandrailError

_WRITES: list[Callable[[str], object]] = []


@dataclass(frozen=True)
class Note:
    """What a tool notes."""

    text: str


def plain(*, fails: bool) -> str:
    """Write in a thread, and keep what it was written through.

    Args:
        fails: whether the call fails.
    """
    run = current_run()
    session, files = run.session, run.filesystem(run.root)
    _WRITES[:] = (lambda text: session[Note].append(Note(text)), lambda text: files.write_text(text, text))
    thread = threading.Thread(target=lambda: [write("in a thread") for write in _WRITES])
    thread.start()
    thread.join()
    if fails:
        raise ValueError("it fails")
    return "noted"


def path_of_run() -> str:
    """The agents that called each other."""
    return "/".join(current_run().path)


def late() -> list[str]:
    """Write once more, in a thread; returns the names of the exceptions."""
    found: list[str] = []

    def write_all() -> None:
        for write in _WRITES:
            try:
                write("late")
            except HandrailError as error:
                found.append(type(error).__name__)

    thread = threading.Thread(target=write_all)
    thread.start()
    thread.join()
    return found
