"""What a session is made with, checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import cast

from handrail.errors import InvalidArgumentError
from handrail.errors.mistakes import check_argument

_TAGS = "a mapping from text to text: {'customer': '7'}"


def check_given(function: str, session_id: object, tags: object = None) -> None:
    """Refuse an id or tags that no store could hold.

    Args:
        function: who was given them.
        session_id: the id; `None` for one that is yet to be made.
        tags: the tags; `None` for none.

    Raises:
        InvalidArgumentError: the id is not text, or has a lone surrogate; or the tags are not text.
    """
    expected = "text of valid Unicode: 'desk' or str(number)"
    check_argument(function, "session_id", session_id, (str, NoneType), expected)
    try:
        str(session_id).encode()
    except UnicodeEncodeError:
        fault = InvalidArgumentError(function=function, argument="session_id", given=session_id, expected=expected)
        raise fault from None
    if tags is None:
        return
    check_argument(function, "tags", tags, Mapping, _TAGS)
    for name, value in cast("Mapping[object, object]", tags).items():
        check_argument(function, "a name in tags", name, str, _TAGS)
        check_argument(function, f"tags[{name!r}]", value, str, "text; write str(...) around it")
