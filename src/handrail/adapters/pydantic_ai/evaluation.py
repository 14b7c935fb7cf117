"""One evaluation of a prompt: its model, its declared answer, its response, and its errors.

The model of a run is open during the run. The answer has a schema of Handrail, and is parsed by its codec, as strictly
as arguments.

An error that ends an evaluation is raised as `PromptEvaluationError` with its phase:

| what stopped the run | phase |
|---|---|
| the deadline, before or during a request; a request that failed | `request` |
| the provider did not answer: `ModelUnreachableError`, with host and cause | `request` |
| the deadline during a call, and any other error by which a call ends the run | `tool`, from the pipeline |
| an unusable reply: no answer, an answer of the wrong type, a content filter | `response` |
| the budget, or one of PydanticAI's usage limits | `budget` |

Errors of the developer (`pydantic_ai.UserError`, a wrong key of a provider) are not converted.

If a provider does not answer, PydanticAI and the provider clients only report `Connection error.`. Host and reason are
in
the chained exceptions: those of HTTP clients have the request, and the last one is an `OSError`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import gaierror
from ssl import SSLError
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
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
from pydantic_ai.models import Model, infer_model

from handrail.errors import ModelUnreachableError, ParseError, PromptEvaluationError, PromptValidationError
from handrail.limits import Deadline, TokenUsage
from handrail.serde import codec
from handrail.serde.annotations import subscriptable

if TYPE_CHECKING:
    from handrail.errors import BudgetExceededError

Out_co = TypeVar("Out_co", covariant=True)

RUN_ERRORS = (AgentRunError, FallbackExceptionGroup)
"""The exceptions by which PydanticAI ends a run."""

_MOST_CHAINED = 20


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

    def parse(given: Any) -> Any:  # noqa: ANN401 - what PydanticAI has decoded, and the prompt's declared type
        try:
            return answer.parse(given)
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


@asynccontextmanager
async def open_model(model: Model | str) -> AsyncGenerator[Model]:
    """A model as it is, or a new one of that name: its connections belong to one event loop, and are closed."""
    if isinstance(model, Model):
        yield model
    else:
        async with infer_model(model) as made:
            yield made


def past_deadline(deadline: Deadline, when: str) -> PromptEvaluationError:
    """The error for a deadline that passed outside a call."""
    return PromptEvaluationError(f"the deadline ({deadline.expires_at.isoformat()}) passed {when}", phase="request")


def over_budget(error: BudgetExceededError) -> PromptEvaluationError:
    """The error for an exceeded budget."""
    return PromptEvaluationError(str(error), phase="budget")


def evaluation_error(error: AgentRunError | FallbackExceptionGroup, prompt_name: str) -> PromptEvaluationError:
    """The error for a run that PydanticAI stopped."""
    if (unreached := unreachable(error, prompt_name)) is not None:
        return unreached
    phase = "request"
    if isinstance(error, UsageLimitExceeded):
        phase = "budget"
    elif isinstance(error, UnexpectedModelBehavior):
        phase = "response"
    reason = "; ".join(map(str, error.exceptions)) if isinstance(error, FallbackExceptionGroup) else error
    return PromptEvaluationError(f"the evaluation of {prompt_name} stopped: {reason}", phase=phase)


def unreachable(error: BaseException, prompt_name: str) -> ModelUnreachableError | None:
    """The error that names the unreachable provider and the reason; `None` if something else stopped the run.

    Args:
        error: what PydanticAI raised. If several models were tried, all must have been unreachable.
        prompt_name: the name of the prompt.
    """
    # A fallback model fails with a group: the provider is unreachable only if this holds for each model tried.
    errors = error.exceptions if isinstance(error, FallbackExceptionGroup) else (error,)
    found = [each for each in map(_unreached, errors) if each is not None]
    if not found or len(found) < len(errors):
        return None
    text = "; ".join(
        f"no answer from {host or 'the provider'} for the model {model}: {why}" for model, host, why in found
    )
    model, host, why = found[0]
    return ModelUnreachableError(
        f"the evaluation of {prompt_name} stopped: {text}. Look at the network, at a proxy, and at the base URL of the "
        "provider: OPENAI_BASE_URL, say",
        model=model,
        host=host,
        reason=why,
    )


def _unreached(error: BaseException) -> tuple[str, str | None, str] | None:
    """Model, host and reason; `None` if the provider has answered, or for any other error."""
    # `ModelHTTPError` has a status code, so the provider has answered.
    if not isinstance(error, ModelAPIError) or isinstance(error, ModelHTTPError):
        return None
    chain = list(_chain(error))
    failed = [each for each in chain if isinstance(each, OSError)]
    if not failed:
        return None
    return error.model_name, next(filter(None, map(_host, chain)), None), _reason(failed[-1])


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


def _reason(error: OSError) -> str:
    """Why there is no connection, without the addresses that were tried."""
    if error.errno and not isinstance(error, gaierror | SSLError):  # whose numbers are not those of the system
        return os.strerror(error.errno)
    return error.strerror or str(error) or "it took too long"
