"""One evaluation of a prompt: its model, the answer that is declared, what comes of it, and what ends it.

The model of a run is open for as long as the run. The answer is asked for by the schema of Handrail, and parsed by its
codec, as strictly as arguments are.

What ends an evaluation is raised as `PromptEvaluationError` with the phase in which it happened:

| what stopped the run | phase |
|---|---|
| the deadline, before or while the model was asked; a request that failed | `request` |
| the provider did not answer: `ModelUnreachableError`, with host and cause | `request` |
| the deadline while a call ran, and whatever else a call ends the run with | `tool`, from the pipeline |
| a reply that is of no use: no answer, an answer of the wrong shape, a content filter | `response` |
| the budget, or one of PydanticAI's usage limits | `budget` |

What is the developer's fault (`pydantic_ai.UserError`, a wrong key of a provider) is not raised as one of these.

Of a provider that does not answer, PydanticAI and the clients of providers say `Connection error.`. Host and reason
stand in the exceptions that theirs are chained to: those of HTTP clients have the request, and the last one is an
`OSError`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import gaierror
from ssl import SSLError
from typing import Any, Generic, TypeVar, cast
from urllib.parse import urlsplit

from pydantic_ai import (
    FallbackExceptionGroup,
    ModelMessage,
    ModelRetry,
    StructuredDict,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError
from pydantic_ai.models import Model, infer_model

from handrail.errors import (
    BudgetExceededError,
    ModelUnreachableError,
    ParseError,
    PromptEvaluationError,
    PromptValidationError,
)
from handrail.limits import Deadline, TokenUsage
from handrail.serde import codec

Out_co = TypeVar("Out_co", covariant=True)

RUN_ERRORS = (AgentRunError, FallbackExceptionGroup)
"""What PydanticAI raises when a run cannot go on."""

_MOST_CHAINED = 20


def output_type(kind: type[Any] | None) -> type[str | dict[str, Any]]:
    """What PydanticAI is to ask the model for: text, or an object with the schema of a dataclass.

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
    """What makes a dataclass of an answer; one that does not fit goes back to the model with all its faults."""
    answer = codec(kind)

    def parse(given: Any) -> Any:  # noqa: ANN401 - what PydanticAI has decoded, and whatever the prompt declares
        try:
            return answer.parse(given)
        except ParseError as error:
            raise ModelRetry(str(error)) from error

    return parse


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptResponse(Generic[Out_co]):
    """The model's answer to a prompt.

    Attributes:
        prompt_name: the name of the prompt.
        text: what the model said in its last reply; may be empty beside a structured answer.
        output: the answer as the prompt declares it: a dataclass, the text again for `str`, or `None`.
        usage: the tokens that all requests of the run took.
        messages: the whole conversation, as PydanticAI keeps it; hand it on as `message_history` to go on with it.
    """

    prompt_name: str
    text: str
    output: Out_co | None
    usage: TokenUsage
    messages: tuple[ModelMessage, ...] = field(repr=False)


@asynccontextmanager
async def open_model(model: Model | str) -> AsyncGenerator[Model]:
    """A model as it is, or one of that name made anew: its connections belong to one event loop, and are closed."""
    if isinstance(model, Model):
        yield model
    else:
        async with infer_model(model) as made:
            yield made


def past_deadline(deadline: Deadline, when: str) -> PromptEvaluationError:
    """The deadline passed outside of any call."""
    return PromptEvaluationError(f"the deadline ({deadline.expires_at.isoformat()}) passed {when}", phase="request")


def over_budget(error: BudgetExceededError) -> PromptEvaluationError:
    """The budget is exceeded."""
    return PromptEvaluationError(str(error), phase="budget")


def evaluation_error(error: AgentRunError | FallbackExceptionGroup, prompt_name: str) -> PromptEvaluationError:
    """PydanticAI stopped the run."""
    if (unreached := unreachable(error, prompt_name)) is not None:
        return unreached
    phase = "request"
    if isinstance(error, UsageLimitExceeded):
        phase = "budget"
    elif isinstance(error, UnexpectedModelBehavior):
        phase = "response"
    return PromptEvaluationError(f"the evaluation of {prompt_name} stopped: {error}", phase=phase)


def unreachable(error: BaseException, prompt_name: str) -> ModelUnreachableError | None:
    """The error that says which provider did not answer, and why; `None` if something else stopped the run.

    Args:
        error: what PydanticAI raised. Of models that were tried one after the other, all must have been unreachable.
        prompt_name: what was evaluated.
    """
    errors = error.exceptions if isinstance(error, FallbackExceptionGroup) else (error,)
    found = [each for each in map(_unreached, errors) if each is not None]
    if not found or len(found) < len(errors):
        return None
    told = "; ".join(
        f"no answer from {host or 'the provider'} for the model {model}: {why}" for model, host, why in found
    )
    model, host, why = found[0]
    return ModelUnreachableError(
        f"the evaluation of {prompt_name} stopped: {told}. Look at the network, at a proxy, and at the base URL of the "
        "provider: OPENAI_BASE_URL, say",
        model=model,
        host=host,
        reason=why,
    )


def _unreached(error: BaseException) -> tuple[str, str | None, str] | None:
    """Model, host and reason; `None` if the provider has answered, or the error is of something else."""
    if not isinstance(error, ModelAPIError) or isinstance(error, ModelHTTPError):
        return None
    chain = list(_chain(error))
    failed = [each for each in chain if isinstance(each, OSError)]
    if not failed:
        return None
    return error.model_name, next(filter(None, map(_host, chain)), None), _reason(failed[-1])


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and those that it is chained to; of a group the first one."""
    following: BaseException | None = error
    for _ in range(_MOST_CHAINED):
        if following is None:
            return
        yield following
        if isinstance(following, BaseExceptionGroup):
            following = cast("BaseExceptionGroup[BaseException]", following).exceptions[0]  # whatever is in it
        else:
            following = following.__cause__ or following.__context__


def _host(error: BaseException) -> str | None:
    """The host of the request that an exception of an HTTP client has; `None` if it has none."""
    try:
        request: Any = getattr(error, "request", None)  # of whatever client
        parts = urlsplit(str(request.url))
        return None if parts.hostname is None else parts.netloc.rpartition("@")[2]
    except (AttributeError, RuntimeError, ValueError):  # no request, or one that was never set
        return None


def _reason(error: OSError) -> str:
    """Why there is no connection, without the addresses that were tried."""
    if error.errno and not isinstance(error, gaierror | SSLError):  # whose numbers are not those of the system
        return os.strerror(error.errno)
    return error.strerror or str(error) or "it took too long"
