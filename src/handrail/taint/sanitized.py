"""Values that a tool of the program has extracted from untrusted content, and that may be used without asking.

A sanitizer is a tool with `sanitizes=True`: a function of the program that returns typed values, such as an amount or a
date, and checks them. It clears no session. It clears the values that it returns, for the arguments of later calls: a
call all of whose arguments are such values is not asked about.

The values of a success are recorded before the call is committed, in the same unit. They are those of the result's
JSON, so `5` and `"5"` are one value: what counts is what a service would be sent. A child session has the values that
it has recorded itself, and not those of its parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from handrail.serde import dump
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.call_ref import CallRef
from handrail.taint.overlap import leaves


@stored_as("handrail.sanitized")
@dataclass(frozen=True, slots=True)
class Sanitized:
    """A sanitizer has returned values. Its slice is a LOG.

    Attributes:
        tool: the sanitizer.
        reply: the reply of the model that asked for the call; `None` if it was not given.
        call_id: the id of the call.
        values: the values as text, without objects, arrays and null.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    tool: str
    reply: str | None
    call_id: str
    values: tuple[str, ...]


def note_sanitized(session: Session, tool: str, ref: CallRef, value: object) -> None:
    """Record the values that a sanitizer has returned.

    Raises:
        DumpError: the value has no JSON.
        SessionError: the session is closed, or its store cannot hold the item.
    """
    values = tuple(dict.fromkeys(text for _, text in leaves(dump(value))))
    session.log_item(Sanitized, Sanitized(tool, *ref.stored, values), ref, written="deferred")


def are_sanitized(session: Session, arguments: Any) -> bool:  # noqa: ANN401 - decoded JSON
    """Whether all values of the arguments were returned by sanitizers of the session, by any of them.

    Arguments without a value are not: that the call is made at all may be what the content asks for.
    """
    wanted = {text for _, text in leaves(arguments)}
    if not wanted or not len(session[Sanitized]):
        return False
    return wanted <= {value for item in session[Sanitized] for value in item.values}
