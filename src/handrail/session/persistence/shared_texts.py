"""Large texts that a session holds more than once are stored once.

Theory of operation
    A tool result of 100 kB is in the record of its call, and in the message that the model reads; the arguments of a
    call are in the reply of the model, and in the record. In the JSON data of an entry, a string of at least
    `SMALLEST_TEXT` bytes that equals a string of an earlier entry, or an earlier one of the same entry, is therefore
    replaced by a *reference* to it. What is shown to a model often has some words before and after the text: a string
    that consists of earlier ones and less than `SMALLEST_TEXT` bytes around them is stored as those bytes and
    references. Another one begins where the string does, or after a line end. Of a text that is too long for a model
    the beginning and the end are shown: of the newest large texts both are remembered, and a string may consist of
    these, too.

    Everything is done on bytes. Strings are found in the JSON as it is, and compared as they are escaped there, so no
    value is decoded or encoded again, and reading gives exactly the bytes that were written.

    The form of data with references::

        data       =  0x01 json                      no JSON begins with 0x01, so all other data is read as it is
        reference  =  0x02 number:offset:length:check 0x03      within a string, in place of some of its bytes

    A reference names the entry, the place of the bytes in the data that is stored there (after its 0x01), and the first
    digits of their digest. Control characters are escaped within strings, so no text can be taken for a reference.
    The bytes that a reference names hold no reference themselves: reading takes one step, and never ends in a circle.

    `SharedTexts` remembers the digests of the newest texts of a session that is open; after it was opened again, a text
    may be stored once more. What a unit of work stores is remembered when it is committed (`SessionRecorder.advance`),
    so no entry refers to one that is not in the store. Forks copy entries with their numbers, and references with them.

    All that reads the data of entries calls `read_entries`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Protocol

from handrail.errors import StoreCorruptError
from handrail.session.persistence.protocol import SessionEntry

SMALLEST_TEXT = 1024
"""A string of fewer bytes is stored as it is: a reference saves little, and most calls have no larger string, so their
entries are not searched."""

MOST_HEADS = 256
"""The most beginnings of texts that are remembered for a session: a text that comes again does so within a few turns of
a conversation. With `_MOST_OF_HEAD`, all of them take at most 0.6 MB, and mostly 0.1 MB."""

_MOST_OF_HEAD = 8
"""The most texts of one beginning: as many are compared with a text that begins so, too."""

MOST_LARGE = 16
"""The most large texts of a session of which the beginning and the end are remembered, in 2 MB: they are shown in part
in the next messages."""

_LARGE = 1 << 14
_SIDE = 1 << 16
"""Bytes of the beginning, and of the end: more than any message of a cut result has by default."""

_HEAD = 64
_BLOCK = SMALLEST_TEXT // 2
_ENTRIES_AT_ONCE = 100
_DIGITS = 8

_MARK = b"\x01"
_BEGIN = b"\x02"
_REFERENCE = re.compile(rb"\x02(\d{1,18}):(\d{1,18}):(\d{1,18}):([0-9a-f]{8})\x03")


class StoredText(NamedTuple):
    """Where a text is stored.

    Attributes:
        number: the entry.
        offset: where it begins in the data of the entry, without the mark of data with references.
        length: how many bytes it has.
        digest: of these bytes.
    """

    number: int
    offset: int
    length: int
    digest: bytes

    @property
    def reference(self) -> bytes:
        """What stands for the text."""
        return b"\x02%d:%d:%d:%s\x03" % (self.number, self.offset, self.length, self.digest.hex()[:_DIGITS].encode())


class LargeText(NamedTuple):
    """The beginning and the end of a large text.

    Attributes:
        number: the entry.
        offset: where the text begins in the data of the entry, as in `StoredText`.
        length: how many bytes it has.
        start: its first bytes.
        end: its last bytes.
    """

    number: int
    offset: int
    length: int
    start: bytes
    end: bytes

    def shown_in(self, text: memoryview) -> list[tuple[int, StoredText]]:
        """What a text that begins as this one has of its beginning and of its end, and where."""
        shown = text[:_SIDE].tobytes()
        size = _common(shown, self.start)
        found = self._piece(0, size, 0, text)
        rest = text[size : size + SMALLEST_TEXT].tobytes() if found else b""
        for at in _beginnings(rest):
            place = self.end.find(rest[at : at + _HEAD]) if len(rest) - at >= _HEAD else -1
            if place >= 0:
                ending = _common(text[size + at : size + at + _SIDE].tobytes(), self.end[place:])
                return found + self._piece(size + at, ending, self.length - len(self.end) + place, text)
        return found

    def _piece(self, at: int, size: int, place: int, text: memoryview) -> list[tuple[int, StoredText]]:
        """The piece of a text that equals this one from a place on; none if it is small."""
        if size < SMALLEST_TEXT:
            return []
        return [(at, StoredText(self.number, self.offset + place, size, _digest(text[at : at + size])))]


class SharedTexts:
    """The newest large texts of a session, by how they begin. The lock of the session guards it."""

    __slots__ = ("_heads", "_large")

    def __init__(self) -> None:
        self._heads: dict[bytes, tuple[StoredText, ...]] = {}
        self._large: dict[bytes, LargeText] = {}

    def beginning_with(self, head: bytes) -> tuple[StoredText, ...]:
        """The texts that begin so, the newest first."""
        return self._heads.get(head, ())

    def large(self, head: bytes) -> LargeText | None:
        """The newest large text that begins so."""
        return self._large.get(head)

    def add(self, unit: UnitTexts) -> None:
        """Remember what a unit of work has stored, once it is committed."""
        for head, text in unit.large.items():
            self._large.pop(head, None)  # as for the heads
            self._large[head] = text
        for head in list(islice(self._large, max(len(self._large) - MOST_LARGE, 0))):
            del self._large[head]
        heads = self._heads
        for head, texts in unit.heads.items():
            # Removed and put in again, so that the heads are in the order of their newest texts.
            heads[head] = (*texts, *heads.pop(head, ()))[:_MOST_OF_HEAD]
        for head in list(islice(heads, max(len(heads) - MOST_HEADS, 0))):
            del heads[head]


class UnitTexts:
    """The large texts of the entries of one unit of work, while they are put together.

    Args:
        known: those of the session.

    Attributes:
        heads: what the entries of this unit store, by how it begins, the newest first.
        large: the large ones of these, the newest of each beginning.
    """

    __slots__ = ("_known", "heads", "large")

    def __init__(self, known: SharedTexts) -> None:
        self._known = known
        self.heads: dict[bytes, tuple[StoredText, ...]] = {}
        self.large: dict[bytes, LargeText] = {}

    def share(self, number: int, data: bytes) -> bytes:
        """The data of an entry as it is stored: with references to what is stored already.

        Args:
            number: the number of the entry.
            data: the items, as JSON in UTF-8.
        """
        if _BEGIN in data:  # it is not JSON, and could be read as what it is not
            return data
        parts: list[bytes] = []
        written = stored = 0
        for start, end in _large_strings(data):
            text = memoryview(data)[start:end]
            found = self._find(text)
            if not found:
                self._note(number, stored + start - written, text)
            for at, earlier in found:
                parts += (data[written : start + at], earlier.reference)
                stored += len(parts[-2]) + len(parts[-1])
                written = start + at + earlier.length
        return b"".join((_MARK, *parts, data[written:])) if parts else data

    def _find(self, text: memoryview) -> list[tuple[int, StoredText]]:
        """Where in a text others begin that are stored and make up nearly all of it; empty if there are none."""
        found: list[tuple[int, StoredText]] = []
        place = around = 0
        while len(text) - place >= SMALLEST_TEXT:
            next_one = self._find_first(text[place:])
            pieces = self._find_shown(text[place:]) if next_one is None else [next_one]
            if not pieces:
                break
            begin = place
            for at, earlier in pieces:
                found.append((begin + at, earlier))
                around += begin + at - place
                place = begin + at + earlier.length
        return found if around + len(text) - place < SMALLEST_TEXT else []

    def _find_first(self, text: memoryview) -> tuple[int, StoredText] | None:
        """The first text within this one that is stored, and where it begins."""
        for at in _beginnings(text[:SMALLEST_TEXT].tobytes()):
            head = text[at : at + _HEAD].tobytes()
            candidates = (*self.heads.get(head, ()), *self._known.beginning_with(head))
            # The longest first: a shorter one may be its beginning, and would leave the rest.
            for earlier in sorted(candidates, key=_length, reverse=True):
                end = at + earlier.length
                if end <= len(text) and _digest(text[at:end]) == earlier.digest:
                    return at, earlier
        return None

    def _find_shown(self, text: memoryview) -> list[tuple[int, StoredText]]:
        """The pieces of the first large text of which the beginning is within this one, and where they begin."""
        for at in _beginnings(text[:SMALLEST_TEXT].tobytes()):
            head = text[at : at + _HEAD].tobytes()
            large = self.large.get(head) or self._known.large(head)
            pieces = [] if large is None else large.shown_in(text[at:])
            if pieces:
                return [(at + place, piece) for place, piece in pieces]
        return []

    def _note(self, number: int, offset: int, text: memoryview) -> None:
        head = text[:_HEAD].tobytes()
        if len(text) >= _LARGE:
            self.large.pop(head, None)  # so that the newest is the last
            sides = text[:_SIDE].tobytes(), text[-_SIDE:].tobytes()
            self.large[head] = LargeText(number, offset, len(text), *sides)
        stored = StoredText(number, offset, len(text), _digest(text))
        self.heads[head] = (stored, *self.heads.get(head, ()))[:_MOST_OF_HEAD]


_length = attrgetter("length")


def _beginnings(start: bytes) -> Iterator[int]:
    """Where in a string another text may begin, of which its first bytes are given: at its first lines."""
    at = 0
    while at < len(start):
        yield at
        at = start.find(rb"\n", at) + 2
        if at == 1:
            return


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _digest(text: memoryview) -> bytes:
    return hashlib.blake2b(text, digest_size=32).digest()


def _large_strings(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the strings of at least `SMALLEST_TEXT` bytes begin and end in JSON, without their quotation marks.

    A string that is so long fills one of the blocks into which the data is divided here, so only the blocks without a
    quotation mark are looked at. A regular expression over all strings takes twenty times as long for short ones.
    """
    # Without escaped quotation marks, and of the same length: those that are left begin and end strings. Backslashes
    # first: the second one of a pair escapes nothing.
    plain = data.replace(rb"\\", b"__").replace(rb"\"", b"__")
    block = counted = marks = 0
    while block + _BLOCK <= len(plain):
        if plain.find(b'"', block, block + _BLOCK) >= 0:
            block += _BLOCK
            continue
        start = plain.rfind(b'"', counted, block) + 1
        end = plain.find(b'"', block + _BLOCK)
        if end < 0:
            return
        marks += plain.count(b'"', counted, start)
        counted = start
        # After an odd number of quotation marks, so it is not between two strings.
        if marks % 2 and end - start >= SMALLEST_TEXT:
            yield start, end
        block = end + _BLOCK - end % _BLOCK


# ------------------------------------------------------------------------------------------------------------- reading


class EntryStore(Protocol):
    """What is asked of a store to read entries; see `SessionStore`."""

    @property
    def url(self) -> str:
        """What names the store to people."""
        ...

    def entries(
        self, session_id: str, *, after: int = 0, until: int | None = None, type_name: str | None = None
    ) -> Iterator[SessionEntry]:
        """The entries with `after < number <= until`, in order; of one type, if it is named."""
        ...

    def newest_changes(
        self, session_id: str, type_name: str, *, after: int, until: int, limit: int
    ) -> list[SessionEntry]:
        """The newest `limit` entries with `after < number <= until` that change the slice of a type, in order."""
        ...

    def entries_at(self, session_id: str, numbers: Sequence[int]) -> Iterator[SessionEntry]:
        """The entries of these numbers, in order, as far as there are any."""
        ...


def read_entries(  # noqa: PLR0913 - what `SessionStore.entries` takes
    store: EntryStore,
    session_id: str,
    *,
    after: int = 0,
    until: int | None = None,
    type_name: str | None = None,
    limit: int | None = None,
) -> list[SessionEntry]:
    """The entries with `after < number <= until`, in order and whole; at most `limit`, and of one type if it is named.

    Raises:
        StoreCorruptError: one cannot be read, or a text that it refers to is missing or damaged.
    """
    found = islice(store.entries(session_id, after=after, until=until, type_name=type_name), limit)
    return _all_whole(store, session_id, found)


def read_newest_changes(  # noqa: PLR0913 - what `SessionStore.newest_changes` takes
    store: EntryStore, session_id: str, type_name: str, *, after: int, until: int, limit: int
) -> list[SessionEntry]:
    """The newest entries with `after < number <= until` that change the slice of a type, in order and whole.

    Raises:
        StoreCorruptError: one cannot be read, or a text that it refers to is missing or damaged.
    """
    found = store.newest_changes(session_id, type_name, after=after, until=until, limit=limit)
    return _all_whole(store, session_id, iter(found))


def _all_whole(store: EntryStore, session_id: str, found: Iterator[SessionEntry]) -> list[SessionEntry]:
    entries: list[SessionEntry] = []
    while page := list(islice(found, _ENTRIES_AT_ONCE)):
        entries += _whole(store, session_id, page) if any(_refers(entry) for entry in page) else page
    return entries


def _refers(entry: SessionEntry) -> bool:
    return entry.items.startswith(_MARK)


def _whole(store: EntryStore, session_id: str, page: Sequence[SessionEntry]) -> Iterator[SessionEntry]:
    """Entries with the texts that they refer to. What is not among them is read in one question to the store."""
    data = {entry.number: entry.items.removeprefix(_MARK) for entry in page}
    wanted = {
        int(reference[1]) for entry in page if _refers(entry) for reference in _REFERENCE.finditer(entry.items)
    } - data.keys()
    if wanted:
        data |= {
            entry.number: entry.items.removeprefix(_MARK) for entry in store.entries_at(session_id, sorted(wanted))
        }
    for entry in page:
        yield entry._replace(items=_expanded(store, session_id, entry, data)) if _refers(entry) else entry


def _expanded(store: EntryStore, session_id: str, entry: SessionEntry, data: Mapping[int, bytes]) -> bytes:
    def text(reference: re.Match[bytes]) -> bytes:
        number, offset, length = map(int, reference.groups()[:3])
        if number > entry.number or number not in data:
            raise _corrupt(store, session_id, entry, f"a text of entry {number}, which is missing")
        found = memoryview(data[number])[offset : offset + length]
        if _digest(found).hex()[:_DIGITS].encode() != reference[4]:
            raise _corrupt(store, session_id, entry, f"a text of entry {number}, which has been changed")
        return found.tobytes()

    items = _REFERENCE.sub(text, data[entry.number])
    if _BEGIN in items:
        raise _corrupt(store, session_id, entry, "a text in a form that is not known")
    return items


def _corrupt(store: EntryStore, session_id: str, entry: SessionEntry, what: str) -> StoreCorruptError:
    return StoreCorruptError(
        f"entry {entry.number} of session {session_id!r} in {store.url} refers to {what}. Restore the store from a "
        "copy, or fork the session before that entry.",
        store=store.url,
    )
