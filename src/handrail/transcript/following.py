"""Reads the end of a transcript, and continues it while a run adds to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from handrail.session.persistence.protocol import SessionRow, SessionStore
from handrail.transcript.items import TranscriptItem, TranscriptMessage
from handrail.transcript.reading import PAGE_ENTRIES, TranscriptReader

_ENTRIES_OF_TURN = 8
_GROWTH = 8


def follow_session(
    store: SessionStore, session_id: str, reader: TranscriptReader, wait: Callable[[], object]
) -> Iterator[TranscriptItem]:
    """The transcript of a session from where a reader stands, until no process holds the session any more.

    A call is yielded as soon as nothing about it will change and the calls before it in its reply were. When the run
    ends, the calls that are held are yielded as far as they are known; where the caller is interrupted, `finish` of the
    reader yields them.

    Args:
        store: the store.
        session_id: the session.
        reader: its reader.
        wait: called between two looks at the store, after everything was yielded; returns after a while.

    Raises:
        StoreError: the store cannot be read.
    """
    is_held = True
    while is_held:
        # Looked at first: what its holder has written before the release is read below.
        is_held = session_id in store.held_sessions()
        row = store.find(session_id)
        if row is None:  # deleted
            break
        if row.head > reader.place:
            yield from reader.read(row.head)
            yield from reader.settled()
        if is_held:
            wait()
    yield from reader.finish()


def end_of_transcript(
    store: SessionStore, row: SessionRow, count: int, wants: Callable[[TranscriptItem], bool]
) -> tuple[TranscriptReader, list[TranscriptItem]]:
    """The last messages of a session with their calls, and a reader that stands at its end and holds the last calls.

    The session is read from its end, in growing steps, so a long one takes no more time than its end does.

    Args:
        store: the store.
        row: the session.
        count: how many messages.
        wants: whether an item counts.

    Raises:
        StoreError: the store cannot be read.
    """
    span = max(count * _ENTRIES_OF_TURN, PAGE_ENTRIES)
    while True:
        start = max(0, row.head - span)
        reader = TranscriptReader(store, row, after=start)
        turns: deque[list[TranscriptItem]] = deque(maxlen=count)
        found = 0
        for item in filter(wants, reader.read(row.head)):
            if isinstance(item, TranscriptMessage) or not turns:
                turns.append([])
                found += isinstance(item, TranscriptMessage)
            turns[-1].append(item)
        # One more than asked for: the calls of the first message that was read may have come before it.
        if found > count or not start:
            return reader, [item for turn in turns for item in turn]
        span *= _GROWTH
