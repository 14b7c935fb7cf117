"""Results that are too long for the model: how their text is cut, and the tool that reads the rest.

Theory of operation
    The message of a call has at most `Tool.max_result_chars` characters. Of a longer text the beginning and the end are
    shown, with one sentence at the end: which characters are left out, and how they are read. The result itself, and so
    the record of the call, stays whole, and a message that is made again from the record is cut in the same way.

    A session that has cut a result holds a `CutResult` for it. From the first one on, the model is offered one more
    tool, `read_result`: `Environment.tools` is the only place that decides this, and all entry points ask it. The slice
    is stored, so another process that resumes the session offers the tool too. A session without a cut result pays for
    nothing: the definition of the tool is in no request.

    The item is written with the next unit of the session, and no message that was cut is stored before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from handrail.errors import SessionError, ToolValidationError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.redaction import redacted_logger
from handrail.runtime.calls import ToolInvoked, declared_result
from handrail.serde.formatting import shorten
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.calls import CallRef

MAX_READ_CHARS = 20_000
"""The most characters that one call of `read_result` shows; with its first line less than any tool may show."""

_GAP = "\n[...]\n"
# So many characters more are left out at most, and no more than half, so that lines are whole.
_LONGEST_ADJUSTED = 500

_BEFORE_FOUND = 200
_MOST_LISTED = 5
_LONGEST_SHOWN = 100

_log = redacted_logger("handrail.runtime")


@stored_as("handrail.cut_result")
@dataclass(frozen=True, slots=True)
class CutResult:
    """The result of a call was too long, and its message was cut.

    Attributes:
        reply: the reply of the model that asked for the call; `None` if it was not given.
        call_id: the id of the call.
        tool: its tool.
        characters: how many characters the whole text has.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    reply: str | None
    call_id: str
    tool: str
    characters: int

    @property
    def ref(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call_id)


@stored_as("handrail.read_result")
@dataclass(frozen=True, slots=True)
class ReadResult:
    """A request for a part of a result whose message was cut.

    Attributes:
        call: names the call, as its message does.
        start: the first character to show, from 1.
        find: text to look for: what is shown begins shortly before its first occurrence from `start` on.
    """

    call: str = field(metadata={"description": "The call, as its cut result names it."})
    start: int = field(default=1, metadata={"ge": 1, "description": "The first character to show, from 1."})
    find: str | None = field(default=None, metadata={"min_length": 1, "description": "Text to look for from there on."})


def cut_text(text: str, most: int, ref: CallRef, reader: str) -> str:
    """The beginning and the end of a text, and the sentence that says how the rest is read."""
    total = len(text)
    # No number in the sentence has more digits than the length of the text.
    room = most - len(_GAP) - 1 - len(_left_out(total, total, total, ref, reader))
    head = room * 2 // 3
    head = text.rfind("\n", max(head - _LONGEST_ADJUSTED, head // 2), head) + 1 or head
    tail = total - (room - room * 2 // 3)
    tail = text.find("\n", tail, tail + min(_LONGEST_ADJUSTED, (total - tail) // 2)) + 1 or tail
    parts = text[:head].removesuffix("\n") + _GAP + text[tail:].removesuffix("\n")
    return f"{parts}\n{_left_out(head + 1, tail, total, ref, reader)}"


def _left_out(first: int, last: int, total: int, ref: CallRef, reader: str) -> str:
    how = f"; read them with {reader}, call='{ref.key}', start={first}" if ref.is_named else ""
    return f"[Characters {first:,} to {last:,} of {total:,} are left out{how}.]"


def record_cut(session: Session, ref: CallRef, tool: str, characters: int) -> None:
    """Records that the message of a call was cut. Idempotent; a session that is closed is left as it is."""
    if not ref.is_named or any(item.ref == ref for item in reversed(session[CutResult])):
        return
    try:
        session[CutResult].log(CutResult(*ref, tool, characters), write="deferred")
    except SessionError as error:  # it offers no tools any more
        _log.warning("it is not stored that the result of %s was cut: %s", tool, error)


@lru_cache(maxsize=16)
def result_reader(name: str, *, untrusted: bool = False) -> Tool[ReadResult, str]:
    """The tool that reads what was left out, under a name; `untrusted` in a session that has read untrusted content."""
    return Tool[ReadResult, str](
        name=name,
        description="Read a part of a long result that was cut: its message names the call, and what is left out.",
        handler=_read,
        effect="read",
        accepts_overrides=False,
        untrusted=untrusted,
    )


def _read(params: ReadResult, /, *, context: ToolContext) -> ToolResult[str]:
    item = _cut_result(context.session, params.call)
    text = _whole_text(context, item)
    if params.start > len(text):
        raise ToolValidationError(f"$.start is {params.start}, but the result has {len(text):,} characters")
    first, occurrence = params.start - 1, ""
    if params.find is not None:
        place = text.find(params.find, first)
        if place < 0:
            return ToolResult.ok(f"{_quote(params.find)} does not occur from character {params.start:,} on.")
        onwards = place + 1 + len(params.find)
        occurrence = f" {_quote(params.find)} occurs at {place + 1}; look for the next from start={onwards} on."
        first = max(first, place - _BEFORE_FOUND)
    last = min(first + MAX_READ_CHARS, len(text))
    onward = f" Continue with start={last + 1}." if last < len(text) else ""
    head = f"Characters {first + 1:,} to {last:,} of {len(text):,} of the result of {item.tool}.{onward}{occurrence}"
    return ToolResult.ok(f"{head}\n{text[first:last]}")


def _cut_result(session: Session, call: str) -> CutResult:
    # An id alone names the newest call of that id.
    cuts = list(reversed(session[CutResult]))
    matches = [item for item in cuts if item.ref.key == call] or [item for item in cuts if item.call_id == call]
    if matches:
        return matches[0]
    there = ", ".join(f"'{item.ref.key}' (of {item.tool})" for item in cuts[:_MOST_LISTED])
    raise ToolValidationError(f"$.call: no result of {_quote(call)} was cut. The newest that were cut are {there}.")


def _whole_text(context: ToolContext, item: CutResult) -> str:
    session, ref = context.session, item.ref
    event = next((record for record in reversed(session[ToolInvoked]) if record.ref == ref), None)
    if event is None:
        raise ToolValidationError(f"$.call: the result of '{ref.key}' is not in this session")
    prompt: Any = context.rendered_prompt
    return declared_result(None if prompt is None else prompt.tool(event.name), event).render()


def _quote(text: str) -> str:
    return repr(shorten(text, _LONGEST_SHOWN))
