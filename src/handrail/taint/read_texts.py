"""The texts that a call has brought, as its record has them: what the arguments of a later call are compared with.

The model has read the JSON of a result, in which a text is escaped, and writes the text itself. So the values are
searched, and the JSON too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from handrail.errors import DumpError, SchemaError
from handrail.prompt.content_parts import TextPart
from handrail.prompt.tool_result import ToolResult
from handrail.serde import dump
from handrail.session import Session
from handrail.session.call_ref import CallRef
from handrail.session.persistence.stored_types import find_type
from handrail.session.relatives import UnopenedSession
from handrail.taint.overlap import leaves
from handrail.taint.state import PlacedTaint

_RECORDS = "handrail.tool_invoked"
"""The name of the records of calls, whose class is of a layer above."""

_BETWEEN = "\0"
"""Between two texts: no argument is found that begins in one and ends in another."""


@runtime_checkable
class HasResult(Protocol):
    """The record of a call, as far as its text is concerned."""

    @property
    def ref(self) -> CallRef:
        """The identity of the call."""
        ...

    @property
    def result(self) -> ToolResult[Any]:
        """What the handler returned."""
        ...


def read_text_of(taint: PlacedTaint) -> str | None:
    """All texts that a call has brought; of a nested call without a record, those of the call that it was made in.

    `None` if there is no record of either.

    Raises:
        StoreError: the store cannot be read.
    """
    ref = taint.item.provenance.ref
    for record in (_after(taint, ref), *(_recorded(taint.reader, call) for call in (ref, *ref.ancestors))):
        if isinstance(record, HasResult):
            return _BETWEEN.join(_texts(record.result))
    return None


def _after(taint: PlacedTaint, ref: CallRef) -> object:
    """The first record of a call of that name that came after its content; only one that needs it has the place."""
    kind = find_type(_RECORDS)
    if taint.item.after is None or kind is None or isinstance(taint.reader, UnopenedSession):
        return None
    later = taint.reader[kind][taint.item.after :]
    return next((each for each in later if isinstance(each, HasResult) and each.ref.stored == ref), None)


def _recorded(reader: Session | UnopenedSession, ref: CallRef) -> object:
    if isinstance(reader, UnopenedSession):
        return reader.recorded_call(ref)
    return reader.recorded_call(ref, own=False)


def _texts(result: ToolResult[Any]) -> Iterator[str]:
    yield result.render()
    yield from (part.text for part in result.parts if isinstance(part, TextPart))
    if isinstance(result.value, str | None):
        return  # is the message, or nothing
    try:
        yield from (text for _, text in leaves(dump(result.value)))
    except (DumpError, SchemaError):
        return  # a value of another library, or one that has no JSON
