"""Two sessions beside each other, such as a run and its fork: what both have, and where they differ.

Parts are compared by what a person reads of them: who says what; the tool of a call, its arguments, its outcome and its
message. Ids and times are not compared, because a run that is made again has others. The parts that both begin with are
counted. After that, equal parts are aligned; between those, calls of one tool, and messages of one role; and the rest
in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile, zip_longest
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from handrail.readable import format_json
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.transcript import TranscriptBreak, TranscriptMessage
from handrail.transcript.wording import break_text
from handrail.view.run_page import CallView, PagePart, read_all

ComparedItem: TypeAlias = TranscriptMessage | TranscriptBreak | CallView
"""A message, a break, or a call."""

CallField: TypeAlias = Literal["arguments", "outcome", "message"]
"""What is compared of two calls of one tool."""

MOST_COMPARED_PARTS: Final = 1_000
"""The most parts of each session that are compared, after those with which both begin."""


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """Parts of two sessions that stand beside each other.

    Attributes:
        left: that of the first; `None` if only the second has it.
        right: that of the second.
        is_same: whether they are equal.
        changes: in what two calls of one tool differ.
    """

    left: ComparedItem | None
    right: ComparedItem | None
    is_same: bool = False
    changes: Sequence[CallField] = ()


class Comparison(NamedTuple):
    """Two sessions beside each other.

    Attributes:
        left: the first.
        right: the second.
        common: how many parts both begin with, which are not among the rows.
        rows: the parts after those, aligned.
        left_out: how many parts of both are not compared, because there are too many.
    """

    left: SessionRow
    right: SessionRow
    common: int
    rows: Sequence[ComparedRow]
    left_out: int = 0


def compare_sessions(store: Store, left: SessionRow, right: SessionRow) -> Comparison:
    """Compares two sessions.

    Raises:
        StoreError: they cannot be read.
        UnknownTypeError: they have entries of a newer version.
    """
    ours, theirs = ([*_items(read_all(store, row))] for row in (left, right))
    pairs = zip(ours, theirs, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: _content(pair[0]) == _content(pair[1]), pairs))
    end = common + MOST_COMPARED_PARTS
    left_out = sum(max(len(side) - end, 0) for side in (ours, theirs))
    rows = [*_align(ours[common:end], theirs[common:end], (_content, _kind))]
    return Comparison(left, right, common, rows, left_out)


def field_text(view: CallView, field: CallField) -> str:
    """What a call has there, as text."""
    call = view.call
    return {"arguments": format_json(call.arguments, indent=2), "outcome": call.outcome, "message": call.content}[field]


def _items(parts: Iterable[PagePart]) -> Iterator[ComparedItem]:
    for part in parts:
        if isinstance(part, Sequence):
            yield from part
        else:
            yield part


def _content(item: ComparedItem) -> tuple[object, ...]:
    if isinstance(item, CallView):
        call = item.call  # indented JSON is not written by C, and takes ten times as long
        return call.tool, format_json(call.arguments), call.outcome, call.content, *map(_content, item.nested)
    if isinstance(item, TranscriptMessage):
        return item.role, item.conversation, item.blocks
    return (break_text(item),)


def _kind(item: ComparedItem) -> tuple[object, ...]:
    return type(item), item.call.tool if isinstance(item, CallView) else _content(item)[:1]


_Key = Callable[[ComparedItem], tuple[object, ...]]


def _align(left: Sequence[ComparedItem], right: Sequence[ComparedItem], keys: Sequence[_Key]) -> Iterator[ComparedRow]:
    if not keys or not (left and right):
        yield from (_compare(*pair) for pair in zip_longest(left, right))
        return
    key, *rest = keys
    matcher = SequenceMatcher(None, [*map(key, left)], [*map(key, right)], autojunk=False)
    for operation, left_start, left_end, right_start, right_end in matcher.get_opcodes():
        pieces = left[left_start:left_end], right[right_start:right_end]
        yield from _align(*pieces, [] if operation == "equal" else rest)


def _compare(left: ComparedItem | None, right: ComparedItem | None) -> ComparedRow:
    if left is None or right is None:
        return ComparedRow(left, right)
    is_same, changes = _content(left) == _content(right), list[CallField]()
    if isinstance(left, CallView) and isinstance(right, CallView) and left.call.tool == right.call.tool:
        fields: Sequence[CallField] = get_args(CallField)
        changes = [field for field in fields if field_text(left, field) != field_text(right, field)]
    return ComparedRow(left, right, is_same, changes)
