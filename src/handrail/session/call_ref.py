"""A tool call as the model asks for it, and what names it within its session.

The identity of a call is (session, reply, call id). The id alone does not name a call: some servers count from 0 in
each reply. The reply is a permanent name of one answer of the model, such as the id that the provider gave it.

A call that the handler of another one makes has for its reply the identity of that one, behind a mark that no reply of
a model begins with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from handrail.serde.canonical import bytes_digest
from handrail.serde.formatting import shorten

REPLY_RULE = "text that is not empty and does not begin with '@', as the replies of nested calls do"
"""What can name a reply of the model, in words."""

MAX_IDENTITY_CHARACTERS = 500
"""The most characters that the reply or the id of a call may have to be looked up by."""

NESTED_SEPARATOR = "@"
"""What the reply of a nested call begins with, and no reply of a model."""

_SAFE = "".join(chr(code) for code in range(33, 127) if chr(code) not in "%/")
_NEEDS_NO_QUOTES = re.compile(r"[\w.:-]+", re.ASCII).fullmatch
_COMMON_ID = re.compile(rf"[ -~]{{1,{MAX_IDENTITY_CHARACTERS}}}").fullmatch
_LONGEST_KEY = 600
_LONGEST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model asked for.

    Attributes:
        id: names the call within its reply; the message that answers it carries the same id. Without a reply it names
            the call within its session, unless it is empty.
        name: the tool's name, as the model wrote it.
        arguments: the arguments as the JSON text of an object, or already decoded.
        written: the arguments as the model wrote them, where a person or a hook has changed them since; `None` where
            `arguments` are what the model wrote.
    """

    id: str
    name: str
    arguments: str | bytes | Mapping[str, Any] = "{}"
    written: str | bytes | Mapping[str, Any] | None = None

    @property
    def words(self) -> str | bytes | Mapping[str, Any]:
        """The arguments as the model wrote them; they are equal for the same call."""
        return self.arguments if self.written is None else self.written


class CallRef(NamedTuple):
    """Names a call within its session.

    Attributes:
        reply: the reply of the model that asked for the call; `None` if the program did not say. For a nested call,
            unless a reply was stated: `@` and the call in whose handler it is made.
        call_id: the id of the call, as the model gave it.
    """

    reply: str | None
    call_id: str

    @staticmethod
    def nested(parent: CallRef, call_id: str) -> CallRef:
        """A call that the handler of another one makes, without stating a reply."""
        return CallRef(f"{NESTED_SEPARATOR}{parent}", call_id)

    @property
    def parent(self) -> CallRef | None:
        """The call in whose handler this one is made; `None` if its reply names no call."""
        reply = self.reply
        return CallRef.parse(reply[1:]) if reply is not None and reply.startswith(NESTED_SEPARATOR) else None

    def __str__(self) -> str:
        """The call in one word: `reply/id`, or `id`; `/`, `%` and what is not printable ASCII are percent-encoded."""
        reply, call_id = self
        return _quoted(call_id) if reply is None else f"{_quoted(reply)}/{_quoted(call_id)}"

    @property
    def stored(self) -> CallRef:
        """The call as a store names it: a part that no store can look up is replaced by its digest.

        A model may send any id: an empty one, one of a megabyte, one that is not valid Unicode.
        """
        reply, call_id = self
        if is_storable_id(call_id) and (reply is None or is_storable_id(reply)):
            return self
        # The mark stays in front of the digest, so that no reply of a model can have the name of a nested call.
        mark = NESTED_SEPARATOR if type(reply) is str and reply.startswith(NESTED_SEPARATOR) else ""
        return CallRef(None if reply is None else storable_id(reply, mark), storable_id(call_id))

    @property
    def key(self) -> str:
        """The call in one word of at most 600 ASCII characters, for keys in a database: `str` of it, or its digest.

        A database refuses to index longer ones, and the names of nested calls hold those of their parents.
        """
        text = str(self)
        return text if len(text) <= _LONGEST_KEY else _digest(text)

    @property
    def is_named(self) -> bool:
        """Whether another call cannot have the same name: without a reply, an empty id names nothing."""
        return self.reply is not None or bool(self.call_id)

    @property
    def ancestors(self) -> Iterator[CallRef]:
        """The calls that it is nested in, the nearest first; only the outermost one can have a final record."""
        call = self.parent
        while call is not None:
            yield call
            call = call.parent

    @property
    def outermost(self) -> CallRef:
        """The call of the model that it is nested in; itself if it is one."""
        return list(self.ancestors)[-1] if self.parent is not None else self

    @staticmethod
    def parse(text: str) -> CallRef:
        """The call that `str` wrote; text that cannot be decoded is the id of a call without a reply."""
        # `str` percent-encodes `/` in both parts, so the text of a call has at most one.
        reply, slash, call_id = text.rpartition("/")
        try:
            decoded = unquote(call_id, errors="surrogatepass")
            return CallRef(unquote(reply, errors="surrogatepass") if slash else None, decoded)
        except UnicodeDecodeError:
            return CallRef(None, text)


def _quoted(text: str) -> str:
    return text if _NEEDS_NO_QUOTES(text) else quote(text, safe=_SAFE, errors="surrogatepass")


def is_storable_id(text: object) -> bool:
    """Whether text can be stored and looked up: 1 to 500 characters of valid Unicode without a zero."""
    if not isinstance(text, str):
        return False
    # The fast path: printable ASCII of permitted length needs none of the checks below.
    if _COMMON_ID(text):
        return True
    if not text or len(text) > MAX_IDENTITY_CHARACTERS or "\0" in text:
        return False
    # A lone surrogate cannot be encoded. `ignore` drops it, so the text differs.
    return text.encode(errors="ignore").decode() == text


def is_reply(text: object) -> bool:
    """Whether text can name a reply of the model: it can be stored, and is not marked as that of a nested call."""
    return is_storable_id(text) and not str(text).startswith(NESTED_SEPARATOR)


def distinct_id(call_id: str, taken: set[str]) -> str:
    """What names a call among those of its reply: its id, or `call` for an empty one; with a number if that is taken.

    Some models give several calls of a reply one id, or none.

    Args:
        call_id: the id of the call.
        taken: what names the calls before it; the result is added.
    """
    first, number = call_id or "call", 1
    name = first
    while name in taken:
        number += 1
        name = f"{first}_{number}"
    taken.add(name)
    return name


def reply_name(text: object) -> str | None:
    """What names a reply of the model in a session: the text, or its digest where no store could look it up.

    It is `None` for what cannot name one: anything but text, no text, and what is marked as the reply of nested calls.
    """
    if is_reply(text):
        return str(text)
    if not isinstance(text, str) or not text or text.startswith(NESTED_SEPARATOR):
        return None
    return storable_id(text)


def shown_id(text: object) -> str:
    """The reply or the id of a call as messages show it: quoted, and cut if it is long."""
    return shorten(repr(text), _LONGEST_SHOWN)


def storable_id(text: object, mark: str = "") -> str:
    """The reply or the id of a call as a store names it: itself, or its digest where no store could look it up.

    Args:
        text: the reply or the id.
        mark: what the digest begins with.
    """
    if is_storable_id(text):
        return str(text)
    return f"{mark}{_digest(str(text))}"


def _digest(text: str) -> str:
    return f"sha256-{bytes_digest(text.encode(errors='surrogatepass'))}"


def checked_reply(reply: str) -> str:
    """The name of a reply.

    Raises:
        ValueError: it cannot name a reply.
    """
    name = reply_name(reply)
    if name is None:
        raise ValueError(
            f"reply is {reply!r:.80}; it names a reply of the model, as {REPLY_RULE}. Give the id that the provider "
            "gave the response, for one"
        )
    return name


def identified(call: ToolCall, reply: str | None, taken: set[str]) -> ToolCall:
    """The call under an id that no call before it in its reply has.

    Args:
        call: the call, as the provider said it.
        reply: its reply; without one, its id names it within the session.
        taken: the ids of the calls before it; that of the result is added.
    """
    # What is not a call, or has no text for an id, is refused where it is executed.
    if reply is None or type(call) is not ToolCall or type(call.id) is not str:
        return call
    name = distinct_id(call.id, taken)
    return call if name == call.id else replace(call, id=name)
