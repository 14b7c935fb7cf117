"""The calls of the last reply of a conversation, which are held until their outcomes are known."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handrail.session.call_ref import CallRef
from handrail.session.conversation_parts import ConversationPart, RequestedCall
from handrail.transcript.call_outcomes import AskedCall
from handrail.transcript.items import ConversationId, MessageBlock, TranscriptMessage
from handrail.transcript.provider_messages import (
    AnswerPiece,
    AskedPiece,
    MessagePiece,
    SaidPiece,
    message_pieces,
)

_MODEL = "assistant"
_TOOL = "tool"


@dataclass(slots=True)
class _Draft:
    """A message while its pieces are collected."""

    role: str
    blocks: list[MessageBlock] = field(default_factory=list[MessageBlock])
    calls: list[AskedCall] = field(default_factory=list[AskedCall])

    @property
    def is_answered(self) -> bool:
        """Whether one of its calls is answered, so that what follows is another message."""
        return any(call.answer is not None for call in self.calls)


@dataclass(frozen=True, slots=True)
class ReadReply:
    """A message, and the calls that it asks for.

    Attributes:
        message: the message.
        calls: its calls, in the order asked.
    """

    message: TranscriptMessage
    calls: Sequence[AskedCall]


class HeldReply:
    """The calls of the last reply of one conversation.

    Args:
        conversation: the conversation.
    """

    __slots__ = ("_calls", "_conversation", "_reported")

    def __init__(self, conversation: ConversationId) -> None:
        self._conversation = conversation
        self._calls: deque[AskedCall] = deque()
        # The ids of calls of this reply that were taken already: their answers are not messages of their own.
        self._reported: Counter[str] = Counter()

    def hold(self, calls: Iterable[AskedCall]) -> None:
        """Hold the calls of another reply; those of the last one were taken before."""
        self._calls.extend(calls)

    def close(self) -> Iterator[AskedCall]:
        """Take all calls: another message follows, or the transcript ends."""
        while self._calls:
            yield self._calls.popleft()
        self._reported.clear()

    def settled(self) -> Iterator[AskedCall]:
        """Take the calls about which nothing will change, up to the first one that is not settled."""
        while self._calls and self._calls[0].is_settled:
            call = self._calls.popleft()
            self._reported[call.given_id] += 1
            yield call

    def find(self, ref: CallRef) -> AskedCall | None:
        """The call of an identity; `None` if it is not held."""
        for call in self._calls:
            if call.is_named(ref):
                return call
        return None

    def is_asked_by(self, part: ConversationPart) -> bool:
        """Whether a part asks for the calls that are held."""
        asked = set(part.call_refs)
        return all(call.ref in asked for call in self._calls)

    def split(self, part: ConversationPart, messages: Iterable[Any]) -> list[ReadReply]:
        """The messages of a part with their calls; what answers the calls that are held is noted with these.

        Args:
            part: the part.
            messages: those of its messages that are shown.
        """
        drafts: list[_Draft] = []
        pieces = [piece for message in messages for piece in message_pieces(message)]
        stated = list(zip(part.calls, part.call_refs, strict=True)) if part.calls else []
        refs = _stated_refs(pieces, stated)
        for place, piece in enumerate(pieces):
            self._add(drafts, piece, part, refs.get(place))
        if len(refs) < len(stated):
            known = {call.ref for call in (*self._calls, *_calls(drafts))}
            # A form that is not known here, whose calls the program has stated.
            for call, ref in stated:
                if ref not in known:
                    self._add(drafts, AskedPiece(call.id, call.name, call.arguments), part, ref)
        return [ReadReply(self._message(draft, part), draft.calls) for draft in drafts]

    def _add(self, drafts: list[_Draft], piece: MessagePiece, part: ConversationPart, ref: CallRef | None) -> None:
        """Add a piece to the last message, or to a new one; `ref` is the identity of a call, if the part states it."""
        if isinstance(piece, AnswerPiece):
            if self._reported.get(piece.call_id):
                self._reported[piece.call_id] -= 1
                return
            call = self._answered(drafts, piece.call_id)
            if call is not None:
                call.answer = piece.text
                return
            piece = SaidPiece(_TOOL, "text", piece.text)
        role = piece.role if isinstance(piece, SaidPiece) else _MODEL
        if not drafts or drafts[-1].role != role or drafts[-1].is_answered:
            drafts.append(_Draft(role))
        if isinstance(piece, SaidPiece):
            drafts[-1].blocks.append(MessageBlock(piece.kind, piece.text))
            return
        drafts[-1].calls.append(
            AskedCall(
                conversation=self._conversation,
                ref=CallRef(piece.reply, piece.call_id) if ref is None else ref,
                given_id=piece.call_id,
                tool=piece.tool,
                arguments=piece.arguments,
                asked_at=part.at,
            )
        )

    def _message(self, draft: _Draft, part: ConversationPart) -> TranscriptMessage:
        blocks = tuple(draft.blocks)
        return TranscriptMessage(conversation=self._conversation, role=draft.role, blocks=blocks, at=part.at)

    def _answered(self, drafts: Sequence[_Draft], call_id: str) -> AskedCall | None:
        """The call of an id that is answered next: the first one without an answer, of the newest reply that has any.

        Some models count their ids from 0 in each reply, and some give several calls of one reply the same id.
        """
        asked = [call for call in (*self._calls, *_calls(drafts)) if call.given_id == call_id and call.answer is None]
        return next((call for call in asked if call.ref.reply == asked[-1].ref.reply), None)


def _stated_refs(
    pieces: Sequence[MessagePiece], stated: Sequence[tuple[RequestedCall, CallRef]]
) -> Mapping[int, CallRef]:
    """The identities of the calls that a part states, by the place of the piece that asks for the call."""
    found: dict[int, CallRef] = {}
    if not stated:
        return found
    refs: defaultdict[str, list[CallRef]] = defaultdict(list)
    for call, ref in stated:
        refs[call.id].append(ref)
    # From the end: messages of earlier replies, with calls of the same ids, may stand before.
    for place in range(len(pieces) - 1, -1, -1):
        piece = pieces[place]
        if isinstance(piece, AskedPiece) and (named := refs.get(piece.call_id)):
            found[place] = named.pop()
    return found


def _calls(drafts: Iterable[_Draft]) -> Iterator[AskedCall]:
    return (call for draft in drafts for call in draft.calls)
