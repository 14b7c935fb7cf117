"""Values that a tool of the program has extracted from untrusted content, and that may be used without asking.

A sanitizer is a tool with `sanitizes=True`: a function of the program that returns typed values, such as an amount or a
date, and checks them. It clears no session. It clears the values that it returns, for the arguments of later calls: a
call all of whose arguments are such values is not asked about (`handrail.taint.judged_arguments`).

The values of a success are recorded before the call is committed, in the same unit. They are those of the result's
JSON, and the keys of its objects. Secrets are not recorded: all that is stored of one is a mask, which would vouch for
every other secret. So a call with a secret is always asked about. A child session has the values that it has recorded
itself, and not those of its parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from handrail.prompt.tool_definition import Tool
from handrail.redaction import MASK
from handrail.serde import dump
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.call_ref import CallRef
from handrail.taint.judged_arguments import JudgedArguments, leaves


@stored_as("handrail.sanitized")
@dataclass(frozen=True, slots=True)
class Sanitized:
    """A sanitizer has returned values. Its slice is a LOG.

    Attributes:
        tool: the sanitizer.
        reply: the reply of the model that asked for the call; `None` if it was not given.
        call_id: the id of the call.
        values: the values and the keys as text, `null` and empty objects and arrays included; no secrets.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    tool: str
    reply: str | None
    call_id: str
    values: tuple[str, ...]


def note_sanitized(session: Session, tool: Tool[Any, Any], ref: CallRef, value: object) -> None:
    """Record the values that a sanitizer has returned; a result of `None` has none.

    Raises:
        DumpError: the value has no JSON.
        SessionError: the session is closed, or its store cannot hold the item.
    """
    shown = tool.result_masking.mask(dump(value))
    texts = [] if value is None else [text for text in leaves(shown) if MASK not in text]
    session.log_item(Sanitized, Sanitized(tool.name, *ref.stored, tuple(dict.fromkeys(texts))), ref, written="deferred")


def are_sanitized(session: Session, arguments: JudgedArguments) -> bool:
    """Whether all values of the arguments were returned by sanitizers of the session, by any of them.

    Arguments without a value are not: that the call is made at all may be what the content asks for. Nor is a secret,
    which is compared with nothing.
    """
    wanted = arguments.chosen()
    if not wanted or not len(session[Sanitized]) or any(MASK in text for text in wanted):
        return False
    return wanted <= {value for item in session[Sanitized] for value in item.values}
