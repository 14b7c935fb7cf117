"""What was said between an agent and its model, kept in the session, so that another process can go on with it.

Each reply of the model is kept before any of its calls is carried out. A run that dies in between therefore leaves a
reply whose calls have no answers; when it is resumed, the calls that were recorded (`ToolInvoked`) are answered from
the record, and only the others are carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import ValidationError
from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import ModelMessagesTypeAdapter, repair_messages

from handrail.errors import AgentError
from handrail.runtime import ToolInvoked
from handrail.session import Session, SlicePolicy, stored_as


@stored_as("handrail.said")
@dataclass(frozen=True, slots=True)
class Said:
    """Messages of a conversation, in the order in which they were said. Its slice is a LOG.

    Attributes:
        agent: the agent whose conversation it is.
        messages: the messages as JSON, in the form that PydanticAI gives them.
        ended: whether a run ended with these messages, with an answer.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    agent: str
    messages: str
    ended: bool = False


class Conversation:
    """The conversation of one agent in one session; the one owner of how much of it has been kept.

    Attributes:
        history: what was said before this run.
        call_ids: the ids of all calls of the conversation.
    """

    __slots__ = ("_agent", "_ended", "_kept", "_noted", "_session", "call_ids", "history")

    def __init__(self, session: Session, agent: str) -> None:
        """Read what was said so far.

        Raises:
            AgentError: it cannot be read, or belongs to another agent.
        """
        self._session = session
        self._agent = agent
        self._ended = False
        self.history = self._read()
        self._kept = len(self.history)
        self._noted: Sequence[ModelMessage] = self.history
        self.call_ids = {
            call.tool_call_id
            for message in self.history
            if isinstance(message, ModelResponse)
            for call in message.tool_calls
        }

    @property
    def unanswered(self) -> tuple[ToolCallPart, ...]:
        """The calls of the model's last reply that have no answer in the conversation."""
        answered: set[str] = set()
        for message in reversed(self.history):
            if isinstance(message, ModelResponse):
                return tuple(call for call in message.tool_calls if call.tool_call_id not in answered)
            answered |= {part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)}
        return ()

    @property
    def unfinished(self) -> bool:
        """Whether a run ended before the model had given its answer."""
        if not self.history or self._ended:
            return False
        return isinstance(self.history[-1], ModelRequest) or bool(self.unanswered)

    @property
    def put_off(self) -> bool:
        """Whether some of the last reply's calls were answered and others left open, as for an approval."""
        return bool(self.unanswered) and isinstance(self.history[-1], ModelRequest)

    @property
    def answer(self) -> str:
        """The text of the model's last reply."""
        last = self.history[-1] if self.history else None
        return (last.text or "") if isinstance(last, ModelResponse) else ""

    def recorded(self) -> dict[str, ToolInvoked]:
        """The unanswered calls that were carried out and recorded all the same, by their ids."""
        wanted = {call.tool_call_id for call in self.unanswered}
        if not wanted:
            return {}
        return {event.call_id: event for event in self._session[ToolInvoked] if event.call_id in wanted}

    def note(self, messages: Sequence[ModelMessage]) -> None:
        """Keep what has been said; in a session in memory not before `keep_noted`.

        Nobody else can go on with a session in memory while this run lasts, and JSON of each reply takes its time.

        Args:
            messages: the whole conversation, which is not changed afterwards.

        Raises:
            SessionError: as for `keep`.
        """
        self._noted = messages
        if self._session.store is not None:
            self.keep(messages)

    def keep_noted(self) -> None:
        """Keep what has been noted, at the end of a run, however it ended."""
        self.keep(self._noted)

    def keep(self, messages: Sequence[ModelMessage], *, ended: bool = False) -> None:
        """Keep what has been said since the last time.

        Args:
            messages: the whole conversation.
            ended: whether the run has ended with an answer.

        Raises:
            SessionError: the session is closed, or has passed to another process.
            StoreUnavailableError: its store does not answer.
        """
        new = list(messages[self._kept :])
        if new:
            text = ModelMessagesTypeAdapter.dump_json(new).decode()
            self._session[Said].append(Said(self._agent, text, ended))
            self._kept += len(new)

    def _read(self) -> list[ModelMessage]:
        history: list[ModelMessage] = []
        session = self._session.session_id
        for number, said in enumerate(self._session[Said], start=1):
            if said.agent != self._agent:
                raise AgentError(
                    f"session {session!r} holds a conversation of agent {said.agent}, so {self._agent} cannot go on "
                    "with it; give each agent a session of its own"
                )
            try:
                part = ModelMessagesTypeAdapter.validate_json(said.messages)
            except ValidationError as error:
                raise AgentError(
                    f"part {number} of the conversation in session {session!r} cannot be read by this version of "
                    f"PydanticAI: {error}"
                ) from error
            history += part
            self._ended = said.ended
        # PydanticAI does the same at the start of a run, and what has been kept is counted in messages.
        return repair_messages(history, repair_last_response=False)
