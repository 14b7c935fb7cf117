"""Secret arguments are masked in what is stored of a call: in the conversation that asks for it, and in its record.

The process that runs a call has its arguments as the model wrote them: the handler gets them, and so does the provider
with the next request. What is stored, and what listeners are notified of, has `MASK` in place of each secret, from the
first write on. A call that another process resumes has the mask, which is not the secret: it is refused, and the model
reads that it has to ask again (`handrail.runtime.steps`).

Which arguments are secret is known by the name of the tool. In the messages of a provider a call is an object that has
the name of the tool beside its arguments; it is recognized by the names that providers give these two. What else the
messages of the same part say of a secret is replaced where it has at least eight characters.

Instructions come from a file of the operator or from the program, so they are stored without the secrets that a
`Redaction` recognizes. What a user or the model says is not changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import from_json

from handrail.redaction import MASK, Redaction, current_redaction
from handrail.serde import Masking
from handrail.serde.json_schema import is_array, is_object
from handrail.session.call_ref import ToolCall

if TYPE_CHECKING:
    from handrail.session.conversation import ConversationPart

_NAMES: Final = ("tool_name", "name")
_ARGUMENTS: Final = ("args", "arguments", "input")
"""What PydanticAI and providers call the tool and the arguments of a call, in the object of the call."""

_INSTRUCTIONS: Final = "instructions"
"""The instructions in a request of PydanticAI."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class CallMasking:
    """Which arguments of the calls of a session are secret. Executors add their tools; threads may share it.

    Attributes:
        on_added: called when a tool with secrets was added: what waits to be stored is masked once more.
    """

    __slots__ = ("_tools", "on_added")

    def __init__(self) -> None:
        """Begin with no tool."""
        self._tools: dict[str, tuple[Masking, ...]] = {}
        self.on_added: Callable[[], object] = bool  # does nothing

    def add(self, tool: str, masking: Masking) -> None:
        """Take note of a tool; several of one name, in the prompts of one session, are all heeded.

        Args:
            tool: its name, as a model says it.
            masking: which of its parameters are secret.
        """
        known = self._tools.get(tool, ())
        if masking.hides and masking not in known:
            self._tools[tool] = (*known, masking)
            self.on_added()

    def of(self, tool: str) -> tuple[Masking, ...]:
        """What is known of a tool of that name; empty if it has no secrets."""
        return self._tools.get(tool, ())

    @property
    def masks(self) -> Mapping[type[Any], Callable[[Any], object]]:
        """What makes of an item of a LOG what is stored of it, by its type."""
        from handrail.session.conversation import ConversationPart  # noqa: PLC0415

        return {ConversationPart: self.part}

    def logs(self, logs: Mapping[type[Any], tuple[Any, ...]]) -> Mapping[type[Any], tuple[Any, ...]]:
        """The items of LOG slices as they leave the process: the conversation without secrets."""
        masks = self.masks
        return {kind: tuple(map(masks[kind], items)) if kind in masks else items for kind, items in logs.items()}

    def part(self, part: ConversationPart) -> ConversationPart:
        """A part of a conversation as it is stored; the same object if it has no secrets."""
        instructed = tuple(map(_instructed, part.messages))
        if any(shown is not message for shown, message in zip(instructed, part.messages, strict=True)):
            part = replace(part, messages=instructed)
        if not self._tools:
            return part
        found: set[str] = set()
        messages = [self._message(message, found) for message in part.messages]
        calls = tuple(
            replace(call, arguments=self._words(call.name, call.arguments, found)) if self.of(call.name) else call
            for call in part.calls
        )
        if found:
            spoken = Redaction(values=found, forms=())
            messages = [_without(message, spoken) for message in messages]
        masked = replace(part, messages=tuple(messages), calls=calls)
        return part if masked == part else masked

    def _message(self, node: Any, found: set[str]) -> Any:  # noqa: ANN401 - decoded JSON
        if is_array(node):
            return [self._message(item, found) for item in node]
        if not is_object(node):
            return node
        tool = next((name for key in _NAMES if isinstance(name := node.get(key), str) and name in self._tools), None)
        return {
            key: self._message(item, found) if tool is None or key not in _ARGUMENTS else self._words(tool, item, found)
            for key, item in node.items()
        }

    def _words(self, tool: str, words: Any, found: set[str]) -> Any:  # noqa: ANN401 - decoded JSON
        masked = words
        for masking in self.of(tool):
            masked = masked_words(masked, masking)
        if masked is not words:
            plain = _decoded(words)
            for masking in self.of(tool):
                found.update((words,) if plain is _NOT_JSON else masking.secrets_in(plain))
            if isinstance(words, str | bytes | bytearray):
                found.update(_replaced_values(words))
        return masked


def _instructed(message: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """A message without secrets in its instructions; the same object if there are none."""
    said = message.get(_INSTRUCTIONS) if is_object(message) else None
    if not isinstance(said, str):
        return message
    shown = _shown(said, current_redaction())
    return message if shown == said else {**message, _INSTRUCTIONS: shown}


@lru_cache(maxsize=32)  # each request has them, mostly the same
def _shown(instructions: str, redaction: Redaction) -> str:
    return redaction.text(instructions)


def masked_call(call: ToolCall, masking: Masking) -> ToolCall:
    """A call without its secret arguments, as it is recorded.

    Args:
        call: the call.
        masking: which parameters of its tool are secret.
    """
    written = None if call.written is None else masked_words(call.written, masking)
    return replace(call, arguments=masked_words(call.arguments, masking), written=written)


def masked_words(words: Any, masking: Masking) -> Any:  # noqa: ANN401 - an adapter may hand over anything
    """Arguments without secrets, in the form that they have; the same object if they have none.

    Text that is not JSON is masked whole.
    """
    decoded = _decoded(words)
    masked = masking.mask(decoded)
    if masked == decoded and decoded is not _NOT_JSON:
        return words
    if decoded is _NOT_JSON:
        return MASK
    return _encode(masked) if isinstance(words, str | bytes | bytearray) else masked


_NOT_JSON: Final = object()


def _decoded(words: Any) -> Any:  # noqa: ANN401 - as above
    if not isinstance(words, str | bytes | bytearray):
        return dict(cast("Mapping[object, object]", words)) if isinstance(words, Mapping) else words
    try:
        return from_json(words or "{}")
    except (ValueError, TypeError):  # the latter for a lone surrogate
        return _NOT_JSON


def _replaced_values(words: str | bytes | bytearray) -> set[str]:
    """The texts in JSON whose name is given once more in the same object, so that decoding loses them."""
    lost: set[str] = set()

    def take(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        last = dict(pairs)
        lost.update(item for name, item in pairs if isinstance(item, str) and item != last[name])
        return last

    with suppress(ValueError, RecursionError):  # not JSON
        json.loads(words, object_pairs_hook=take)
    return lost


def _without(node: Any, spoken: Redaction) -> Any:  # noqa: ANN401 - as above
    if isinstance(node, str):
        return spoken.text(node)
    if is_object(node):
        return {key: _without(item, spoken) for key, item in node.items()}
    return [_without(item, spoken) for item in node] if is_array(node) else node
