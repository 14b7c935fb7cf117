"""Names the replies of a model in PydanticAI's messages, finds their calls, and records what answers them from outside.

| the response | its name |
|---|---|
| has been named before | that name, from `metadata["handrail_reply"]` |
| has a provider id that no other reply of the session has (`handrail.adapters.loop.claim_reply_name`) | that id |
| has a `run_id`, or belongs to the current run | `<run_id>:<ordinal among the responses of that run>` |
| has neither, because the history was created by hand | a digest of its calls and of its position |

A name that cannot be stored, or starts like the replies of nested calls, is replaced by its digest. The name is written
into the metadata of the response, which are not sent to the model, so that another process, or a history from which
messages have been dropped, has the same name: by a capability when the response arrives, by a bare toolset when the
first call starts.

PydanticAI answers some calls without the pipeline:

| the call | its record |
|---|---|
| waits, and is answered by `ToolDenied` in `DeferredToolResults` | refused at its approval, with the message |
| waits, and has a result in `DeferredToolResults.calls` | a success or a failure, as the model reads it |
| belongs to an evaluation that `unfinished="discard"` has ended | refused at its approval |

A result that comes so for an untrusted tool taints the session, and is delimited in the next request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, RunContext, ToolCallPart, ToolDefinition, ToolReturn
from pydantic_ai.messages import ModelRequestPart, ToolReturnPart, UserPromptPart
from pydantic_core import from_json

from handrail.adapters.loop import claim_reply_name, list_waiting, record_answer
from handrail.runtime import ToolCall
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.serde import canonical_json, schema_masking
from handrail.serde.json_schema import is_array
from handrail.serde.json_values import escape_surrogates
from handrail.session import Session
from handrail.session.calls import CallRef, distinct_id, is_reply, is_storable_id
from handrail.session.conversation import RECORDED_REPLY, REPLY_KEY
from handrail.taint import ContentMarks, Provenance, find_marks, shown_arguments, taint

Words = str | dict[str, Any] | None
"""The arguments of a call as the model wrote them; `None` if they are not known, or it wrote none."""

_DISCARDED = "the program has begun another evaluation in place of the one that made this call, so it was not run"


class CallInHistory(NamedTuple):
    """A call as the model asked for it.

    Attributes:
        ref: the identity of the call. Its reply is `None` for a call that was made outside any run.
        words: the arguments as the model wrote them.
    """

    ref: CallRef
    words: Words = None

    def tool_call(self, name: str, arguments: str | dict[str, Any]) -> ToolCall:
        """The call for the pipeline: the arguments to run, and those that the model wrote if they differ."""
        if self.words is None or _is_same(arguments, self.words):
            return ToolCall(self.ref.call_id, name, arguments)
        return ToolCall(self.ref.call_id, name, arguments, self.words)


def find_call(ctx: RunContext[Any], session: Session, call_id: str | None = None) -> CallInHistory:
    """The call with that id in the messages of a run, by default the one that the context is of."""
    call_id = (ctx.tool_call_id if call_id is None else call_id) or ""
    # From the end, because an id may occur in earlier replies too.
    for place in range(len(ctx.messages) - 1, -1, -1):
        response = ctx.messages[place]
        if isinstance(response, ModelResponse):
            for part in response.tool_calls:
                if part.tool_call_id == call_id:
                    return CallInHistory(CallRef(_name(ctx, session, place, response), call_id), part.args)
    # A call that a tool makes through the tool manager is not in a response.
    return CallInHistory(CallRef(_storable(f"{ctx.run_id}:{ctx.run_step}") if ctx.run_id else None, call_id))


# ------------------------------------------------------------------------------------------------------------- names


def name_new_reply(
    ctx: RunContext[Any], session: Session, response: ModelResponse, used_ids: set[str]
) -> ModelResponse:
    """A copy of a new response, with its name, and with calls that can be stored, each with a unique id.

    It is a copy, because a model may return one object for several replies; a name that it already has is that of an
    earlier reply.
    None of its calls has one of `used_ids`, to which their ids are added.
    """
    parts = [_storable_call(part, used_ids) if isinstance(part, ToolCallPart) else part for part in response.parts]
    response = replace(response, parts=parts)
    metadata = dict(response.metadata or {})
    name = metadata.pop(RECORDED_REPLY, None) or _new_name(ctx, session, ctx.messages, response)
    return replace(response, metadata={**metadata, REPLY_KEY: name})


def name_answer(response: ModelResponse) -> str | None:
    """The name of an answer: that of its response, with its time, because a server may reuse the id of an answer.

    It is the same when the response is loaded from a store; `None` for a response that has no name.
    """
    name = _stamp(response)
    return None if name is None else _storable(f"{name}@{response.timestamp.isoformat()}")


def name_in_history(messages: Sequence[ModelMessage], place: int) -> str:
    """The name of the response at that index of a history; it is not written into it."""
    response = messages[place]
    assert isinstance(response, ModelResponse)  # noqa: S101 - for the type checkers
    earlier = [message for message in messages[:place] if isinstance(message, ModelResponse)]
    name = _stamp(response)
    # A stamp that an earlier response has too was copied by a model that returns one object for several replies. Theirs
    # are compared as they are: this one is valid, so an equal one is, too.
    if name and not any(other.metadata and other.metadata.get(REPLY_KEY) == name for other in earlier):
        return name
    if _is_provider_id_of_its_own(response, earlier):
        return _storable(response.provider_response_id or "")
    if response.run_id:
        ordinal = 1 + sum(1 for other in earlier if other.run_id == response.run_id)
        return _storable(f"{response.run_id}:{ordinal}")
    return _digest(response.tool_calls, len(earlier) + 1)


def _name(ctx: RunContext[Any], session: Session, place: int, response: ModelResponse) -> str:
    # Only a response of this run can be given a new name; one of the history must have the same name in each process.
    is_live = bool(ctx.run_id) and response.run_id == ctx.run_id
    if is_live and _stamp(response) is None:
        name = _new_name(ctx, session, ctx.messages[:place], response)
    else:
        name = name_in_history(ctx.messages, place)
    if _stamp(response) != name:
        response.metadata = {**(response.metadata or {}), REPLY_KEY: name}
    return name


def _new_name(ctx: RunContext[Any], session: Session, earlier: Sequence[ModelMessage], response: ModelResponse) -> str:
    responses = [message for message in earlier if isinstance(message, ModelResponse)]
    if _is_provider_id_of_its_own(response, responses):
        name, ids = _storable(response.provider_response_id or ""), [call.tool_call_id for call in response.tool_calls]
        if not ids or claim_reply_name(session, name, ids, response.timestamp):
            return name
    if ctx.run_id:
        # A history processor may have dropped responses, so they are not counted here.
        return _storable(f"{ctx.run_id}:{ctx.run_step}")
    return _digest(response.tool_calls, len(responses) + 1)


def _is_provider_id_of_its_own(response: ModelResponse, earlier: Sequence[ModelResponse]) -> bool:
    name = response.provider_response_id
    return bool(name) and all(other.provider_response_id != name for other in earlier)


def _storable_call(call: ToolCallPart, used_ids: set[str]) -> ToolCallPart:
    """A call with an unused id, which is then added to `used_ids`.

    Some models restart their ids in each reply, or give several calls of one reply the same id, which some providers
    refuse. An id that a store cannot look up, of a megabyte or with a NUL, is replaced too. Lone surrogates are escaped
    first, so that a call is the same when its response is loaded from a store.
    """
    call_id = escape_surrogates(call.tool_call_id)
    if call_id and not is_storable_id(call_id):  # providers accept letters, digits, `_` and `-`
        call_id = f"call_{_hash(call_id)[:32]}"
    # In the arguments they become JSON escapes, which the pipeline refuses as it refuses the surrogates.
    words = escape_surrogates(call.args) if isinstance(call.args, str) else call.args
    name = escape_surrogates(call.tool_name)
    return replace(call, tool_name=name, args=words, tool_call_id=distinct_id(call_id, used_ids))


def _stamp(response: ModelResponse) -> str | None:
    name: object = (response.metadata or {}).get(REPLY_KEY)
    return name if isinstance(name, str) and is_reply(name) else None


def _storable(name: str) -> str:
    return name if is_reply(name) else _hash(name)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _digest(calls: Sequence[ToolCallPart], position: int) -> str:
    # Decoded arguments, because a history that was stored and loaded may have another notation of the same JSON.
    requests = [[call.tool_name, call.tool_call_id, decode_words(call.args)] for call in calls]
    return _hash(json.dumps([position, requests], sort_keys=True, default=str))


def decode_words(words: object) -> object:
    """The arguments that a model wrote, decoded; text that is not JSON as it is."""
    if not isinstance(words, str):
        return {} if words is None else words
    try:
        return from_json(words or "{}")
    except (ValueError, TypeError):  # the latter for a lone surrogate
        return words


def _is_same(arguments: str | dict[str, Any], words: str | dict[str, Any]) -> bool:
    return arguments == words or decode_words(arguments) == decode_words(words)


# ------------------------------------------------------------------------------------------ answers from outside a run


async def record_answers(environment: Environment, messages: Sequence[ModelMessage]) -> None:
    """Records the calls that wait in the session, and have an answer in the messages of a run."""
    waiting = await list_waiting(environment)
    for ref, part, place in _find_calls(messages, waiting.keys()):
        answer = _find_answer(part, messages[place + 1 :])
        # An attempt that the pipeline has answered has a record, though perhaps no final one.
        if answer is None or (answer.outcome != "denied" and environment.session.calls.find(ref) is not None):
            continue
        call = ToolCall(ref.call_id, waiting[ref].tool, part.args or {})
        text = answer.model_response_str(wrap_if_error=False)
        await record_answer(environment, ref, call, text, success=answer.outcome == "success")


async def record_discarded(environment: Environment, messages: Sequence[ModelMessage]) -> None:
    """Records the calls that wait in the messages of a discarded evaluation as refused."""
    waiting = await list_waiting(environment)
    for ref, part, _ in _find_calls(messages, waiting.keys()):
        call = ToolCall(ref.call_id, waiting[ref].tool, part.args or {})
        await record_answer(environment, ref, call, _DISCARDED, success=False)


def _find_calls(
    messages: Sequence[ModelMessage], refs: AbstractSet[CallRef]
) -> Iterator[tuple[CallRef, ToolCallPart, int]]:
    ids = {ref.call_id for ref in refs}
    for place, message in enumerate(messages if ids else ()):
        for part in message.tool_calls if isinstance(message, ModelResponse) else ():
            if part.tool_call_id in ids:
                ref = CallRef(name_in_history(messages, place), part.tool_call_id)
                if ref in refs:
                    yield ref, part, place


def _find_answer(call: ToolCallPart, later: Sequence[ModelMessage]) -> ToolReturnPart | None:
    parts = (part for message in later if isinstance(message, ModelRequest) for part in message.parts)
    answers = (part for part in parts if isinstance(part, ToolReturnPart))
    return next((part for part in answers if part.tool_call_id == call.tool_call_id), None)


async def mark_outside_results(
    request: ModelRequest,
    ctx: RunContext[Any],
    environment: Environment,
    tools: Mapping[str, ToolDefinition],
    results: Mapping[str, object],
) -> ModelRequest:
    """A request in which results from outside are delimited; the same object if it has none. They taint the session.

    `tools` are the tools that the program does not run, and that are marked as untrusted; `results` what the program
    has given for calls of the reply, by their ids.

    Raises:
        SessionError: the taint cannot be recorded, so the request must not leave.
    """
    # The fast path: no tool has such results, and nothing has been read.
    if not tools and not results:
        return request
    parts: list[ModelRequestPart] = []
    contents: list[tuple[object, ContentMarks]] = []
    for part in request.parts:
        # What PydanticAI says itself of invalid arguments, or of a refusal, is not from outside.
        if isinstance(part, ToolReturnPart) and (
            part.outcome == "success" or (part.tool_call_id in results and part.outcome != "denied")
        ):
            call = find_call(ctx, environment.session, part.tool_call_id)
            if (marks := await _taint(environment, tools.get(part.tool_name), call)) is not None:
                answer = results.get(part.tool_call_id)
                if isinstance(answer, ToolReturn) and answer.content:
                    contents.append((cast("object", answer.content), marks))
                part = _delimit(part, marks)  # noqa: PLW2901 - the part as the model reads it
        parts.append(part)
    return replace(request, parts=[_delimit_content(part, contents) for part in parts])


async def _taint(environment: Environment, tool: ToolDefinition | None, call: CallInHistory) -> ContentMarks | None:
    index = environment.taints
    # A tool of this program has tainted the session when it put its result off.
    if tool is not None and index.find_place(call.ref) is None:
        plain = decode_words(call.words)
        text = canonical_json(schema_masking(tool.parameters_json_schema).mask(plain)).decode()
        provenance = Provenance(tool.name, *call.ref.storable, shown_arguments(text))
        await ASYNC.run(partial(taint, index, provenance, durability="surely"), is_async=False, seconds=None)
    return find_marks(index, call.ref)


def _delimit(part: ToolReturnPart[Any], marks: ContentMarks) -> ModelRequestPart:
    text = part.model_response_str()
    if marks.last in text:  # by the pipeline, of what it has run itself
        return part
    content: object = part.content
    delimited: object = [marks.first, *content, marks.last] if is_array(content) else marks.around(text)
    return cast("ModelRequestPart", replace(part, content=delimited))


def _delimit_content(part: ModelRequestPart, contents: Sequence[tuple[object, ContentMarks]]) -> ModelRequestPart:
    if not isinstance(part, UserPromptPart):
        return part
    content = part.content
    marks = next((marks for item, marks in contents if item == content), None)
    if marks is None:
        return part
    return replace(part, content=[marks.first, *([content] if isinstance(content, str) else content), marks.last])
