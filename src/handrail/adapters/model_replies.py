"""The replies of a model that a program asks through the SDK of a provider: appended, run, and answered.

`handrail.adapters.openai` and `handrail.adapters.anthropic` translate; what they share is here.

| step | by |
|---|---|
| read a response: its messages, its calls, and whether it is complete | `ProviderForm.read` of the adapter |
| name the reply, and append it to `session.conversation` with its calls | `ProviderForm.answer` |
| run the calls, those of an open reply too | `ToolExecutor.answer` |
| write the answers in the form of the provider | `ProviderForm.write` of the adapter |
| append them, unless calls wait for a person | `ProviderForm.answer` |

No request is made, and no SDK is imported: a response is an object whose attributes are read, or decoded JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

from pydantic_core import to_jsonable_python

from handrail.adapters.loop import claim_reply_name
from handrail.adapters.tool_executor import Answers, ToolExecutor
from handrail.errors import PromptEvaluationError, SessionUseError
from handrail.errors.developer import check_argument
from handrail.runtime import ToolCall, ToolMessage
from handrail.runtime.execution import ASYNC
from handrail.serde.json_schema import is_array
from handrail.serde.json_values import escaped_within
from handrail.session.calls import is_reply
from handrail.session.conversation import ConversationPart, masked_part

if TYPE_CHECKING:
    from handrail.adapters.tool_executor import OpenQuestion, PendingAnswers
    from handrail.prompt import Tool
    from handrail.session import Session

Json: TypeAlias = dict[str, Any]
"""An object of decoded JSON."""

IMAGES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""The media types of the images that models see."""

PDF: Final = "application/pdf"
"""The media type of the documents that models read."""


class ModelReply(NamedTuple):
    """A reply of the model.

    Attributes:
        id: the id that the provider gave it, until it has a name; empty if there is none.
        messages: what is appended of it, in the form of the provider.
        calls: its calls, in order.
        is_final: whether it is an answer, so that the model is not asked again.
        refusal: why the model refused; empty if it did not, or if the messages say so.
    """

    id: str
    messages: Sequence[Any]
    calls: Sequence[ToolCall] = ()
    is_final: bool = False
    refusal: str = ""


class ReplyItems(tuple[Any, ...]):  # noqa: SLOT001 - a tuple with attributes
    """What a reply of the model has added to the conversation, in order: its messages, and the answers to its calls.

    A program that has a list of its own extends it by these.

    Attributes:
        reply: the reply as the adapter has read it.
        questions: the calls that wait for a person. No answer to the reply was appended; `answer(executor)`, later,
            continues with these calls.
        prompt_changed: whether `executor.text` or `executor.tools` have changed.
    """

    reply: ModelReply = ModelReply("", ())
    questions: tuple[OpenQuestion, ...] = ()
    prompt_changed: bool = False

    @property
    def is_final(self) -> bool:
        """True if the reply is an answer, or a refusal. Nothing is left to ask."""
        return self.reply.is_final

    @property
    def text(self) -> str:
        """The text of the reply."""
        return _words(self.reply.messages, "text")

    @property
    def refusal(self) -> str:
        """The words with which the model refused to answer; empty if it did not."""
        return self.reply.refusal or _words(self.reply.messages, "refusal")

    @property
    def continues(self) -> bool:
        """True if the model is to be asked next: the reply is not final, and no call of it waits for a person."""
        return not (self.is_final or self.questions)


class ProviderForm(NamedTuple):
    """The form in which a provider has replies and answers, and what answers a reply in it.

    Attributes:
        function: the function that answers a response, as it is imported.
        response: the responses of the provider, in words.
        read: reads a response; raises `IncompleteReplyError`, and an exception of Python for what is not one.
        write: writes the answers to the calls of a reply, in the order of the calls, below the messages of the reply.
    """

    function: str
    response: str
    read: Callable[[Any], ModelReply]
    write: Callable[[Sequence[Any], Sequence[ToolMessage]], list[Json]]

    def tools(self, executor: ToolExecutor) -> Sequence[Tool[Any, Any]]:
        """The tools of an executor; raises `InvalidArgumentError` for anything else."""
        _session(executor, "tools")
        return executor.tools

    def answer(self, executor: ToolExecutor, response: object) -> ReplyItems:
        """Appends a reply, runs its calls, and appends their answers; without a response, finishes an open reply."""
        reply = self._append_reply(executor, response)
        answers = executor.answer(reply.calls, reply=reply.id or None) if reply.calls else None
        return self._append_answers(executor, reply, answers, begins=response is not None)

    async def answer_async(self, executor: ToolExecutor, response: object) -> ReplyItems:
        """Answers as `answer` does, without blocking the event loop; reads run concurrently."""
        store = _session(executor).store
        reply = await ASYNC.write_to(store, partial(self._append_reply, executor, response))
        answers = await executor.answer_async(reply.calls, reply=reply.id or None) if reply.calls else None
        append = partial(self._append_answers, executor, reply, answers, begins=response is not None)
        return await ASYNC.write_to(store, append)

    def _append_reply(self, executor: ToolExecutor, response: object) -> ModelReply:
        session = _session(executor)
        talk = session.conversation
        if response is None:
            newest = next(reversed(talk.parts), ConversationPart(()))
            return ModelReply(talk.reply or "", newest.messages, talk.calls, newest.ended)
        reply = self._read_reply(response)
        if talk.reply is not None:
            raise SessionUseError(
                f"the calls of reply {talk.reply} have not been answered in the conversation of session "
                f"{session.session_id!r}, so no other reply can follow it; answer them first: answer(executor)"
            )
        if reply.calls:
            name = _claim_name(executor, reply)
            talk.append(*reply.messages, calls=reply.calls, reply=name)
            # As another process reads them that answers the reply after a kill.
            return ModelReply(name, reply.messages, talk.calls)
        if reply.messages:
            talk.append(*reply.messages, ended=reply.is_final)
        return reply

    def _read_reply(self, response: object) -> ModelReply:
        try:
            reply = self.read(response)
            for call in reply.calls:
                if not type(call.id) is type(call.name) is str:
                    raise TypeError("the id and the name of a call are texts")  # noqa: TRY301 - as what else is wrong
        except (AttributeError, LookupError, TypeError, ValueError):
            check_argument(self.function, "response", response, (), self.response)  # always raises: there is no type
            raise
        return reply

    def _append_answers(
        self, executor: ToolExecutor, reply: ModelReply, answers: Answers | PendingAnswers | None, *, begins: bool
    ) -> ReplyItems:
        written = self.write(reply.messages, answers) if isinstance(answers, Answers) else []
        if written:
            executor.environment.session.conversation.append(*written)
        items = ReplyItems((*(reply.messages if begins else ()), *written))
        items.reply = reply
        if answers is not None:
            items.prompt_changed = answers.prompt_changed
            items.questions = () if written else cast("PendingAnswers", answers).questions
        return items


def _session(executor: ToolExecutor, function: str = "answer") -> Session:
    check_argument(function, "executor", executor, ToolExecutor, "a ToolExecutor")
    return executor.environment.session


def _claim_name(executor: ToolExecutor, reply: ModelReply) -> str:
    session, now = executor.environment.session, executor.environment.clock.now()
    call_ids = [call.id for call in reply.calls]
    if is_reply(reply.id):
        if claim_reply_name(session, reply.id, call_ids, now):
            return reply.id
        # Compared as they are stored: another process has read the earlier reply without its secrets.
        mask = partial(masked_part, masking=session.call_masking)
        messages = mask(ConversationPart(escaped_within(tuple(reply.messages)))).messages
        if any(part.reply == reply.id and mask(part).messages == messages for part in session.conversation.parts):
            raise SessionUseError(
                f"response {reply.id} was answered before: its answers are in the conversation of session "
                f"{session.session_id!r}, so nothing was appended, and no call has run. If the server gives all "
                "responses one id, set it to '' before you answer one; then the replies are numbered"
            )
    names = (f"reply-{number}" for number in count(len(session[ConversationPart])))
    return next(name for name in names if claim_reply_name(session, name, call_ids, now))


def as_fields(value: Any) -> Json:  # noqa: ANN401 - of an SDK
    """The fields of an object of an SDK, or of its JSON; any other value has none."""
    # Not by `getattr`: pydantic takes longer to miss a field than all else that is read of a response.
    return cast("Json", value) if isinstance(value, dict) else getattr(value, "__dict__", {})


def as_json(value: Any) -> Json:  # noqa: ANN401 - of an SDK
    """An object of an SDK as JSON, as it is sent again: the fields that the provider has set, with null for NaN."""
    if isinstance(value, dict):
        return cast("Json", to_jsonable_python(escaped_within(value), inf_nan_mode="null"))
    # What a helper of the SDK has parsed for the program is not a field of the API.
    own = value.__api_exclude__ if _may_be_parsed(cast("object", type(value))) else None
    return cast("Json", value.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=own, warnings=False))


@lru_cache
def _may_be_parsed(kind: object) -> bool:
    # Found once: what a class of pydantic does not have takes a microsecond to be missed.
    return hasattr(kind, "__api_exclude__")


def _words(messages: Sequence[Any], kind: Literal["text", "refusal"]) -> str:
    return "".join(word for message in messages for word in _words_in(message, kind))


def _words_in(message: Json, kind: Literal["text", "refusal"]) -> Iterator[str]:
    if message.get("role") == "assistant":
        content = message.get("content")
        parts = content if is_array(content) else [{"text": content, "refusal": message.get("refusal")}]
        yield from (words for part in parts if isinstance(words := part.get(kind), str))


# -------------------------------------------------------------------------------------------- models that do not answer

_MODEL_PHASES = frozenset({"store", "request", "response"})
# By their names: the libraries are not imported for this.
_LIBRARIES = frozenset({"httpx", "httpx2", "openai", "anthropic", "pydantic_ai"})
_ERRORS = frozenset({"HTTPStatusError", "TransportError", "APIError", "ModelAPIError", "UnexpectedModelBehavior"})
_PASSING = frozenset({408, 409, 429, *range(500, 600)})


def may_pass(error: BaseException) -> bool:
    """Returns whether a model has not answered, or not in full, and may when it is asked again."""
    if isinstance(error, PromptEvaluationError):
        return error.phase in _MODEL_PHASES and _is_passing(error.__cause__) is not False
    return _is_passing(error) is True


def _is_passing(error: BaseException | None) -> bool | None:
    # `None` if it is not an error of a model.
    if isinstance(error, BaseExceptionGroup):  # that of several models of PydanticAI
        return any(map(_is_passing, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    kinds = {kind.__name__ for kind in type(error).__mro__ if kind.__module__.partition(".")[0] in _LIBRARIES}
    if kinds.isdisjoint(_ERRORS):
        return None
    status = getattr(error, "status_code", getattr(getattr(error, "response", None), "status_code", None))
    return status is None or status in _PASSING
