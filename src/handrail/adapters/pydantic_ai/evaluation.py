"""One evaluation of a prompt: its model, its stored conversation, its declared answer, its response, and its errors.

Only evaluations on a stored session have a stored conversation. An evaluation inside a call has none: it is rolled back
with that call, so there is nothing to resume.

| the last evaluation of the prompt in the session | the new one |
|---|---|
| does not exist | starts a conversation |
| has no reply yet, and `unfinished="resume"` | resumes it; another user prompt is asked after the one that is stored |
| is unfinished, and `unfinished="resume"` | resumes it, if it has no user prompt or the same; else it is refused |
| is unfinished, and `unfinished="discard"` | starts a conversation |
| is finished, and `finished="return"` | returns the stored response, if it has no user prompt or the same |
| is finished, otherwise | starts a conversation |

An error that ends an evaluation is raised as `PromptEvaluationError` with its phase:

| what stopped the run | phase |
|---|---|
| the deadline, before or during a request; a request that failed | `request` |
| the provider did not answer: `ModelUnreachableError`, with host and cause | `request` |
| the deadline during a call, and any other error by which a call ends the run | `tool`, from the pipeline |
| an unusable reply: no answer, an answer of the wrong type, a content filter | `response` |
| the budget, or one of PydanticAI's usage limits | `budget` |

Errors of the developer (`pydantic_ai.UserError`, a wrong key of a provider) are not converted.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from socket import gaierror
from ssl import SSLError
from typing import Any, Generic, Literal, TypeVar, cast, get_args
from urllib.parse import urlsplit

from pydantic_ai import (
    FallbackExceptionGroup,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    StructuredDict,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError
from pydantic_ai.models import KnownModelName, Model, infer_model
from pydantic_ai.providers import infer_provider_class

from handrail.adapters.pydantic_ai.conversation import StoredHistory, UserPrompt, one_at_a_time
from handrail.errors import (
    ModelUnreachableError,
    ParseError,
    PromptEvaluationError,
    PromptValidationError,
    UnknownModelError,
)
from handrail.limits import TokenUsage
from handrail.runtime.execution import ASYNC
from handrail.serde import codec
from handrail.serde.annotations import subscriptable
from handrail.serde.formatting import shorten
from handrail.session import Session
from handrail.transaction import current

Out_co = TypeVar("Out_co", covariant=True)

Unfinished = Literal["resume", "discard"]
"""How an unfinished conversation of the prompt is treated: it is resumed, or replaced by a new one."""

WhenFinished = Literal["repeat", "return"]
"""How a finished conversation of the prompt is treated: a new one is started, or its response is returned."""

RUN_ERRORS = (AgentRunError, FallbackExceptionGroup)
"""The exceptions by which PydanticAI ends a run."""

_MOST_CHAINED = 20
_MAX_NAME_CHARS = 100

# ------------------------------------------------------------------------------------------------------------- models


@asynccontextmanager
async def open_model(model: Model | str) -> AsyncGenerator[Model]:
    """A model as it is, or a new one of that name: its connections belong to one event loop, and are closed."""
    if isinstance(model, Model):
        yield model
    else:
        async with infer_model(model) as opened:
            yield opened


def check_model_name(name: str, *, source: str = "") -> None:
    """Checks whether PydanticAI supports the model name `provider:model`, without a request, package or key.

    The list of providers is fixed, that of their models is not: new ones appear every week.

    Args:
        name: the name.
        source: where it was given, for the message: `--model`, or `the agent file`.

    Raises:
        UnknownModelError: the provider before the colon is unknown, or one of the two parts is missing.
    """
    provider, _, model = name.partition(":")
    has_provider = _is_provider(provider)
    if name == "test" or (has_provider and model.strip()):
        return
    because = "" if has_provider or ":" not in name else f", because there is no provider {_quote(provider)!r}"
    near = _nearest_model(name, provider, model)
    hint = "" if near is None else f". Did you mean {_quote(near)}?"
    place = f" ({source})" if source else ""
    raise UnknownModelError(
        f"the model {_quote(name)}{place} cannot be used: no such model is known{because}; a name is provider:model, "
        f"such as openai:gpt-5.2{hint}",
        name=name,
        nearest=near,
    )


def _is_provider(name: str) -> bool:
    try:
        infer_provider_class(name)
    except ImportError:
        return True  # its package is missing, which is reported elsewhere
    except (ValueError, UserError):
        return False
    return True


def _nearest_model(name: str, provider: str, model: str) -> str | None:
    """The name that was probably meant; `None` if none is similar."""
    models = [known_model.partition(":") for known_model in get_args(KnownModelName.__value__)]
    providers = Counter(maker for maker, _, _ in models if _is_provider(maker))
    if model.strip():
        near = get_close_matches(provider[:_MAX_NAME_CHARS], sorted(providers), n=1)
        return f"{near[0]}:{model}" if near else None
    # Gateways write `openai/gpt-5.2`; the slash is the only fault of such a name.
    before, _, after = name.partition("/")
    if after.strip() and _is_provider(before):
        return f"{before}:{after}"
    # The most frequent provider of models that start with the same word, such as `gpt` or `claude`.
    word = None if ":" in name else re.match(r"[a-z]{3,}", name)
    makers = Counter(maker for maker, _, other in models if word and other.startswith(word[0]) and maker in providers)
    return f"{max(sorted(makers), key=makers.__getitem__)}:{name}" if makers else None


def _quote(name: str) -> str:
    return shorten(name, _MAX_NAME_CHARS)


# ---------------------------------------------------------------------------------------------- the stored conversation


@dataclass(frozen=True, slots=True)
class EarlierEvaluation:
    """How an evaluation treats the last one of its prompt in the session, if that is unfinished or finished."""

    unfinished: Unfinished = "resume"
    finished: WhenFinished = "repeat"

    def __post_init__(self) -> None:
        for name, words in (("unfinished", get_args(Unfinished)), ("finished", get_args(WhenFinished))):
            if (value := getattr(self, name)) not in words:
                raise ValueError(f"{name} is {value!r}; it is one of {', '.join(map(repr, words))}")


@asynccontextmanager
async def stored_conversation(
    session: Session, name: str, user_prompt: UserPrompt | None, earlier: EarlierEvaluation
) -> AsyncGenerator[StoredHistory | None]:
    """The conversation of an evaluation, for the block; `None` if it is not stored.

    A resumed or finished conversation has a history.

    Args:
        session: the session of the evaluation.
        name: the name of the prompt.
        user_prompt: the new user message.
        earlier: how the last conversation of the prompt is treated.

    Raises:
        PromptEvaluationError: the last conversation of the prompt has a reply and is unfinished, and there is another
            user message; or the prompt is being evaluated on this session.
        AgentError: the stored messages cannot be read.
        StoreError: the store cannot be read.
    """
    if session.store is None or current() is not None:
        yield None
        return
    with one_at_a_time(session, name, of="prompt"):
        # Loaded under the exclusion, or a run that has just ended could add messages after the load.
        load = partial(StoredHistory, session, name, of="prompt", is_held=True)
        conversation = await ASYNC.write_to(session.store, load)
        is_same = conversation.is_asked(user_prompt)
        if earlier.unfinished == "resume" and not (is_same or conversation.takes_input):
            raise PromptEvaluationError(
                f"the last evaluation of {name} in session {session.session_id!r} is unfinished. Resume it with the "
                "same user_prompt or without one: calls that have a final record are answered from it. Or start a new "
                "one with unfinished='discard'",
                phase="request",
            )
        is_repeated = is_same and earlier.finished == "return"
        if not (earlier.unfinished == "resume" if conversation.unfinished else is_repeated):
            conversation.begin_anew()
        yield conversation


# ------------------------------------------------------------------------------------------------------------- answers


@subscriptable
@dataclass(frozen=True, slots=True, kw_only=True)
class PromptResponse(Generic[Out_co]):
    """The model's answer to a prompt.

    Attributes:
        prompt_name: the name of the prompt.
        text: the text of the model's last reply; may be empty if the answer is structured.
        output: the answer as the prompt declares it: a dataclass, the text again for `str`, or `None`.
        usage: the tokens of all requests of the run.
        messages: the whole conversation, as PydanticAI messages; pass it as `message_history` to continue.
    """

    prompt_name: str
    text: str
    output: Out_co | None
    usage: TokenUsage
    messages: tuple[ModelMessage, ...] = field(repr=False)


def output_type(kind: type[Any] | None) -> type[str | dict[str, Any]]:
    """The output type for PydanticAI: text, or an object with the schema of a dataclass.

    Raises:
        PromptValidationError: the dataclass refers to itself, for which PydanticAI has no schema.
    """
    if kind is None or kind is str:
        return str
    try:
        return StructuredDict(codec(kind).schema, name=kind.__name__)
    except UserError as error:
        raise PromptValidationError(
            f"the answer {kind.__name__} refers to itself, which PydanticAI cannot ask for; nest it to a fixed depth.",
            dataclass=kind,
        ) from error


def output_parser(kind: type[Any]) -> Callable[[Any], Any]:
    """The parser of an answer into a dataclass; the faults of an answer that does not match go to the model."""
    answer = codec(kind)

    def parse(data: Any) -> Any:  # noqa: ANN401 - what PydanticAI has decoded, and the prompt's declared type
        try:
            return answer.parse(data)
        except ParseError as error:
            raise ModelRetry(str(error)) from error

    return parse


def stored_output(reply: ModelResponse, kind: type[Any] | None, tools: AbstractSet[str]) -> Any:  # noqa: ANN401 - the declared type
    """The answer in the last reply of a finished conversation.

    Args:
        reply: the reply.
        kind: the declared type; `None` if the prompt declares none.
        tools: the names of the prompt's tools; a call of another name is the answer.

    Raises:
        ParseError: it does not fit the type.
    """
    if kind is None or kind is str:
        return None if kind is None else reply.text or ""
    answers = (call.args for call in reply.tool_calls if call.tool_name not in tools)
    return codec(kind).parse(next(answers, reply.text) or "")


# -------------------------------------------------------------------------------------------------------------- errors


def evaluation_error(error: AgentRunError | FallbackExceptionGroup, prompt_name: str) -> PromptEvaluationError:
    """The error for a run that PydanticAI stopped."""
    if (unreachable := unreachable_error(error, prompt_name)) is not None:
        return unreachable
    phase = "request"
    if isinstance(error, UsageLimitExceeded):
        phase = "budget"
    elif isinstance(error, UnexpectedModelBehavior):
        phase = "response"
    reason = "; ".join(map(str, error.exceptions)) if isinstance(error, FallbackExceptionGroup) else error
    return PromptEvaluationError(f"the evaluation of {prompt_name} stopped: {reason}", phase=phase)


def unreachable_error(error: BaseException, prompt_name: str) -> ModelUnreachableError | None:
    """The error that names the unreachable provider and the reason; `None` if something else stopped the run.

    PydanticAI and the provider clients only report `Connection error.`. Host and reason are in the chained exceptions:
    those of HTTP clients have the request, and the last one is an `OSError`. If several models were tried, all must
    have been unreachable.
    """
    errors = error.exceptions if isinstance(error, FallbackExceptionGroup) else (error,)
    failures = [failure for failure in map(_failure, errors) if failure is not None]
    if not failures or len(failures) < len(errors):
        return None
    text = "; ".join(
        f"no answer from {host or 'the provider'} for the model {model}: {why}" for model, host, why in failures
    )
    model, host, why = failures[0]
    return ModelUnreachableError(
        f"the evaluation of {prompt_name} stopped: {text}. Look at the network, at a proxy, and at the base URL of the "
        "provider: OPENAI_BASE_URL, say",
        model=model,
        host=host,
        reason=why,
    )


def _failure(error: BaseException) -> tuple[str, str | None, str] | None:
    """Model, host and reason; `None` if the provider has answered, or for any other error."""
    # `ModelHTTPError` has a status code, so the provider has answered.
    if not isinstance(error, ModelAPIError) or isinstance(error, ModelHTTPError):
        return None
    chain = list(_chain(error))
    causes = [cause for cause in chain if isinstance(cause, OSError)]
    if not causes:
        return None
    cause = causes[-1]
    if cause.errno and not isinstance(cause, gaierror | SSLError):  # whose numbers are not those of the system
        why = os.strerror(cause.errno)  # without the addresses that were tried
    else:
        why = cause.strerror or str(cause) or "it took too long"
    return error.model_name, next(filter(None, map(_host, chain)), None), why


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and its chain; of a group the first one."""
    following: BaseException | None = error
    for _ in range(_MOST_CHAINED):
        if following is None:
            return
        yield following
        if isinstance(following, BaseExceptionGroup):
            following = cast("BaseExceptionGroup[BaseException]", following).exceptions[0]  # it may contain anything
        else:
            following = following.__cause__ or following.__context__


def _host(error: BaseException) -> str | None:
    """The host of the request that an exception of an HTTP client has; `None` if it has none."""
    try:
        request: Any = getattr(error, "request", None)  # of whatever client
        parts = urlsplit(str(request.url))
        # `netloc` may contain a user name and a password, which must not appear in a message.
        return None if parts.hostname is None else parts.netloc.rpartition("@")[2]
    except (AttributeError, RuntimeError, ValueError):  # no request, or one that was never set
        return None
