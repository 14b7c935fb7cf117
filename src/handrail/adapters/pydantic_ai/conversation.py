"""The message history of a PydanticAI agent or a prompt, stored in the session, so that another process can resume it.

It is a conversation of the session (`handrail.session.conversation`) whose messages are those of PydanticAI. A run that
dies leaves a question, which is sent when it is resumed, or a reply whose calls have no answers: calls with a final
record are answered from the record, and only the others run. A session has one conversation of an agent, and one of
each prompt. `one_at_a_time` excludes a second run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError
from pydantic_ai import (
    DeferredToolResults,
    ModelRequest,
    ModelResponse,
    RunContext,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter, repair_messages
from pydantic_core import PydanticSerializationError, to_json

from handrail.adapters.pydantic_ai.replies import name_in_history
from handrail.errors import (
    AgentError,
    DurableEngineError,
    HandrailError,
    PromptEvaluationError,
    RecordingError,
    SessionLostError,
    StoreError,
)
from handrail.runtime.execution import ASYNC
from handrail.serde.json_values import escaped_within
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.conversation import Conversation, ConversationPart, RequestedCall

if TYPE_CHECKING:
    from pydantic_ai import ModelMessage, ToolCallPart

Owner = Literal["agent", "prompt"]
"""An agent, which has one conversation in its session, or a prompt, which starts one with each evaluation."""

UserPrompt = str | Sequence[UserContent]
"""A user prompt, in any form that PydanticAI accepts."""

MADE_AGAIN: Final[Mapping[str, str]] = {"handrail": "made again"}
"""The metadata of a call that is made again without having been approved."""


class StoredHistory:
    """The conversation of one agent or prompt in one session; tracks how much of it has been stored.

        stored = StoredHistory(session, "desk")
        agent = Agent(model, capabilities=[HandrailCapability(executor, conversation=stored)])
        result = agent.run_sync(None if stored.unfinished else question, message_history=stored.history)

    A run with the history continues the conversation. A run without it begins another one in its place, unless a run is
    unfinished.

    Args:
        session: the session.
        name: the agent or prompt.
        of: which of both it is.
        is_held: whether the caller has excluded other runs of the conversation, as `one_at_a_time` does.

    Attributes:
        session: the session.
        history: the stored messages, as `message_history` of a run.
        call_ids: the ids of all calls of the conversation.
        previous: the messages in whose place `begin_anew` has put another conversation.
        has_ended: whether the last evaluation of a prompt ended with its answer; an agent has `unfinished`.
    """

    def __init__(self, session: Session, name: str, *, of: Owner = "agent", is_held: bool = False) -> None:
        """Loads the stored messages.

        Raises:
            AgentError: they cannot be read, or belong to another agent.
            StoreError: the store cannot be read.
        """
        self.session: Session = session
        self._name = name
        self._owner: Owner = of
        self._is_held = is_held
        self._saving = asyncio.Lock()  # a run that is cancelled saves while a task of PydanticAI still does
        self._conversation = Conversation(session[ConversationPart], session.calls, of, name)
        self._load()

    def _load(self) -> None:
        session, owner, name = self.session, self._owner, self._name
        parts = session[ConversationPart].all() if owner == "agent" else ()
        if other := next((part.name for part in parts if part.speaker == owner and part.name != name), None):
            raise AgentError(
                f"session {session.session_id!r} holds a conversation of agent {other}, so {name} cannot continue "
                "it; use a separate session for each agent"
            )
        self._whole = False
        self.previous: list[ModelMessage] = []
        parts = self._conversation.parts
        self.history: list[ModelMessage] = _read(parts, f"session {session.session_id!r}")
        self.has_ended: bool = bool(parts) and parts[-1].ended
        # Of the last reply: what was stored with it, or later with nothing new to the conversation.
        self._unchecked = bool(parts) and parts[-1].unchecked
        self._in_store: Sequence[ModelMessage] = tuple(self.history)
        self._latest: Sequence[ModelMessage] = self.history
        # Ids of the whole conversation, because some models restart their ids in each reply.
        replies = (message for message in self.history if isinstance(message, ModelResponse))
        self.call_ids: set[str] = {call.tool_call_id for reply in replies for call in reply.tool_calls}

    @property
    def unanswered(self) -> tuple[ToolCallPart, ...]:
        """The unanswered calls of the model's last reply."""
        return _unanswered(self.history)

    @property
    def unfinished(self) -> bool:
        """Whether a run ended before the model had given its answer.

        A prompt's conversation is finished only when its answer has been accepted; an agent's as soon as the model has
        replied without a call, unless the reply was to be checked for completion, and was not.
        """
        if not self.history or self.has_ended:
            return False
        waits = isinstance(self.history[-1], ModelRequest) or bool(self.unanswered)
        return self._owner == "prompt" or self._unchecked or waits

    @property
    def takes_input(self) -> bool:
        """Whether a message of the user can follow: the last run has ended, or the model has not replied in it."""
        return not self.unfinished or bool(self._waiting_prompts)

    @property
    def unchecked_answer(self) -> ModelResponse | None:
        """The answer with which the conversation ends, if it is still to be checked for completion."""
        return self._last_reply if self._unchecked else None

    @property
    def _last_reply(self) -> ModelResponse | None:
        last = self.history[-1] if self.history else None
        return last if isinstance(last, ModelResponse) else None

    def is_asked(self, user_prompt: UserPrompt | None) -> bool:
        """Whether the conversation began with a user prompt, or waits for the reply to it; `None` is any."""
        began = user_prompt is None or _content(user_prompt) in _prompts(self.history[:1])
        return began or self.is_awaiting(user_prompt)

    def is_awaiting(self, user_prompt: UserPrompt | None) -> bool:
        """Whether the conversation ends with a user prompt to which the model has not replied."""
        return user_prompt is not None and self._waiting_prompts[-1:] == [_content(user_prompt)]

    @property
    def _waiting_prompts(self) -> list[UserPrompt]:
        return _prompts(self.history[-1:]) if self.unfinished and not self.unanswered else []

    @property
    def deferred_results(self) -> DeferredToolResults | None:
        """Makes calls that were left open again, in a run with the history; `None` if none was.

        It approves none of them: the question about a call is asked again, unless a recorded answer is found.
        """
        ids = [call.tool_call_id for call in self.unanswered]
        if not ids or not isinstance(self.history[-1], ModelRequest):  # no other call of the reply was answered
            return None
        metadata = {call_id: dict(MADE_AGAIN) for call_id in ids}
        return DeferredToolResults(approvals=dict.fromkeys(ids, True), metadata=metadata)

    @property
    def answer(self) -> str:
        """The text of the model's last reply."""
        reply = self._last_reply
        return "" if reply is None else reply.text or ""

    @property
    def resumable(self) -> list[ModelMessage]:
        """The history without a final reply that has no calls: the model is asked for that one again.

        An answer that is still to be checked stays: the run begins with the check.
        """
        reply = self._last_reply
        is_answer = reply is not None and not reply.tool_calls
        return self.history[:-1] if is_answer and not self._unchecked else self.history

    def note_request(self, digests: Mapping[str, str]) -> None:
        """Notes digests of the parts of the last request, which are recorded with the reply to it."""
        self._conversation.digest_request = lambda: digests

    def begin_anew(self) -> None:
        """Starts another conversation: earlier messages do not belong to it, and are `previous`."""
        self.previous = self.history
        self.history, self._in_store, self._latest = [], (), ()
        # The next stored part is marked as whole, so a reader skips everything before it. Nothing is deleted from the
        # LOG.
        self.has_ended, self._whole, self._unchecked = False, True, False
        self.call_ids.clear()

    @asynccontextmanager
    async def run(self, history: Sequence[ModelMessage]) -> AsyncGenerator[None]:
        """A run of the conversation that begins with a history: what is recorded in it is stored, however it ends.

        Raises:
            AgentError: another run has the conversation, or the last one is unfinished and its history was not given.
            SessionError: as for `save`.
        """
        with nullcontext() if self._is_held else one_at_a_time(self.session, self._name, of=self._owner):
            await self._off_loop(partial(self._begin, history))
            try:
                yield
            except BaseException as error:
                try:
                    # The conversation may end in the middle of a reply; a later run resumes from it.
                    if isinstance(error, GeneratorExit):  # its loop was closed: nothing can be awaited any more
                        self.save(self._latest)
                    else:
                        await self.save_async(self._latest)
                except (
                    HandrailError,
                    PydanticSerializationError,
                ) as fault:  # what ended the run is raised, and not this
                    error.add_note(f"its last messages could not be stored: {fault}")
                raise

    def _begin(self, history: Sequence[ModelMessage]) -> None:
        if not self._is_held:
            # Another run may have ended since the messages were loaded.
            self._load()
            # PydanticAI joins neighbouring requests, and so does `_load`.
            repaired = repair_messages(history, repair_last_response=False)
            # A run that continues an unfinished one begins with its last reply, and what follows that.
            replies = [place for place, message in enumerate(self.history) if isinstance(message, ModelResponse)]
            end = self.history[replies[-1] if replies else 0 :]
            if self.unfinished and not _is_same(end, repaired[-len(end) :]):
                raise AgentError(
                    f"the last run of {self._name} in session {self.session.session_id!r} is unfinished; resume it "
                    "with its history and without a user prompt: run(message_history=stored.history)"
                )

    async def _off_loop(self, act: Callable[[], None]) -> None:
        async with self._saving:
            await ASYNC.write_to(self.session.store, act)

    async def record_request(self, messages: Sequence[ModelMessage]) -> None:
        """Stores a request, as `record` does; one that answers calls or a check is made again."""
        *before, last = messages
        if isinstance(last, ModelRequest) and not self._unchecked and not _unanswered(self._latest):
            await self.record([*before, replace(last, parts=list(last.parts))])

    async def record(self, messages: Sequence[ModelMessage], *, unchecked: bool = False) -> None:
        """Stores the messages; in a session in memory only at the end of the run.

        No other process can resume a session in memory, and writing each reply as JSON takes time.

        Args:
            messages: the whole conversation; it must not be changed afterwards.
            unchecked: whether they end with an answer that is still to be checked for completion.
        """
        self._latest, self._unchecked = messages, unchecked
        if self.session.store is not None:
            await self.save_async(messages)

    async def save_async(self, messages: Sequence[ModelMessage], *, has_ended: bool = False) -> None:
        """Stores as `save` does, without holding the event loop."""
        await self._off_loop(partial(self.save, messages, has_ended=has_ended))

    def save(self, messages: Sequence[ModelMessage], *, has_ended: bool = False) -> None:
        """Stores the new messages since the last call; all of them, if messages have been dropped or edited since.

        Messages are edited by making others in their place: a message that is changed itself counts as unchanged until
        the next run. `has_ended` says that the run has ended with an answer.

        Raises:
            PydanticSerializationError: a message has a value that cannot be written as JSON.
            SessionError: the session is closed.
            RecordingError: the session has passed to another process, or its store is unavailable; what was not stored
                is stored with the next unit.
        """
        # A history processor may have replaced or dropped messages; then a suffix would not fit the stored part.
        whole = self._whole or not _is_same(self._in_store, messages[: len(self._in_store)])
        new = messages if whole else messages[len(self._in_store) :]
        # An agent's final messages are stored already; a prompt's conversation is finished by its mark, and so is
        # one whose answer was to be checked.
        if not new and not (has_ended and (self._owner == "prompt" or self._unchecked)):
            return
        unchecked = self._unchecked and not has_ended
        part = self._part(messages, new, continues=not whole)
        part = replace(part, ended=has_ended, restarts=whole, unchecked=unchecked)
        # A reply with calls is stored before the first of them starts, with its claim if it has one; what the user
        # says, before the model is asked.
        has_calls = bool(part.calls) and isinstance(new[-1], ModelResponse) and not has_ended
        failure: Exception | None = None
        try:
            self._conversation.add(part, write="deferred" if has_calls else "surely")
        except (SessionLostError, StoreError) as error:
            failure = error  # the session has the part, and writes it with its next unit
        # Only after the append: if the session refuses it, the next call stores the same messages again.
        self._in_store, self._whole = tuple(messages), False
        self.history, self.has_ended, self._unchecked = list(messages), has_ended, unchecked
        if failure is not None:
            raise RecordingError("messages were not stored", failure, session_id=self.session.session_id)

    def _part(
        self, messages: Sequence[ModelMessage], new: Sequence[ModelMessage], *, continues: bool
    ) -> ConversationPart:
        """The last messages of a conversation with what they ask for; `continues` if those before are stored."""
        plain = tuple(ModelMessagesTypeAdapter.dump_python(list(new), mode="json"))
        open_calls = _unanswered(messages)
        if open_calls and continues and not any(isinstance(message, ModelResponse) for message in new):
            returns = (part for message in new for part in message.parts if isinstance(part, ToolReturnPart))
            return ConversationPart(plain, answers=tuple(part.tool_call_id for part in returns))
        calls = tuple(RequestedCall(call.tool_call_id, call.tool_name, call.args or "{}") for call in open_calls)
        return ConversationPart(plain, _ref(messages, open_calls[0]).reply if open_calls else None, calls)


@contextmanager
def one_at_a_time(session: Session, name: str, *, of: Owner) -> Generator[None]:
    """Excludes other runs of an agent or prompt from its conversation until the end of the block.

    Concurrent runs would not see each other's messages, which could not be separated afterwards.

    Raises:
        AgentError: an agent is running on this session.
        PromptEvaluationError: the prompt is being evaluated on this session.
    """
    conversation = (of, "" if of == "agent" else name)
    # `dict.setdefault` is atomic: of two threads one finds the conversation free.
    running = session.attached.setdefault(conversation, own := [name])
    if running is not own:
        raise _in_use(session.session_id, running[0], name, of)
    try:
        yield
    finally:
        del session.attached[conversation]


def refuse_second_owner(ctx: RunContext[Any]) -> None:
    """Refuses to store the conversation of a run that a durable engine of PydanticAI runs, and so stores too.

    Raises:
        DurableEngineError: it is such a run. Nothing was asked, run or stored.
    """
    # A property of all capabilities of engines, true where the engine runs the code again.
    engines = (other for other in ctx.capabilities.values() if getattr(other, "in_durable_context", False))
    if (engine := next(engines, None)) is not None:
        name = type(engine).__name__
        raise DurableEngineError(
            f"{name} stores the conversation of this run, and conversation= would store it too. After a crash the "
            "engine runs it again from its beginning, and for Handrail that would be another run. Leave conversation= "
            "out of the capability, and keep the engine's: calls are answered from their records in the session all "
            "the same. A PydanticAIAdapter always stores its conversation: inside an engine use an Agent with "
            "HandrailCapability(executor)",
            engine=name,
        )


def _in_use(session_id: str, running: str, name: str, of: Owner) -> HandrailError:
    if of == "prompt":
        return PromptEvaluationError(
            f"{name} is being evaluated on session {session_id!r}. A stored session holds one conversation of each "
            "prompt at a time; evaluate the other one on a separate session, such as session.child()",
            phase="request",
        )
    return AgentError(
        f"agent {running} is running on session {session_id!r}, so {name} cannot start there. A session holds one "
        f"conversation of one agent, with one run at a time; start it when that run has ended, or run {name} on a "
        "session of its own"
    )


def _read(parts: Sequence[ConversationPart], where: str) -> list[ModelMessage]:
    history: list[ModelMessage] = []
    for number, part in enumerate(parts, start=1):
        try:
            history += ModelMessagesTypeAdapter.validate_json(to_json(part.messages))
        except (ValidationError, PydanticSerializationError) as error:
            raise AgentError(
                f"part {number} of the conversation in {where} cannot be read by this version of PydanticAI: {error}"
            ) from error
    # PydanticAI does the same at the start of a run, and the stored conversation is counted in messages.
    return repair_messages(history, repair_last_response=False)


def _content(user_prompt: UserPrompt) -> str | list[UserContent]:
    return user_prompt if isinstance(user_prompt, str) else list(user_prompt)


def _prompts(messages: Sequence[ModelMessage]) -> list[UserPrompt]:
    return [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


def _unanswered(history: Sequence[ModelMessage]) -> tuple[ToolCallPart, ...]:
    answers: set[str] = set()
    for message in reversed(history):
        if isinstance(message, ModelResponse):
            # Only the last reply may have unanswered calls: PydanticAI answers all calls before it requests the next
            # one.
            return tuple(call for call in message.tool_calls if call.tool_call_id not in answers)
        answers |= {part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)}
    return ()


def _ref(history: Sequence[ModelMessage], call: ToolCallPart) -> CallRef:
    place = max(place for place, message in enumerate(history) if isinstance(message, ModelResponse))
    return CallRef(name_in_history(history, place), call.tool_call_id)


def _is_same(ones: Sequence[ModelMessage], others: Sequence[ModelMessage]) -> bool:
    # Within a run nearly all are the same objects, so a step costs little however long the history is.
    are_equal = (one is other or _is_equal(one, other) for one, other in zip(ones, others, strict=False))
    return len(ones) == len(others) and all(are_equal)


def _is_equal(one: ModelMessage, other: ModelMessage) -> bool:
    # A loaded message has decoded JSON where the one of this process has a value of its type, such as a dataclass.
    return one.parts == other.parts or _plain_parts(one) == _plain_parts(other)


def _plain_parts(message: ModelMessage) -> list[dict[str, Any]]:
    (plain,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    return [{**escaped_within(part), "timestamp": None} for part in plain["parts"]]
