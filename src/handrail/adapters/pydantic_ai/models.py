"""Models of an evaluation: their names, how they are opened, and the errors by which they end it.

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
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from difflib import get_close_matches
from socket import gaierror
from ssl import SSLError
from typing import Any, cast, get_args
from urllib.parse import urlsplit

from pydantic_ai import FallbackExceptionGroup, UnexpectedModelBehavior, UsageLimitExceeded, UserError
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError
from pydantic_ai.models import KnownModelName, Model, infer_model
from pydantic_ai.providers import infer_provider_class

from handrail.errors import ModelUnreachableError, PromptEvaluationError, UnknownModelError
from handrail.serde.formatting import shorten

RUN_ERRORS = (AgentRunError, FallbackExceptionGroup)
"""The exceptions by which PydanticAI ends a run."""

_MOST_CHAINED = 20
_MAX_NAME_CHARS = 100


@asynccontextmanager
async def open_model(model: Model | str) -> AsyncGenerator[Model]:
    """A model as it is, or a new one of that name: its connections belong to one event loop, and are closed."""
    if isinstance(model, Model):
        yield model
    else:
        async with infer_model(model) as own_model:
            yield own_model


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
    near = _nearest_model(name)
    label, maker, likely = (shorten(text, _MAX_NAME_CHARS) for text in (name, provider, near or ""))
    because = "" if has_provider or ":" not in name else f", because there is no provider {maker!r}"
    raise UnknownModelError(
        f"the model {label}{f' ({source})' if source else ''} cannot be used: no such model is known{because}; a name "
        f"is provider:model, such as openai:gpt-5.2{f'. Did you mean {likely}?' if likely else ''}",
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


def _nearest_model(name: str) -> str | None:
    names = (full_name.partition(":") for full_name in get_args(KnownModelName.__value__))
    models = [(maker, other) for maker, _, other in names if "/" not in maker]
    provider, _, model = name.partition(":" if ":" in name else "/")  # gateways write `openai/gpt-5.2`
    if model.strip():
        near = get_close_matches(provider[:_MAX_NAME_CHARS], sorted({maker for maker, _ in models}), n=1)
        return f"{near[0]}:{model}" if near else None
    # The most frequent provider of models that start with the same word, such as `gpt` or `claude`.
    word = None if ":" in name else re.match(r"[a-z]{3,}", name)
    makers = Counter(maker for maker, other in models if word and other.startswith(word[0]))
    return f"{max(sorted(makers), key=makers.__getitem__)}:{name}" if makers else None


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
    have been unreachable, and the first is named.
    """
    errors = error.exceptions if isinstance(error, FallbackExceptionGroup) else (error,)
    failures = [failure for failure in map(_failure, errors) if failure is not None]
    if not failures or len(failures) < len(errors):
        return None
    model, host, why = failures[0]
    return ModelUnreachableError(
        f"the evaluation of {prompt_name} stopped: no answer from {host or 'the provider'} for the model {model}: "
        f"{why}. Look at the network, at a proxy, and at the base URL of the provider: OPENAI_BASE_URL, say",
        model=model,
        host=host,
        reason=why,
    )


def _failure(error: BaseException) -> tuple[str, str | None, str] | None:
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
    try:
        request: Any = getattr(error, "request", None)  # of whatever client
        parts = urlsplit(str(request.url))
        # `netloc` may contain a user name and a password, which must not appear in a message.
        return None if parts.hostname is None else parts.netloc.rpartition("@")[2]
    except (AttributeError, RuntimeError, ValueError):  # no request, or one that was never set
        return None
