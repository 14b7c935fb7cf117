"""A provider that did not answer: which host was asked, and why there was no answer.

PydanticAI and the clients of providers say `Connection error.`. Host and reason stand in the exceptions that theirs are
chained to: those of HTTP clients have the request, and the last one is an `OSError`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from socket import gaierror
from ssl import SSLError
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic_ai import FallbackExceptionGroup
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

from handrail.errors import ModelUnreachableError

_MOST_CHAINED = 20


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
